"""The original question files of the four benchmarks, read record by record.

All functions raise ``DataError`` with the file, the record (or line) and the field that is wrong. Nothing is repaired
or left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragin_lab.data.tabular import json_rows, question_at
from dragin_lab.errors import DataError
from dragin_lab.trace.trace import Question

BENCHMARKS = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc")
#: The kind of your own questions (``questions``).
PLAIN = "plain"
ALIASES = "id_aliases.json"

Record = dict[str, Any]
Placed = tuple[str, Any]  # the place of a record for messages, and the record


# -- files ------------------------------------------------------------------------------------------------------------


def read_records(path: Path) -> list[Placed]:
    """The records of a question file: a JSON list."""
    try:
        records = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1} is not UTF-8; fetch the file again") from None
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}, line {error.lineno}: is not JSON ({error.msg}); mend it, or fetch the file again"
        ) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists in lists in lists
        raise DataError(f"{path}: is not JSON that can be read ({str(error)[:100]})") from None
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


def read_aliases(path: Path) -> dict[str, list[str]]:
    """id -> names, from 2WikiMultihopQA's JSON lines."""
    if not path.is_file():
        raise DataError(f"{path}: cannot be read (no such file); 2WikiMultihopQA's answers need it")
    found: dict[str, list[str]] = {}
    for where, _, row in json_rows(path):
        aliases = _field(where, row, "aliases", list)
        if not all(isinstance(value, str) for value in aliases):
            raise DataError(f"{where}: field 'aliases' holds something that is not text")
        found.setdefault(_field(where, row, "Q_id", str), []).extend(aliases)
    return found


# -- records ----------------------------------------------------------------------------------------------------------


def _field(where: str, record: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(record, dict) or name not in record:
        raise DataError(f"{where}: has no field {name!r}")
    value = record[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):  # True is an int to Python
        wanted = " or ".join(k.__name__ for k in kinds)
        raise DataError(f"{where}: field {name!r} is {type(value).__name__}, not {wanted}")
    if isinstance(value, str) and not value.strip():
        raise DataError(f"{where}: field {name!r} is empty")
    return value


def each_question(kind: str, records: list[Placed]) -> Iterator[Placed]:
    """Every question record and its place."""
    for where, record in records:
        if kind != "iirc":
            yield where, record
            continue
        for count, question in enumerate(_field(where, record, "questions", list), 1):
            yield f"{where}, question {count}", question


def read_question(where: str, kind: str, record: Any, names: dict[str, list[str]]) -> Question | None:
    """A question with its gold answers; ``None`` for one without an answer (IIRC's ``none``).

    ``names`` are 2WikiMultihopQA's aliases.
    """
    qid = _field(where, record, "qid" if kind in ("strategyqa", "iirc") else "_id", str)
    where = f"{where} ({qid})"
    text = _field(where, record, "question", str).strip()
    if kind == "strategyqa":
        golds = ["yes" if _field(where, record, "answer", bool) else "no"]
    elif kind == "iirc":
        golds = _iirc_golds(where, _field(where, record, "answer", dict))
        if not golds:
            return None
    else:
        golds = [_field(where, record, "answer", str)]
        if kind == "2wikimultihopqa":
            answer_id = _field(where, record, "answer_id", (str, type(None)))
            golds += names.get(answer_id, []) if answer_id else []
    return question_at(where, qid, text, tuple(dict.fromkeys(gold.strip() for gold in golds if gold.strip())))


def _iirc_golds(where: str, answer: Record) -> list[str]:
    kind = _field(where, answer, "type", str)
    if kind == "none":
        return []
    if kind == "span":
        spans = _field(where, answer, "answer_spans", list)
        if not spans:
            raise DataError(f"{where}: field 'answer_spans' is empty")
        return [_field(where, span, "text", str) for span in spans]
    if kind in ("value", "binary"):  # the bare value: a unit is not part of the gold (reference-behaviour §6.5)
        return [str(_field(where, answer, "answer_value", (str, int, float)))]
    raise DataError(f"{where}: field 'type' is {kind!r}; it must be span, value, binary or none")
