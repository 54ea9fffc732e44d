"""RIND: where does the model lack information? (DRAGIN §3.1; reference-behaviour §2)

n pieces in a draft, h heads, w words. Entropies are in nats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragin_lab.core.words import Word


def entropy(logits: np.ndarray) -> np.ndarray:
    """Eq. 1: H_i = - sum_v p_i(v) log p_i(v), for logits (n, v); (n,) float64 nats."""
    shifted = logits - logits.max(axis=-1, keepdims=True)  # (n, v)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # (n, v)
    p = np.exp(log_p)  # (n, v)
    return -(p * np.where(p > 0, log_p, 0.0)).sum(axis=-1)  # (n,)


def received(attention: np.ndarray) -> np.ndarray:
    """Eq. 3: a_max(i) = max over j > i of A_{j,i}, with A the mean over heads.

    ``attention`` is (h, n, n), queries before keys, over the draft's own pieces. The last piece has no later one: 0.
    """
    mean = attention.astype(np.float32).mean(axis=0)  # (n, n)
    later = np.tril(mean, k=-1)  # (n, n), row j holds what j pays to the i < j
    return later.max(axis=0, initial=0.0)  # (n,)


def rind_scores(entropy: np.ndarray, received: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Eq. 5: S_RIND(t_i) = H_i · a_max(i) · s_i, with s_i = 0 where the piece's word is a stop word (Eq. 4); (n,)."""
    s = np.where(stop, 0.0, 1.0)  # (n,)
    return s * entropy * received  # (n,)


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
    """What each piece receives in the released code (reference-behaviour §2.2); (n,) float32.

    ``attention`` is (h, n, n): the generated ids by themselves, without their prompt. The maximum runs over all query
    positions, the piece's own included, per head; then the mean over heads.
    """
    largest = attention.max(axis=1)  # (h, n)
    mean = largest.mean(axis=0)  # (n,)
    if first_is_eos and len(mean) > 1:
        mean = mean / mean[1:].sum()  # (n,)
    return mean


def over_words(values: np.ndarray, words: Sequence[Word], how: str) -> np.ndarray:
    """Values of pieces (n,) gathered to words (w,): their "sum", "mean" or "max"."""
    parts = [np.asarray(values[w.start : w.stop], dtype=np.float64) for w in words]
    if how == "sum":
        return np.array([part.sum() for part in parts], dtype=np.float64)  # (w,)
    return np.array([part.mean() if how == "mean" else part.max() for part in parts], dtype=np.float64)  # (w,)


def reference_scores(attention: np.ndarray, entropy: np.ndarray, ranges: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """attention_i / (sum of the sentence's attentions) · entropy_i · m, per sentence (reference-behaviour §2.5).

    ``attention`` and ``entropy`` are (w,), ``ranges`` the words of each sentence; one (m,) array a sentence.
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
