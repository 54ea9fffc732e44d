"""What is recorded of an episode that has ended: a line of predictions, a line of timings, and their means.

A line is JSON in ASCII. Its last entry, ``sum``, is the CRC-32 of the line without it, so that a changed byte is found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from zlib import crc32

import msgspec
from msgspec import Meta

from dragin_lab.core.budget import peaks

if TYPE_CHECKING:
    from dragin_lab.trace.trace import Trace

Line = dict[str, Any]

SCORES = ("em", "f1", "precision", "recall")  # from 0 to 1
PEAK = "peak"  # the entry of a timings line with the highest score; lines written before it have none


class Finished(NamedTuple):
    """What is recorded of an episode: the lines of a run directory, and its trace where that is wanted."""

    line: Line
    timing: Line
    trace: Trace | None


def record_of(trace: Trace, traces: bool | None = False) -> Finished:
    """What is recorded of a trace: its lines, and itself unless ``traces`` is False."""
    return Finished(prediction(trace), timing(trace), None if traces is False else trace)


def prediction(trace: Trace) -> Line:
    """The line of ``predictions.jsonl``: what was answered and what it took, and nothing that changes from run to run.

    ``passages`` holds the ids found by each retrieval, ``tokens`` counts all that were generated. The scores are None
    without a gold answer and where the episode failed; ``error`` is there only then, ``metrics`` only where the prompt
    has any of your own, and ``window`` only where the model's window cost something (``Trace.lost``).
    """
    count = trace.counters
    line: Line = {
        "qid": trace.question.id,
        "question": trace.question.text,
        "text": trace.text,
        "answer": trace.answer,
        "readable": trace.readable,
        "gold": list(trace.question.golds),
        **{name: trace.scores.get(name) for name in SCORES},
        "retrievals": count["retrievals"],
        "queries": trace.queries,
        "passages": [[p.id for p in step.passages] for step in trace.steps if step.query is not None],
        "drafts": count["drafts"],
        "tokens": count["generated"],
        "ended": trace.ended,
    }
    own = {name: value for name, value in trace.scores.items() if name not in SCORES}
    line |= {name: value for name, value in (("metrics", own), ("window", trace.lost)) if value}
    return line | ({"error": trace.error} if trace.ended == "error" else {})


def own_metrics(lines: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of the custom metrics that some line has, in order."""
    return tuple(dict.fromkeys(name for line in lines for name in line.get("metrics", ())))


def value_of(line: Mapping[str, Any], name: str) -> Any:
    """An entry of a prediction line, or the value of a custom metric; None where it has none."""
    return line[name] if name in line else line.get("metrics", {}).get(name)


def window_lost(predictions: Iterable[Mapping[str, Any]]) -> str:
    """What the model's window cost a run, and what to do; empty where nothing."""
    lost = [line["window"] for line in predictions if "window" in line]
    if not lost:
        return ""
    total = {name: sum(one.get(name, 0) for one in lost) for name in _LOST}
    losses = ", ".join(f"{total[name]:,} {words}" for name, words in _LOST.items() if total[name])
    return (
        f"the model's window was too small for {len(lost):,} answers: {losses}. Lower top_k or max_new_tokens, shorten "
        "the passages, give fewer exemplars, or take a model with a larger window"
    )


#: Entries of ``window``, and what they count.
_LOST = {
    "beyond": "prompts with what was written after them outgrew it",
    "passages": "passages were dropped",
    "exemplars": "exemplars were dropped",
}


def readable(line: Mapping[str, Any]) -> bool:
    """Whether an answer could be read from the text; a line of an earlier edition is judged by its answer alone."""
    return bool(line["readable"] if "readable" in line else line["answer"].strip())


def search_error(line: Mapping[str, Any]) -> str | None:
    """The error of an episode that failed in a search, which found nothing; None for any other episode."""
    failed = line["ended"] == "error" and line["passages"] and not line["passages"][-1]
    return str(line["error"]) if failed else None


