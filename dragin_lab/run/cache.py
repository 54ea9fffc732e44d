"""A cache of arrays, in memory or in a folder for several processes; ``cached`` puts one before a model."""

from __future__ import annotations

import sqlite3
import threading
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import diskcache
import numpy as np
import safetensors
import safetensors.numpy

from dragin_lab.checks import count, shown
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.files import as_path, remedy

LIMIT, DISK_LIMIT = 2**30, 8 * 2**30  # bytes in memory, and in a folder
_DAMAGED = (
    sqlite3.Error, diskcache.Timeout, safetensors.SafetensorError, OSError, TypeError, ValueError, KeyError, IndexError,
)  # fmt: skip

Arrays = Mapping[str, np.ndarray]


class CacheError(DraginLabError):
    """A cache's folder that cannot be used."""


@dataclass
class Counts:
    """What was served and what had to be generated; maps are answers to ``Attend``."""

    drafts_served: int = 0
    drafts_outgrown: int = 0  # generated again, because what was cached of them ends too early
    drafts_made: int = 0  # nothing of them was cached
    tokens_served: int = 0
    tokens_made: int = 0
    maps_served: int = 0
    maps_made: int = 0

    @property
    def drafts(self) -> int:
        """All that were asked for."""
        return self.drafts_served + self.drafts_outgrown + self.drafts_made

    def since(self, before: Counts) -> Counts:
        """What was counted after ``before``, a copy made earlier."""
        return Counts(**{f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)})

    def __str__(self) -> str:
        outgrown = f"; {self.drafts_outgrown:,} were cached too short and generated again" * (self.drafts_outgrown > 0)
        return (
            f"{self.drafts_served:,} of {self.drafts:,} drafts and {self.tokens_served:,} of "
            f"{self.tokens_served + self.tokens_made:,} tokens were served from the cache{outgrown}"
        )


class Cache:
    """Arrays under keys, bounded in bytes; the least recently used are deleted first.

    Threads may share a cache, and processes its folder. ``counts`` says what was served. A damaged entry counts as
    missing. Where a folder takes no more (a full disk), a warning says so, what is in it is still served, and nothing
    more is cached.

    Args:
        folder: keep the entries there (diskcache), for later processes too; None is in memory.
        limit: bytes; by default ``LIMIT`` in memory and ``DISK_LIMIT`` in a folder.

    Raises:
        CacheError: a folder that cannot be written, or holds a damaged cache.
        SettingError: a limit below 0.
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int | None = None) -> None:
        self.folder = None if folder is None else as_path(folder)
        self.limit = count("limit", limit, 0) if limit is not None else LIMIT if folder is None else DISK_LIMIT
        self.counts = Counts()
        self._store: Any = _Memory(self.limit) if self.folder is None else _open_folder(self.folder, self.limit)
        self._failed = False  # whether it takes no more

    def __len__(self) -> int:
        return len(self._store)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries; in a folder, what they take on the disk."""
        return int(self._store.volume())

    def get(self, key: str) -> Arrays | None:
        """The arrays under a key; None where there are none, and for a damaged entry, with a warning."""
        try:
            if (data := self._store.get(key)) is None:
                return None
            if zlib.crc32(data[4:]) != int.from_bytes(data[:4]):
                raise ValueError("another checksum")
            return safetensors.numpy.load(data[4:])
        except _DAMAGED as error:
            where = self.folder or "the cache"
            warnings.warn(f"{where}: an entry is damaged ({error}); it is generated again", stacklevel=3)
            return None

    def put(self, key: str, arrays: Arrays) -> None:
        """Cache arrays under a key, in place of what was there; nothing where they are larger than the limit."""
        data = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        if len(data) > self.limit or self._failed:
            return
        try:
            self._store.set(key, zlib.crc32(data).to_bytes(4) + data)
        except diskcache.Timeout:  # another process holds it for long: only this one is not cached
            return
        except (sqlite3.Error, OSError) as error:
            self._failed = True
            warnings.warn(
                f"{self.folder}: {error}; nothing more is cached there, what is there stays, and the run goes on. Free "
                "some space, or give another folder",
                stacklevel=3,
            )

    def clear(self) -> None:
        """Drop all entries."""
        self._store.clear()

    def close(self) -> None:
        """Close the folder; it is then an empty cache in memory."""
        self._store.close()
        self._store = _Memory(self.limit)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else str(self.folder)
        return f"Cache({where}, {len(self):,} entries, {self.nbytes / 2**20:.1f} MiB; {self.counts})"


class _Memory(OrderedDict[str, bytes]):
    """As much of ``diskcache.Cache`` as is used, in memory."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes, self.lock = limit, 0, threading.Lock()

    def get(self, key: str, default: Any = None) -> Any:
        with self.lock:
            if key in self:
                self.move_to_end(key)
            return super().get(key, default)

    def set(self, key: str, data: bytes) -> None:
        with self.lock:
            self.bytes += len(data) - len(self.pop(key, b""))
            self[key] = data
            while self.bytes > self.limit:
                self.bytes -= len(self.popitem(last=False)[1])

    def clear(self) -> None:
        super().clear()
        self.bytes = 0

    def close(self) -> None:
        self.clear()

    def volume(self) -> int:
        return self.bytes


class _Plain(diskcache.Disk):
    """Keys are texts and values bytes, so that nothing in a file that may be someone else's is unpickled."""

    def get(self, key: Any, raw: bool) -> Any:
        if not raw:
            raise ValueError("a key that is no text")
        return super().get(key, raw)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode not in (diskcache.core.MODE_RAW, diskcache.core.MODE_BINARY):
            raise ValueError("a value that is not bytes")
        return super().fetch(mode, filename, value, read)


def _open_folder(folder: Path, limit: int) -> Any:
    """The cache of a folder, both made where they are missing. Raises ``CacheError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return diskcache.Cache(folder, disk=_Plain, size_limit=limit, eviction_policy="least-recently-used")
    except OSError as error:
        why = error.strerror or error
        raise CacheError(f"{folder}: no cache can be written there ({why}); {remedy(error)}") from None
    except (sqlite3.Error, diskcache.Timeout) as error:
        advice = f"delete {folder / diskcache.core.DBNAME}, or give another folder"
        raise CacheError(f"{folder}: the cache cannot be used ({error}); {advice}") from None


def as_cache(given: Cache | str | Path | bool | None) -> Cache | None:
    """The cache that is asked for; True stands for a new one in memory, None or False for none.

    Raises ``SettingError`` for anything else; otherwise as ``Cache``.
    """
    if given is None or isinstance(given, bool):
        return Cache() if given else None
    if isinstance(given, str | Path):
        return Cache(given)
    if isinstance(given, Cache):
        return given
    raise SettingError(f"cache={shown(given)}: give a Cache, a folder, True for one in memory, or None for none")
