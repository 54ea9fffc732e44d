"""Attribute errors to timing, query and reading, with two bounds that know the labels.

The method is run as it is; with an oracle's trigger, which fires where a fact is missing; with an oracle's query
formulator, which finds the gold passage; with both. What is still wrong then is attributed to reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.almanac.facts import Labelled
from dragin_lab.catalog.methods import method as make_method
from dragin_lab.core.draft import Draft, Gap
from dragin_lab.core.formulators import Formulator
from dragin_lab.core.method import Method
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.lab import Lab, as_method
from dragin_lab.run.lines import Line, summary
from dragin_lab.run.sweeps import run_together
from dragin_lab.study.budgets import with_cache
from dragin_lab.study.truth import find_facts

if TYPE_CHECKING:
    import pandas as pd

ROWS = ("own when x own what", "oracle when x own what", "own when x oracle what", "oracle when x oracle what")


# -- the bounds -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """The labels of some questions, and the wordings in which facts are found (None: Almanac's)."""

    labels: Mapping[str, Labelled]  # by the question's text
    wordings: Mapping[str, Sequence[str]] | None

    def of(self, question: str) -> Labelled:
        """The labels of a question. Raises ``SettingError`` where there are none."""
        if question.strip() not in self.labels:
            raise SettingError(f"{question[:60]!r} has no labels; a bound can only be asked labelled questions")
        return self.labels[question.strip()]


_KNOWN: dict[str, Known] = {}


def _find_known(name: str) -> Known:
    if name not in _KNOWN:
        raise SettingError(f"the labels {name!r} are not here; make the bounds with study.headroom.bounds(labels)")
    return _KNOWN[name]


@dataclass(frozen=True)
class Oracle(Trigger):
    """Where the draft states a fact that the model cannot know, by the labels; make it with ``bounds``."""

    name, source, measure = "oracle", "a bound: from labels", "missing facts"
    threshold: float = 0.5
    labels: str = ""  # sixteen hexadecimal digits over the labels

    def score(self, draft: Draft) -> np.ndarray:
        known, score = _find_known(self.labels), np.zeros(len(draft))  # (n,)
        gap = "" if draft.text.startswith(" ") or not draft.answer_so_far else " "
        before = draft.answer_so_far + gap
        facts, _ = find_facts(before + draft.text, known.of(draft.question).facts, known.wordings)
        for stated in facts:
            start, end = stated.start - len(before), stated.end - len(before)
            if stated.fact.missing and start >= 0:
                score[(draft.offsets[:, 0] < end) & (draft.offsets[:, 1] > start)] = 1.0
        return score


@dataclass(frozen=True)
class Gold(Formulator):
    """The gold sentence that states the next missing fact, by the labels; make it with ``bounds``.

    It finds the fact's passage. The passage's own text finds it too, but beside it the passages that are most like it.
    """

    name, source = "gold", "a bound: from labels"
    labels_of: str = ""  # as ``Oracle.labels``

    def text(self, place: Gap) -> str:
        known = _find_known(self.labels_of)
        labelled = known.of(place.question)
        facts, reasoning = labelled.facts, labelled.reasoning
        stated, _ = find_facts(place.answer, facts, known.wordings)
        rest = facts[len(stated) :] or facts
        fact = next((fact for fact in rest if fact.missing), rest[0])
        start, end = reasoning.rfind(". ", 0, fact.start), reasoning.find(".", fact.end)
        return reasoning[start + 2 if start >= 0 else 0 : end + 1 or None]


def bounds(labels: Iterable[Labelled], wordings: Mapping[str, Sequence[str]] | None = None) -> tuple[Oracle, Gold]:
    """The two bounds for some labelled questions.

    ``wordings`` are the sentences that state each relation (None: Almanac's). Raises ``SettingError`` without labels.
    """
    by_question = {labelled.question.strip(): labelled for labelled in labels}
    if not by_question:
        raise SettingError("there are no labels; a bound needs those of the questions that it is asked")
    name = sha256(repr(sorted(by_question.items())).encode()).hexdigest()[:16]
    _KNOWN[name] = Known(by_question, wordings)
    return Oracle(labels=name), Gold(labels_of=name)


# -- what each bound adds ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Headroom:
    """The results of a method and of its three bounds, in the order of ``ROWS``."""

    methods: tuple[Method, ...]
    predictions: tuple[list[Line], ...]

    @property
    def table(self) -> pd.DataFrame:
        """One row per bound (pandas.DataFrame): em, f1, retrievals with their 95 % intervals, and tokens."""
        import pandas as pd

        rows = zip(ROWS, self.predictions, strict=True)
        return pd.DataFrame([{"method": row} | summary(lines) for row, lines in rows])

    @property
    def parts(self) -> dict[str, float]:
        """What exact match lacks to 1, in parts: a perfect trigger, then a perfect query, the rest reading."""
        own, when, _, both = (summary(lines)["em"] for lines in self.predictions)
        return {"when": when - own, "what": both - when, "reading": 1 - both}


def headroom(
    lab: Lab,
    questions: Any,
    labels: Iterable[Labelled],
    method: Method | str = "dragin",
    *,
    limit: int | None = None,
    **options: Any,
) -> Headroom:
    """Answer the questions with a method and its three bounds; ``options`` are settings of the method.

    Raises ``SettingError`` for questions without labels, and as ``Lab.run``.
    """
    own = as_method(method, options)
    when, what = bounds(labels)
    shared: dict[str, Any] = {"variant": own.variant, "nlp": own.pipeline}
    shared |= {"max_new_tokens": own.max_new_tokens, "top_k": own.top_k}
    pairs = [(own.trigger, own.formulator), (when, own.formulator), (own.trigger, what), (when, what)]
    methods = tuple(make_method(own.name, when=one, what=other, **shared) for one, other in pairs)
    runs = [(bound, None, "") for bound in methods]
    return Headroom(methods, tuple(run_together(with_cache(lab), as_benchmark(questions, limit), runs)))
