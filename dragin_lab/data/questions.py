"""Your own questions, from anything with rows (``tabular``): a question, its answers, and maybe an id."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dragin_lab.data import tabular
from dragin_lab.data.tabular import Placed
from dragin_lab.errors import DataError
from dragin_lab.files import as_path
from dragin_lab.trace.trace import Question

FIELDS = {"id": ("id", "_id"), "question": ("question",), "answer": ("answers", "answer"), "separator": ()}


def is_own(source: object) -> bool:
    """Whether a source holds rows of questions, and is not one of the benchmarks' original files."""
    if isinstance(source, str | Path) and not str(source).startswith(tabular.HUB):
        return as_path(source, DataError).exists() and tabular.is_tabular(source)
    return tabular.is_tabular(source)


def read_questions(source: Any, fields: str | Mapping[str, str] | None = None) -> list[Question]:
    """The questions of a file, a saved data set, a DataFrame, a Hugging Face data set or an iterable of dictionaries.

    Args:
        source: what ``tabular.read_rows`` takes.
        fields: the names of the fields where they are not ``question``, ``answers`` (or ``answer``) and ``id``, and
            what separates several answers in one text: ``"question=q,answer=gold,separator=|"`` or a mapping.

    A missing id is made from the row. A question without an answer is asked but not scored, with a warning where no
    question has one. Raises ``DataError`` with the place and field that is wrong.
    """
    chosen = tabular.parse_fields(fields, FIELDS)
    rows = list(tabular.read_rows(source))
    if not rows:
        shown = source if isinstance(source, str | Path) else type(source).__name__
        raise DataError(f"{shown}: holds no question")
    questions = check_ids((placed.place, _read_question(placed, chosen)) for placed in rows)
    if not any(question.golds for question in questions):
        warnings.warn(
            f"no question has an answer, so none is scored; {tabular.list_fields(rows[-1])}, "
            "as in --fields answer=COLUMN",
            stacklevel=3,
        )
    return questions


def check_ids(placed: Iterable[tuple[str, Question]]) -> list[Question]:
    """Questions, given with their places; ``DataError`` for an id that was used before."""
    places: dict[str, str] = {}
    questions = []
    for place, question in placed:
        if (first := places.setdefault(question.id, place)) != place:
            raise DataError(f"{place}: the id {question.id!r} was used before, at {first}; give every question its own")
        questions.append(question)
    return questions


def _read_question(placed: Placed, fields: Mapping[str, str]) -> Question:
    if "answer" in placed.record and "answers" in placed.record and "answer" not in fields:
        raise DataError(
            f"{placed.place}: has both 'answer' and 'answers'; give one of them, or say which with --fields"
        )
    values = {name: tabular.pick_value(placed, name, FIELDS[name], fields) for name in ("id", "question", "answer")}
    if values["question"] is None:
        raise DataError(
            f"{placed.place}: has no question; {tabular.list_fields(placed)}, as in --fields question=COLUMN"
        )
    if values["answer"] is None and "answer" in fields:
        raise DataError(f"{placed.place}: has no answer; {tabular.list_fields(placed)}, as in --fields answer=COLUMN")
    text = tabular.text_of(placed, "question", values["question"]).strip()
    if not text:
        raise DataError(f"{placed.place}: the question is empty")
    id = str(placed.number) if values["id"] is None else tabular.text_of(placed, "id", values["id"])
    golds = () if values["answer"] is None else _read_golds(placed, values["answer"], fields.get("separator"))
    return tabular.question_at(placed.place, id, text, golds)


def _read_golds(placed: Placed, value: Any, separator: str | None) -> tuple[str, ...]:
    """The answers in a list, or in a text that a separator splits; each once."""
    if isinstance(value, str):
        values: Iterable[Any] = value.split(separator) if separator else [value]
    else:
        listed = (
            value.tolist() if hasattr(value, "tolist") else value
        )  # an array, which pandas makes of lists in parquet
        values = listed if isinstance(listed, list | tuple) else [listed]
    golds = [tabular.text_of(placed, "answer", one).strip() for one in values]
    if not any(golds):
        raise DataError(f"{placed.place}: the answer is empty; give at least one text that counts as right")
    return tuple(dict.fromkeys(gold for gold in golds if gold))
