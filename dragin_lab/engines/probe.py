"""A model is what it computes: the log-probabilities that it gives after a few fixed ids, compared and never hashed.

Hooks, steering strengths, adapters, edited weights and exchanged modules change them. Another thread count or another
instruction set does so too, in the last digits: on SmolLM2 by 3e-5 nats, which flips thousands of rounded digits of a
vocabulary. So two probes are compared with a tolerance, and a hash of one would tell nothing.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from dragin_lab.trace.frames import probe_distance, probe_tolerance

IDS = 8  # tokens that are read
ENTRIES, PROJECTIONS = 16, 4  # of the vocabulary after each of them
NOISE = 16.0  # times what a device that does not repeat itself differs from itself
_FLOOR = -1e4  # nats of a token that a model forbids


def probe_ids(vocabulary: int) -> list[int]:
    """The ids that every model of this vocabulary reads."""
    return [(7919 * n + 11) % vocabulary for n in range(1, IDS + 1)]


def reduce_logits(logits: np.ndarray) -> np.ndarray:
    """160 numbers, float32, in nats: 16 log-probabilities and 4 random sums of all, after each of the 8 ids.

    ``logits`` (8, V). Each sum is of the log-probabilities with random signs, over the square root of V.
    """
    logits = logits.astype(np.float64)  # (8, V)
    high = logits.max(-1, keepdims=True)  # (8, 1)
    logprobs = logits - high - np.log(np.exp(logits - high).sum(-1, keepdims=True))  # (8, V)
    logprobs = np.maximum(logprobs, _FLOOR)
    size = logprobs.shape[1]
    entries = logprobs[:, np.arange(ENTRIES) * (size - 1) // (ENTRIES - 1)]  # (8, 16)
    sums = logprobs @ _signs(size).T / np.sqrt(size)  # (8, 4)
    return np.concatenate([entries, sums], axis=1).ravel().astype(np.float32)  # (160,)


@cache
def _signs(size: int) -> np.ndarray:
    """(4, V) of 1 and -1, by whole numbers alone, so that they are the same everywhere."""
    places = np.arange(1, PROJECTIONS * size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    places ^= places >> np.uint64(29)
    places *= np.uint64(0xBF58476D1CE4E5B9)
    return np.where(places >> np.uint64(63), 1.0, -1.0).reshape(PROJECTIONS, size)


def write_probe(probe: np.ndarray) -> list[float]:
    """As it is recorded: to a millionth, far below the tolerance."""
    return [round(float(number), 6) for number in probe]


class Probed:
    """What a model of this process computes, and whether that is what it computed before.

    Within a process equal bits are the same model; where two probes at the beginning differ, as on a device that sums
    in no fixed order, what differs by less than ``NOISE`` times that.
    """

    def __init__(self, first: np.ndarray, second: np.ndarray, dtype: str) -> None:
        self.probe = first
        self.within, self.across = NOISE * probe_distance(first, second), probe_tolerance(dtype)

    def changed(self, probe: np.ndarray) -> bool:
        """Whether it is another model now; the probe is then that of the new one."""
        if self.is_of(probe):
            return False
        self.probe = probe
        return True

    def is_of(self, probe: np.ndarray) -> bool:
        """Whether the model as it is now computes this probe."""
        return probe_distance(self.probe, probe) <= self.within
