"""A set of 64-bit hashes that grows to tens of millions, 12 bytes each, and says where each stood first."""

from __future__ import annotations

import numpy as np


class Seen:
    """Hashes and their rows, in sorted runs of falling length; to be asked and added to by the thousand."""

    def __init__(self) -> None:
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []  # (m,) uint64 sorted, (m,) int32

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """(n,) int32: the row of each of n hashes, -1 where it was not added."""
        found = np.full(len(hashes), -1, np.int32)
        for keys, rows in reversed(self._runs):  # the first run has the earliest rows, and the last word
            at = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
            found = np.where(keys[at] == hashes, rows[at], found)
        return found

    def add(self, hashes: np.ndarray, rows: np.ndarray) -> None:
        """Add n hashes; of equal ones, ``find`` gives the row that was added first."""
        if not len(hashes):
            return
        self._runs.append(_sorted(hashes.astype(np.uint64), rows.astype(np.int32)))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            (keys, places), (more, further) = self._runs[-2:]
            self._runs[-2:] = [_sorted(np.concatenate([keys, more]), np.concatenate([places, further]))]


def _sorted(keys: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(keys, kind="stable")
    return keys[order], rows[order]
