"""Questions: your own, from anything with rows (``tabular``), and those of the original files of the four benchmarks.

All functions raise ``DataError`` with the file, the record (or line) and the field that is wrong.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from dragin_lab.checks import Filled, convert_record
from dragin_lab.data import tabular
from dragin_lab.data.tabular import Placed
from dragin_lab.errors import DataError, SettingError
from dragin_lab.files import as_path
from dragin_lab.text import compose
from dragin_lab.trace.trace import Question

BENCHMARKS = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc")
#: The kind of your own questions.
PLAIN = "plain"
ALIASES = "id_aliases.json"
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
    for name in ("question", "answer"):
        if values[name] is None and (name == "question" or name in fields):
            has = tabular.list_fields(placed)
            raise DataError(f"{placed.place}: has no {name}; {has}, as in --fields {name}=COLUMN")
    text = tabular.text_of(placed, "question", values["question"])
    id = str(placed.number) if values["id"] is None else tabular.text_of(placed, "id", values["id"])
    aliases = tabular.pick_value(placed, "aliases", ("answer_aliases",), {})
    golds = () if values["answer"] is None else _read_golds(placed, values["answer"], aliases, fields.get("separator"))
    return _make_question(placed.place, id, text, golds)


def _make_question(place: str, id: str, text: str, golds: tuple[str, ...]) -> Question:
    if not text.strip():
        raise DataError(f"{place}: the question is empty")
    try:
        return Question(compose(id), text.strip(), golds)
    except SettingError as error:
        raise DataError(f"{place}: {error}") from None


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


# -- the original files of the four benchmarks: nothing is repaired or left out ----------------------------------------


def read_records(path: Path) -> tuple[str, list[tuple[str, Any]]]:
    """Which benchmark a file is, by the fields of its first record, and its records with their places."""
    try:
        records = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:  # also for other bytes than UTF-8, and for a number too long
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path}{line}: is not JSON in UTF-8 ({str(error)[:100]}); fetch the file again") from None
    if not isinstance(records, list) or not records:
        raise DataError(f"{path}: holds no list of records; give a question file as its authors released it")
    first = records[0] if isinstance(records[0], dict) else {}
    told = {"questions": "iirc", "qid": "strategyqa", "answer_id": BENCHMARKS[0], "evidences": BENCHMARKS[0]}
    kind = next((kind for field, kind in (told | {"_id": "hotpotqa"}).items() if field in first), None)
    if kind is None:
        raise DataError(
            f"{path}, record 1: is of none of the formats {', '.join(BENCHMARKS)} (its fields: "
            f"{', '.join(sorted(first)) or 'none'}); give questions of your own as .jsonl, .csv or .parquet"
        )
    return kind, [(f"{path}, record {number}", record) for number, record in enumerate(records, 1)]


class Aliases(Struct):
    Q_id: str
    aliases: list[str]
    demonyms: list[str] = []


class HotpotQA(Struct):
    id: Filled = msgspec.field(name="_id")
    question: Filled
    answer: Filled


class TwoWiki(HotpotQA):
    answer_id: str | None


class StrategyQA(Struct):
    id: Filled = msgspec.field(name="qid")
    question: Filled
    answer: bool


class AnswerSpan(Struct):
    text: Filled


class AnswerSpans(Struct, tag_field="type", tag="span"):
    answer_spans: Annotated[list[AnswerSpan], msgspec.Meta(min_length=1)]  # any of which is right


class Value(Struct, tag_field="type", tag="value"):
    answer_value: Filled | int | float  # a unit is not part of the gold (reference-behaviour §6.5)


class Binary(Value, tag="binary"): ...


class Unanswered(Struct, tag_field="type", tag="none"): ...


class IIRC(Struct):
    id: Filled = msgspec.field(name="qid")
    question: Filled
    answer: AnswerSpans | Value | Binary | Unanswered


class IIRCPassage(Struct):
    questions: list[Any]


_TYPES: dict[str, Any] = {"2wikimultihopqa": TwoWiki, "hotpotqa": HotpotQA, "strategyqa": StrategyQA, "iirc": IIRC}


def read_benchmark(path: Path) -> Iterator[tuple[str, Question]]:
    """The questions of a file that have an answer, each with its place; at least one."""
    kind, records = read_records(path)
    names: dict[str, list[str]] = {}  # and demonyms, both golds in 2WikiMultihopQA's own evaluation script
    if kind == "2wikimultihopqa":
        aliases = path.with_name(ALIASES)
        if not aliases.is_file():
            raise DataError(f"{aliases}: cannot be read (no such file); 2WikiMultihopQA's answers need it")
        for place, _, record in tabular.read_json_lines(aliases):
            line = convert_record(place, record, Aliases, DataError)
            names.setdefault(line.Q_id, []).extend(line.aliases + line.demonyms)
    if kind == "iirc":
        records = [
            (f"{place}, question {number}", question)
            for place, record in records
            for number, question in enumerate(convert_record(place, record, IIRCPassage, DataError).questions, 1)
        ]
    answered = False
    for place, record in records:
        row = convert_record(place, record, _TYPES[kind], DataError)
        if golds := dict.fromkeys(gold.strip() for gold in _list_golds(row, names) if gold.strip()):
            answered = True
            yield place, _make_question(place, row.id, row.question, tuple(golds))
    if not answered:
        raise DataError(f"{path}: holds no question that can be answered")


def _list_golds(row: Any, names: Mapping[str, Sequence[str]]) -> Sequence[str]:
    match row.answer:
        case bool(answer):
            return ["yes" if answer else "no"]
        case str(answer):
            return [answer, *(names.get(row.answer_id or "", ()) if isinstance(row, TwoWiki) else ())]
        case AnswerSpans():
            return [span.text for span in row.answer.answer_spans]
        case Value():
            return [str(row.answer.answer_value)]
    return ()
