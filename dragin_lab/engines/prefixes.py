"""Key-value caches: prefixes of prompts are read once and kept; several texts stand side by side in one cache."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from dragin_lab.trace.trace import Prompt

SHARE = "half of the free memory"  # for all that is kept, as provenance says
_UNKNOWN = 4 * 2**30  # bytes that count as free where the system does not say
_MEMORY, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")  # of the machine; of a container (cgroup v2)
PARTS = ("exemplars", "passages")  # named spans of a prompt, after which its cache is kept


def find_ends(prompt: Prompt, offsets: np.ndarray, parts: Sequence[str] = PARTS) -> tuple[int, ...]:
    """How many tokens of a prompt stand before the end of each of its ``parts``, ascending; never all of them.

    ``offsets`` (p, 2) are the character spans of its tokens.
    """
    behind = [prompt.spans[name][1] for name in parts if name in prompt.spans]
    ends = {int(np.append(offsets[:, 1] > end, True).argmax()) for end in behind if end}
    return tuple(sorted(end for end in ends if 0 < end < len(offsets)))


def is_shareable(config: Any) -> bool:
    """Whether a text can go on from a copy of a model's cache; states that are overwritten in place forbid it."""
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in DynamicCache(config=config).layers)


def batch_obstacle(config: Any) -> str:
    """Why texts of a model cannot be written side by side; empty where they can."""
    layers = DynamicCache(config=config).layers
    if any(getattr(layer, "is_sliding", False) for layer in layers):
        return "its key-value cache has a sliding window"
    strange = next((type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer), None)
    return f"its key-value cache has a {strange}" if strange else ""


def open_cache(config: Any, beside: Sequence[DynamicCache | None]) -> DynamicCache | None:
    """A new cache with those of several texts as its rows, padded on the left so that all end at the same column.

    The given caches are not changed. None where the model makes its own.
    """
    if batch_obstacle(config):
        return copy.deepcopy(beside[0])
    cache = DynamicCache(config=config)
    lengths = [0 if one is None else one.get_seq_length() for one in beside]
    each, longest = [{} if one is None else list_layers(one) for one in beside], max(lengths)
    for i, like in each[lengths.index(longest)].items():
        rows = [one.get(i, tuple(states[:, :, :0] for states in like)) for one in each]
        keys, values = (
            torch.cat([torch.nn.functional.pad(s, (0, 0, longest - s.shape[2], 0)) for s in states])
            for states in zip(*rows, strict=True)
        )
        cache.update(keys, values, i)
    return cache


def split_cache(cache: DynamicCache, row: int, start: int, config: Any) -> DynamicCache:
    """The cache of the text in one row, without its padding before the column ``start``; a copy."""
    own = DynamicCache(config=config)
    for i, states in list_layers(cache).items():
        keys, values = (s[row : row + 1, :, start:].clone() for s in states)
        own.update(keys, values, i)
    return own


def list_layers(cache: Any) -> dict[int, tuple[Tensor, Tensor]]:
    """Keys and values (B, H_kv, n, d) of the layers that have their own."""
    return {i: (layer.keys, layer.values) for i, layer in enumerate(cache.layers) if layer.keys is not None}


def free_memory(device: torch.device) -> int:
    """Bytes that a device has free, with what torch holds and does not use; on a CPU those Linux calls available.

    A container has no more than its own limit leaves, whatever its machine has.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + unused)
    if not _MEMORY.is_file():
        return _UNKNOWN
    lines = dict(line.split(":") for line in _MEMORY.read_text(encoding="utf-8").splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = _GROUP / "memory.max", _GROUP / "memory.current"
    if limit.is_file() and (most := limit.read_text(encoding="utf-8").strip()) != "max":
        available = min(available, max(int(most) - int(used.read_text(encoding="utf-8")), 0))
    return available


class Prefixes:
    """The caches of beginnings of prompts; the least recently used is dropped first.

    They take at most ``limit`` bytes; without one, half of what is free on ``device`` and of what they have. The latest
    stays even if it alone takes more. Hold the model's lock while using it.
    """

    def __init__(self, limit: int | None = None, device: Any = "cpu") -> None:
        self.limit, self.device = limit, torch.device(device)
        self._caches: OrderedDict[tuple[int, ...], DynamicCache] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._caches)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return sum(s.nbytes for one in self._caches.values() for states in list_layers(one).values() for s in states)

    def find(self, ids: Sequence[int], ends: Sequence[int]) -> tuple[int, DynamicCache | None]:
        """Length and cache of the longest kept beginning of a prompt that ends at one of ``ends``; else 0 and None."""
        kept = [end for end in ends if tuple(ids[:end]) in self._caches]
        for end in reversed(kept):  # the shortest is dropped last: the others begin with it
            self._caches.move_to_end(tuple(ids[:end]))
        return (kept[-1], self._caches[tuple(ids[: kept[-1]])]) if kept else (0, None)

    def keep(self, ids: Sequence[int], cache: DynamicCache) -> None:
        """Keep the cache of these ids."""
        self._caches[tuple(ids)] = cache
        self._caches.move_to_end(tuple(ids))
        taken = self.nbytes
        limit = (free_memory(self.device) + taken) // 2 if self.limit is None else self.limit
        while len(self) > 1 and self.nbytes > limit:
            self._caches.popitem(last=False)

    def clear(self) -> None:
        """Drop everything, so that the next text is read from its beginning."""
        self._caches.clear()
