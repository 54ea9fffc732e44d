"""Traces as tables and as text: tokens, retrievals, and where two traces differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dragin_lab.trace.draft import Draft, saved_fields
from dragin_lab.trace.records import Passage, Prompt, Query, Step, Words

if TYPE_CHECKING:
    import pandas as pd

# -- tokens -----------------------------------------------------------------------------------------------------------


def token_table(steps: Sequence[Step], extraction: Draft | None) -> pd.DataFrame:
    """One row per token of everything that the model wrote, in order.

    Columns: ``step`` (from 1; missing for the extraction), ``source`` ("draft", "continuation" or "extraction"),
    ``index`` in it (from 0), ``token`` (raw vocabulary string), ``text`` (its characters; tokens that share one show
    the same), ``id``, ``entropy`` and ``logprob`` (nats), ``probability``, ``received`` (attention, head mean, max over
    later tokens); for the tokens of a draft's words ``word`` (index in ``Step.words``), ``sentence``, ``score``,
    ``stop``, ``judged`` (whether it was allowed to fire) and ``hit`` of that word, missing elsewhere; and ``kept``:
    whether the token is part of ``Trace.text``. What a trigger had measured of the whole distribution has columns of
    its name ("renyi:2") after these.
    """
    import pandas as pd

    parts = [
        _token_rows(continuation, step.index + 1, source, words, end)
        for step in steps
        for continuation, source, words, end in (
            (step.draft, "draft", step.words, step.draft_kept),
            (step.continuation, "continuation", Words(), step.continuation_kept),
        )
        if continuation is not None
    ]
    if extraction is not None:
        parts.append(_token_rows(extraction, None, "extraction", Words(), None))
    return pd.concat(parts or [pd.DataFrame(columns=list(_COLUMNS)).astype(_COLUMNS)], ignore_index=True)


_COLUMNS = {
    "step": "Int64", "source": "string", "index": "int64", "token": "string", "text": "string", "id": "int64",
    "entropy": "float32", "logprob": "float32", "probability": "float32", "received": "float32", "word": "Int64",
    "sentence": "Int64", "score": "float32", "stop": "boolean", "judged": "boolean", "hit": "boolean", "kept": "bool",
}  # fmt: skip


def _token_rows(continuation: Draft, step: int | None, source: str, words: Words, end: int | None) -> pd.DataFrame:
    """The rows of one continuation's n tokens; ``end`` is the character where its kept part ends, None for none."""
    import pandas as pd

    word = np.full(len(continuation), -1)  # (n,)
    for i, (start, stop) in enumerate(words.spans.tolist()):
        word[start:stop] = i
    by_word = {"word": range(len(words)), "sentence": words.sentence, "score": words.score}
    by_word |= {"stop": words.stop, "judged": ~words.unjudged, "hit": words.hit}
    measured = pd.DataFrame(by_word).reindex(word)  # -1 is missing
    starts, stops = continuation.offsets.T  # (n,), (n,)
    # A token without characters, such as the closing EOS, belongs to the text before it.
    kept = False if end is None else (starts < end) | ((stops == starts) & (starts == end))
    columns = {
        "step": step,
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
    return pd.DataFrame(columns).join(measured.reset_index(drop=True))[list(_COLUMNS)].astype(_COLUMNS)


# -- retrievals -------------------------------------------------------------------------------------------------------


def retrieval_table(steps: Sequence[Step]) -> pd.DataFrame:
    """One row per passage found: step and rank (from 1), query (as sent), id, title, text, score.

    A retrieval that found nothing is one row without rank, id, title, text and score, so that no query is lost;
    ``table.dropna(subset="id")`` keeps the passages only.
    """
    import pandas as pd

    names = ("step", "rank", "query", "id", "title", "text", "score")
    rows: list[tuple[Any, ...]] = []
    for step in steps:
        if step.query is None:
            continue
        for rank, p in enumerate(step.passages, 1):
            rows.append((step.index + 1, rank, step.query.sent, p.id, p.title, p.text, p.score))
        if not step.passages:
            rows.append((step.index + 1, None, step.query.sent, None, None, None, np.nan))
    types = dict(zip(names, ("int64", "Int64", "string", "string", "string", "string", "float64"), strict=True))
    return pd.DataFrame(rows, columns=list(names)).astype(types)


# -- differences ------------------------------------------------------------------------------------------------------

#: How long things took and what a cache served: these change from run to run.
_IGNORED = frozenset({"seconds", "reused", "stored"})
#: Where one of these fields differs, the later fields follow from it and are not listed.
_LEADING = {
    Draft: ("text", "ids"),
    Passage: ("id",),
    Prompt: ("text",),
    Query: ("text",),
    Words: ("text",),
}
#: The fields that a view shows; differences in any other field, or in any array but scores, are only counted.
_SEEN = {
    Draft: ("text", "stopped"),
    Prompt: ("text", "notes"),
    Query: ("text", "sent", "note"),
    Words: ("text", "score", "judged", "hit"),
}
TOLERANCE = 0.01  # by which scores may differ before a view shows it


class _Difference(NamedTuple):
    text: str  # "path: a → b"
    seen: bool = True  # whether a view of the trace shows it


def trace_diff(a: Any, b: Any, *, arrays: bool = False) -> str:
    """Where two traces differ, one line per difference: "path: a → b". The empty string where they do not differ.

    Settings and provenance are listed in full, of the steps only the first that differs; then the answer, the scores
    and the counters. Differences that no view shows, such as the probability of a fourth alternative or a score within
    ``TOLERANCE``, are one line that counts them; ``arrays=True`` lists them all. How long things took and what a cache
    served is left out.
    """

    def of(*names: str) -> list[_Difference]:
        return [line for name in names for line in _list_differences(name, getattr(a, name), getattr(b, name))]

    lines = of("question", "method", "provenance") + _list_step_differences(a.steps, b.steps)
    lines += of("text", "extraction_prompt", "extraction", "answer", "readable", "scores", "ended", "error", "notes")
    lines += of("counters")
    shown = [line.text for line in lines if arrays or line.seen]
    if hidden := len(lines) - len(shown):
        count = f"{hidden} recorded {'value differs' if hidden == 1 else 'values differ'}"
        shown.append(f"{count} that no view shows; diff(arrays=True) lists them")
    return "\n".join(shown)


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Where two mappings of plain data differ, one line per difference: "path: a → b"."""
    return [line.text for line in _list_differences("", dict(a), dict(b))]


def _list_step_differences(a: Sequence[Step], b: Sequence[Step]) -> list[_Difference]:
    """What differs in the first step that differs, and the numbers of steps."""
    differences: list[_Difference] = []
    for i, (left, right) in enumerate(zip(a, b, strict=False)):
        drafted = getattr(left.draft, "text", None) != getattr(right.draft, "text", None)
        for name in (f.name for f in fields(Step) if f.name not in _IGNORED):
            if name != "words" or not drafted:  # other text has other words
                differences += _list_differences(f"steps[{i}].{name}", getattr(left, name), getattr(right, name))
        if any(line.seen and ".decision.reason: " not in line.text for line in differences):
            break  # a reason quotes θ: another θ may have led to the same decision
    if len(a) != len(b):
        differences.append(_Difference(f"steps: {len(a)} → {len(b)}"))
    return differences


def _list_differences(where: str, a: Any, b: Any) -> Iterator[_Difference]:
    """Every difference between two values of the same field."""
    if is_dataclass(a) and type(a) is type(b):
        names = [name for name in saved_fields(a) if name not in _IGNORED]
        leading = _LEADING.get(type(a), ())
        for name in [*leading, *(name for name in names if name not in leading)]:
            inner = list(_list_differences(f"{where}.{name}", getattr(a, name), getattr(b, name)))
            seen = name in _SEEN.get(type(a), names)
            yield from (line._replace(seen=line.seen and seen) for line in inner)
            if inner and name in leading:
                return
    elif isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            if key not in _IGNORED:
                yield from _list_differences(f"{where}.{key}".lstrip("."), a.get(key, _ABSENT), b.get(key, _ABSENT))
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _list_differences(f"{where}[{i}]", left, right)
    elif isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and (a.shape, a.dtype) == (b.shape, b.dtype):
        yield from _list_array_differences(where, a, b)
    elif isinstance(a, str) and isinstance(b, str):
        if a != b:
            yield _Difference(f"{where}: " + " → ".join(_around_difference(a, b)))
    elif isinstance(a, np.ndarray) or isinstance(b, np.ndarray) or not (a == b or (a != a and b != b)):  # NaN is NaN
        yield _Difference(f"{where}: {_show_value(a)} → {_show_value(b)}")


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


_ABSENT = _Absent()


def _list_array_differences(where: str, a: np.ndarray, b: np.ndarray) -> Iterator[_Difference]:
    different = ~((a == b) | ((a != a) & (b != b)))
    if different.any():
        first = tuple(int(i) for i in np.argwhere(different)[0])
        close = a.dtype.kind == "f" and np.allclose(a, b, rtol=0, atol=TOLERANCE, equal_nan=True)
        yield _Difference(
            f"{where}: {int(different.sum())} of {a.size} differ, first at {list(first)}: "
            f"{a[first].item()} → {b[first].item()}",
            not close,
        )


def _around_difference(a: str, b: str, before: int = 20, after: int = 40) -> tuple[str, str]:
    """Both texts, cut to the neighbourhood of their first difference."""
    first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(first - before, 0)

    def cut(text: str) -> str:
        stop = first + after
        return repr("…" * (start > 0) + text[start:stop] + "…" * (stop < len(text)))

    return cut(a), cut(b)


def _show_value(value: Any) -> str:
    if isinstance(value, list | tuple) and value and all(isinstance(v, Passage) for v in value):
        return "passages " + ", ".join(p.id for p in value)
    if isinstance(value, Draft | Prompt | Query):
        return f"{type(value).__name__} {_show_value(value.text)}"
    text = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
