"""Your own questions, from anything with rows (``tabular``): a question, its answers, and maybe an id."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragin_lab.data import tabular
from dragin_lab.data.tabular import Placed
from dragin_lab.errors import DataError
from dragin_lab.files import as_path
from dragin_lab.trace.trace import Question

#: By the names of FlashRAG (``golden_answers``), PopQA (``possible_answers``) and BEIR (``_id``, ``text``), too.
FIELDS = {
    "id": ("id", "_id"),
    "question": ("question", "query", "text"),
    "answer": ("answers", "answer", "golden_answers", "possible_answers"),
    "separator": (),
}
BEIR = "queries.jsonl"  # in a folder of BEIR


def is_own(source: object) -> bool:
    """Whether a source holds rows of questions, and is not one of the benchmarks' original files."""
    if isinstance(source, str | Path) and not str(source).startswith(tabular.HUB):
        path = as_path(source, DataError)
        return (path / BEIR).is_file() or (path.exists() and tabular.is_tabular(source))
    return tabular.is_tabular(source)


def read_questions(source: Any, fields: str | Mapping[str, str] | None = None) -> list[Question]:
    """The questions of a file, a saved data set, a DataFrame, a Hugging Face data set or an iterable of dictionaries.

    Args:
        source: what ``tabular.read_rows`` takes.
        fields: the names of the fields where they are not ``question``, ``answers`` (or ``answer``) and ``id``, and
            what separates several answers in one text: ``"question=q,answer=gold,separator=|"`` or a mapping.

    Answers may be a list, also one written as text, and MuSiQue's ``answer_aliases`` are answers too. A missing id is
    made from the row. A question without an answer is asked but not scored, with a warning. Raises ``DataError`` with
    the place and field that is wrong.
    """
    chosen = tabular.parse_fields(fields, FIELDS)
    if isinstance(source, str | Path) and (queries := Path(source, BEIR)).is_file():
        source = queries
    rows = list(tabular.read_rows(source))
    if not rows:
        shown = source if isinstance(source, str | Path) else type(source).__name__
        raise DataError(f"{shown}: holds no question")
    questions = check_ids((placed.place, _read_question(placed, chosen)) for placed in rows)
    unscored = [row.place for row, question in zip(rows, questions, strict=True) if not question.golds]
    if len(unscored) == len(rows):
        remedy = f"so none is scored; {tabular.list_fields(rows[-1])}, as in --fields answer=COLUMN"
        warnings.warn(f"no question has an answer, {remedy}", stacklevel=3)
    elif unscored:
        why = "so they are not scored; pandas reads texts such as NA as missing, unless keep_default_na=False"
        warnings.warn(f"{len(unscored)} of {len(rows)} have no answer, {unscored[0]} first, {why}", stacklevel=3)
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
    aliases = tabular.pick_value(placed, "aliases", ("answer_aliases",), {})
    golds = () if values["answer"] is None else _read_golds(placed, values["answer"], aliases, fields.get("separator"))
    return tabular.question_at(placed.place, id, text, golds)


def _read_golds(placed: Placed, answer: Any, aliases: Any, separator: str | None) -> tuple[str, ...]:
    """The answers and their aliases; each once."""
    values = [one for of in (answer, aliases) if of is not None for one in _list_answers(of, separator)]
    plain = [("no", "yes")[one] if isinstance(one, bool) else one for one in values]  # as StrategyQA has them
    golds = [tabular.text_of(placed, "answer", one).strip() for one in plain]
    if not any(golds):
        raise DataError(f"{placed.place}: the answer is empty; give at least one text that counts as right")
    return tuple(dict.fromkeys(gold for gold in golds if gold))


def _list_answers(value: Any, separator: str | None) -> Sequence[Any]:
    """The answers in a list, also one written as text (PopQA), or in a text that a separator splits."""
    if isinstance(value, str):
        value = value.split(separator) if separator else _parse_list(value)
    elif hasattr(value, "tolist"):  # an array, which pandas makes of lists in parquet
        value = value.tolist()
    return value if isinstance(value, list | tuple) else [value]


def _parse_list(text: str) -> Any:
    """The list of texts that JSON, Python or numpy wrote; any other text as it is."""
    if text.lstrip().startswith(("[", "(")):
        commas = re.sub(r"""(['"])\s+(?=['"])""", r"\1, ", text)  # which numpy leaves out
        for parse, written in ((json.loads, text), (ast.literal_eval, commas)):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                values = parse(written)
                if isinstance(values, list | tuple) and (not values or any(isinstance(one, str) for one in values)):
                    return values
    return text
