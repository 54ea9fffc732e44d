"""FLARE's trigger and query: sentences by the probability of their pieces (reference-behaviour §5; FLARE paper).

Doubt is 1 - p of a piece under the model's own distribution, so that a larger value means less certain, as with RIND.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def doubts(logprob: np.ndarray) -> np.ndarray:
    """1 - p for log-probabilities (n,) in nats; (n,) float64."""
    return -np.expm1(np.asarray(logprob, dtype=np.float64))  # (n,)


def sentence_doubt(values: np.ndarray, solver: str) -> float:
    """The mean, largest or smallest doubt of a sentence's pieces; NaN for a sentence without pieces.

    NaN fires no trigger. The released code raises for max and min of nothing; NaN is the sensible answer.
    """
    if len(values) == 0:
        return float("nan")
    if solver == "avg":
        return float(values.mean())
    return float(values.max() if solver == "max" else values.min())


def reference_piece_ranges(sentences: Sequence[str], pieces: Sequence[str]) -> list[tuple[int, int]]:
    """Which pieces each sentence owns in the released code, as half-open ranges (reference-behaviour §5).

    ``pieces`` are decoded one id at a time. A sentence owns its pieces up to and with the first one not found behind
    the place of the one before; that place is relative to the slice last searched, not to the sentence.
    """
    ranges = []
    start = 0
    for sentence in sentences:
        place, stop = 0, start
        while stop < len(pieces):
            found = sentence[place:].find(pieces[stop])
            stop += 1
            if found < 0:
                break
            place = found + len(pieces[stop - 1])
        ranges.append((start, stop))
        start = stop
    return ranges


def reference_confident_sentence(sentence: str, pieces: Sequence[str], doubt: np.ndarray, threshold: float) -> str:
    """The sentence without its doubtful pieces, as the released code edits it (reference-behaviour §5).

    A piece's place is where it stands behind ``place`` in the sentence as edited so far; a piece that is not found
    counts as one character before it, and slices then count from the end as Python's do.
    """
    marker = "[xxx]"
    place = 0
    for piece, value in zip(pieces, doubt, strict=True):
        begin = place + sentence[place:].find(piece)
        end = begin + len(piece)
        if value > threshold:
            sentence = sentence[:begin] + marker + sentence[end:]
            place = begin + len(marker)
        else:
            place = end
    return sentence.replace(marker, "")


def confident_text(text: str, offsets: np.ndarray, probability: np.ndarray, floor: float) -> str:
    """A span of text without the pieces whose probability is below β (FLARE paper, implicit query formulation).

    ``offsets`` is (n, 2) in ``text``, ``probability`` is (n,); white space is folded to single spaces.
    """
    keep = np.ones(len(text), dtype=bool)  # (characters,)
    for (start, stop), p in zip(offsets, probability, strict=True):
        if p < floor:
            keep[start:stop] = False
    return " ".join("".join(c if kept else " " for c, kept in zip(text, keep, strict=True)).split())
