"""Key-value caches of texts that were read before, so that what a new text begins with is not read again.

Exemplars stand first in every prompt, so the cache of any episode's prompt holds them for all others; within an episode
a prompt goes on where an earlier one of it ended.
"""

from __future__ import annotations

import copy
import threading
from typing import Any

from torch import Tensor
from transformers import DynamicCache

from dragin_lab.lm.spans import shared

MOST = 4  # texts kept for an episode: the latest drafts, with passages in view and without
LIMIT = 2 * 2**30  # bytes of all that is kept


class Prefix:
    """A key-value cache and the ids it holds."""

    def __init__(self, config: Any, cache: DynamicCache | None = None, ids: list[int] | None = None) -> None:
        self.cache = DynamicCache(config=config) if cache is None else cache
        self.ids: list[int] = [] if ids is None else ids
        self.sound = True  # False while a forward is under way, and for good if it did not end
        self.nbytes = 0  # once it is kept and grows no more

    @property
    def cuttable(self) -> bool:
        """Whether the cache can go back; a sliding window has forgotten what it would have to go back to."""
        return not any(getattr(self.cache, "is_sliding", ())) and bool(getattr(self.cache, "is_croppable", True))

    def states(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of every layer that holds them, (1, H_kv, n, d) each."""
        pairs = [(getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in self.cache.layers]
        return [(keys, values) for keys, values in pairs if keys is not None and values is not None]

    def common(self, ids: list[int]) -> int:
        """Pieces of ``ids`` that the cache holds: all but the last at most, because that one must be fed."""
        return shared(self.ids, ids[:-1])

    def beginning(self, length: int) -> Prefix:
        """The first ``length`` pieces as a cache of their own. It shares memory until either grows; neither changes."""
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        if drop := len(self.ids) - length:
            cache.crop(-drop)
        return Prefix(None, cache, self.ids[:length])


class Prefixes:
    """The caches kept for one model, the least recently used first out.

    Attributes:
        most: texts kept.
        limit: bytes kept; the latest text is kept even where it alone is more.
    """

    def __init__(self, config: Any, most: int = MOST, limit: int = LIMIT) -> None:
        self.most = most
        self.limit = limit
        self._config = config
        self._kept: list[Prefix] = []  # least recently used first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def uncuttable(self) -> bool:
        """Whether this model's caches cannot go back, so that only a text that goes on where one ended is served."""
        return not Prefix(self._config).cuttable

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return sum(prefix.nbytes for prefix in self._kept)

    def take(self, ids: list[int]) -> tuple[Prefix, int]:
        """A cache to continue from, and how many of the prompt's pieces it already holds. It is the taker's own."""
        with self._lock:
            lengths = [prefix.common(ids) for prefix in self._kept]
            usable = [i for i, kept in enumerate(self._kept) if kept.cuttable or lengths[i] == len(kept.ids)]
            best = max(usable, key=lambda i: lengths[i], default=None)
            if best is None or not lengths[best]:
                return Prefix(self._config), 0
            found = self._kept.pop(best)
            if not found.cuttable:
                return found, lengths[best]
            self._kept.append(found)
            return found.beginning(lengths[best]), lengths[best]

    def keep(self, prefix: Prefix) -> None:
        """Keep a cache for later texts. What it begins with needs no cache of its own any more."""
        if not prefix.sound or not prefix.ids:
            return
        with self._lock:
            if not prefix.cuttable:
                self._kept = []  # it serves only a text that goes on where it ends
            for other in self._kept:
                if other.ids[: len(prefix.ids)] == prefix.ids:
                    self._kept.remove(other)
                    self._kept.append(other)
                    return
            self._kept = [other for other in self._kept if prefix.ids[: len(other.ids)] != other.ids]
            prefix.nbytes = sum(t.nbytes for pair in prefix.states() for t in pair)
            self._kept.append(prefix)
            while len(self._kept) > 1 and (len(self._kept) > self.most or self.nbytes > self.limit):
                del self._kept[0]

    def clear(self) -> None:
        """Drop everything, so that the next text is read from its beginning."""
        with self._lock:
            self._kept = []
