"""BM25 as inner products of sparse vectors, for servers that search such.

With a tie breaker c of 0 to 1, the score of ``best_fields`` is

    max(title, text) + c min(title, text) = max(title + c text, c title + text)

and title's and text's BM25 are sums over the query's terms. So a passage's vector holds what each term adds to either
field, a query is asked twice, with either field led, and a passage's score is the larger of two inner products; the
best k of both hold the best k of all. A dimension is a hash of field and term. Weights are float32: passages whose
scores differ by less than one part in a million may stand in another order than ``BM25``'s.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from dragin_lab.core.trace import Passage
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.bm25 import K1, TIE_BREAKER, B, idf

Sparse = dict[int, float]  # dimension -> weight
Hit = tuple[float, int, dict[str, str]]  # score, row, the passage's fields
FIELDS = ("title", "text")
#: The dimension of a vector without terms, as servers refuse an empty one.
NOTHING = 0


@lru_cache(maxsize=1 << 18)
def dimension(field: str, term: str) -> int:
    """1 to 2**32 - 2, the same on every machine; of a million terms, one in 4,300 shares its own by chance."""
    digest = hashlib.blake2b(f"{field} {term}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % ((1 << 32) - 2) + 1


def query_vectors(query: str) -> tuple[Sparse, Sparse]:
    """How often the query holds each term: the title led, the text led; empty where it holds none."""
    counts = Counter(analysis.terms(query))

    def led(by: str) -> Sparse:
        share = {field: 1.0 if field == by else TIE_BREAKER for field in FIELDS}
        return {dimension(field, term): share[field] * n for field in FIELDS for term, n in counts.items()}

    return led("title"), led("text")


class Weigher:
    """The vectors of passages; reads all of them once, to count in how many each term stands."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._holders: dict[str, Counter[str]] = {field: Counter() for field in FIELDS}
        self._length, self._count = dict.fromkeys(FIELDS, 0), 0
        for self._count, passage in enumerate(passages, 1):
            for field in FIELDS:
                terms = analysis.terms(getattr(passage, field))
                self._holders[field].update(set(terms))
                self._length[field] += len(terms)

    def vector(self, passage: Passage) -> Sparse:
        """What each term adds to the score of each field (the formula of ``BM25``)."""
        found: Sparse = {}
        for field in FIELDS:
            terms = analysis.terms(getattr(passage, field))
            mean = self._length[field] / max(self._count, 1)
            norm = K1 * (1 - B + B * len(terms) / (mean or 1))
            for term, tf in Counter(terms).items():
                found[dimension(field, term)] = idf(self._count, self._holders[field][term]) * tf / (tf + norm)
        return found or {NOTHING: 1.0}


def best(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit[0], hit[1]))


def larger(sides: Sequence[list[Hit]], k: int, limit: int) -> tuple[list[Hit], bool]:
    """The k passages whose larger product is largest, and whether none that is as good as the last was cut off."""
    rows: dict[int, Hit] = {}
    for hit in best(hit for side in sides for hit in side):
        rows.setdefault(hit[1], hit)
    found = list(rows.values())[:k]
    return found, all(len(side) < limit or (len(found) == k and side[-1][0] < found[-1][0]) for side in sides)
