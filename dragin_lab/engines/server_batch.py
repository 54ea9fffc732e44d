"""Drafts of a server side by side, and what its k likeliest tokens say about an entropy."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np

from dragin_lab.core.episode import Write
from dragin_lab.engines.engine import Batch
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft

_IMPOSSIBLE = -1e30  # nats; 0 log 0 is 0


class ServerBatch(Batch):
    """Drafts written side by side, each in a thread of its own."""

    def __init__(self, lm: Any, size: int) -> None:
        super().__init__(lm, size)
        self.lm, self.size, self.notes, self._writing = lm, size, [], 0
        self._ended: queue.SimpleQueue[tuple[Any, Draft | Exception]] = queue.SimpleQueue()

    def __len__(self) -> int:
        return len(self._waiting) + self._writing

    def step(self) -> list[tuple[Any, Draft | Exception]]:
        """Wait for the next draft; it, or what it failed with."""
        while self._waiting and self._writing < self.size:
            threading.Thread(target=self._write, args=self._waiting.pop(0), daemon=True).start()
            self._writing += 1
        if not self._writing:
            return []
        ended = self._ended.get()
        self._writing -= 1
        return [ended]

    def _write(self, key: Any, request: Write, seed: int | None) -> None:
        try:
            self._ended.put((key, self.lm.write(request, seed)))
        except BaseException as error:  # noqa: BLE001 - raised by the episode that asked
            self._ended.put((key, error if isinstance(error, Exception) else ModelError("given up")))

    def close(self) -> None:
        """Give up what is under way."""
        super().close()
        if self._writing:
            self.lm.server.cancel()


def entropy_bounds(logprobs: np.ndarray, vocabulary: int) -> tuple[float, float]:
    """The least and the greatest entropy (nats) of a distribution whose k likeliest are known; both are attained.

    ``logprobs`` is (k,) nats, best first, of ``vocabulary`` = V tokens. The rest r = 1 - Σp is spread over V - k tokens
    of at most p_k each. Entropy is greatest where they share it evenly, and least where as few as possible have all:
    m = ⌊r / p_k⌋ of them p_k, and one of them s = r - m p_k.
    """
    logprobs = np.maximum(logprobs, _IMPOSSIBLE)
    p = np.exp(logprobs)  # (k,)
    known, k = float(-(p * logprobs).sum()), len(p)
    rest, last = 1.0 - float(p.sum()), float(p[-1])
    if k >= vocabulary or rest <= 0 or last <= 0:
        return known, known
    full = np.floor(rest / last)
    left = rest - full * last
    least = float(known - full * last * logprobs[-1] - (left * np.log(left) if left > 0 else 0.0))
    return least, max(least, float(known - rest * np.log(rest / (vocabulary - k))))
