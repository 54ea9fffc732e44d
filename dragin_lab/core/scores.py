"""What triggers compare with a threshold, as the papers' equations have it (DRAGIN §3.1, FLARE
§3.2).

n tokens in a draft, v entries in the vocabulary, w words. Entropies are in nats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from dragin_lab.trace.draft import Word

#: Stands in for the logarithm of 0, so that 0 log 0 is 0.
_IMPOSSIBLE = -1e30
_POOLS: dict[str, Callable[[np.ndarray], Any]] = {
    "max": np.max,
    "mean": np.mean,
    "min": np.min,
    "sum": np.sum,
}
_POOLS |= {"avg": np.mean, "first": lambda values: values[0]}  # as released codes call them


def entropy(p: Any, log_p: Any) -> Any:
    """Eq. 1: H_i = - sum_v p_i(v) log p_i(v), for distributions (n, v); (n,) nats. Arrays of
    numpy or torch.
    """
    return -(p * log_p.clip(min=_IMPOSSIBLE)).sum(-1)  # (n,)


def received(rows: Any, first: int = 0, xp: ModuleType = np) -> Any:
    """Eq. 3: a_max(i) = max over j > i of A_{j,i}, with A the mean over heads (Eq. 2); (n,).

    ``rows`` is (c, n): what the tokens ``first`` to ``first + c - 1`` pay to each of n. A token
    with no later one among them gets 0. ``xp`` is the arrays' module, numpy or torch.
    """
    return xp.amax(xp.tril(rows, first - 1), 0)  # (n,)


def scale_by_sentence(received: np.ndarray, sentence: np.ndarray) -> np.ndarray:
    """The released code's scale on any attention: within each sentence, divided by its sum, times
    its length.

    ``received`` (n,), ``sentence`` (n,) sentence numbers; (n,) with mean 1 in every sentence (0
    where the sum is 0).
    """
    # (n,), (n,)
    total = np.bincount(sentence, received)[sentence]
    size = np.bincount(sentence)[sentence]
    return np.divide(received, total, out=np.zeros(len(received)), where=total > 0) * size


def doubts(logprob: np.ndarray) -> np.ndarray:
    """1 - p for log-probabilities (n,) in nats; (n,) float64."""
    return -np.expm1(np.asarray(logprob, np.float64))  # (n,)


def pool_values(values: np.ndarray, how: str) -> float:
    """One number for values (m,), m > 0: their "max", "mean", "min", "sum" or "first"."""
    return float(_POOLS[how](np.asarray(values, np.float64)))


def find_highest(values: np.ndarray, word: np.ndarray) -> np.ndarray:
    """(w,) the token of each word that scores highest, the first of equals; ``word`` (n,) is
    each token's word.
    """
    order = np.lexsort((-values, word))  # (n,) stable: by word, then from the highest down
    return order[np.flatnonzero(np.diff(word, prepend=-1))]  # (w,)


def pool_words(values: np.ndarray, words: Sequence[Word], how: str) -> np.ndarray:
    """Values of tokens (n,) gathered to words (w,) float64: their "max", "mean", "min" or "sum"."""
    # (w,)
    return np.array([pool_values(values[w.start : w.stop], how) for w in words], np.float64)
