"""The four benchmarks of the paper, read from their original files, with the paper's prompt for each.

2WikiMultihopQA (``dev.json`` with ``id_aliases.json`` beside it), HotpotQA (distractor file), StrategyQA
(``strategyqa_train.json``), IIRC (passages with questions). Almanac's own questions have the same formats.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragin_lab.errors import DraginLabError
from dragin_lab.prompts import Exemplar, PromptTemplate
from dragin_lab.trace import Passage, Question

BENCHMARKS = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc")
#: The file of each benchmark's evaluation questions, as released (reference-behaviour §6, "Data").
FILES = {
    "2wikimultihopqa": "dev.json",
    "hotpotqa": "hotpot_dev_distractor_v1.json",
    "strategyqa": "strategyqa_train.json",
    "iirc": "dev.json",
}
#: What stands before the test question (reference-behaviour §1).
INSTRUCTIONS = {
    "2wikimultihopqa": "",
    "hotpotqa": "Answer the following question by reasoning step-by-step, following the example above.\n",
    "strategyqa": "Following the examples above, answer the question by reasoning step-by-step.\n\n",
    "iirc": "",
}
ALIASES = "id_aliases.json"

Record = dict[str, Any]


class DataError(DraginLabError):
    """A question file that is missing, is not what it should be, or lacks a field."""


def load(source: str | Path, limit: int | None = None, *, split: str | None = None) -> list[Question]:
    """The questions of a benchmark, in the order of their file.

    Args:
        source: a benchmark's name (``BENCHMARKS``), looked for below ``DRAGIN_LAB_DATA`` (default ``data``);
            ``almanac/NAME`` for Almanac's; or a file, or a folder that holds the original file.
        limit: take the first so many only.
        split: Almanac's "train", "dev" or "test" (default); the real files hold one split each.

    Gold answers: 2WikiMultihopQA the answer, then the aliases of its ``answer_id``; IIRC each span, or the bare value;
    StrategyQA yes or no. IIRC questions without an answer are left out (reference-behaviour §6).

    Raises:
        DataError: the file, the record and the field that is wrong; a name, split or limit that does not exist.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit={limit}: give 1 or more, or None for all questions")
    path = find(source, split)
    records = _records(path)
    kind = _kind(path, records)
    names = _aliases(path.parent / ALIASES) if kind == "2wikimultihopqa" else {}
    questions = []
    seen: dict[str, str] = {}
    for where, record in _each(path, kind, records):
        question = _question(where, kind, record, names)
        if question is None:
            continue
        if question.id in seen:
            raise DataError(f"{where}: the id {question.id!r} was used before, at {seen[question.id]}")
        seen[question.id] = where
        questions.append(question)
        if len(questions) == limit:
            break
    if not questions:
        raise DataError(f"{path}: holds no question that can be answered")
    return questions


def paragraphs(source: str | Path, *, split: str | None = None) -> list[Passage]:
    """The paragraphs that come with a benchmark's questions, each once, in the order of their file.

    2WikiMultihopQA and HotpotQA: the contexts, sentences joined as their files have them. StrategyQA: the file
    ``…_paragraphs.json`` beside the questions. IIRC: the passages asked about (some copies give them no title). Ids are
    StrategyQA's and IIRC's own; else the question's id and the paragraph's number.

    Raises:
        DataError: as ``load``.
    """
    path = find(source, split)
    records = _records(path)
    kind = _kind(path, records)
    if kind == "strategyqa":
        found = _strategy_paragraphs(path.with_name(f"{path.stem}_paragraphs.json"))
    elif kind == "iirc":
        found = [_iirc_passage(f"{path}, record {number}", record) for number, record in enumerate(records, 1)]
    else:
        glue = " " if kind == "2wikimultihopqa" else ""
        found = [p for where, record in _each(path, kind, records) for p in _context(where, record, glue)]
    return list({(passage.title, passage.text): passage for passage in reversed(found)}.values())[::-1]


def benchmark(source: str | Path, split: str | None = None) -> str:
    """Which benchmark a source is, read off its first record."""
    path = find(source, split)
    return _kind(path, _records(path))


def template(name: str, exemplars: tuple[Exemplar, ...] = ()) -> PromptTemplate:
    """The paper's prompt for a benchmark: its instruction, its way to read answers (reference-behaviour §1, §6)."""
    if name not in BENCHMARKS:
        raise DataError(f"benchmark {name!r} does not exist; one of {', '.join(BENCHMARKS)}")
    return PromptTemplate(exemplars, INSTRUCTIONS[name], answer_rule=name)


# -- files --------------------------------------------------------------------------------------------------------


def almanac_folder() -> Path:
    """Where Almanac's question files stand: in a checkout, else in the user's cache, made there once."""
    from dragin_lab.almanac.build import almanac_folder as find_or_make

    return find_or_make()


