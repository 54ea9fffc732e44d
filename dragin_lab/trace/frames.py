"""Traces as tables and as text: tokens, retrievals, and where two traces differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dragin_lab.checks import shown
from dragin_lab.trace.draft import Draft, count_common, saved_fields
from dragin_lab.trace.records import Step, Words, probe_distance, probe_tolerance

if TYPE_CHECKING:
    import pandas as pd


def token_table(
    steps: Sequence[Step], extraction: Draft | None, method: Mapping[str, Any]
) -> pd.DataFrame:
    """One row per token of everything that the model wrote, in order.

    Columns: ``step`` (from 1; missing for the extraction), ``source`` ("draft", "continuation" or
    "extraction"), ``index`` in it (from 0), ``token`` (raw vocabulary string), ``text`` (its
    characters; tokens that share one show the same), ``id``, ``entropy`` and ``logprob`` (nats),
    ``probability``, ``received`` (attention, head mean, max over later tokens); for the tokens of a
    draft's words ``word`` (index in ``Step.words``), ``sentence``, ``score``, ``stop`` (missing
    where the released code did not look), ``judged`` (whether it was allowed to fire) and ``hit``
    of that word, missing elsewhere; and ``kept``: whether the token is part of ``Trace.text``.
    """
    import pandas as pd

    tables = [pd.DataFrame(columns=list(_COLUMNS)).astype(_COLUMNS)]
    for step in steps:
        for source, text, end in step.texts:
            tables.append(_token_rows(text, step, source, find_looked(step, method), end))
    if extraction is not None:
        tables.append(_token_rows(extraction, None, "extraction", np.zeros(0, bool), None))
    return pd.concat(tables, ignore_index=True)


_COLUMNS = {
    "step": "Int64",
    "source": "string",
    "index": "int64",
    "token": "string",
    "text": "string",
    "id": "int64",
    "entropy": "float32",
    "logprob": "float32",
    "probability": "float32",
    "received": "float32",
    "word": "Int64",
    "sentence": "Int64",
    "score": "float32",
    "stop": "boolean",
    "judged": "boolean",
    "hit": "boolean",
    "kept": "bool",
}


def find_looked(step: Step, method: Mapping[str, Any]) -> np.ndarray:
    """(w,) bool, the words of a step of which it was asked whether they are stop words: in the
    released code those of the sentence that fired, where hits need content.
    """
    decision = step.decision
    sentence = step.words.sentence
    if method.get("variant") != "reference":
        return np.ones(len(sentence), bool)
    if decision is None or not decision.retrieve or not method.get("check_content_words"):
        return np.zeros(len(sentence), bool)
    return sentence == decision.sentence


def _token_rows(
    continuation: Draft, step: Step | None, source: str, looked: np.ndarray, end: int | None
) -> pd.DataFrame:
    """The rows of one continuation's n tokens; ``end`` is the character where its kept part
    ends, None for none.
    """
    import pandas as pd

    words = step.words if step is not None and source == "draft" else Words()
    word = np.full(len(continuation), -1)  # (n,)
    for i, (start, stop) in enumerate(words.spans.tolist()):
        word[start:stop] = i
    by_word = {"word": range(len(words)), "sentence": words.sentence, "score": words.score}
    stop = pd.array(words.stop, dtype="boolean")
    stop[~looked[: len(words)]] = pd.NA
    by_word |= {"stop": stop, "judged": ~words.unjudged, "hit": words.hit}
    measured = pd.DataFrame(by_word).reindex(word)  # -1 is missing
    starts, stops = continuation.offsets.T  # (n,), (n,)
    # A token without characters, such as the closing EOS, belongs to the text before it.
    kept = False if end is None else (starts < end) | ((stops == starts) & (starts == end))
    columns = {
        "step": None if step is None else step.index + 1,
        "source": source,
        "index": range(len(continuation)),
        "token": continuation.pieces,
        "text": [continuation.text[a:b] for a, b in continuation.offsets.tolist()],
        "id": continuation.ids,
        "entropy": continuation.entropy,
        "logprob": continuation.logprob,
        "probability": np.exp(continuation.logprob),
        "received": continuation.received,
        "kept": kept,
    }
    return (
        pd.DataFrame(columns).join(measured.reset_index(drop=True))[list(_COLUMNS)].astype(_COLUMNS)
    )


def retrieval_table(steps: Sequence[Step]) -> pd.DataFrame:
    """One row per passage found: step and rank (from 1), query (as sent), id, title, text, score.

    A retrieval that found nothing is one row without rank, id, title, text and score, so that no
    query is lost; ``table.dropna(subset="id")`` keeps the passages only.
    """
    import pandas as pd

    rows = []
    for step in steps:
        if step.query is None:
            continue
        asked = {"step": step.index + 1, "query": step.query.sent}
        for rank, passage in enumerate(step.passages, 1):
            rows.append({**asked, "rank": rank, **vars(passage)})
        if not step.passages:
            rows.append(asked)
    return pd.DataFrame(rows, columns=list(_FOUND)).astype(_FOUND)


_FOUND = {
    "step": "int64",
    "rank": "Int64",
    "query": "string",
    "id": "string",
    "title": "string",
    "text": "string",
    "score": "float64",
}

# -- differences -----------------------------------------------------------------------------------

#: How long things took and what a cache served: these change from run to run.
_IGNORED = {"seconds", "reused", "stored"}
# where one of these fields differs, the other fields of a record follow from it
_LEADING = ("text", "id")
_ABSENT = "(absent)"
TOLERANCE = 0.01  # measured numbers that differ by no more are counted, not listed


class Lines(str):
    """A text of several lines that shows itself as such; else like any other."""

    def __repr__(self) -> str:
        return str(self) or "no difference"


class _Line(NamedTuple):
    text: str  # "path: a → b"
    listed: bool = True  # whether it is more than measured numbers within ``TOLERANCE``


def trace_diff(a: Any, b: Any) -> Lines:
    """Where two traces differ, one line per difference: "path: a → b". The empty string where they
    do not differ.

    Settings and provenance are listed in full, of the steps only the first that differs; then the
    answer, the scores and the counters. Arrays that differ by at most ``TOLERANCE`` are one line
    that counts them. How long things took and what a cache served is left out. Steps count from 1.
    """

    lines: list[_Line] = []

    def add_fields(*names: str) -> None:
        for name in names:
            lines.extend(_list_differences(name, getattr(a, name), getattr(b, name)))

    add_fields("question", "method", "provenance")
    for left, right in zip(a.steps, b.steps, strict=False):
        in_step = list(_list_differences(f"step {left.index + 1}", left, right))
        lines += in_step
        if any(line.listed and ".decision.reason: " not in line.text for line in in_step):
            break  # a reason quotes θ: another θ may have led to the same decision
    if len(a.steps) != len(b.steps):
        lines.append(_Line(f"steps: {len(a.steps)} → {len(b.steps)}"))
    add_fields(
        "text",
        "extraction_prompt",
        "extraction",
        "answer",
        "readable",
        "scores",
        "ended",
        "error",
        "notes",
        "counters",
    )
    texts = [line.text for line in lines if line.listed]
    close = len(lines) - len(texts)
    if close:
        texts.append(f"{close} arrays differ by at most {TOLERANCE}")
    return Lines("\n".join(texts))


def list_differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Where two mappings of plain data differ, one line per difference: "path: a → b"."""
    return [line.text for line in _list_differences("", dict(a), dict(b))]


