"""A cache of what models wrote, in memory or in a folder for several processes, and the models
that it has met.
"""

from __future__ import annotations

import secrets
import sqlite3
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import diskcache
import numpy as np
import safetensors
import safetensors.numpy

from dragin_lab.checks import count, shown
from dragin_lab.engines.engine import Probed
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.files import as_path, remedy
from dragin_lab.trace.frames import probe_distance

LIMIT, DISK_LIMIT = 2**30, 8 * 2**30  # bytes in memory, and in a folder
_DAMAGED = (
    sqlite3.Error,
    diskcache.Timeout,
    safetensors.SafetensorError,
    OSError,
    TypeError,
    ValueError,
    KeyError,
    IndexError,
)

Arrays = Mapping[str, np.ndarray]
_NO_NUMBERS = np.zeros((0, 16), np.uint8)


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
        return self.drafts_served + self.drafts_outgrown + self.drafts_made

    def since(self, before: Counts) -> Counts:
        """What was counted after ``before``, a copy made earlier."""
        return Counts(
            **{f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)}
        )

    def __str__(self) -> str:
        outgrown = f"; {self.drafts_outgrown:,} were cached too short and generated again" * (
            self.drafts_outgrown > 0
        )
        return (
            f"{self.drafts_served:,} of {self.drafts:,} drafts and {self.tokens_served:,} of "
            f"{self.tokens_served + self.tokens_made:,} tokens were served from the cache{outgrown}"
        )


