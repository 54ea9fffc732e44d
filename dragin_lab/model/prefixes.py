"""Key-value caches of what prompts begin with, so that exemplars and passages are not read again for every draft.

A prompt is read in parts, one forward each: up to the end of its exemplars, up to the end of its passages, the rest.
A copy of the cache is kept at the end of a part and serves only a prompt that begins with the very same parts. How keys
and values are summed depends on which tokens share a forward; so every text has the same cache, to the bit, whatever
was read before it, and what is written after it does not depend on the question before or on what a cache served.
"""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from dragin_lab.trace.trace import Prompt

MOST = 4  # parts cached for an episode: its exemplars and the latest passages after them
LIMIT = 2 * 2**30  # bytes of all that is cached
PARTS = ("exemplars", "passages")  # named spans of a prompt whose ends are worth a cache

#: Layers that allocate new tensors as they grow, so that a copy of them may share the old ones.
_SHARED = (DynamicLayer, DynamicSlidingWindowLayer)


def find_ends(prompt: Prompt, offsets: np.ndarray, parts: tuple[str, ...] = PARTS) -> tuple[int, ...]:
    """Where the ``parts`` of a prompt end that are read in forwards of their own, as numbers of its tokens, rising.

    ``offsets`` (p, 2) are the character spans of its tokens. The last token is always left over for the rest.
    """
    p = len(offsets)
    ends = set()
    for name in parts:
        behind = prompt.spans.get(name, (0, 0))[1]
        if behind:
            later = np.flatnonzero(offsets[:, 1] > behind)
            ends.add(int(later[0]) if len(later) else p)
    return tuple(sorted(end for end in ends if 0 < end < p))


def batch_obstacle(config: Any) -> str:
    """Why texts of a model cannot be written side by side; empty where they can."""
    layers = DynamicCache(config=config).layers
    if any(getattr(layer, "is_sliding", False) for layer in layers):
        return "its key-value cache has a sliding window"
    strange = next((type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer), None)
    return f"its key-value cache has a {strange}" if strange else ""


class Prefix:
    """A key-value cache, the ids it holds, and where in them the parts ended that it was read in."""

    def __init__(self, config: Any, cache: DynamicCache | None = None, ids: list[int] | None = None) -> None:
        self.cache = DynamicCache(config=config) if cache is None else cache
        self.ids: list[int] = [] if ids is None else ids
        self.ends: tuple[int, ...] = ()
        self.sound = True  # False while a forward is under way, and for good if it did not end
        self.nbytes = 0  # set once it is cached and grows no more

    @property
    def shareable(self) -> bool:
        """Whether a copy may go on by itself; layers with a state that is overwritten in place cannot."""
        return all(type(layer) in _SHARED for layer in self.cache.layers)

    def states(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of every layer that holds them, (1, H_kv, n, d) each."""
        pairs = [(getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in self.cache.layers]
        return [(keys, values) for keys, values in pairs if keys is not None and values is not None]

    def copied(self) -> Prefix:
        """The same as a cache of its own. It shares memory until either grows; neither changes the other."""
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        prefix = Prefix(None, cache, list(self.ids))
        prefix.ends = self.ends
        return prefix

    def begins(self, ids: list[int], ends: tuple[int, ...]) -> bool:
        """Whether a prompt of these ids, read in parts that end at ``ends``, begins with this cache."""
        return self.ends == ends[: len(self.ends)] and self.ids == ids[: len(self.ids)]


class Prefixes:
    """The prefixes cached for one model; the least recently used is dropped first.

    Attributes:
        most: how many are cached.
        limit: bytes cached; the latest prefix stays even where it alone takes more.
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
    def shareable(self) -> bool:
        """Whether this model's caches can be kept at all."""
        return Prefix(self._config).shareable

    @property
    def nbytes(self) -> int:
        """Bytes of all that is cached."""
        return sum(prefix.nbytes for prefix in self._kept)

    def take(self, ids: list[int], ends: tuple[int, ...]) -> Prefix:
        """A cache to go on from, the taker's own: of as many parts of a prompt as are cached, else an empty one."""
        with self._lock:
            matches = sorted((kept for kept in self._kept if kept.begins(ids, ends)), key=lambda kept: len(kept.ids))
            for kept in reversed(matches):  # what all others begin with is the last to go
                self._kept.remove(kept)
                self._kept.append(kept)
            return matches[-1].copied() if matches else Prefix(self._config)

    def keep(self, prefix: Prefix) -> None:
        """Keep a copy of a cache that ends where a part ends."""
        if not prefix.sound or not prefix.ids or not prefix.shareable:
            return
        kept = prefix.copied()
        kept.nbytes = sum(t.nbytes for pair in kept.states() for t in pair)
        with self._lock:
            self._kept = [other for other in self._kept if (other.ids, other.ends) != (kept.ids, kept.ends)]
            self._kept.append(kept)
            while len(self._kept) > 1 and (len(self._kept) > self.most or self.nbytes > self.limit):
                del self._kept[0]

    def clear(self) -> None:
        """Drop everything, so that the next text is read from its beginning."""
        with self._lock:
            self._kept = []
