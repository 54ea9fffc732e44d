"""What was generated is kept, and served again wherever the same is asked for.

With greedy decoding a prompt has one continuation, so five thresholds need only be paid for where their episodes part.
A store holds arrays under keys in memory, the least recently used out first, and on disk where it is given a folder.
``remembering`` says what is kept and when it is served.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from dragin_lab.errors import SettingError
from dragin_lab.run.store_disk import Disk, StoreError

__all__ = ["Counts", "Store", "StoreError", "as_store"]

LIMIT = 2**30  # bytes in memory
DISK_LIMIT = 8 * 2**30  # bytes on disk
_ENTRY = 300  # bytes that an entry takes beside its arrays, about

Arrays = Mapping[str, np.ndarray]


@dataclass
class Counts:
    """What was served and what had to be made; pieces are generated ones, maps are answers to ``Attend``."""

    drafts_served: int = 0
    drafts_outgrown: int = 0  # made anew, because what was kept of them ends too early
    drafts_made: int = 0  # nothing was kept of them
    pieces_served: int = 0
    pieces_made: int = 0
    maps_served: int = 0
    maps_made: int = 0

    @property
    def drafts(self) -> int:
        """All that were asked for."""
        return self.drafts_served + self.drafts_outgrown + self.drafts_made

    @property
    def hit_rate(self) -> float:
        """Which part of all pieces was served, 0 to 1."""
        return self.pieces_served / max(1, self.pieces_served + self.pieces_made)

    def since(self, before: Counts) -> Counts:
        """What was counted since then."""
        return Counts(**{f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)})

    def copy(self) -> Counts:
        """As they are now."""
        return self.since(Counts())

    def __str__(self) -> str:
        outgrown = f"; {self.drafts_outgrown:,} were kept too short and made anew" if self.drafts_outgrown else ""
        return (
            f"{self.drafts_served:,} of {self.drafts:,} drafts and {self.pieces_served:,} of "
            f"{self.pieces_served + self.pieces_made:,} pieces were served from the store{outgrown}"
        )


class Store:
    """Arrays under keys, bounded in bytes, the least recently used out first.

    Threads may share one, and processes a folder. ``counts`` says what was served.

    Args:
        folder: keep everything in a file there too, for later processes; None keeps it in memory alone.
        limit: bytes in memory.
        disk_limit: bytes on disk.

    Raises:
        StoreError: a folder that cannot be written, or holds a store of another format.
        SettingError: a limit below 0.
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int = LIMIT, disk_limit: int = DISK_LIMIT) -> None:
        for name, value in (("limit", limit), ("disk_limit", disk_limit)):
            if value < 0:
                raise SettingError(f"{name}={value}: give a number of bytes of at least 0")
        self.folder = None if folder is None else Path(folder).expanduser()
        self.limit = limit
        self.counts = Counts()
        self.nbytes = 0  # in memory
        self._kept: OrderedDict[bytes, dict[str, np.ndarray]] = OrderedDict()
        self._disk = None if self.folder is None else Disk(self.folder, disk_limit)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Entries in memory."""
        return len(self._kept)

    def get(self, key: bytes) -> Arrays | None:
        """What is kept under a key; not to be written to."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
            data = None if self._disk is None else self._disk.get(key)
            if data is None:
                return None
            try:
                found = safetensors.numpy.load(data)
            except safetensors.SafetensorError:  # its sum is right, so nothing of ours wrote it
                return None
            self._remember(key, found)
            return found

    def put(self, key: bytes, arrays: Arrays) -> None:
        """Keep arrays under a key, in place of what was there."""
        kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        with self._lock:
            self._remember(key, kept)
            if self._disk is not None:
                self._disk.put(key, safetensors.numpy.save(kept))

    def clear(self) -> None:
        """Drop what is in memory."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0

    def close(self) -> None:
        """Drop what is in memory and let go of the file."""
        self.clear()
        if self._disk is not None:
            self._disk.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else str(self.folder)
        return f"Store({where}, {len(self):,} entries, {self.nbytes / 2**20:.1f} MiB; {self.counts})"

    def _remember(self, key: bytes, arrays: dict[str, np.ndarray]) -> None:
        self._forget(key)
        self._kept[key] = arrays
        self.nbytes += _size(arrays)
        while self.nbytes > self.limit:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: bytes) -> None:
        if (arrays := self._kept.pop(key, None)) is not None:
            self.nbytes -= _size(arrays)


def as_store(given: Any) -> Store | None:
    """The store that ``store=`` asks for: one, a folder, True for a new one in memory, None or False for none.

    Raises ``SettingError`` for anything else; otherwise as ``Store``.
    """
    if given is None or given is False:
        return None
    if given is True:
        return Store()
    if isinstance(given, str | Path):
        return Store(given)
    if isinstance(given, Store):
        return given
    raise SettingError(f"store={given!r}: give a Store, a folder, True for one in memory, or None for none")


def _size(arrays: Arrays) -> int:
    return _ENTRY + sum(array.nbytes for array in arrays.values())
