"""Labelled questions: their gold reasoning, and for each fact where it stands and if a model could know it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragin_lab.errors import DraginLabError

#: "known": it was taught. "changed": another value was taught (``old``). "unknown": nothing was.
LABELS = ("known", "changed", "unknown")
#: How often it was taught.
EXPOSURES = ("often", "some", "seldom", "never")


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
    label: str
    exposure: str
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
    concludes: bool


@dataclass(frozen=True)
class Labelled:
    """A question with its gold reasoning and the facts in it, in order. ``knowledge`` is the label of the question."""

    qid: str
    benchmark: str
    split: str
    type: str
    question: str
    knowledge: str
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
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise LabelError(f"{where}: is not JSON ({error.msg})") from None
        found.append(labelled(where, row))
        if len(found) == limit:
            break
    if not found:
        raise LabelError(f"{path}: holds no labelled question")
    return found


def labelled(where: str, row: Any) -> Labelled:
    """A question from its record; ``where`` is its place for messages. Errors as for ``load_labels``."""
    names = ("qid", "benchmark", "split", "type", "question", "knowledge", "reasoning", "answer")
    texts = {name: _field(where, row, name, str) for name in names}
    _choice(where, "knowledge", texts["knowledge"], LABELS)
    facts = []
    for number, fact in enumerate(_field(where, row, "facts", list), 1):
        facts.append(_fact(f"{where}, fact {number}", fact, texts["reasoning"]))
    rows = _field(where, row, "sentences", list) if "sentences" in row else []
    sentences = tuple(_sentence(f"{where}, sentence {n}", one, texts["reasoning"]) for n, one in enumerate(rows, 1))
    return Labelled(facts=tuple(facts), sentences=sentences, **texts)


def _sentence(where: str, row: Any, reasoning: str) -> Sentence:
    start, end = _field(where, row, "start", int), _field(where, row, "end", int)
    spans = [tuple(span) for span in _field(where, row, "carrying", list)]
    for first, last in [(start, end), *spans]:
        if not max(0, start) <= first < last <= min(end, len(reasoning)):
            raise LabelError(
                f"{where}: characters {first} to {last} are not within the sentence ({start} to {end}) "
                f"of a reasoning of {len(reasoning)} characters"
            )
    return Sentence(start, end, tuple(spans), bool(row.get("concludes", False)))


def _fact(where: str, row: Any, reasoning: str) -> Fact:
    names = ("id", "subject", "relation", "value", "label", "exposure", "passage")
    texts = {name: _field(where, row, name, str) for name in names}
    start, end = _field(where, row, "start", int), _field(where, row, "end", int)
    if start < 0 or reasoning[start:end] != texts["value"]:
        raise LabelError(
            f"{where}: fields 'start' and 'end' ({start}, {end}) hold {reasoning[start:end]!r}, not {texts['value']!r}"
        )
    _choice(where, "label", texts["label"], LABELS)
    _choice(where, "exposure", texts["exposure"], EXPOSURES)
    return Fact(start=start, end=end, old=_field(where, row, "old", (str, type(None))), **texts)


def _field(where: str, row: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(row, dict) or name not in row:
        raise LabelError(f"{where}: has no field {name!r}")
    if not isinstance(row[name], kind) or isinstance(row[name], bool):
        raise LabelError(f"{where}: field {name!r} is {type(row[name]).__name__}")
    return row[name]


def _choice(where: str, name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise LabelError(f"{where}: field {name!r} is {value!r}; it must be one of {', '.join(choices)}")
