"""What the k likeliest tokens say about the whole distribution: bounds of its entropy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

_IMPOSSIBLE = -1e30  # nats; 0 log 0 is 0


@dataclass(frozen=True)
class Token:
    """A token that a server wrote, with the k likeliest of its raw distribution, best first."""

    id: int
    logprob: float  # nats; NaN where the server did not say
    ids: np.ndarray  # (k,) int64
    logprobs: np.ndarray  # (k,) float64, nats

    @classmethod
    def ranked(cls, token: int, logprob: float | None, likeliest: dict[int, float], k: int) -> Token:
        """With the k likeliest of ``likeliest`` (id -> log-probability, nats), in whatever order they come."""
        best = sorted(likeliest.items(), key=lambda item: -item[1])[:k]
        ids, logprobs = np.array([i for i, _ in best], np.int64), np.array([value for _, value in best], np.float64)
        return cls(token, likeliest.get(token, np.nan) if logprob is None else logprob, ids, logprobs)

    def first(self, k: int) -> Token:
        """With no more than the k likeliest."""
        return replace(self, ids=self.ids[:k], logprobs=self.logprobs[:k])


def entropy_bounds(logprobs: np.ndarray, vocabulary: int) -> tuple[float, float]:
    """The least and the greatest entropy (nats) of a distribution whose k likeliest are known; both are attained.

    ``logprobs`` is (k,) nats, best first, of ``vocabulary`` = V tokens. The rest r = 1 - Σp is spread over V - k tokens
    of at most p_k each. Entropy is greatest where they share it evenly, and least where as few as possible have all:
    m = ⌊r / p_k⌋ of them p_k, and one of them s = r - m p_k.
    """
    logprobs = np.maximum(logprobs, _IMPOSSIBLE)
    p = np.exp(logprobs)  # (k,)
    known, k = float(-(p * logprobs).sum()), len(p)
    if k >= vocabulary:  # rounding left aside, it is all of it
        known = known / p.sum() + float(np.log(p.sum()))
    rest, last = 1.0 - float(p.sum()), float(p[-1])
    if k >= vocabulary or rest <= 0 or last <= 0:
        return known, known
    full = np.floor(rest / last)
    left = rest - full * last
    least = float(known - full * last * logprobs[-1] - (left * np.log(left) if left > 0 else 0.0))
    return least, max(least, float(known - rest * np.log(rest / (vocabulary - k))))
