"""A method: a trigger and a query formulator, with the few settings of its loop (DRAGIN, Table
1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from dragin_lab.checks import check_text, shown
from dragin_lab.core.fingerprint import Node, digest
from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.core.settings import Settings
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError
from dragin_lab.text import facts_html

VARIANTS = ("paper", "reference")
#: The paper's methods (Table 1), and two of the FLARE paper's (Prompts D.2, D.3): name -> (trigger,
#: formulator).
PAPERS = {
    "wo-rag": ("never", "question"),
    "sr-rag": ("once", "question"),
    "fl-rag": ("every-n", "last-n"),
    "fs-rag": ("every-sentence", "last-sentence"),
    "flare": ("probability", "confident-sentence"),
    "dragin": ("rind", "qfs"),
    "flare-instruct": ("search-call", "term"),
    "self-ask": ("follow-up", "term"),
}
#: Those, and what came after.
METHODS = PAPERS | {
    "search-r1": ("search-tag", "term"),
    "etc": ("entropy-trend", "qfs-etc"),
    "targ": ("prefix-margin", "question"),
    "entity-rag": ("entity", "current-without-hits"),
}
#: Settings of the loop, which every method has.
LOOP = ("max_new_tokens", "top_k")
#: Passages per retrieval; the FLARE paper's own loop takes two.
_TOP_K = 3
_TOP_KS = {("flare", "paper"): 2}
_LONGEST = 60  # characters of a setting in a label


def default_top_k(name: str, variant: str) -> int:
    """Passages per retrieval by default."""
    return _TOP_KS.get((name, variant), _TOP_K)


@dataclass(frozen=True)
class Method:
    """One method with every setting; make it with ``dragin_lab.method``. Immutable, comparable,
    hashable.

    ``trigger`` is a ``Trigger`` and ``formulator`` a ``Formulator``; of the reference variant,
    those of the released code (``reference.released``).
    """

    name: str
    variant: str
    trigger: Trigger
    formulator: Any
    max_new_tokens: int  # bounds a draft, and the answer
    top_k: int  # passages per retrieval
    pipeline: Pipeline = field(default_factory=load_pipeline)
    own_label: str = ""  # how its user calls it, in tables and in the names of run folders
    # ``described`` when a run began; None: at each look
    looked: Mapping[str, Node] | None = field(default=None, compare=False, repr=False)

    @property
    def described(self) -> Mapping[str, Node]:
        """What its user gave, by what it is: trigger and formulator by name, and the pipeline."""
        if self.looked is not None:
            return self.looked
        parts = {
            f"trigger {self.trigger.name}": self.trigger.described,
            f"query formulator {self.formulator.name}": self.formulator.described,
            "pipeline": self.pipeline.described,
        }
        return {label: node for label, node in parts.items() if node}

    @property
    def settings(self) -> Settings:
        """Everything a trace records about the method, as plain data."""
        trigger = self.trigger
        formulator = self.formulator
        loop = {
            "name": self.name,
            "variant": self.variant,
            "when": trigger.name,
            "what": formulator.name,
            "max_new_tokens": self.max_new_tokens,
            "top_k": self.top_k,
            "threshold": self.threshold,
            "measure": trigger.measure,
            "unit": trigger.unit,
        }
        settings = loop | trigger.settings | formulator.settings
        digests = {label.split()[-1]: digest(node) for label, node in self.described.items()}
        if digests:
            settings["defined"] = digests
        settings["pipeline"] = self.pipeline.name
        if self.own_label:
            settings["label"] = self.own_label
        return settings

    @property
    def threshold(self) -> float | None:
        """θ; None for a trigger without a threshold."""
        return self.trigger.theta

    @property
    def top_n(self) -> int | None:
        """How many words or tokens a query has; None for a formulator without such a setting."""
        return getattr(self.formulator, "top_n", None)

    @property
    def retrieves(self) -> bool:
        """Whether it ever searches."""
        return self.trigger.retrieves

    @property
    def keeps_attention(self) -> bool:
        """Whether the attention rows of its drafts are kept; the released code reads its texts
        again instead.
        """
        return self.variant == "paper" and (
            self.formulator.reads_attention or "attention" in self.trigger.needs
        )

    @property
    def reads_attention(self) -> bool:
        """Whether it needs a model with attention; other methods need only probabilities."""
        return self.formulator.reads_attention or not {"attention", "received"}.isdisjoint(
            self.trigger.needs
        )

    @property
    def changed(self) -> dict[str, Any]:
        """The arguments that make the method out of its name and variant: what is not there by
        default.
        """
        trigger = self.trigger
        formulator = self.formulator
        when, what = METHODS[self.name]
        changed: Settings = {}
        if trigger.name != when:
            changed["when"] = trigger.name
        if formulator.name != what:
            changed["what"] = formulator.name
        changed |= trigger.changed | formulator.changed
        if self.max_new_tokens != trigger.length:
            changed["max_new_tokens"] = self.max_new_tokens
        if self.top_k != default_top_k(self.name, self.variant):
            changed["top_k"] = self.top_k
        return changed

    @property
    def label(self) -> str:
        """A short name that tells methods apart and fits into a path: "dragin",
        "dragin-reference-threshold=0.8".

        Where its user gave it a label, that.
        """
        if self.own_label:
            return self.own_label
        parts = [self.name]
        if self.variant != VARIANTS[0]:
            parts.append(self.variant)
        for key, value in self.changed.items():
            parts.append(_shorten_setting(f"{key}={value}"))
        return "-".join(parts)

    def __str__(self) -> str:
        return self.label

    def _repr_html_(self) -> str:
        return facts_html(
            f"{self.name}, {self.variant} variant", {"label": self.label} | self.settings
        )


def check_label(label: str, name: str) -> str:
    """A label of the user's for the method ``name``. Raises ``SettingError`` for another one's
    name, and odd labels.
    """
    if label in METHODS and label != name:
        raise SettingError(
            f"label={label!r} is the name of another built-in method; choose another label"
        )
    if not re.fullmatch(r"\w[\w .=+-]{0,59}", check_text("label", label)) or label != label.strip():
        raise SettingError(
            f"label={shown(label)} cannot name a method; use up to 60 letters, digits, spaces and ."
            " - = +"
        )
    return label


def _shorten_setting(written: str) -> str:
    short = re.sub(r"[^\w.=,+-]+", "_", written)
    if len(short) <= _LONGEST:
        return short
    return f"{short[:20]}-{sha256(written.encode()).hexdigest()[:8]}"
