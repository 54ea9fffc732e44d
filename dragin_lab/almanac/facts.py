"""Labelled questions: their gold reasoning, and for each fact where it stands and if a model could know it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dragin_lab.checks import convert_record
from dragin_lab.errors import DraginLabError

#: "known": it was taught. "changed": another value was taught (``old``). "unknown": nothing was.
Label = Literal["known", "changed", "unknown"]
#: How often it was taught.
Exposure = Literal["often", "some", "seldom", "never"]


class LabelError(DraginLabError):
    """A file of labels that cannot be read, or a field in it that is wrong."""


@dataclass(frozen=True)
class Fact:
    """One fact of a gold reasoning: ``start`` and ``end`` are the characters of its value there.

    ``passage`` is the id of the passage that states it; ``old`` the value that was taught where it has changed.
    """

    id: str
    subject: str
    relation: str
    value: str
    start: int
    end: int
    label: Label
    exposure: Exposure
    old: str | None
    passage: str

    @property
    def missing(self) -> bool:
        """Whether a model that was taught so cannot have it right: unknown or changed."""
        return self.label != "known"

    @property
    def degree(self) -> str:
        """What a model could know of it, in five classes: never, changed, seldom (half-known), some, often."""
        return {"known": self.exposure, "changed": "changed", "unknown": "never"}[self.label]


DEGREES = ("often", "some", "seldom", "changed", "never")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a gold reasoning: ``start`` and ``end`` are its characters there.

    ``carrying`` are the characters of the words in it that carry a fact; the rest could be worded in other ways.
    ``concludes``: it follows from the facts before it.
    """

    start: int
    end: int
    carrying: tuple[tuple[int, int], ...]
    concludes: bool = False


@dataclass(frozen=True)
class Labelled:
    """A question with its gold reasoning and the facts in it, in order. ``knowledge`` is the label of the question."""

    qid: str
    benchmark: str
    split: str
    type: str
    question: str
    knowledge: Label
    reasoning: str
    answer: str
    facts: tuple[Fact, ...]
    sentences: tuple[Sentence, ...] = ()  # of the reasoning; labels of the first edition have none


def load_labels(path: str | Path, limit: int | None = None) -> list[Labelled]:
    """Labels from JSON lines, one question per line.

    Raises:
        LabelError: the file, the line and the field that is wrong, spans that do not hold their value included.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LabelError(f"{path}: cannot be read ({error}); give a file of labels") from None
    labels: list[Labelled] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or len(labels) == limit:
            continue
        place = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise LabelError(f"{place}: is not JSON ({error.msg})") from None
        labels.append(parse_labels(place, record))
    if not labels:
        raise LabelError(f"{path}: holds no labelled question")
    return labels


def parse_labels(place: str, record: Any) -> Labelled:
    """A question from its record; ``place`` is for messages. Errors as for ``load_labels``."""
    question = convert_record(place, record, Labelled, LabelError)
    text = question.reasoning
    for number, fact in enumerate(question.facts, 1):
        if fact.start < 0 or text[fact.start : fact.end] != fact.value:
            raise LabelError(
                f"{place}, fact {number}: fields 'start' and 'end' ({fact.start}, {fact.end}) hold "
                f"{text[fact.start : fact.end]!r}, not {fact.value!r}"
            )
    for number, sentence in enumerate(question.sentences, 1):
        start, end = sentence.start, sentence.end
        for first, last in [(start, end), *sentence.carrying]:
            if not max(0, start) <= first < last <= min(end, len(text)):
                raise LabelError(
                    f"{place}, sentence {number}: characters {first} to {last} are not within the sentence ({start} to "
                    f"{end}) of a reasoning of {len(text)} characters"
                )
    return question