def timing(trace: Trace) -> Line:
    """The line of ``timings.jsonl``: seconds in all and by kind of request, and what did not have to be computed.

    ``reused`` counts prompt tokens; ``stored_drafts`` and ``stored_tokens`` count what a cache served. ``peak`` is the
    highest score that was compared with θ, None without one; rounding moves it from run to run.
    """
    spent = {kind: sum(step.seconds.get(kind, 0.0) for step in trace.steps) for kind in ("draft", "attend", "search")}
    stored = {f"stored_{name}": count for name, count in trace.stored.items()}
    scores = [float(score) for of_draft in peaks(trace) for score in of_draft]
    peak = {PEAK: max(scores, default=None)}
    line = {"qid": trace.question.id, "seconds": trace.seconds, **spent, "reused": trace.counters["reused"]}
    return line | stored | peak


# -- as bytes ---------------------------------------------------------------------------------------------------------

Count = Annotated[int, Meta(ge=0, lt=2**31)]  # tokens, drafts and the like are fewer
Score = Annotated[float, Meta(ge=0, le=1)] | None
Seconds = Annotated[float, Meta(ge=0, lt=2**31)]


class Prediction(TypedDict):
    """A line of ``predictions.jsonl`` (``prediction``)."""

    qid: str
    question: str
    text: str
    answer: str
    readable: NotRequired[bool]
    gold: list[str]
    em: Score
    f1: Score
    precision: Score
    recall: Score
    retrievals: Count
    queries: list[str]
    passages: list[list[str]]
    drafts: Count
    tokens: Count
    ended: Literal["answered", "length", "stalled", "cancelled", "error"]
    metrics: NotRequired[dict[str, int | float]]
    window: NotRequired[dict[Literal["beyond", "passages", "exemplars"], Count]]
    error: NotRequired[str]


class Timing(TypedDict):
    """A line of ``timings.jsonl`` (``timing``)."""

    qid: str
    seconds: Seconds
    draft: Seconds
    attend: Seconds
    search: Seconds
    reused: Count
    stored_drafts: Count
    stored_tokens: Count
    peak: NotRequired[float | None]


class Row(Prediction):
    """A line of a table of runs: the number of its run, its prediction, and what is kept of its time and its cause."""

    run: Count
    seconds: NotRequired[Seconds]
    peak: NotRequired[float | None]
    cause: NotRequired[tuple[str, str]]  # of ``study.causes``: kind and why


class Head(TypedDict):
    """The first line of a table of runs: what ``run.json`` says of each, and how many lines follow."""

    format: int
    runs: list[dict[str, Any]]
    lines: Count


_SUM = re.compile(rb', "sum": "([0-9a-f]{8})"\}\Z')


def encode(lines: Iterable[Line]) -> bytes:
    """Lines as they are written, each with its checksum; ASCII."""
    bodies = (json.dumps(line, allow_nan=False)[:-1] for line in lines)
    return "".join(f'{body}, "sum": "{checksum(body + "}")}"}}\n' for body in bodies).encode()


def checksum(text: str) -> str:
    """CRC-32 of an ASCII text, 8 hexadecimal digits."""
    return f"{crc32(text.encode()):08x}"


def decode(raw: bytes, kind: type[Prediction | Timing | Head]) -> Line:
    """A line as it was recorded.

    Raises ``ValueError`` that says what is wrong: not JSON, another checksum, an entry that is missing or out of range.
    """
    match = _SUM.search(raw)
    body = raw[: match.start()] + b"}" if match else raw
    if match is None or match[1].decode() != f"{crc32(body):08x}":
        raise ValueError("its checksum does not fit")
    try:
        line: Line = msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if kind in (Prediction, Row):
        scored = line["gold"] and line["ended"] in ("answered", "length", "stalled")
        if any((line[name] is None) == bool(scored) for name in SCORES):
            raise ValueError("its scores do not go with its gold answers and its ending")
        if (line["ended"] == "error") != ("error" in line):
            raise ValueError("its error does not go with its ending")
    return line
