"""The original files of the four benchmarks: nothing is repaired or left out.

All functions raise ``DataError`` with the file, the record and the field that is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from dragin_lab.data import tabular
from dragin_lab.data.json_files import first_fields
from dragin_lab.data.questions import BEIR, make_question
from dragin_lab.data.tabular import Filled, convert_record
from dragin_lab.errors import DataError
from dragin_lab.files import as_path
from dragin_lab.trace.trace import Question

BENCHMARKS = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc")
ALIASES = "id_aliases.json"


def is_own(source: object) -> bool:
    """Whether a source holds rows of questions, and is not one of the benchmarks' original
    files.
    """
    if isinstance(source, str | Path) and not str(source).startswith(tabular.HUB):
        path = as_path(source, DataError)
        if path.is_file() and path.name.lower().endswith(tabular.JSON):
            return kind_of(first_fields(path)) is None
        return (path / BEIR).is_file() or (path.exists() and tabular.is_tabular(source))
    return tabular.is_tabular(source)


def kind_of(record: Collection[str]) -> str | None:
    """The benchmark of whose original file this is the first record, by its fields; None for
    another's.
    """
    kinds = {
        "questions": "iirc",
        "qid": "strategyqa",
        "answer_id": "2wikimultihopqa",
        "evidences": "2wikimultihopqa",
        "_id": "hotpotqa",
    }
    return next((kind for field, kind in kinds.items() if field in record), None)


def read_records(path: Path) -> tuple[str, list[tuple[str, Any]]]:
    """Which benchmark a file is, by the fields of its first record, and its records with their
    places.
    """
    try:
        records = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # also for other bytes than UTF-8, and for a number too long
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(
            f"{path}{line}: is not JSON in UTF-8 ({str(error)[:100]}); fetch the file again"
        ) from None
    if not isinstance(records, list) or not records:
        raise DataError(
            f"{path}: holds no list of records; give a question file as its authors released it"
        )
    first = records[0] if isinstance(records[0], dict) else {}
    kind = kind_of(first)
    if kind is None:
        raise DataError(
            f"{path}, record 1: is of none of the formats {', '.join(BENCHMARKS)} (its fields:"
            f" {', '.join(sorted(first)) or 'none'}); give questions of your own as .jsonl, .csv or"
            " .parquet"
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


_TYPES: dict[str, Any] = {
    "2wikimultihopqa": TwoWiki,
    "hotpotqa": HotpotQA,
    "strategyqa": StrategyQA,
    "iirc": IIRC,
}


def read_benchmark(path: Path) -> Iterator[tuple[str, Question]]:
    """The questions of a file that have an answer, each with its place; at least one."""
    kind, records = read_records(path)
    # and demonyms, both golds in 2WikiMultihopQA's own evaluation script
    names: dict[str, list[str]] = {}
    if kind == "2wikimultihopqa":
        aliases = path.with_name(ALIASES)
        if not aliases.is_file():
            raise DataError(
                f"{aliases}: cannot be read (no such file); 2WikiMultihopQA's answers need it"
            )
        for place, _, record in tabular.read_json_lines(aliases):
            line = convert_record(place, record, Aliases, DataError)
            names.setdefault(line.Q_id, []).extend(line.aliases + line.demonyms)
    if kind == "iirc":
        records = [
            (f"{place}, question {number}", question)
            for place, record in records
            for number, question in enumerate(
                convert_record(place, record, IIRCPassage, DataError).questions, 1
            )
        ]
    answered = False
    for place, record in records:
        row = convert_record(place, record, _TYPES[kind], DataError)
        if golds := dict.fromkeys(gold.strip() for gold in _list_golds(row, names) if gold.strip()):
            answered = True
            yield place, make_question(place, row.id, row.question, golds)
    if not answered:
        raise DataError(f"{path}: holds no question that can be answered")


def _list_golds(row: Any, names: Mapping[str, Sequence[str]]) -> Sequence[str]:
    match row.answer:
        case bool(answer):
            return ["yes" if answer else "no"]
        case str(answer):
            return [answer, *names.get(getattr(row, "answer_id", ""), ())]
        case AnswerSpans():
            return [span.text for span in row.answer.answer_spans]
        case Value():
            return [str(row.answer.answer_value)]
    return ()
