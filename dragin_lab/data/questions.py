"""Questions of your own, from anything with rows (``tabular``).

All functions raise ``DataError`` with the place and the field that is wrong.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab.data import tabular
from dragin_lab.data.tabular import FieldNames, Fields, Placed
from dragin_lab.errors import DataError, SettingError
from dragin_lab.text import compose
from dragin_lab.trace.trace import Question
from dragin_lab.warning import warn

#: The kind of your own questions.
PLAIN = "plain"
#: What only gold answers are called, by FlashRAG, PopQA and ragas; and what may be a model's answer
#: beside them.
NAMED_GOLDS = ("golden_answers", "possible_answers", "ground_truth", "ground_truths")
ANSWERS = ("answer", "answers")
#: By the names of TriviaQA, KILT (``input``), ragas (``user_input``), MuSiQue and BEIR (``_id``,
#: ``text``), too.
FIELDS = {
    "id": ("id", "_id", "question_id"),
    "question": ("question", "query", "text", "user_input", "input"),
    "answer": (*NAMED_GOLDS, *ANSWERS),
    "aliases": ("answer_aliases", "aliases"),
    "separator": (),
}
BARE = {1: ("question",), 2: ("question", "answer")}  # Natural Questions open, as DPR has it
#: A column that may hold other ways to write an answer.
_ALIASES = re.compile(
    r"(?!.*question).*(alias|synonym|altern|also.?known|\baka\b|variants?$|accept|spelling"
    r"|surface.?form|(?<![a-z])(alt|other|additional|extra|valid|correct|equivalent|possible)"
    r".?(answer|name|label|gold|response|text|form))",
    re.IGNORECASE,
)
_YES = ("true", "1", "yes")
_NO = ("false", "0", "no")
_UNTOLD = ("none", "")
#: What says that a question has no answer, and how it says so: MuSiQue-Full's, SQuAD 2's.
FLAGS = {"answerable": _NO, "is_impossible": _YES}
#: The fields of golds that stand in a mapping: TriviaQA's, SQuAD's, KILT's; and TriviaQA's word for
#: a secret answer.
GOLDS_IN = (("value", "aliases", "humananswers"), ("text",), ("answer",))
UNTOLD = "<unk>"
BEIR = "queries.jsonl"  # in a folder of BEIR


def read_questions(source: Any, fields: Fields = None, limit: int | None = None) -> list[Question]:
    """The questions of a file, a saved data set, a DataFrame, a Hugging Face data set or an
    iterable of dictionaries.

    With a ``limit`` no further row is read, but for a ``.json`` file, which is one value.

    Args:
        source: what ``tabular.read_rows`` takes. fields: the names of the fields where they are not
            those of ``FIELDS``, what separates several answers in one
            text, and how a table is written: ``"question=q,answer=gold,separator=|,delimiter=;"``
            or a mapping.

    Answers may be a text, a number, a list, also one written as text, or the forms of TriviaQA,
    SQuAD and KILT; aliases are answers too. Where several columns could hold the golds, what only
    golds are called is taken (and said), else the one that holds all the others. A missing id is
    made from the row. A question without an answer, or marked as one (``FLAGS``), is asked but not
    scored, with a warning. Raises ``DataError`` with the place and field that is wrong, and where
    two columns disagree on the golds.
    """
    chosen = tabular.parse_fields(fields, FIELDS)
    if isinstance(source, str | Path) and (queries := Path(source, BEIR)).is_file():
        source = queries
    rows = list(tabular.read_rows(source, chosen, FIELDS, BARE, limit))
    if not rows:
        shown = source if isinstance(source, str | Path) else type(source).__name__
        raise DataError(f"{shown}: holds no question")
    if "answer" in chosen:
        chosen["answer"] = tabular.name_column(rows[0], chosen["answer"])
    golds = _find_golds(rows, chosen)
    _name_unread(rows, golds, chosen)
    questions = check_ids((placed.place, _read_question(placed, chosen, golds)) for placed in rows)
    marked: list[Placed] = []
    unscored: list[Placed] = []
    for row, question in zip(rows, questions, strict=True):
        if not question.golds:
            (marked if _is_marked(row) else unscored).append(row)
    if marked:
        warn(
            f"{len(marked)} of {len(rows)} are marked as unanswerable ({' or '.join(FLAGS)}),"
            f" {marked[0].place} first, so they are asked and not scored"
        )
    if len(unscored) == len(rows):
        warn(
            f"no question has an answer, so none is scored; {tabular.list_fields(rows[-1])}, as in"
            " fields='answer=COLUMN'"
        )
    elif unscored:
        warn(
            f"{len(unscored)} of {len(rows)} have no answer, {unscored[0].place} first, so they are"
            " not scored; pandas reads texts such as NA as missing, unless keep_default_na=False"
        )
    return questions


def _find_golds(rows: Sequence[Placed], fields: FieldNames) -> Sequence[str]:
    """The columns that hold the golds, judged by all rows: where one may be empty, no other
    takes its place.
    """
    if "answer" in fields:
        return (fields["answer"],)
    columns = dict.fromkeys(key for placed in rows for key in placed.record)
    named = [name for name in NAMED_GOLDS if name in columns]
    if "user_input" in columns and "reference" in columns:  # ragas since 0.2
        named.append("reference")
    # KILT; FlashRAG's output is a model's
    if any(isinstance(placed.record.get("output"), list) for placed in rows):
        named.append("output")
    others = [name for name in ANSWERS if name in columns]
    if named and others:
        warn(
            f"the golds are read from {' and '.join(named)}, not from {' and '.join(others)}, which"
            " a model may have answered; where that is wrong, say answer=COLUMN"
        )
    return named or others


def _name_unread(rows: Sequence[Placed], golds: Sequence[str], fields: FieldNames) -> None:
    """Warn of columns that look like other ways to write the golds, and are not read."""
    if "aliases" in fields:
        return
    places: dict[str, str] = {}  # of the first row that has a column
    for placed in rows:
        for name in map(str, placed.record):
            places.setdefault(name, placed.place)
    usual = [name for name in FIELDS["aliases"] if name in places]
    read = {*golds, *usual[:1], *fields.values()}
    unread = [name for name in places if _ALIASES.match(name) and name not in read]
    if unread:
        warn(
            f"{places[unread[0]]}: {' and '.join(unread)} may hold aliases of the answers, and no"
            f" column of that name is read; say which does, as in aliases={unread[0]}"
        )


def check_ids(placed: Iterable[tuple[str, Question]]) -> list[Question]:
    """Questions, given with their places; ``DataError`` for an id that was used before."""
    places: dict[str, str] = {}
    questions = []
    for place, question in placed:
        if (first := places.setdefault(question.id, place)) != place:
            raise DataError(
                f"{place}: the id {question.id!r} was used before, at {first}; give every question"
                " its own"
            )
        questions.append(question)
    return questions


def _read_question(placed: Placed, fields: FieldNames, columns: Sequence[str]) -> Question:
    id, question, aliases = (
        tabular.pick_value(placed, name, FIELDS[name], fields)
        for name in ("id", "question", "aliases")
    )
    if question is None:
        raise DataError(
            f"{placed.place}: has no question; {tabular.list_fields(placed)}, as in"
            " fields='question=COLUMN'"
        )
    text = tabular.text_of(placed, "question", question)
    separator = fields.get("separator")
    golds = dict[str, None]()
    answers = {name: tabular.pick_value(placed, "answer", (name,), {}) for name in columns}
    if "answer" in fields and answers[fields["answer"]] is None:
        raise DataError(
            f"{placed.place}: has no answer; {tabular.list_fields(placed)}, as in"
            " fields='answer=COLUMN'"
        )
    golds_in = {}
    if not _is_marked(placed):
        for name, value in answers.items():
            if value is not None:
                golds_in[name] = _read_golds(placed, value, separator)
    if golds_in:
        golds = max(golds_in.values(), key=len)
        if any(texts.keys() - golds for texts in golds_in.values()):
            raise DataError(
                f"{placed.place}: has both {' and '.join(map(repr, golds_in))}, which differ; say"
                " which has the golds with fields='answer=COLUMN'"
            )
        if golds and aliases is not None:
            golds |= _read_golds(placed, aliases, separator, least=0)
    return make_question(placed.place, tabular.id_of(placed, id), text, golds)


def _is_marked(placed: Placed) -> bool:
    """Whether a row says that its question has no answer. Raises ``DataError`` for a value that
    says neither.
    """
    for name, unanswerable in FLAGS.items():
        value = str(tabular.pick_value(placed, name, (name,), {}))
        value = value.strip().lower().removesuffix(".0")
        if value not in _YES + _NO + _UNTOLD:
            raise DataError(
                f"{placed.place}: {name} is {value[:40]!r}; give true or false, or leave it out"
            )
        if value in unanswerable:
            return True
    return False


def make_question(place: str, id: str, text: str, golds: Iterable[str]) -> Question:
    if not text.strip():
        raise DataError(f"{place}: the question is empty")
    try:
        return Question(compose(id), text.strip(), tuple(golds))
    except SettingError as error:
        raise DataError(f"{place}: {error}") from None


def _read_golds(
    placed: Placed, value: Any, separator: str | None, least: int = 1
) -> dict[str, None]:
    """The texts of an answer, each once; none for SQuAD 2's and KILT's ways to say so."""
    if isinstance(value, str):
        value = value.split(separator) if separator else _parse_text(value)
    golds = dict.fromkeys(_gold_text(placed, gold).strip() for gold in _golds_in(placed, value))
    golds.pop("", None)
    forms = value if isinstance(value, list | tuple) else [value]
    if len(golds) < least and not any(isinstance(form, Mapping) for form in forms):
        raise DataError(
            f"{placed.place}: the answer is empty; give at least one text that counts as right"
        )
    return golds


def _golds_in(placed: Placed, value: Any) -> Iterator[Any]:
    """What counts as right in a value of any of the usual forms."""
    if getattr(value, "ndim", 0):  # an array, which pandas makes of lists in parquet
        value = value.tolist()
    if isinstance(value, list | tuple):
        for item in value:
            yield from _golds_in(placed, item)
    elif isinstance(value, Mapping):
        parts = {str(key).lower(): part for key, part in value.items()}
        names = next((names for names in GOLDS_IN if names[0] in parts), ())
        if not names and not parts.keys() <= {"provenance", "meta"}:  # of KILT
            fields = ", ".join(map(str, value))[:80]
            raise DataError(
                f"{placed.place}: the answer is a mapping with the fields {fields}; give a text, a"
                " list of texts, or TriviaQA's value and aliases, SQuAD's text, KILT's answer"
            )
        for name in names:
            if parts.get(name) not in (None, UNTOLD):
                yield from _golds_in(placed, parts[name])
    else:
        yield value


def _gold_text(placed: Placed, value: Any) -> str:
    """A gold as its maker would write it: yes for True, as StrategyQA, and 3 for 3.0, which
    pandas makes of 3.
    """
    match value:
        case bool() | np.bool_():
            return "yes" if value else "no"
        case float() | np.floating() if math.isfinite(value):
            return str(int(value) if value == int(value) else value)
        case date() | np.datetime64():
            day = str(value).removesuffix(" 00:00:00")
            return day.partition("T00:00:00")[0]  # numpy writes fractions after it
        case Decimal():
            return str(value)
    return tabular.text_of(placed, "answer", value)


def _parse_text(text: str) -> Any:
    """The list of texts, or the mapping, that JSON, Python or numpy wrote; any other text as it
    is.
    """
    if text.lstrip().startswith(("[", "(", "{")):
        commas = re.sub(
            r"""(['"])\s+(?=['"])""",
            r"\1, ",
            re.sub(r"array\((\[.*?\])[^()]*\)", r"\1", text, flags=re.S),
        )
        # numpy leaves commas out
        for parse, written in ((json.loads, text), (ast.literal_eval, commas)):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                values = parse(written)
                if isinstance(values, Mapping) and any(
                    {*names} & {str(key).lower() for key in values} for names in GOLDS_IN
                ):
                    return values
                if isinstance(values, list | tuple) and (
                    not values or any(isinstance(item, str | Mapping) for item in values)
                ):
                    return values
    return text
