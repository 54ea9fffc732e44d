"""BM25 over title and text as Elasticsearch's ``best_fields`` scores them, in memory (rank-bm25) or
on disk (tantivy).

They share analysis, formula and statistics, and equal scores come in corpus order. Field lengths
are exact in memory; tantivy rounds those above 40 terms to one byte, as Lucene does, so close
scores may change places there.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import rank_bm25
from scipy.sparse import csc_array
from tantivy import Occur, Query

from dragin_lab.checks import check_text, count, instance
from dragin_lab.checks import number as as_number
from dragin_lab.errors import SettingError
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.stored import TEXT, TITLE, Stored
from dragin_lab.trace.trace import Passage

_CORPUS = "give a Corpus, such as Corpus.load(...)"
#: The DRAGIN authors' settings (reference-behaviour §4): Elasticsearch's defaults, and their tie
#: breaker.
K1 = 1.2
B = 0.75
TIE_BREAKER = 0.5


class _Lexical:
    """What BM25 in memory and on disk share."""

    kind = library = ""
    corpus: Corpus
    chosen: str | None = None  # why this retriever was chosen, where no spec names one
    k1 = K1
    b = B
    tie_breaker = TIE_BREAKER

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, best first, with their scores; equal scores in corpus order.

        Every passage holds a term of the query; a query of stop words alone gives none.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, one after another."""
        k = count("k", k)
        return [
            self._search(Counter(analysis.list_terms(check_text("query", query))), k)
            for query in queries
        ]

    def _search(self, counts: Mapping[str, int], k: int) -> list[Passage]:
        raise NotImplementedError

    def provenance(self) -> dict[str, Any]:
        """All that is needed to repeat these searches, as plain data."""
        facts = {
            "kind": self.kind,
            "library": f"{self.library} {version(self.library)}",
            "analysis": analysis.NAME,
            "k1": self.k1,
            "b": self.b,
            "tie_breaker": self.tie_breaker,
            **self.corpus.facts(),
        }
        return facts if self.chosen is None else facts | {"chosen": self.chosen}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.corpus!r}, k1={self.k1:g}, b={self.b:g})"


class BM25(_Lexical):
    """A ``Retriever`` over rank-bm25's counts, in memory, for up to a few hundred thousand
    passages; scores in float64.

    Raises ``SettingError`` for settings outside their range.
    """

    kind = "bm25"
    library = "rank-bm25"

    def __init__(
        self, corpus: Corpus, *, k1: float = K1, b: float = B, tie_breaker: float = TIE_BREAKER
    ) -> None:
        self.k1 = as_number("k1", k1)
        self.b = as_number("b", b, 0, 1)
        self.tie_breaker = as_number("tie_breaker", tie_breaker, 0, 1)
        self.corpus = instance("corpus", corpus, Corpus, _CORPUS)
        titles = (analysis.list_terms(passage.title) for passage in corpus)
        texts = (analysis.list_terms(passage.text) for passage in corpus)
        self._titles = _Field(titles, self.k1, self.b)
        self._texts = _Field(texts, self.k1, self.b)

    def _search(self, counts: Mapping[str, int], k: int) -> list[Passage]:
        title = self._titles.get_scores(counts)  # (passages,)
        text = self._texts.get_scores(counts)  # (passages,)
        scores = np.maximum(title, text) + self.tie_breaker * np.minimum(title, text)
        best = _find_best(scores, k)
        return [replace(self.corpus[row], score=float(scores[row])) for row in best.tolist()]


def _find_best(scores: np.ndarray, k: int) -> np.ndarray:
    """At most k rows of scores (passages,) above 0, best first; equal scores in corpus order."""
    rows = np.flatnonzero(scores)  # (hits,)
    if len(rows) > k:  # sort only those that may be among the first k
        hits = scores[rows]
        rows = rows[hits >= np.partition(hits, -k)[-k]]
    order = np.argsort(-scores[rows], kind="stable")
    return rows[order[:k]]


