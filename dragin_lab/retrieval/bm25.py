"""BM25 over passages, in memory, scored as Elasticsearch scores them.

Up to some hundred thousand passages: the index keeps a few hundred bytes a passage, and a query looks at the passages
that hold one of its terms.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import rank_bm25

from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.best_fields import BestFields
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.postings import sum_scores


class _Field(rank_bm25.BM25):
    """One field of all passages, with statistics of its own.

    rank-bm25 counts terms and lengths; its scoring walks over every passage for every term in Python, so the counts
    are turned into postings here: for each term, the passages that hold it and what it adds to their score.
    """

    doc_freqs: list[dict[str, int]]

    def __init__(self, documents: Iterable[list[str]], k1: float, b: float) -> None:
        self.k1 = k1
        self.b = b
        super().__init__(documents)

    def _calc_idf(self, nd: dict[str, int]) -> None:
        """Lucene's idf, log(1 + (N - df + 0.5) / (df + 0.5)); as there, N and avgdl count passages that have the field.

        What a term adds is idf * tf / (tf + k1 (1 - b + b dl / avgdl)): since version 8 Lucene leaves out the constant
        factor k1 + 1, which changes no order. Lengths are exact; Lucene rounds those above 40 to fit one byte.
        """
        filled = sum(length > 0 for length in self.doc_len)
        self.avgdl = sum(self.doc_len) / max(filled, 1)
        self.idf = {term: math.log1p((filled - df + 0.5) / (df + 0.5)) for term, df in nd.items()}
        self._row = {term: row for row, term in enumerate(nd)}
        rows, frequencies = array("i"), array("i")
        for counts in self.doc_freqs:
            rows.extend(map(self._row.__getitem__, counts))
            frequencies.extend(counts.values())
        holders = np.repeat(np.arange(self.corpus_size, dtype=np.int32), [len(counts) for counts in self.doc_freqs])
        order = np.argsort(np.asarray(rows), kind="stable")  # (postings,) by term, then by position in the corpus
        self._holders = holders[order]  # (postings,)
        tf = np.asarray(frequencies, np.float64)[order]  # (postings,)
        dl = np.asarray(self.doc_len, np.float64)[self._holders]  # (postings,)
        idf = np.repeat(list(self.idf.values()), list(nd.values()))  # (postings,)
        self._adds = idf * tf / (tf + self.k1 * (1 - self.b + self.b * dl / (self.avgdl or 1)))  # (postings,)
        self._start = np.concatenate([[0], np.cumsum(list(nd.values()), dtype=np.int64)])  # (terms + 1,)
        self.doc_freqs = []  # the postings hold all of it

    def get_many_scores(self, queries: Sequence[Sequence[str]]) -> np.ndarray:
        """The score of every passage, (queries, passages) float64; a term that a query repeats counts each time."""
        numbers = [Counter(self._row[term] for term in query if term in self._row) for query in queries]
        return sum_scores(numbers, self._postings, self.corpus_size, np.float64)

    def _postings(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        span = slice(self._start[row], self._start[row + 1])
        return self._holders[span], self._adds[span]

    def get_scores(self, query: Sequence[str]) -> np.ndarray:
        """The score of every passage, (passages,) float64."""
        scores: np.ndarray = self.get_many_scores([query])[0]
        return scores

    def get_batch_scores(self, query: Sequence[str], doc_ids: Sequence[int]) -> list[float]:
        """The scores of some passages, by position."""
        scores: list[float] = self.get_scores(query)[list(doc_ids)].tolist()
        return scores


class BM25(BestFields):
    """``BestFields`` over rank-bm25's counts, in memory; scores are float64."""

    kind = "bm25"
    library = "rank-bm25"

    def __init__(self, corpus: Corpus, *, k1: float = 1.2, b: float = 0.75, tie_breaker: float = 0.5) -> None:
        super().__init__(corpus, k1=k1, b=b, tie_breaker=tie_breaker)
        self._titles = _Field((analysis.terms(p.title) for p in corpus), self.k1, self.b)
        self._texts = _Field((analysis.terms(p.text) for p in corpus), self.k1, self.b)

    def field_scores(self, queries: Sequence[list[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Title's and text's scores of every passage, each (queries, passages) float64."""
        return self._titles.get_many_scores(queries), self._texts.get_many_scores(queries)
