"""A cache of arrays, in memory or in a folder for several processes; ``cached`` puts one before a model."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import warnings
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from filelock import FileLock

from dragin_lab.checks import count, shown
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.files import as_path, remedy

LIMIT, DISK_LIMIT = 2**30, 8 * 2**30  # bytes in memory, and in a folder
FORMAT = 2  # of the tables and of the arrays in them
NAME = "drafts.sqlite"
_LEAST_SPACE = 2**20  # bytes without which a disk counts as full
_PATIENCE = 20.0  # seconds to wait for another process that writes
#: Apart from the data, so that a use does not write the data again.
_TABLES = """
CREATE TABLE IF NOT EXISTS entry (key BLOB PRIMARY KEY, used INTEGER, size INTEGER);
CREATE TABLE IF NOT EXISTS data (key BLOB PRIMARY KEY REFERENCES entry ON DELETE CASCADE, sum INTEGER, bytes BLOB);
CREATE INDEX IF NOT EXISTS by_use ON entry (used, size);
"""
_NEXT = "(SELECT COALESCE(MAX(used), 0) + 1 FROM entry)"
#: Deletes the least recently used until what is left takes no more than a number of bytes.
_SHRINK = """
DELETE FROM entry WHERE key IN (
    SELECT key FROM (SELECT key, SUM(size) OVER (ORDER BY used DESC, key) AS total FROM entry) WHERE total > ?
)
"""

Arrays = Mapping[str, np.ndarray]


class CacheError(DraginLabError):
    """A cache's folder that cannot be used, or that another version wrote."""


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
    """Arrays under keys in SQLite, bounded in bytes; the least recently used are deleted first.

    Threads may share a cache, and processes its folder. ``counts`` says what was served. A damaged file is replaced by
    an empty one, with a warning. Where the file fails later (a full disk), a warning says so, what is in it is still
    served, and nothing more is cached.

    Args:
        folder: keep the entries in a file there, for later processes too; None is in memory.
        limit: bytes; by default ``LIMIT`` in memory and ``DISK_LIMIT`` in a folder.

    Raises:
        CacheError: a folder that cannot be written, or that holds a cache of another format.
        SettingError: a limit below 0.
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int | None = None) -> None:
        self.folder = None if folder is None else as_path(folder)
        self.limit = count("limit", limit, 0) if limit is not None else LIMIT if folder is None else DISK_LIMIT
        self.counts = Counts()
        self._lock = threading.Lock()
        self._table = _open_memory() if self.folder is None else _open_folder(self.folder)
        self._failed = False  # whether it takes no more
        self._bytes = self.nbytes  # at most: what is replaced is counted twice until the limit is reached

    def __len__(self) -> int:
        return int(self._table.execute("SELECT COUNT(*) FROM entry").fetchone()[0])

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return int(self._table.execute("SELECT SUM(size) FROM entry").fetchone()[0] or 0)

    def get(self, key: bytes) -> Arrays | None:
        """The arrays under a key; None where there are none. A damaged entry is deleted, with a warning."""
        with self._lock:
            try:
                row = self._table.execute("SELECT bytes, sum FROM data WHERE key = ?", (key,)).fetchone()
                if row is None:
                    return None
                if isinstance(row[0], bytes) and zlib.crc32(row[0]) == row[1]:
                    with suppress(sqlite3.OperationalError):  # it is locked or full: read all the same
                        self._table.execute(f"UPDATE entry SET used = {_NEXT} WHERE key = ?", (key,))
                    return safetensors.numpy.load(row[0])
                warnings.warn(f"{self._path}: an entry is damaged; it is generated again", stacklevel=3)
                self._table.execute("DELETE FROM entry WHERE key = ?", (key,))
            except sqlite3.Error as error:
                self._give_up(error)
            except safetensors.SafetensorError:  # its checksum is right, so another program wrote it
                pass
            return None

    def put(self, key: bytes, arrays: Arrays) -> None:
        """Cache arrays under a key, in place of what was there; nothing where they are larger than the limit."""
        data = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        if len(data) > self.limit or self._failed:
            return
        with self._lock:
            try:
                self._insert(key, data)
            except sqlite3.Error as error:
                self._give_up(error)

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._table.execute("DELETE FROM entry")
            self._bytes = 0

    def close(self) -> None:
        """Close the file; it is then an empty cache in memory."""
        closing, self._table = self._table, _open_memory()
        with suppress(sqlite3.Error):
            closing.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else str(self.folder)
        return f"Cache({where}, {len(self):,} entries, {self.nbytes / 2**20:.1f} MiB; {self.counts})"

    @property
    def _path(self) -> Path | str:
        return "the cache" if self.folder is None else self.folder / NAME

    def _insert(self, key: bytes, data: bytes) -> None:
        table = self._table
        table.execute("BEGIN IMMEDIATE")
        try:
            table.execute(f"INSERT OR REPLACE INTO entry VALUES (?, {_NEXT}, ?)", (key, len(data)))
            table.execute("INSERT OR REPLACE INTO data VALUES (?, ?, ?)", (key, zlib.crc32(data), data))
            table.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):  # it may have rolled back by itself
                table.execute("ROLLBACK")
            raise
        self._bytes += len(data)
        if self._bytes > self.limit:
            self._bytes = self.nbytes  # other processes write too, and entries are replaced
            if self._bytes > self.limit:
                table.execute(_SHRINK, (int(0.9 * self.limit),))
                self._bytes = self.nbytes

    def _give_up(self, error: sqlite3.Error) -> None:
        """Write nothing more, with a warning; where another process holds the file for long, only this once."""
        if self._failed or "locked" in str(error) or "busy" in str(error):
            return
        assert self.folder is not None
        self._failed = True
        warnings.warn(
            f"{self._path}: {error}; nothing more is written there, what is there stays, and the run goes on. "
            f"{_advise_on(error, self.folder).capitalize()}",
            stacklevel=4,
        )


def _open_memory() -> sqlite3.Connection:
    return _prepare_table(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def _open_folder(folder: Path) -> sqlite3.Connection:
    """The file of a folder, both made where they are missing. Raises ``CacheError``."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _open_file(path)
    except sqlite3.OperationalError as error:
        raise CacheError(f"{path}: cannot be used ({error}); {_advise_on(error, folder)}") from None
    except sqlite3.DatabaseError as error:
        warnings.warn(f"{path}: damaged ({error}); an empty one replaces it", stacklevel=4)
        for damaged in (path, *(path.with_name(NAME + end) for end in ("-wal", "-shm"))):
            damaged.unlink(missing_ok=True)
        return _open_file(path)
    except OSError as error:
        why = error.strerror or error
        raise CacheError(f"{folder}: no cache can be written there ({why}); {remedy(error)}") from None


def _open_file(path: Path) -> sqlite3.Connection:
    """One process after another, as SQLite does not wait to change to WAL."""
    with FileLock(f"{path}.lock", timeout=_PATIENCE):
        file = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            version = file.execute("PRAGMA user_version").fetchone()[0]
            if version != FORMAT and file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                raise CacheError(
                    f"{path}: written in format {version}, and this dragin_lab writes format {FORMAT}; "
                    "delete the file, or give another folder"
                )
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            return _prepare_table(file)
        except BaseException:
            file.close()
            raise


def _prepare_table(table: sqlite3.Connection) -> sqlite3.Connection:
    table.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {FORMAT};COMMIT;")
    table.execute("PRAGMA foreign_keys = ON")
    table.execute("SELECT COUNT(*) FROM entry WHERE used < 0").fetchone()
    return table


def _advise_on(error: sqlite3.Error, folder: Path) -> str:
    # SQLite may call a full disk an I/O error, or a file that cannot be opened.
    if "full" in str(error) or shutil.disk_usage(folder).free < _LEAST_SPACE:
        return "free some space, or give a folder on another disk"
    if "locked" in str(error):
        return "another process holds it; wait for that one, or give another folder"
    return "give a folder that you may write to"


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
