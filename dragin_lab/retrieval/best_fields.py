"""What every BM25 back end shares: Elasticsearch's ``best_fields`` over title and text, settings, ties."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from dragin_lab.core.trace import Passage
from dragin_lab.errors import SettingError
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.corpus import Corpus

_SCORES_AT_ONCE = 1 << 21  # of all queries together that are answered at a time


class BestFields:
    """A ``Retriever``: the passages of a corpus ranked as Elasticsearch's ``best_fields`` query does it.

    Title and text are scored apart; a passage scores the better of the two plus ``tie_breaker`` times the other.
    Analysis is Elasticsearch's English (``retrieval.analysis``); k1, b and the tie breaker are the settings that the
    DRAGIN authors retrieve with (reference-behaviour §4). A back end gives the scores of the two fields.
    """

    kind = ""
    library = ""  # the distribution that counts the terms

    def __init__(self, corpus: Corpus, *, k1: float = 1.2, b: float = 0.75, tie_breaker: float = 0.5) -> None:
        check_formula(k1, b, tie_breaker)
        self.corpus = corpus
        self.chosen: str | None = None  # why this retriever, where nobody asked for it by name
        self.k1 = float(k1)
        self.b = float(b)
        self.tie_breaker = float(tie_breaker)

    def field_scores(self, queries: Sequence[list[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Title's and text's scores of every passage for the terms of each query, each (queries, passages)."""
        raise NotImplementedError

    def search(self, query: str, k: int) -> list[Passage]:
        """The at most k best passages, best first, with their scores; equal scores in corpus order.

        A passage that holds no term of the query is never among them; a query of stop words alone finds nothing.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, some together: a term that several of them hold is looked up once."""
        check_number(k)
        together = max(1, _SCORES_AT_ONCE // len(self.corpus))
        found = []
        for start in range(0, len(queries), together):
            title, text = self.field_scores([analysis.terms(query) for query in queries[start : start + together]])
            scores = np.maximum(title, text) + self.tie_breaker * np.minimum(title, text)  # (queries, passages)
            found += [self._passages(row, best_positions(row, int(k))) for row in scores]
        return found

    def _passages(self, scores: np.ndarray, positions: np.ndarray) -> list[Passage]:
        return [replace(self.corpus[i], score=float(scores[i])) for i in positions.tolist()]

    def provenance(self) -> dict[str, Any]:
        """Everything that a repetition of these searches needs, as plain data."""
        return {
            "kind": self.kind,
            "library": f"{self.library} {version(self.library)}",
            "k1": self.k1,
            "b": self.b,
            "tie_breaker": self.tie_breaker,
            "analysis": analysis.NAME,
            "corpus": self.corpus.name,
            "corpus_fingerprint": self.corpus.fingerprint,
            "passages": len(self.corpus),
        } | ({} if self.chosen is None else {"chosen": self.chosen})

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the settings, the analysis and the corpus's own fingerprint."""
        settings = {key: self.provenance()[key] for key in ("kind", "k1", "b", "tie_breaker", "analysis")}
        line = json.dumps([settings, self.corpus.fingerprint], sort_keys=True)
        return hashlib.sha256(line.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.corpus!r}, k1={self.k1:g}, b={self.b:g})"


def check_formula(k1: float, b: float, tie_breaker: float) -> None:
    """Refuse settings for which the formula makes no sense."""
    if not (math.isfinite(k1) and k1 >= 0):
        raise SettingError(f"k1={k1!r}: must be a finite number of at least 0 (usual: 1.2)")
    for name, value in (("b", b), ("tie_breaker", tie_breaker)):
        if not 0 <= value <= 1:
            raise SettingError(f"{name}={value!r}: must lie between 0 and 1")


def check_number(k: int) -> None:
    """Raise ``SettingError`` for what is no number of passages."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise SettingError(f"k={k!r}: the number of passages asked for must be a whole number of at least 1")


def best_positions(scores: np.ndarray, k: int) -> np.ndarray:
    """The positions of the k highest scores above 0, best first, equal ones in order; (at most k,) int64."""
    found = np.flatnonzero(scores)  # (hits,) in corpus order, which the stable sort keeps among equals
    values = scores[found]
    if len(found) > k:  # sort no more than those that may be among the first k
        enough = values >= np.partition(values, len(values) - k)[len(values) - k]
        found, values = found[enough], values[enough]
    return found[np.argsort(-values, kind="stable")[:k]]
