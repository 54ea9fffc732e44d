"""Labelled texts as their makers write them: rows of your own spans, LongFact++, RAGTruth and
PsiloQA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dragin_lab.checks import shown
from dragin_lab.core.answers import WIDE_MARKS
from dragin_lab.data import tabular
from dragin_lab.data.tabular import Placed
from dragin_lab.errors import DataError
from dragin_lab.files import as_path
from dragin_lab.trace.draft import WORD

#: What a label may be called, in small letters: by LongFact++ (arXiv 2509.03531) also in short, and
#: by 0 and 1; None says nothing.
LABELS = {
    **dict.fromkeys(("n/a", "none", "")),
    **dict.fromkeys(("supported", "s", "0", "false"), False),
    **dict.fromkeys(("not supported", "ns", "insufficient information", "1", "true"), True),
}
_REMEDY = "give 'supported' or 'not supported'"
_FORMS = (
    "prompt, text, start, end, label; or those of LongFact++ (conversation, annotations), RAGTruth"
    " (response, labels, with prompt or source_info.jsonl beside it) or PsiloQA (question,"
    " llm_answer, labels)"
)
COLUMNS = ["prompt", "text", "start", "end", "label", "chat"]


class Span(NamedTuple):
    """Half-open characters of a text, and whether they are not supported: what the model could
    not know.
    """

    start: int
    end: int
    missing: bool


class Text(NamedTuple):
    """A text that was written after a prompt. ``chat``: the prompt is a user's turn of a chat."""

    prompt: str
    text: str
    chat: bool = False


def read_texts_of_rows(source: Any) -> Iterator[tuple[Text, list[Span], list[str]]]:
    """The texts of rows with their spans, and the labels that are nowhere in their text. Errors
    as ``Spans.load``.
    """
    prompts = _read_prompts(source)
    for placed in tabular.read_rows(source):
        record = placed.record
        if "annotations" in record and "conversation" in record:
            yield _read_longfact(placed)
        elif "response" in record or "llm_answer" in record:
            yield *_read_unsupported(placed, prompts), []
        else:
            yield *_read_own(placed), []


def _read_own(placed: Placed) -> tuple[Text, list[Span]]:
    record, place = placed.record, placed.place
    for name in COLUMNS[:-1]:
        if name not in record:
            raise DataError(f"{place}: has no {name}; a row has {_FORMS}")
    body = tabular.text_of(placed, "text", record["text"])
    spans = read_span(
        body, record["start"], record["end"], record["label"], DataError, f"{place}: "
    )
    prompt, chat = (
        tabular.text_of(placed, "prompt", record["prompt"]),
        str(record.get("chat", "")).lower() == "true",
    )
    return Text(prompt, body, chat), spans


def _read_longfact(placed: Placed) -> tuple[Text, list[Span], list[str]]:
    """A chat's last two turns, the spans that are labelled there, and the labels whose text does
    not stand there.
    """
    turns = list(placed.record["conversation"])
    body, spans, nowhere = turns[-1]["content"], [], []
    for one in placed.record["annotations"]:
        if one is None or not one.get("span"):
            continue
        missing = _read_label(one.get("label"), DataError, f"{placed.place}: ")
        place = _find_place(body, one.get("index"), None, one["span"])
        if place is None:
            nowhere.append(f"{placed.place}: {shown(one['span'])} stands not once in its text")
        elif missing is not None:
            spans.append(Span(*place, missing))
    return Text(turns[-2]["content"], body, chat=True), spans, nowhere


def _find_place(body: str, start: Any, end: Any, said: Any) -> tuple[int, int] | None:
    """The characters of a label: where it says, if what it names stands there, else where that
    stands once.
    """
    named = said if isinstance(said, str) and said.strip() else ""
    try:
        a = int(start)
        b = int(end) if end is not None else a + len(named)
    except (TypeError, ValueError, OverflowError):
        a, b = 0, 0
    if 0 <= a < b <= len(body) and body[a:b].strip() in (
        (named.strip(),) if named else (body[a:b].strip(),)
    ):
        return a, b
    places = (
        [match.start() for match in re.finditer(f"(?={re.escape(named)})", body)] if named else []
    )
    return (places[0], places[0] + len(named)) if len(places) == 1 else None


def _read_unsupported(placed: Placed, prompts: Mapping[str, str]) -> tuple[Text, list[Span]]:
    """A text in which what is not supported is labelled: each of its words is a span."""
    record, place = placed.record, placed.place
    body = tabular.text_of(placed, "text", record.get("response", record.get("llm_answer")))
    prompt = record.get("prompt", record.get("question", prompts.get(str(record.get("source_id")))))
    if not isinstance(prompt, str):
        raise DataError(
            f"{place}: has no prompt, and none is beside it in source_info.jsonl for its source_id"
        )
    labels = record.get("labels")
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise DataError(f"{place}: labels {shown(labels)}: give a list of spans")
    pairs = []
    for one in labels:
        start, end, said = (
            map(one.get, ("start", "end", "text")) if isinstance(one, Mapping) else (*one, None)[:3]
        )
        if (found := _find_place(body, start, end, said)) is None:
            what = (
                f"{shown(said)} stands neither there nor once in the text"
                if said
                else "the text has no such place"
            )
            raise DataError(
                f"{place}: label start={shown(start)}, end={shown(end)}: {what}; correct it"
            )
        pairs.append(found)
    plain = WIDE_MARKS.sub(lambda mark: " " * len(mark[0]), body)
    words = (match.span() for match in WORD.finditer(plain))
    spans = [Span(a, b, any(a < end and start < b for start, end in pairs)) for a, b in words]
    return Text(prompt, body, chat=True), spans


def _read_prompts(source: Any) -> dict[str, str]:
    """RAGTruth's prompts by source, from the file beside its responses."""
    beside = (
        as_path(source, DataError).parent / "source_info.jsonl"
        if isinstance(source, str | Path)
        else None
    )
    if beside is None or not beside.is_file():
        return {}
    return {
        str(row.record["source_id"]): str(row.record["prompt"])
        for row in tabular.read_json_lines(beside)
    }


def _read_label(label: Any, error: type[Exception], where: str) -> bool | None:
    """Whether a label says "not supported"; None for one that says nothing."""
    called = str(label).strip().lower()
    if called not in LABELS:
        raise error(f"{where}label={shown(label)} is not a label; {_REMEDY}")
    return LABELS[called]


def read_span(
    body: str, start: Any, end: Any, label: Any, error: type[Exception], where: str = ""
) -> list[Span]:
    """A span of a text; none where its label says nothing."""
    missing = _read_label(label, error, where)
    try:
        a, b = int(start), int(end)
    except (TypeError, ValueError, OverflowError):
        a, b = 0, 0
    if not 0 <= a < b <= len(body) or not body[a:b].strip():
        raise error(
            f"{where}start={shown(start)}, end={shown(end)}: the text has characters 0 to"
            f" {len(body)}, end excluded; give some of them that are not all white space"
        )
    return [] if missing is None else [Span(a, b, missing)]
