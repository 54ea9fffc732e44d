"""The original question files of the four benchmarks, read record by record.

All functions raise ``DataError`` with the file, the record (or line) and the field that is wrong. Nothing is repaired
or left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from dragin_lab.checks import Filled, convert_record
from dragin_lab.data.tabular import question_at, read_json_lines
from dragin_lab.errors import DataError
from dragin_lab.trace.trace import Question

BENCHMARKS = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc")
#: The kind of your own questions (``questions``).
PLAIN = "plain"
ALIASES = "id_aliases.json"

Placed = tuple[str, Any]  # the place of a record for messages, and the record


# -- files ------------------------------------------------------------------------------------------------------------


def read_records(path: Path) -> list[Placed]:
    """The records of a question file: a JSON list."""
    try:
        records = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:  # also for other bytes than UTF-8, and for a number too long
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path}{line}: is not JSON in UTF-8 ({str(error)[:100]}); fetch the file again") from None
    if not isinstance(records, list) or not records:
        raise DataError(f"{path}: holds no list of records; give a question file as its authors released it")
    return [(f"{path}, record {number}", record) for number, record in enumerate(records, 1)]


def kind_of(path: Path, records: list[Placed]) -> str:
    """The benchmark of a file, by the fields of its first record."""
    first = records[0][1] if isinstance(records[0][1], dict) else {}
    if "questions" in first:
        return "iirc"
    if "qid" in first:
        return "strategyqa"
    if "answer_id" in first or "evidences" in first:
        return "2wikimultihopqa"
    if "_id" in first:
        return "hotpotqa"
    fields = ", ".join(sorted(first)) or "none"
    raise DataError(
        f"{path}, record 1: is of none of the formats {', '.join(BENCHMARKS)} (its fields: {fields}); "
        "give questions of your own as .jsonl, .csv or .parquet"
    )


class Aliases(Struct):
    """A line of 2WikiMultihopQA's aliases."""

    Q_id: str
    aliases: list[str]
    demonyms: list[str] = []


def read_aliases(path: Path) -> dict[str, list[str]]:
    """id -> names and demonyms, both golds in its own evaluation script, from 2WikiMultihopQA's JSON lines."""
    if not path.is_file():
        raise DataError(f"{path}: cannot be read (no such file); 2WikiMultihopQA's answers need it")
    names: dict[str, list[str]] = {}
    for place, _, record in read_json_lines(path):
        line = convert_record(place, record, Aliases, DataError)
        names.setdefault(line.Q_id, []).extend(line.aliases + line.demonyms)
    return names


# -- records ----------------------------------------------------------------------------------------------------------


class HotpotQA(Struct):
    """A question of HotpotQA."""

    id: Filled = msgspec.field(name="_id")
    question: Filled
    answer: Filled


class TwoWiki(HotpotQA):
    """A question of 2WikiMultihopQA."""

    answer_id: str | None


class StrategyQA(Struct):
    """A question of StrategyQA."""

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
    """A question of IIRC."""

    id: Filled = msgspec.field(name="qid")
    question: Filled
    answer: AnswerSpans | Value | Binary | Unanswered


class IIRCPassage(Struct):
    """A record of IIRC's file: a passage with its questions."""

    questions: list[Any]


_TYPES: dict[str, Any] = {"2wikimultihopqa": TwoWiki, "hotpotqa": HotpotQA, "strategyqa": StrategyQA, "iirc": IIRC}


def read_questions(
    kind: str, records: Iterable[Placed], names: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Question]]:
    """The questions that have an answer, each with its place; ``names`` are 2WikiMultihopQA's aliases."""
    for place, record in _split_passages(records) if kind == "iirc" else records:
        row = convert_record(place, record, _TYPES[kind], DataError)
        if golds := dict.fromkeys(gold.strip() for gold in _read_golds(row, names) if gold.strip()):
            yield place, question_at(place, row.id, row.question.strip(), tuple(golds))


def _read_golds(row: Any, names: Mapping[str, Sequence[str]]) -> Sequence[str]:
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


def _split_passages(records: Iterable[Placed]) -> Iterator[Placed]:
    for place, record in records:
        passage = convert_record(place, record, IIRCPassage, DataError)
        yield from ((f"{place}, question {n}", question) for n, question in enumerate(passage.questions, 1))
