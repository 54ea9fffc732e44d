"""What retrievers answer, read as passages: one place where a server's or a user's answer is checked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import msgspec
import numpy as np

from dragin_lab.checks import Filled, convert_record
from dragin_lab.checks import text as as_text
from dragin_lab.data import tabular
from dragin_lab.errors import DraginLabError, SearchServerError, SettingError
from dragin_lab.retrieval.doors import read_document
from dragin_lab.text import compose
from dragin_lab.trace.trace import Passage

_ACCEPTED = (
    "a list of dl.Passage, of texts, of (title, text) pairs, or of dictionaries with text and maybe id, title, score; "
    "or a DataFrame with such columns"
)


class RetrieverError(DraginLabError):
    """A user's retriever that failed, or whose answer cannot be read as passages."""


def check_ranking(passages: Sequence[Passage], limit: int, server: str) -> list[Passage]:
    """The passages with which a server answered a search for at most ``limit``, best first.

    Raises ``SearchServerError`` for more than ``limit``, an id that is there twice, and scores that increase or are not
    finite: such a server does not run the search that it was asked for, so cutting its answer would not give the best.
    """
    if len(passages) > limit:
        raise SearchServerError(
            f"{server}: answers with {len(passages):,} hits and was asked for {limit:,}; check what stands between, "
            "such as a proxy that drops a part of the request"
        )
    _check_ids(passages, server, SearchServerError)
    if not all(math.isfinite(p.score) for p in passages) or any(a.score < b.score for a, b in pairwise(passages)):
        scores = ", ".join(f"{p.score:g}" for p in passages[:5])
        raise SearchServerError(f"{server}: the scores of its hits do not fall ({scores}); search an index by score")
    return list(passages)


class _Result(msgspec.Struct):
    """A result of a user's retriever; an id is made from the passage where there is none."""

    text: Filled
    title: str | None = None
    id: Filled | int | None = None
    score: float | None = None


def as_passages(answer: Any, k: int, name: str, query: str) -> list[Passage]:
    """The first k passages of a user's retriever's answer; ``RetrieverError`` for an answer of another kind.

    A set has no order, and a Series with a text in its index is a row, not a list of passages.
    """
    where = f"retriever {name} answered {query[:80]!r}"
    row = hasattr(answer, "iloc") and "text" in answer.index
    if row or isinstance(answer, str | bytes | Mapping | Passage | set | frozenset) or not isinstance(answer, Iterable):
        raise RetrieverError(f"{where} with {type(answer).__name__} {str(answer)[:60]!r}; it must be {_ACCEPTED}")
    results = islice(tabular.list_records(answer) if hasattr(answer, "itertuples") else answer, k)
    passages = [_as_passage(result, f"{where}: result {number}") for number, result in enumerate(results, 1)]
    _check_ids(passages, where, RetrieverError)
    return passages


def _as_passage(result: Any, where: str) -> Passage:
    match result:
        case Passage():
            record: Any = {"id": result.id, "title": result.title, "text": result.text, "score": result.score}
        case str():
            record = {"text": result}
        case [str(title), str(text)]:
            record = {"title": title, "text": text}
        case Mapping():
            plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in result.items()}
            record = {key: None if tabular.is_missing(value) else value for key, value in plain.items()}
        case _ if (document := read_document(result)) is not None:
            record = document
        case _:
            raise RetrieverError(f"{where} is {type(result).__name__} {str(result)[:60]!r}; it must be in {_ACCEPTED}")
    row = convert_record(f"{where}, {str(result)[:60]!r}", record, _Result, RetrieverError, f"; give {_ACCEPTED}")
    title, score = row.title or "", math.nan if row.score is None else row.score
    try:
        for name, value in (("id", str(row.id)), ("title", title), ("text", row.text)):
            as_text(name, value)
    except SettingError as error:
        raise RetrieverError(f"{where}: {error}") from None
    id = hashlib.sha256(f"{title}\n{row.text}".encode()).hexdigest()[:12] if row.id is None else str(row.id)
    return Passage(id, title, row.text, score)


def _check_ids(passages: Sequence[Passage], where: str, error: type[DraginLabError]) -> None:
    ids = [compose(passage.id) for passage in passages]
    if twice := next((id for id in ids if ids.count(id) > 1), None):
        raise error(f"{where} with the id {twice!r} twice; give every passage its own")
