"""What retrievers answer, read as passages: one place where a server's or a user's answer is checked."""

from __future__ import annotations

import hashlib
import math
import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from dragin_lab.checks import number as as_number
from dragin_lab.checks import shown
from dragin_lab.errors import DraginLabError, SearchServerError
from dragin_lab.trace.trace import Passage

_ACCEPTED = (
    "a list of dl.Passage, of texts, of (title, text) pairs, or of dictionaries with text and maybe id, title, score"
)
_NAMES = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}


#: The seconds that a search may take, repetitions included, and the environment variable that changes them.
TIMEOUT, TIMEOUT_VARIABLE = 60, "DRAGIN_LAB_SEARCH_TIMEOUT"


def search_timeout(timeout: float | None) -> float:
    """The seconds after which a search server is given up: as passed, by the environment variable, or ``TIMEOUT``."""
    if timeout is not None:
        return as_number("timeout", timeout, 0.01)
    return as_number(TIMEOUT_VARIABLE, os.environ.get(TIMEOUT_VARIABLE) or TIMEOUT, 0.01)


class RetrieverError(DraginLabError):
    """A user's retriever that failed, or whose answer cannot be read as passages."""


class Fields(NamedTuple):
    """Where an answer holds the parts of a passage: names, with dots between those of nested objects."""

    id: str = "id"
    title: str = "title"
    text: str = "text"
    score: str = "score"


def value_at(answer: Any, path: str) -> Any:
    """The value at a path of names with dots between them; None where there is none."""
    for name in path.split("."):
        answer = answer.get(name) if isinstance(answer, Mapping) else None
    return answer


def require_value(answer: Any, path: str, kind: type, server: str) -> Any:
    """The value at a path of a server's answer; ``SearchServerError`` where it is missing or of another type."""
    value = value_at(answer, path)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise SearchServerError(
            f"{server}: answers with {path} {shown(value)}, which must be {_NAMES[kind]}; check which server and "
            "version runs there"
        )
    return value


def read_hits(hits: Sequence[Any], limit: int, fields: Fields, server: str) -> list[Passage]:
    """The passages in a server's answer to a search for at most ``limit``.

    Raises ``SearchServerError`` for a hit without a text, an id of its own or a finite score, for scores that increase,
    and for more hits than ``limit``: a server that ignores the limit, or sorts by something else, does not run the
    search that it was asked for, so cutting its answer would not give the best passages.
    """
    if len(hits) > limit:
        raise SearchServerError(
            f"{server}: answers with {len(hits):,} hits and was asked for {limit:,}; check what stands between, such "
            "as a proxy that drops a part of the request"
        )
    passages = _read_passages(hits, fields, server, SearchServerError)
    if any(a.score < b.score for a, b in pairwise(passages)):
        raise SearchServerError(f"{server}: the {fields.score} of its hits increases; search an index sorted by score")
    return passages


def as_passages(answer: Any, k: int, name: str, query: str) -> list[Passage]:
    """The first k passages of a user's retriever's answer; ``RetrieverError`` for an answer of another kind."""
    where = f"retriever {name} answered {query[:80]!r}"
    if isinstance(answer, str | bytes | Mapping | Passage) or not isinstance(answer, Iterable):
        raise RetrieverError(f"{where} with {type(answer).__name__} {str(answer)[:60]!r}; it must be {_ACCEPTED}")
    records: list[Mapping[str, Any]] = []
    for number, result in enumerate(answer, 1):
        if len(records) == k:
            break
        records.append(_as_record(result, f"{where}: result {number}"))
    return _read_passages(records, Fields(), where, RetrieverError)


def _as_record(result: Any, where: str) -> Mapping[str, Any]:
    if isinstance(result, Passage):
        return {"id": result.id, "title": result.title, "text": result.text, "score": result.score}
    if isinstance(result, str):
        return {"text": result}
    if isinstance(result, tuple | list) and len(result) == 2 and all(isinstance(part, str) for part in result):
        return {"title": result[0], "text": result[1]}
    if not isinstance(result, Mapping):
        raise RetrieverError(f"{where} is {type(result).__name__} {str(result)[:60]!r}; it must be in {_ACCEPTED}")
    if "text" not in result:
        only = ", ".join(map(str, result))[:80]
        raise RetrieverError(f"{where} has no text, only {only}; it must be in {_ACCEPTED}")
    return result


def _read_passages(records: Iterable[Any], fields: Fields, where: str, error: type[DraginLabError]) -> list[Passage]:
    """Each record as a passage. A user may leave out the id, which is made from the passage, and the score (NaN)."""
    of_user = error is RetrieverError
    remedy = "" if of_user else "; give another index, or check which server and version runs there"
    passages: list[Passage] = []
    for number, record in enumerate(records, 1):
        id, title, text, score = (value_at(record, path) for path in fields)
        rules = (
            (fields.text, text, _is_text(text) and text.strip(), "a text that is not empty, in UTF-8"),
            (fields.title, title, title is None or _is_text(title), "a text in UTF-8"),
            (fields.score, score, of_user if score is None else _is_score(score, of_user), "a number"),
            (fields.id, id, of_user if id is None else _is_id(id), "a text or a whole number"),
        )
        for path, value, sound, must_be in rules:
            if not sound:
                shown = str(value)[:60]
                raise error(f"{where}: result {number} has the {path} {shown!r}; it must be {must_be}{remedy}")
        if id is None:
            id = hashlib.sha256(f"{title or ''}\n{text}".encode()).hexdigest()[:12]
        passages.append(Passage(str(id), title or "", text, math.nan if score is None else float(score)))
    ids = [passage.id for passage in passages]
    if twice := next((id for id in ids if ids.count(id) > 1), None):
        raise error(f"{where} with the id {twice!r} twice; give every passage its own")
    return passages


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.encode(errors="replace").decode() == value


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return _is_text(value) and bool(value.strip())
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_score(value: Any, of_user: bool) -> bool:
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and (of_user or math.isfinite(value))
    except OverflowError:  # a whole number that no float can hold
        return False
