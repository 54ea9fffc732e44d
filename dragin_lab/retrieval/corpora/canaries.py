"""Canary queries: for a few passages, their own rare words, which must find them in any sound index."""

from __future__ import annotations

from collections import Counter

import numpy as np

from dragin_lab.core.trace import Passage
from dragin_lab.retrieval.analysis import terms
from dragin_lab.retrieval.corpora.store import Records

CANARIES = 8
#: Words of a query, and the passages among which the one it was made from must be found.
WORDS, DEPTH = 6, 10
_SAMPLE = 4000
_CANDIDATES = 8


def choose_canaries(records: Records, passages: int) -> list[dict[str, str]]:
    """Queries for passages from the first to the last, so that an index of a part of them fails.

    How rare a term is, is estimated from a sample spread evenly over the corpus. Where a corpus has more passages that
    are alike than a search returns, none of them makes a canary.
    """
    sampled = np.unique(np.linspace(0, passages - 1, min(passages, _SAMPLE)).astype(int)).tolist()
    held: Counter[str] = Counter()
    for row in sampled:
        held.update(set(terms(_read(records, row).text)))
    chosen: dict[str, str] = {}
    for middle in np.unique(np.linspace(0, passages - 1, CANARIES).astype(int)).tolist():
        start = max(0, min(middle - _CANDIDATES // 2, passages - _CANDIDATES))
        found = [(passage, _rarest(passage, held)) for passage in _block(records, start, passages)]
        fit = [(sum(held[term] for term in words), passage, words) for passage, words in found if words]
        if fit:
            _, passage, words = min(fit, key=lambda each: (-len(each[2]), each[0]))
            chosen.setdefault(passage.id, " ".join(words.values()))
    return [{"id": id, "query": query} for id, query in chosen.items()]


def _block(records: Records, start: int, passages: int) -> list[Passage]:
    return records.passages(start, min(start + _CANDIDATES, passages))


def _read(records: Records, row: int) -> Passage:
    return records.passages(row, row + 1)[0]


def _rarest(passage: Passage, held: Counter[str]) -> dict[str, str]:
    """Up to ``WORDS`` words by their terms, the rarest first; none where even the rarest is too common."""
    words: dict[str, str] = {}
    for word in passage.text.split():
        made = terms(word)
        if len(made) == 1:
            words.setdefault(made[0], word)
    order = sorted(words, key=lambda term: (held[term], -len(term), term))[:WORDS]
    if not order or held[order[0]] > DEPTH // 2:
        return {}
    return {term: words[term] for term in order}
