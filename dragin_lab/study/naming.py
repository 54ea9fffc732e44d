"""Names that tell settings apart: a method's own, and where several share it, what differs in their settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_KEYS = (
    "variant", "when", "what", "threshold", "top_n", "n", "normalize", "top_k", "max_new_tokens", "model", "retriever",
    "exemplars", "layout", "seed",
)  # fmt: skip
_SHORT = {"threshold": "θ", "top_n": "top n", "top_k": "top k", "max_new_tokens": "at most"}
_ALONE = ("variant", "when", "what", "model", "retriever", "layout")  # their value says what it is of


def tell_apart(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each of some settings: ``dragin``, or ``dragin, θ 1.2`` where others are called ``dragin`` too.

    Those that nothing tells apart are numbered: ``dragin #2``.
    """
    names = [str(one.get("name", "unnamed")) for one in settings]
    for key in _KEYS:
        for name in {name for name in names if names.count(name) > 1}:
            peers = [at for at, other in enumerate(names) if other == name]
            values = {at: _shown(settings[at].get(key)) for at in peers}
            for at in peers if len(set(values.values())) > 1 else ():
                names[at] += f", {values[at]}" if key in _ALONE else f", {_SHORT.get(key, key)} {values[at]}"
    numbered = ((name, names[: at + 1].count(name)) for at, name in enumerate(names))
    return [f"{name} #{number}" if names.count(name) > 1 else name for name, number in numbered]


def names_of_runs(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each run's method is called: by its settings, and by model, passages and prompt where these differ."""
    traits = []
    for config in configs:
        template = config["template"]
        more = {"model": config["model"].get("model"), "exemplars": len(template["exemplars"])}
        more |= {"layout": template.get("layout"), "seed": config["seed"]}
        if (used := config.get("retriever")) is not None:  # None: it never searches
            parts = [str(used[key]) for key in ("kind", "model", "corpus") if used.get(key)]
            more["retriever"] = " ".join(parts) or None
        traits.append(dict(config["method"]) | more)
    keys = [json.dumps(one, sort_keys=True) for one in traits]
    distinct = dict(zip(keys, traits, strict=True))
    names = dict(zip(distinct, tell_apart(list(distinct.values())), strict=True))
    return [names[key] for key in keys]


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
