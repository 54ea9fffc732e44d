"""What triggers hold against a threshold, as the papers' equations have it.

DRAGIN §3.1 (RIND), reference-behaviour §2 and §5 (the released code's RIND and FLARE). n tokens in a draft, h heads,
v entries in the vocabulary, w words. Entropies are in nats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from dragin_lab.core.words import Word

#: Stands in for the logarithm of 0, so that 0 log 0 is 0.
_IMPOSSIBLE = -1e30
_POOLS: dict[str, Callable[[np.ndarray], Any]] = {"max": np.max, "mean": np.mean, "min": np.min, "sum": np.sum}


def entropy(p: Any, log_p: Any) -> Any:
    """Eq. 1: H_i = - sum_v p_i(v) log p_i(v), for distributions (n, v); (n,) nats. Arrays of numpy or torch."""
    return -(p * log_p.clip(min=_IMPOSSIBLE)).sum(-1)  # (n,)


def received(rows: Any, first: int = 0, xp: ModuleType = np) -> Any:
    """Eq. 3: a_max(i) = max over j > i of A_{j,i}, with A the mean over heads (Eq. 2); (n,).

    ``rows`` is (c, n): what the tokens ``first`` to ``first + c - 1`` pay to each of n. A token with no later one among
    them gets 0. ``xp`` is the arrays' module, numpy or torch.
    """
    return xp.amax(xp.tril(rows, first - 1), 0)  # (n,)


def sentence_scaled(received: np.ndarray, sentence: np.ndarray) -> np.ndarray:
    """The released code's scale on any attention: within each sentence, divided by its sum, times its length.

    ``received`` (n,), ``sentence`` (n,) sentence numbers; (n,) with mean 1 in every sentence (0 where the sum is 0).
    """
    scaled = np.zeros(len(received))  # (n,)
    for number in np.unique(sentence):
        inside = sentence == number  # (n,)
        total = received[inside].sum()
        if total > 0:
            scaled[inside] = received[inside] / total * inside.sum()
    return scaled  # (n,)


def reference_attention(attention: np.ndarray, *, first_is_eos: bool) -> np.ndarray:
    """What each token receives in the released code (reference-behaviour §2.2); (n,) float32.

    ``attention`` is (h, n, n): the generated ids by themselves, without their prompt. The maximum runs over all query
    positions, the token's own included, per head; then the mean over heads.
    """
    largest = attention.max(axis=1)  # (h, n)
    mean = largest.mean(axis=0)  # (n,)
    if first_is_eos and len(mean) > 1:
        mean = mean / mean[1:].sum()  # (n,)
    return mean


def pooled(values: np.ndarray, how: str) -> float:
    """One number for values (m,), m > 0: their "max", "mean", "min" or "sum"."""
    return float(_POOLS[how](np.asarray(values, dtype=np.float64)))


def over_words(values: np.ndarray, words: Sequence[Word], how: str) -> np.ndarray:
    """Values of tokens (n,) gathered to words (w,) float64: their "max", "mean", "min" or "sum"."""
    return np.array([pooled(values[w.start : w.stop], how) for w in words], dtype=np.float64)  # (w,)


def reference_scores(attention: np.ndarray, entropy: np.ndarray, ranges: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """attention_i / (sum of the sentence's attentions) · entropy_i · m, per sentence (reference-behaviour §2.5).

    ``attention`` and ``entropy`` are (w,), ``ranges`` the words of each sentence; one (m,) array per sentence.
    """
    scores = []
    for start, stop in ranges:
        a, h = attention[start:stop], entropy[start:stop]  # (m,), (m,)
        total = a.sum()
        scores.append(a / total * h * (stop - start) if total > 0 else np.zeros(stop - start))  # (m,)
    return scores


def contains_any(words: Sequence[str], contents: Sequence[str]) -> np.ndarray:
    """For each word, whether some content word stands in it as a substring (reference-behaviour §2.6); (w,) bool."""
    distinct = set(contents)
    return np.array([any(content in word for content in distinct) for word in words], dtype=bool)


def doubts(logprob: np.ndarray) -> np.ndarray:
    """1 - p for log-probabilities (n,) in nats; (n,) float64."""
    return -np.expm1(np.asarray(logprob, dtype=np.float64))  # (n,)


def sentence_doubt(values: np.ndarray, solver: str) -> float:
    """The mean, largest or smallest doubt of a sentence's tokens; NaN for a sentence without tokens.

    NaN fires no trigger. The released code raises for max and min of nothing; NaN is the sensible answer.
    """
    if len(values) == 0:
        return float("nan")
    if solver == "avg":
        return float(values.mean())
    return float(values.max() if solver == "max" else values.min())


def reference_token_ranges(sentences: Sequence[str], tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Which tokens each sentence owns in the released code, as half-open ranges (reference-behaviour §5).

    ``tokens`` are decoded one id at a time. A sentence owns its tokens up to and with the first one not found after
    the place of the one before; that place is relative to the slice last searched, not to the sentence.
    """
    ranges = []
    start = 0
    for sentence in sentences:
        place, stop = 0, start
        while stop < len(tokens):
            found = sentence[place:].find(tokens[stop])
            stop += 1
            if found < 0:
                break
            place = found + len(tokens[stop - 1])
        ranges.append((start, stop))
        start = stop
    return ranges