class _Field(rank_bm25.BM25):
    """One field of all passages, with its own statistics.

    rank-bm25 counts terms and lengths. Its scoring loops over every passage in Python, so the
    counts become a sparse matrix of what each term adds to each passage's score.
    """

    doc_freqs: list[dict[str, int]]

    def __init__(self, documents: Iterable[list[str]], k1: float, b: float) -> None:
        self.k1 = k1
        self.b = b
        super().__init__(documents)

    def _calc_idf(self, nd: dict[str, int]) -> None:
        """A term adds idf * tf / (tf + k1 (1 - b + b dl / avgdl)), without k1 + 1 like Lucene
        since version 8.
        """
        self._column = {term: column for column, term in enumerate(nd)}
        terms = array("i")  # (postings,)
        times = array("i")  # (postings,)
        for counts in self.doc_freqs:
            terms.extend(map(self._column.__getitem__, counts))
            times.extend(counts.values())
        columns = np.asarray(terms)  # (postings,)
        tf = np.asarray(times, np.float64)  # (postings,)
        distinct = list(map(len, self.doc_freqs))  # (passages,) terms in each
        n = self.corpus_size
        rows = np.repeat(np.arange(n), distinct)  # (postings,)
        self.doc_freqs = []  # the matrix holds all of it
        length = self.b * np.asarray(self.doc_len) / (self.avgdl or 1)  # (passages,)
        norm = self.k1 * (1 - self.b + length)  # (passages,)
        df = np.array(list(nd.values()))  # (terms,) passages that hold each
        # N counts all passages, as in tantivy
        idf = np.log1p((n - df + 0.5) / (df + 0.5))  # (terms,)
        most = idf[columns] * tf  # (postings,)
        adds = most / (tf + norm[rows])  # (postings,)
        self._adds = csc_array((adds, (rows, columns)), (n, len(nd)))

    def get_scores(self, query: Mapping[str, int]) -> np.ndarray:
        """The score of every passage, (passages,) float64; a term counts as often as the query
        holds it.
        """
        # in a fixed order, so that equal passages get exactly equal scores
        terms = sorted(query.keys() & self._column.keys(), key=self._column.__getitem__)
        times = np.array([query[term] for term in terms], np.float64)
        return np.asarray(self._adds[:, [self._column[term] for term in terms]] @ times)


class Tantivy(_Lexical):
    """A ``Retriever`` over a built corpus's own index, mapped from disk; scores are tantivy's
    own, float32.
    """

    kind = library = "tantivy"
    threads = os.cpu_count() or 1

    def __init__(self, corpus: Corpus) -> None:
        passages = instance("corpus", corpus, Corpus, _CORPUS).passages
        if not isinstance(passages, Stored):
            raise SettingError(
                f"{corpus!r} is held in memory; search it with BM25, or build it:"
                " Corpus.build(SOURCE, FOLDER)"
            )
        self.corpus = corpus
        self._stored = passages

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, at most ``threads`` at once: tantivy lets other threads of
        Python run.
        """
        if len(queries) < 2:
            return super().search_many(queries, k)
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(lambda query: self.search(query, k), queries))

    def _search(self, counts: Mapping[str, int], k: int) -> list[Passage]:
        if not counts:
            return []
        query = self._build_query(counts)
        limit = 2 * k + 10
        # until no passage left out has the score of the k-th, so that equal ones are in corpus
        # order
        while True:
            hits = self._stored.searcher.search(query, limit, count=False).hits
            if len(hits) < limit or hits[-1][0] < hits[k - 1][0]:
                break
            limit *= 4
        rows = self._stored.rows([address for _, address in hits])
        best = sorted(
            (-score, row, address) for (score, address), row in zip(hits, rows, strict=True)
        )[:k]
        # tantivy's scores have the constant factor k1 + 1, which Lucene and ``BM25`` leave out.
        return [
            replace(self._stored.passage(address), score=-score / (K1 + 1))
            for score, _, address in best
        ]

    def _build_query(self, counts: Mapping[str, int]) -> Any:
        fields = []
        for name in (TITLE, TEXT):
            parts = []
            for term, times in counts.items():
                part = Query.term_query(self._stored.schema, name, term, index_option="freq")
                parts.append((Occur.Should, Query.boost_query(part, times)))
            fields.append(Query.boolean_query(parts))
        return Query.disjunction_max_query(fields, tie_breaker=TIE_BREAKER)
