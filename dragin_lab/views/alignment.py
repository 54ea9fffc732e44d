"""Several texts on one question, sentence beside sentence: which sentences say the same thing in other words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

#: Sentences less alike than this do not stand in one slot.
ALIKE = 0.15


def alike(one: str, other: str) -> float:
    """How alike two sentences are, 0 to 1: the Dice coefficient of their character trigrams, case aside."""
    a, b = _trigrams(one), _trigrams(other)
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else float(one.strip() == other.strip())


def _trigrams(text: str) -> frozenset[str]:
    flat = f" {' '.join(text.casefold().split())} "
    return frozenset(flat[i : i + 3] for i in range(len(flat) - 2))


def align(texts: Sequence[Sequence[str]]) -> list[list[int | None]]:
    """Slots in reading order; each holds for every text the number of the sentence in it, None for none.

    The texts are added one after another. Each keeps its order; a sentence joins the slot that it is most alike to, so
    that all together are as alike as can be (Needleman and Wunsch 1970, gaps free), or gets a slot of its own.
    """
    slots: list[list[int | None]] = []
    for number, sentences in enumerate(texts):
        likeness = [[_to_slot(slot, texts, s) for s in sentences] for slot in slots]
        pairs = _best_pairs(likeness, len(slots), len(sentences))
        merged: list[list[int | None]] = []
        for (i, j), (k, m) in pairwise([(-1, -1), *pairs, (len(slots), len(sentences))]):
            merged += [[*slot, None] for slot in slots[i + 1 : k]]
            merged += [[*[None] * number, s] for s in range(j + 1, m)]
            if k < len(slots):
                merged.append([*slots[k], m])
        slots = merged
    return slots


def _to_slot(slot: Sequence[int | None], texts: Sequence[Sequence[str]], sentence: str) -> float:
    return max((alike(texts[t][s], sentence) for t, s in enumerate(slot) if s is not None), default=0.0)


def _best_pairs(likeness: list[list[float]], rows: int, cols: int) -> list[tuple[int, int]]:
    """The pairs (row, column), rising in both, with the largest sum of likeness; none below ``ALIKE``."""
    best = [[0.0] * (cols + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(cols - 1, -1, -1):
            here = likeness[i][j]
            joined = best[i + 1][j + 1] + here if here >= ALIKE else 0.0
            best[i][j] = max(joined, best[i + 1][j], best[i][j + 1])
    pairs, i, j = [], 0, 0
    while i < rows and j < cols:
        here = likeness[i][j]
        if here >= ALIKE and best[i][j] == best[i + 1][j + 1] + here:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs
