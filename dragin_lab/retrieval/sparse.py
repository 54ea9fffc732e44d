"""``best_fields`` BM25 as inner products of sparse vectors, for search servers that know vectors and no analysis.

With a tie breaker c of 0 to 1, max(title, text) + c min(title, text) = max(title + c text, text + c title). Title's and
text's BM25 are sums over the query's terms, so each of the two sides is an inner product: of how often the query holds
each term, and of what each term of the passage adds. A passage has a vector for either side, and its score is the
larger of two inner products. The best k of both sides hold the best k of all.

A term's dimension is a hash of it, so a searcher needs nothing of the corpus but the vectors.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from dragin_lab.core.trace import Passage
from dragin_lab.retrieval import analysis

Sparse = dict[int, float]  # dimension -> weight

#: Of the vector of a passage without terms, as servers refuse an empty one; no query has it.
NOTHING = 0
_DIMENSIONS = (1 << 32) - 2  # Milvus takes 0 to 2**32 - 2


@lru_cache(maxsize=1 << 18)
def dimension(term: str) -> int:
    """1 to 2**32 - 2, the same on every machine.

    Among a million terms one in 4,300 shares its dimension with another, by chance (1e6 / 2**32).
    """
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "little") % _DIMENSIONS + 1


def query_vector(query: str) -> Sparse:
    """How often the query holds each term; empty where it holds none."""
    return {dimension(term): float(count) for term, count in Counter(analysis.terms(query)).items()}


class _Field:
    """What one field of all passages tells: the passages that hold each term, and their mean length."""

    def __init__(self) -> None:
        self.holders: Counter[str] = Counter()
        self.filled = 0
        self.length = 0

    def add(self, terms: list[str]) -> None:
        self.holders.update(set(terms))
        self.filled += bool(terms)
        self.length += len(terms)

    def weights(self, terms: list[str], k1: float, b: float) -> dict[str, float]:
        """What each term adds to the score of a field with these terms (the formula of ``bm25``, and its counts)."""
        mean = self.length / max(self.filled, 1)
        norm = k1 * (1 - b + b * len(terms) / (mean or 1))
        return {term: self._idf(term) * tf / (tf + norm) for term, tf in Counter(terms).items()}

    def _idf(self, term: str) -> float:
        df = self.holders[term]
        return math.log1p((self.filled - df + 0.5) / (df + 0.5))


class Weigher:
    """The vectors of a corpus's passages; reads the corpus once, to count in how many passages each term stands."""

    def __init__(
        self, passages: Iterable[Passage], *, k1: float = 1.2, b: float = 0.75, tie_breaker: float = 0.5
    ) -> None:
        self.k1, self.b, self.tie_breaker = k1, b, tie_breaker
        self._title, self._text = _Field(), _Field()
        for passage in passages:
            self._title.add(analysis.terms(passage.title))
            self._text.add(analysis.terms(passage.text))

    def vectors(self, passage: Passage) -> tuple[Sparse, Sparse]:
        """The passage's two sides: title + c text, and text + c title."""
        title = self._title.weights(analysis.terms(passage.title), self.k1, self.b)
        text = self._text.weights(analysis.terms(passage.text), self.k1, self.b)
        return _side(title, text, self.tie_breaker), _side(text, title, self.tie_breaker)


def _side(whole: Mapping[str, float], part: Mapping[str, float], share: float) -> Sparse:
    vector: Sparse = {}
    for weights, factor in ((whole, 1.0), (part, share)):
        for term, weight in weights.items():
            if weight * factor > 0:
                place = dimension(term)
                vector[place] = vector.get(place, 0.0) + weight * factor
    return vector or {NOTHING: 1.0}
