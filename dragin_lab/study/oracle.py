"""Two bounds from labels: a *when* that fires where a fact is missing, and a *what* that asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

import numpy as np

from dragin_lab.almanac import wordings as almanac_wordings
from dragin_lab.almanac.facts import Labelled
from dragin_lab.core.draft import Draft
from dragin_lab.core.formulators import Formulator
from dragin_lab.core.gap import Gap
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError
from dragin_lab.study.needs import find_facts


@dataclass(frozen=True)
class Known:
    """The labels of some questions, and the wordings in which facts are found."""

    labels: Mapping[str, Labelled]  # by the question's text
    wordings: Mapping[str, Sequence[str]]

    def of(self, question: str) -> Labelled:
        """The labels of a question. Raises ``SettingError`` where there are none."""
        if question.strip() not in self.labels:
            raise SettingError(f"{question[:60]!r} has no labels; a bound can only be asked labelled questions")
        return self.labels[question.strip()]


_KNOWN: dict[str, Known] = {}


def _known(name: str) -> Known:
    if name not in _KNOWN:
        raise SettingError(f"the labels {name!r} are not here; make the bounds with study.oracle.bounds(labels)")
    return _KNOWN[name]


@dataclass(frozen=True)
class Oracle(Trigger):
    """Where the draft states a fact that the model cannot know, by the labels; make it with ``bounds``."""

    name, source, measure = "oracle", "a bound: from labels", "missing facts"
    thresholds: ClassVar = {"reference": 0.5, "paper": 0.5}
    threshold: float | None = None
    labels: str = ""  # sixteen hexadecimal digits over the labels

    def score(self, draft: Draft) -> np.ndarray:
        known, score = _known(self.labels), np.zeros(len(draft))  # (n,)
        gap = "" if draft.text.startswith(" ") or not draft.answer_so_far else " "
        before = draft.answer_so_far + gap
        found, _ = find_facts(before + draft.text, known.of(draft.question).facts, known.wordings)
        for one in found:
            start, end = one.start - len(before), one.end - len(before)
            if one.fact.missing and start >= 0:
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
        known = _known(self.labels_of)
        labelled = known.of(place.question)
        facts, reasoning = labelled.facts, labelled.reasoning
        found, _ = find_facts(place.answer, facts, known.wordings)
        rest = facts[len(found) :] or facts
        fact = next((fact for fact in rest if fact.missing), rest[0])
        start, end = reasoning.rfind(". ", 0, fact.start), reasoning.find(".", fact.end)
        return reasoning[start + 2 if start >= 0 else 0 : end + 1 or None]


def bounds(labels: Iterable[Labelled], wordings: Mapping[str, Sequence[str]] | None = None) -> tuple[Oracle, Gold]:
    """The two bounds for some labelled questions.

    ``wordings`` are the sentences that state each relation (None: Almanac's). Raises ``SettingError`` without labels.
    """
    given = {one.question.strip(): one for one in labels}
    if not given:
        raise SettingError("there are no labels; a bound needs those of the questions that it is asked")
    name = sha256(repr(sorted(given.items())).encode()).hexdigest()[:16]
    _KNOWN[name] = Known(given, wordings or almanac_wordings())
    return Oracle(labels=name), Gold(labels_of=name)