def _list_differences(where: str, a: Any, b: Any) -> Iterator[_Line]:
    def both(kind: Any) -> bool:
        return isinstance(a, kind) and isinstance(b, kind)

    if is_dataclass(a) and type(a) is type(b):
        names = [name for name in saved_fields(a) if name not in _IGNORED]
        for name in sorted(names, key=lambda name: name not in _LEADING):
            left = getattr(a, name)
            right = getattr(b, name)
            inner = list(_list_differences(f"{where}.{name}", left, right))
            yield from inner
            if inner and name in _LEADING:
                return
    elif both(dict):
        for key in {**a, **b}:
            path = f"{where}.{key}".lstrip(".")
            if key == "probe":
                yield from _compare_probes(path, a, b)
            elif key not in _IGNORED:
                yield from _list_differences(path, a.get(key, _ABSENT), b.get(key, _ABSENT))
    elif both(list | tuple) and len(a) == len(b):
        for i, pair in enumerate(zip(a, b, strict=True)):
            yield from _list_differences(f"{where}[{i}]", *pair)
    elif both(np.ndarray) and (a.shape, a.dtype) == (b.shape, b.dtype):
        yield from _compare_arrays(where, a, b)
    elif both(str) and a != b:
        first = count_common(a, b)
        yield _Line(f"{where}: {_show_around(a, first)} → {_show_around(b, first)}")
    elif np.ndarray in (type(a), type(b)) or not (a == b or (a != a and b != b)):
        yield _Line(f"{where}: {shown(a)} → {shown(b)}")


def _compare_arrays(where: str, a: np.ndarray, b: np.ndarray) -> Iterator[_Line]:
    different = ~((a == b) | ((a != a) & (b != b)))  # NaN is NaN
    if different.any():
        is_float = a.dtype.kind == "f"
        close = is_float and np.allclose(a, b, rtol=0, atol=TOLERANCE, equal_nan=True)
        yield _Line(f"{where}: {different.sum()} of {a.size} differ", not close)


def _compare_probes(where: str, a: dict[str, Any], b: dict[str, Any]) -> Iterator[_Line]:
    """Two records of one model have probes within rounding; one without a probe says nothing."""
    if a.get("probe") and b.get("probe"):
        apart = probe_distance(a["probe"], b["probe"])
        if not apart <= probe_tolerance(str(a.get("dtype", ""))):
            yield _Line(f"{where}: the models compute other numbers, up to {apart:.3g} nats apart")


def _show_around(text: str, place: int) -> str:
    """A text, cut to what stands around a character."""
    start = max(place - 20, 0)
    stop = place + 40
    return repr("…" * (start > 0) + text[start:stop] + "…" * (stop < len(text)))
