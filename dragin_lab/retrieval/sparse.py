"""BM25 as inner products of sparse vectors, for servers that search them.

With a tie breaker c of 0 to 1, the score of ``best_fields`` is

    max(title, text) + c min(title, text) = max(title + c text, c title + text)

and the BM25 of title and text are sums over the query's terms. So a passage's vector holds what each term adds to the
score of each field. A query is searched twice, once with the title weighted 1 and the text c, once the other way round,
and the larger of the two inner products is the passage's score; the best k of both searches include the best k of all.
A dimension is a hash of field and term. Weights are float32: passages whose scores differ by less than one part in a
million may be in another order than ``BM25``'s.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from dragin_lab.core.trace import Passage
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.bm25 import TIE_BREAKER, added, idf

Sparse = dict[int, float]  # dimension -> weight
Hit = tuple[int, Passage]  # row, and the passage with its score
FIELDS = ("title", "text")
#: The dimension used for a passage without terms, as servers refuse an empty vector.
NOTHING = 0


@lru_cache(maxsize=1 << 18)
def dimension(field: str, term: str) -> int:
    """1 to 2**32 - 2, the same on every machine; of a million terms, one in 4,300 shares its dimension with another."""
    digest = hashlib.blake2b(f"{field} {term}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % ((1 << 32) - 2) + 1


def query_vectors(query: str) -> tuple[Sparse, Sparse]:
    """The query's term counts with the title weighted 1, and with the text weighted 1; empty where it has no term."""
    counts = Counter(analysis.terms(query))

    def vector(led: str) -> Sparse:
        weight = {field: 1.0 if field == led else TIE_BREAKER for field in FIELDS}
        return {dimension(field, term): weight[field] * n for field in FIELDS for term, n in counts.items()}

    return vector("title"), vector("text")


class Weigher:
    """Makes the vectors of passages; reads all of them once, to count how many hold each term."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._holders: dict[str, Counter[str]] = {field: Counter() for field in FIELDS}
        self._length, self._count = dict.fromkeys(FIELDS, 0), 0
        for self._count, passage in enumerate(passages, 1):
            for field in FIELDS:
                terms = analysis.terms(getattr(passage, field))
                self._holders[field].update(set(terms))
                self._length[field] += len(terms)

    def vector(self, passage: Passage) -> Sparse:
        """What each term adds to the score of each field."""
        found: Sparse = {}
        for field in FIELDS:
            terms = analysis.terms(getattr(passage, field))
            weights = {term: idf(self._count, self._holders[field][term]) for term in terms}
            for term, score in added(terms, self._length[field] / max(self._count, 1), weights).items():
                found[dimension(field, term)] = score
        return found or {NOTHING: 1.0}

    def vectors(self, passages: Iterable[Passage]) -> list[Sparse]:
        """``vector`` of each passage."""
        return [self.vector(passage) for passage in passages]


def best(hits: Iterable[Hit]) -> list[Passage]:
    """Each passage once, with its highest score: the highest first, equal scores in corpus order."""
    rows: dict[int, Passage] = {}
    for row, passage in sorted(hits, key=lambda hit: (-hit[1].score, hit[0])):
        rows.setdefault(row, passage)
    return list(rows.values())