def find(source: str | Path, split: str | None = None) -> Path:
    """The file that ``load`` reads."""
    name = str(source)
    if name.startswith("almanac/") and (kind := name.removeprefix("almanac/")) in BENCHMARKS:
        return _almanac_file(kind, split or "test")
    if name in BENCHMARKS and not Path(name).exists():
        path = Path(os.environ.get("DRAGIN_LAB_DATA", "data")) / name / FILES[name]
        if not path.is_file():
            raise DataError(f"{path}: no such file; put {name} there, set DRAGIN_LAB_DATA, or give the file itself")
    else:
        path = Path(source).expanduser()
        if path.is_dir():
            inside = [path / file for file in dict.fromkeys(FILES.values()) if (path / file).is_file()]
            if len(inside) != 1:
                raise DataError(f"{path}: holds none of {', '.join(sorted(set(FILES.values())))}; give the file itself")
            path = inside[0]
        elif not path.is_file():
            known = ", ".join((*BENCHMARKS, *(f"almanac/{n}" for n in BENCHMARKS)))
            raise DataError(f"{name!r} is neither a file, a folder nor a benchmark; the benchmarks are {known}")
    if split is not None and split not in path.name:
        raise DataError(f"{path}: this file holds one split only; leave split={split!r} out")
    return path


def _almanac_file(kind: str, split: str) -> Path:
    if split not in ("train", "dev", "test"):
        raise DataError(f"Almanac has no split {split!r}; it has train, dev, test")
    name = {"hotpotqa": f"hotpot_{split}_distractor_v1.json", "strategyqa": f"strategyqa_{split}.json"}
    path = almanac_folder() / kind / name.get(kind, f"{split}.json")
    if not path.is_file():
        raise DataError(f"{path}: no such file; make it with python -m dragin_lab.almanac")
    return path


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: is not JSON ({error.msg}); fetch the file again") from None


def _records(path: Path) -> list[Any]:
    records = _json(path)
    if not isinstance(records, list) or not records:
        raise DataError(f"{path}: holds no list of records; give a question file as its authors released it")
    return records


def _kind(path: Path, records: list[Any]) -> str:
    first = records[0] if isinstance(records[0], dict) else {}
    if "questions" in first:
        return "iirc"
    if "qid" in first:
        return "strategyqa"
    if "answer_id" in first or "evidences" in first:
        return "2wikimultihopqa"
    if "_id" in first:
        return "hotpotqa"
    fields = ", ".join(sorted(first)) or "none"
    raise DataError(f"{path}, record 1: is of none of the formats {', '.join(BENCHMARKS)} (its fields: {fields})")


def _aliases(path: Path) -> dict[str, list[str]]:
    """id -> names, from 2WikiMultihopQA's JSON lines."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); 2WikiMultihopQA's answers need it") from None
    found: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: is not JSON ({error.msg}); fetch the file again") from None
        name = _field(where, row, "Q_id", str)
        found.setdefault(name, []).extend(_texts(where, row, "aliases"))
    return found


# -- records ------------------------------------------------------------------------------------------------------


def _field(where: str, record: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(record, dict) or name not in record:
        raise DataError(f"{where}: has no field {name!r}")
    value = record[name]
    if not isinstance(value, kind):
        wanted = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise DataError(f"{where}: field {name!r} is {type(value).__name__}, not {wanted}")
    if isinstance(value, str) and not value.strip():
        raise DataError(f"{where}: field {name!r} is empty")
    return value


def _texts(where: str, record: Any, name: str) -> list[str]:
    values = _field(where, record, name, list)
    if not all(isinstance(value, str) for value in values):
        raise DataError(f"{where}: field {name!r} holds something that is no text")
    return values


def _each(path: Path, kind: str, records: list[Any]) -> Iterator[tuple[str, Any]]:
    """Every question record with its place for messages."""
    for number, record in enumerate(records, 1):
        where = f"{path}, record {number}"
        if kind != "iirc":
            yield where, record
            continue
        for count, question in enumerate(_field(where, record, "questions", list), 1):
            yield f"{where}, question {count}", question


def _question(where: str, kind: str, record: Any, names: dict[str, list[str]]) -> Question | None:
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
    return Question(qid, text, tuple(dict.fromkeys(golds)))


def _context(where: str, record: Any, glue: str) -> list[Passage]:
    qid = _field(where, record, "_id", str)
    found = []
    for number, entry in enumerate(_field(f"{where} ({qid})", record, "context", list)):
        if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(s, str) for s in entry[1])):
            raise DataError(f"{where} ({qid}): field 'context' holds something else than [title, [sentences]]")
        found.append(Passage(f"{qid}-{number}", str(entry[0]), glue.join(entry[1]).strip()))
    return found


def _strategy_paragraphs(path: Path) -> list[Passage]:
    records = _json(path)
    if not isinstance(records, dict):
        raise DataError(f"{path}: holds no mapping of paragraph ids")
    found = []
    for name, record in records.items():
        where = f"{path}, {name!r}"
        found.append(Passage(name, _field(where, record, "title", str), _field(where, record, "content", str)))
    return found


def _iirc_passage(where: str, record: Any) -> Passage:
    title = _field(where, record, "title", str) if "title" in record else ""
    return Passage(_field(where, record, "pid", str), title, _field(where, record, "text", str))


def _iirc_golds(where: str, answer: Record) -> list[str]:
    kind = _field(where, answer, "type", str)
    if kind == "none":
        return []
    if kind == "span":
        spans = _field(where, answer, "answer_spans", list)
        if not spans:
            raise DataError(f"{where}: field 'answer_spans' is empty")
        return [_field(where, span, "text", str) for span in spans]
    if kind in ("value", "binary"):
        return [str(_field(where, answer, "answer_value", (str, int, float)))]
    raise DataError(f"{where}: field 'type' is {kind!r}; it must be span, value, binary or none")
