"""BM25 as inner products of sparse vectors, for servers that search such.

With a tie breaker c of 0 to 1, the score of ``best_fields`` is

    max(title, text) + c min(title, text) = max(title + c text, text + c title)

and title's and text's BM25 are sums over the query's terms. So each passage has two vectors, one for either side, and
its score is the larger of two inner products; the best k of both hold the best k of all. A term's dimension is a hash
of it. Weights are float32: passages whose scores differ by less than one part in a million may stand in another order
than ``BM25``'s.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from dragin_lab.core.trace import Passage
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.bm25 import K1, TIE_BREAKER, B, idf

Sparse = dict[int, float]  # dimension -> weight
Hit = tuple[float, int, dict[str, str]]  # score, row, the passage's fields
#: The dimension of a vector without terms, as servers refuse an empty one.
NOTHING = 0


@lru_cache(maxsize=1 << 18)
def dimension(term: str) -> int:
    """1 to 2**32 - 2, the same on every machine; of a million terms, one in 4,300 shares its own by chance."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "little") % ((1 << 32) - 2) + 1


def query_vector(query: str) -> Sparse:
    """How often the query holds each term; empty where it holds none."""
    return {dimension(term): float(count) for term, count in Counter(analysis.terms(query)).items()}


class Weigher:
    """The vectors of passages; reads all of them once, to count in how many each term stands."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._holders: tuple[Counter[str], Counter[str]] = (Counter(), Counter())  # of title and text
        self._length, self._count = [0, 0], 0
        for self._count, passage in enumerate(passages, 1):
            for number, value in enumerate((passage.title, passage.text)):
                terms = analysis.terms(value)
                self._holders[number].update(set(terms))
                self._length[number] += len(terms)

    def vectors(self, passage: Passage) -> tuple[Sparse, Sparse]:
        """The passage's two sides: title + c text, and text + c title."""
        title, text = self._weights(0, passage.title), self._weights(1, passage.text)
        return _side(title, text), _side(text, title)

    def _weights(self, number: int, value: str) -> dict[str, float]:
        """What each term adds to the score of a field (the formula of ``BM25``)."""
        terms = analysis.terms(value)
        mean = self._length[number] / max(self._count, 1)
        norm = K1 * (1 - B + B * len(terms) / (mean or 1))
        holders = self._holders[number]
        return {term: idf(self._count, holders[term]) * tf / (tf + norm) for term, tf in Counter(terms).items()}


def _side(whole: Mapping[str, float], part: Mapping[str, float]) -> Sparse:
    vector: Sparse = {}
    for weights, factor in ((whole, 1.0), (part, TIE_BREAKER)):
        for term, weight in weights.items():
            vector[dimension(term)] = vector.get(dimension(term), 0.0) + weight * factor
    return vector or {NOTHING: 1.0}


def best(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit[0], hit[1]))


def larger(sides: Sequence[list[Hit]], k: int, limit: int) -> tuple[list[Hit], bool]:
    """The k passages whose larger side is largest, and whether none that is as good as the last was cut off."""
    rows: dict[int, Hit] = {}
    for hit in (hit for side in sides for hit in side):
        if hit[1] not in rows or rows[hit[1]][0] < hit[0]:
            rows[hit[1]] = hit
    found = best(rows.values())[:k]
    return found, all(len(side) < limit or (len(found) == k and side[-1][0] < found[-1][0]) for side in sides)
