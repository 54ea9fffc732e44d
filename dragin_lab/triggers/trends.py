"""Entropy's trend over the words of a draft (ETC): as the paper has it, and as its released code computes it.

ETC is arXiv 2511.09980; the released code is github.com/WisdomShell/ETC, commit facd465. w words, n tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from dragin_lab.core.words import Word

_TINY = 1e-10


def trends(entropy: np.ndarray) -> np.ndarray:
    """M_k of content words with entropies (w,), nats, as the paper has it; (w,) float64, 0 for the first two.

    x_k = H_k - 2 H_{k-1} + H_{k-2}; E_k = mean(x_1 … x_k); w_k = |x_{k-1} - E_k| / (|x_k - E_k| + |x_{k-1} - E_k|);
    M_k = w_k x_k + (1 - w_k) x_{k-1}. The first has no x before it, so M_1 = x_1; where x_k = x_{k-1} = E_k, M_k = x_k.
    """
    found = np.zeros(len(entropy))  # (w,)
    second = np.diff(entropy, 2)  # (w - 2,)
    for k, x in enumerate(second):
        before, mean = second[k - 1] if k else x, second[: k + 1].mean()
        spread = abs(x - mean) + abs(before - mean)
        weight = abs(before - mean) / spread if spread > 0 else 1.0
        found[k + 2] = weight * x + (1 - weight) * before
    return found


def reference_trends(entropy: np.ndarray, content: np.ndarray) -> np.ndarray:
    """M of the words as the released code computes it; (w,) float64, 0 for those without a second difference.

    ``entropy`` is (w,) nats, ``content`` (w,) bool. A first difference is taken to the nearest content word before, a
    second one to the nearest earlier first difference that is not 0.
    """
    first, second = np.zeros(len(entropy)), np.zeros(len(entropy))  # (w,), (w,)
    for i in np.flatnonzero(content):
        words = np.flatnonzero(content[:i])
        first[i] = entropy[i] - entropy[words[-1]] if len(words) else 0.0
        differing = np.flatnonzero(first[:i])
        second[i] = first[i] - first[differing[-1]] if i >= 2 and len(differing) else 0.0
    found = np.zeros(len(entropy))  # (w,)
    turning = np.flatnonzero(second)
    before = 0.0
    for count, i in enumerate(turning, 1):
        x, mean = second[i], second[turning[:count]].mean()
        weight = abs(before - mean) / (abs(x - mean) + abs(before - mean))
        share = 0.9 + 0.1 * weight
        found[i], before = share * x + (1 - share) * before, x
    return found


def reference_words(tokens: Sequence[str], marker: str, alone: Collection[str]) -> list[Word]:
    """Words as the released code cuts them: at the space marker, and around every token that stands ``alone``."""
    opens = [
        i == 0 or (bool(marker) and token.startswith(marker)) or token in alone or tokens[i - 1] in alone
        for i, token in enumerate(tokens)
    ]
    starts = [i for i, is_open in enumerate(opens) if is_open]
    ends = [*starts, len(tokens)][1:]
    return [Word("".join(tokens[a:b]), a, b) for a, b in zip(starts, ends, strict=True)]


def paid_to_words(rows: np.ndarray, words: Sequence[Word], own: Sequence[Word]) -> np.ndarray:
    """What each word of a draft pays to every word of the text: ``rows`` (h, n, p + n) -> (own, words) float64.

    Mean over heads, columns summed over a word's tokens, rows averaged over them. ``own`` count tokens in the draft.
    """
    mean = rows.mean(axis=0).astype(np.float64)  # (n, p + n)
    columns = np.add.reduceat(mean, [word.start for word in words], axis=1)  # (n, words)
    return np.stack([columns[word.start : word.stop].mean(axis=0) for word in own])


def reference_scores(
    paid: np.ndarray, trend: np.ndarray, ranges: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The draft's words' attention (w,), and per sentence what is compared with θ, (m,).

    ``paid`` is (w, all words): what the draft's words pay, their own at the end. A word's attention is the largest that
    it pays to a word of the draft; within a sentence it is divided by its sum and multiplied by its length.
    """
    shares = paid[:, paid.shape[1] - len(trend) :] / (paid.sum(axis=1, keepdims=True) + _TINY)  # (w, w)
    attention = shares.max(axis=1)  # (w,)
    scores = [attention[a:b] * (b - a) / (attention[a:b].sum() + _TINY) * trend[a:b] for a, b in ranges]  # (m,) each
    return attention, scores