class Cache(AbstractContextManager["Cache"]):
    """Arrays under keys, bounded in bytes; the least recently used are deleted first.

    Threads may share a cache, and processes its folder. ``counts`` says what was served. A damaged
    entry counts as missing. Where a folder takes no more (a full disk), a warning says so, and
    nothing more is cached.

    Args:
        folder: keep the entries there (diskcache), for later processes too; None is in memory.
        limit: bytes; by default ``LIMIT`` in memory and ``DISK_LIMIT`` in a folder.

    Raises ``CacheError`` for a folder that cannot be written or holds a damaged cache.
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int | None = None) -> None:
        self.folder = None if folder is None else as_path(folder, local=True)
        self.limit = (
            count("limit", limit, 0)
            if limit is not None
            else LIMIT
            if folder is None
            else DISK_LIMIT
        )
        self.counts = Counts()
        self._store: Any = (
            _Memory(self.limit) if self.folder is None else _open_folder(self.folder, self.limit)
        )
        self._failed = False  # whether it takes no more
        # the models of this process, and their numbers
        self._met: list[tuple[np.ndarray, str]] = []

    def __len__(self) -> int:
        return len(self._store)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries; in a folder, what they take on the disk."""
        return int(self._store.volume())

    def get(self, key: str, read: Callable[[Arrays], Any] = dict) -> Any:
        """What ``read`` makes of a key's arrays; None where there are none or, with a warning,
        damaged ones.
        """
        try:
            if (data := self._store.get(key)) is None:
                return None
            if zlib.crc32(data[4:]) != int.from_bytes(data[:4]):
                raise ValueError("another checksum")
            return read(safetensors.numpy.load(data[4:]))
        except _DAMAGED as error:
            where = self.folder or "the cache"
            warnings.warn(
                f"{where}: an entry is damaged ({error}); it is generated again", stacklevel=3
            )
            return None

    def put(self, key: str, arrays: Arrays) -> None:
        """Cache arrays under a key, in place of what was there; nothing where they are larger
        than the limit.
        """
        data = safetensors.numpy.save(
            {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        )
        if len(data) > self.limit or self._failed:
            return
        try:
            # another process holds it for long: only this one is not cached
            with suppress(diskcache.Timeout):
                self._store.set(key, zlib.crc32(data).to_bytes(4) + data)
        except (sqlite3.Error, OSError) as error:
            self._failed = True
            warnings.warn(
                f"{self.folder}: {error}; nothing more is cached there, what is there stays, and"
                " the run goes on. Free some space, or give another folder",
                stacklevel=3,
            )

    def number_of(self, probed: Probed | None) -> str:
        """The number of the model that computes a probe, hex; "" for one that cannot be probed.

        A model that this process has met is known by its bits, any other by a probe in the cache
        that fits.
        """
        if probed is None:
            return ""
        for met, number in self._met:
            if probe_distance(met, probed.probe) <= probed.within:
                return number
        there = self.get("probes") or {
            "probes": np.zeros((0, len(probed.probe)), "f4"),
            "numbers": _NO_NUMBERS,
        }
        numbers, taken = (
            [row.tobytes().hex() for row in there["numbers"]],
            {number for _, number in self._met},
        )
        fitting = [
            number
            for number, one in zip(numbers, there["probes"], strict=True)
            if number not in taken and probe_distance(one, probed.probe) <= probed.across
        ]
        number = fitting[0] if fitting else secrets.token_hex(16)
        if not fitting:
            row = np.frombuffer(bytes.fromhex(number), np.uint8)[None]  # (1, 16)
            probes = np.concatenate([there["probes"], probed.probe[None]])  # (m, 160)
            self.put(
                "probes", {"probes": probes, "numbers": np.concatenate([there["numbers"], row])}
            )
        self._met.append((probed.probe, number))
        return number

    def close(self) -> None:
        """Close the folder; it is then an empty cache in memory."""
        if self.folder is not None:
            self._store.close()
        self._store = _Memory(self.limit)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what is unpickled, shares the folder; one in memory begins empty."""
        return partial(Cache, self.folder, limit=self.limit), ()

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else str(self.folder)
        return (
            f"Cache({where}, {len(self):,} entries, {self.nbytes / 2**20:.1f} MiB; {self.counts})"
        )


class _Memory(OrderedDict[str, bytes]):
    """As much of ``diskcache.Cache`` as is used, in memory. Without a lock, which an interrupt
    could leave held.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def get(self, key: str, default: Any = None) -> Any:
        with suppress(KeyError):
            self.move_to_end(key)
        return super().get(key, default)

    def set(self, key: str, data: bytes) -> None:
        self[key] = data
        with suppress(KeyError):  # another thread may take the last one
            while self.volume() > self.limit:
                self.popitem(last=False)

    def volume(self) -> int:
        return sum(map(len, list(self.values())))


class _Plain(diskcache.Disk):
    """A folder that may be someone else's: nothing in it is unpickled, no key is read, no file
    outside it touched.
    """

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode not in (diskcache.core.MODE_RAW, diskcache.core.MODE_BINARY):
            raise ValueError("a value that is not bytes")
        if filename is not None and not self._is_inside(filename):
            raise ValueError("an entry that names a file outside the folder")
        return super().fetch(mode, filename, value, read)

    def remove(self, file_path: str) -> None:
        if self._is_inside(file_path):
            super().remove(file_path)

    def _is_inside(self, name: Any) -> bool:
        folder = Path(self._directory).resolve()
        return isinstance(name, str) and (folder / name).resolve().is_relative_to(folder)


def _open_folder(folder: Path, limit: int) -> Any:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return diskcache.Cache(
            folder, disk=_Plain, size_limit=limit, eviction_policy="least-recently-used"
        )
    except OSError as error:
        why = error.strerror or error
        raise CacheError(
            f"{folder}: no cache can be written there ({why}); {remedy(error)}"
        ) from None
    except (sqlite3.Error, diskcache.Timeout) as error:
        advice = f"delete {folder / diskcache.core.DBNAME}, or give another folder"
        raise CacheError(f"{folder}: the cache cannot be used ({error}); {advice}") from None


def as_cache(given: Cache | str | Path | bool | None) -> Cache | None:
    """The cache that is asked for; True stands for a new one in memory, None or False for none."""
    if given is None or isinstance(given, bool):
        return Cache() if given else None
    if isinstance(given, str | Path):
        return Cache(given)
    if isinstance(given, Cache):
        return given
    raise SettingError(
        f"cache={shown(given)}: give a Cache, a folder, True for one in memory, or None for none"
    )
