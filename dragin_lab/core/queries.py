"""What queries are made of: QFS and FLARE's confident sentence.

DRAGIN §3.2, reference-behaviour §3 and §5, and the FLARE paper. n tokens in the text, h heads, w words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragin_lab.core.words import Word


def word_weights(row: np.ndarray, words: Sequence[Word]) -> np.ndarray:
    """The attention one position pays to each word: the largest over the word's tokens; (w,) float32.

    ``row`` is (n,), the head-mean attention of t_i over the tokens before it. The paper ranks tokens and then takes
    their words, so a word stands where its best token stands.
    """
    return np.array([row[w.start : w.stop].max(initial=0.0) for w in words], dtype=np.float32)  # (w,)


def top_words(weights: np.ndarray, top_n: int, eligible: np.ndarray | None = None) -> np.ndarray:
    """Steps (2) and (3) of §3.2: the top n by weight, ties to the earlier one, as a mask in text order; (w,) bool.

    NaN weights rank as equal, so text order decides (what the released code's sort leaves when nothing is flagged).
    """
    candidates = np.arange(len(weights)) if eligible is None else np.flatnonzero(eligible)
    best = candidates[np.argsort(-np.nan_to_num(weights[candidates], nan=0.0), kind="stable")[:top_n]]
    mask = np.zeros(len(weights), dtype=bool)  # (w,)
    mask[best] = True
    return mask


def reference_word_attention(attention: np.ndarray, words: Sequence[Word]) -> np.ndarray:
    """What each word pays to each word before it, as the released code computes it (reference-behaviour §3.3).

    ``attention`` is (h, n, n) over question, answer and sentence. For each token of a word the row of the position
    that predicted it, cut to the columns before the word, renormalised; summed, divided by the word's tokens; columns
    summed into words. (w, w) float64.
    """
    mean = attention.mean(axis=0).astype(np.float64)  # (n, n)
    starts = np.array([word.start for word in words], dtype=int)  # (w,)
    paid = np.zeros((len(words), len(words)))  # (w, w)
    for number, word in enumerate(words):
        if word.start == 0:
            continue
        rows = mean[word.start - 1 : word.stop - 1, : word.start]  # (tokens, start)
        row = (rows / rows.sum(axis=1, keepdims=True)).sum(axis=0) / (word.stop - word.start)  # (start,)
        paid[number, :number] = np.add.reduceat(row, starts[:number])  # (number,)
    return paid


def reference_confident_sentence(sentence: str, tokens: Sequence[str], doubt: np.ndarray, threshold: float) -> str:
    """The sentence without its doubtful tokens, as the released code edits it (reference-behaviour §5).

    A token's place is where it stands after ``place`` in the sentence as edited so far; a token that is not found
    counts as one character before it, and slices then count from the end as Python's do.
    """
    marker = "[xxx]"
    place = 0
    for token, value in zip(tokens, doubt, strict=True):
        begin = place + sentence[place:].find(token)
        end = begin + len(token)
        if value > threshold:
            sentence = sentence[:begin] + marker + sentence[end:]
            place = begin + len(marker)
        else:
            place = end
    return sentence.replace(marker, "")


def confident_text(text: str, offsets: np.ndarray, probability: np.ndarray, floor: float) -> str:
    """A span of text without the tokens whose probability is below β (FLARE paper, implicit query formulation).

    ``offsets`` is (n, 2) in ``text``, ``probability`` is (n,); white space is folded to single spaces.
    """
    keep = np.ones(len(text), dtype=bool)  # (characters,)
    for (start, stop), p in zip(offsets, probability, strict=True):
        if p < floor:
            keep[start:stop] = False
    return " ".join("".join(c if kept else " " for c, kept in zip(text, keep, strict=True)).split())
