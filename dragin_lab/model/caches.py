"""Key-value caches: of what prompts begin with, and of several texts side by side.

A prompt is read in parts, one forward each: up to the end of its exemplars, up to the end of its passages, the rest.
A copy of the cache is kept at the end of a part and serves only a prompt that begins with the very same parts. How keys
and values are summed depends on which tokens share a forward; so every text has the same cache, to the bit, whatever
was read before it, and what is written after it does not depend on the question before or on what a cache served.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from dragin_lab.trace.trace import Prompt

MOST = 4  # parts cached for an episode: its exemplars and the latest passages after them
LIMIT = 2 * 2**30  # bytes of all that is cached
PARTS = ("exemplars", "passages")  # named spans of a prompt whose ends are worth a cache

_ROOM = 64  # columns after the last one when the buffers of ``Slots`` are allocated
_WASTE = 64  # columns of padding in every row before their texts are moved to the left

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
        """An independent copy, which shares memory until either grows."""
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
        """A copy of the cache that holds the most parts of a prompt; an empty one where none is cached."""
        with self._lock:
            matches = sorted((kept for kept in self._kept if kept.begins(ids, ends)), key=lambda kept: len(kept.ids))
            for kept in reversed(matches):  # the shortest, which the others begin with, is dropped last
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


# -- side by side -----------------------------------------------------------------------------------------------------


class _Layer(DynamicLayer):
    """One layer's keys and values in buffers (rows, H_kv, columns, d) of which a corner is in use."""

    def __init__(self) -> None:
        super().__init__()
        self.width = 0  # columns in use
        self.buffers: tuple[Tensor, ...] = ()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the columns of the next tokens, (n, H_kv, c, d), and return all of them for the first n rows."""
        rows, end = key_states.shape[0], self.width + key_states.shape[2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:rows, :, self.width : end] = states
        self.width = end
        self.keys, self.values = (buffer[:rows, :, :end] for buffer in self.buffers)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.width


class Slots:
    """Caches of texts padded on the left so that all end at the same column, in the order in which they were added.

    The buffers have room for more columns than are used, so a step writes one column and copies nothing, and a text
    that leaves gives its row to the last one while the others stay where they are.
    ``starts[i]`` is the column of row i's first token; the columns before it are padding.
    """

    def __init__(self, config: Any) -> None:
        self.starts: list[int] = []
        self._config = config
        self._cache = DynamicCache(config=config)
        self._placed: tuple[list[int], Tensor] | None = None
        self._layers = [_Layer() for _ in self._cache.layers]
        self._cache.layers = list(self._layers)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def width(self) -> int:
        """Columns in use."""
        return self._layers[0].width

    def add(self, prefixes: Sequence[Prefix]) -> None:
        """Add further texts after the others; they are copied."""
        lengths = [len(prefix.ids) for prefix in prefixes]
        longest = max([*lengths, *(self.width - start for start in self.starts)])
        rows = len(self) + len(prefixes)
        if rows > self._room()[0] or longest > self.width or self.width - longest >= _WASTE:
            self._allocate(rows, longest, prefixes[0].states())
        for row, (prefix, length) in enumerate(zip(prefixes, lengths, strict=True), len(self)):
            for layer, pair in zip(self._layers, prefix.states(), strict=True):
                for buffer, states in zip(layer.buffers, pair, strict=True):
                    buffer[row, :, self.width - length : self.width] = states[0]
        self.starts += [self.width - length for length in lengths]

    def drop(self, row: int) -> None:
        """Forget a text; the last one takes its row."""
        start = self.starts[-1]
        if row < len(self) - 1:
            for layer in self._layers:
                for buffer in layer.buffers:
                    buffer[row, :, start : self.width] = buffer[len(self) - 1, :, start : self.width]
            self.starts[row] = start
        self.starts.pop()

    @property
    def full(self) -> bool:
        """Whether there is no column left to feed a token into; ``make_room`` then."""
        return self.width == self._room()[1]

    def make_room(self) -> None:
        """Move the texts into buffers with room for more columns."""
        longest = self.width - min(self.starts)
        self._allocate(len(self), longest, [layer.buffers for layer in self._layers])

    def inputs(self, tokens: Sequence[Tensor]) -> dict[str, Any]:
        """The arguments of a forward that feeds one token (1,) to every text."""
        return {
            "input_ids": torch.stack(list(tokens)),  # (n, 1)
            "attention_mask": self.mask(self.width + 1),
            "position_ids": self.width - self._placed_starts(),  # (n, 1)
            "past_key_values": self._cache,
            "use_cache": True,
        }

    def mask(self, width: int) -> Tensor:
        """1 where a column holds a token of the row's text, 0 where it is padding: (n, width) int64."""
        starts = self._placed_starts()  # (n, 1)
        return (torch.arange(width, device=starts.device) >= starts).long()

    def _placed_starts(self) -> Tensor:
        """``starts`` on the device, (n, 1): sent there again only when they have changed."""
        if self._placed is None or self._placed[0] != self.starts:
            device = self._layers[0].buffers[0].device
            self._placed = list(self.starts), torch.tensor(self.starts, device=device)[:, None]
        return self._placed[1]

    def _room(self) -> tuple[int, int]:
        """Rows and columns of the buffers."""
        buffers = self._layers[0].buffers
        return (buffers[0].shape[0], buffers[0].shape[2]) if buffers else (0, 0)

    def _allocate(self, rows: int, width: int, like: Sequence[tuple[Tensor, ...]]) -> None:
        """Copy all texts into buffers for more rows and columns, of which ``width`` are then in use.

        ``like`` has keys and values of each layer, (any, H_kv, any, d). One layer after the other, so that only one of
        them is there twice.
        """
        before = self.width
        starts = [width - (before - start) for start in self.starts]
        for layer, states in zip(self._layers, like, strict=True):
            old = layer.buffers
            layer.buffers = tuple(t.new_zeros((rows, t.shape[1], width + _ROOM, t.shape[3])) for t in states)
            layer.width = width
            for fresh, buffer in zip(layer.buffers, old or (), strict=bool(old)):
                for row, (new, start) in enumerate(zip(starts, self.starts, strict=True)):
                    fresh[row, :, new:width] = buffer[row, :, start:before]
        self.starts = starts
