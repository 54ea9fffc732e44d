"""What queries are made of: QFS and FLARE's confident sentence.

DRAGIN §3.2 and the FLARE paper. n tokens in the text, w words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragin_lab.core.words import Word


def weigh_words(row: np.ndarray, words: Sequence[Word]) -> np.ndarray:
    """The attention one position pays to each word: the largest over the word's tokens; (w,) float32.

    ``row`` is (n,), the head-mean attention of t_i over the tokens before it. The paper ranks tokens and then takes
    their words, so a word stands where its best token stands.
    """
    return np.array([row[w.start : w.stop].max(initial=0.0) for w in words], dtype=np.float32)  # (w,)


def choose_top(weights: np.ndarray, top_n: int, eligible: np.ndarray | None = None) -> np.ndarray:
    """Steps (2) and (3) of §3.2: the top n by weight, ties to the earlier one, as a mask in text order; (w,) bool.

    NaN weights rank as equal, so text order decides (what the released code's sort leaves when nothing is flagged).
    """
    candidates = np.arange(len(weights)) if eligible is None else np.flatnonzero(eligible)
    best = candidates[np.argsort(-np.nan_to_num(weights[candidates], nan=0.0), kind="stable")[:top_n]]
    mask = np.zeros(len(weights), dtype=bool)  # (w,)
    mask[best] = True
    return mask


def keep_confident(text: str, offsets: np.ndarray, probability: np.ndarray, floor: float) -> str:
    """A span of text without the tokens whose probability is below β (FLARE paper, implicit query formulation).

    ``offsets`` is (n, 2) in ``text``, ``probability`` is (n,); white space is folded to single spaces.
    """
    keep = np.ones(len(text), dtype=bool)  # (characters,)
    for (start, stop), p in zip(offsets, probability, strict=True):
        if p < floor:
            keep[start:stop] = False
    return " ".join("".join(c if kept else " " for c, kept in zip(text, keep, strict=True)).split())
