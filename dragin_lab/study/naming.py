"""Names that tell settings apart: a method's own, and where several share it, what differs in their settings."""

from __future__ import annotations

import json
from collections import Counter
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
    counted: Counter[str] = Counter()
    found = []
    for name in names:
        counted[name] += 1
        found.append(f"{name} #{counted[name]}" if names.count(name) > 1 else name)
    return found


def names_of_runs(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each run's method is called: by its settings, and by model, passages and prompt where these differ."""
    traits = []
    for config in configs:
        used = config.get("retriever") or {}
        more = {
            "model": config["model"].get("model"),
            "retriever": " ".join(str(used[key]) for key in ("kind", "model", "corpus") if used.get(key)) or None,
            "exemplars": len(config["template"]["exemplars"]), "layout": config["template"].get("layout"),
            "seed": config["seed"],
        }  # fmt: skip
        if config.get("retriever") is None:  # it never searches
            more.pop("retriever")
        traits.append(dict(config["method"]) | more)
    keys = [json.dumps(one, sort_keys=True) for one in traits]
    distinct = dict(zip(keys, traits, strict=True))
    return [dict(zip(distinct, tell_apart(list(distinct.values())), strict=True))[key] for key in keys]


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
