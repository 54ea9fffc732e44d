"""The file of a cache: a table of blobs in SQLite, bounded in bytes, that several processes may use at once."""

from __future__ import annotations

import shutil
import sqlite3
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from dragin_lab.errors import DraginLabError
from dragin_lab.files import remedy

FORMAT = 1  # of the table and of the arrays in it
NAME = "drafts.sqlite"
_LEAST_SPACE = 2**20  # bytes without which a disk counts as full
_PATIENCE = 20.0  # seconds to wait for another process that writes
_TABLE = """
CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, used INTEGER, size INTEGER, sum INTEGER, data BLOB);
CREATE INDEX IF NOT EXISTS by_use ON kept (used, size);
"""
#: Deletes the least recently used until what is left takes no more than a number of bytes.
_SHRINK = """
DELETE FROM kept WHERE key IN (
    SELECT key FROM (SELECT key, SUM(size) OVER (ORDER BY used DESC, key) AS total FROM kept) WHERE total > ?
)
"""
T = TypeVar("T")


class CacheError(DraginLabError):
    """A cache's folder that cannot be used, or that another version wrote."""


class Disk:
    """Blobs by key in one file; the least recently used are deleted first.

    A damaged file is replaced by an empty one, with a warning. Where the file fails later (a full disk), a warning says
    so and nothing more is written: what is in it stays, and the run goes on.

    Args:
        folder: made where it is missing.
        limit: bytes of all blobs.

    Raises:
        CacheError: the folder cannot be made or written; the file was written in another format.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.path = folder / NAME
        self.limit = limit
        self._broken = False  # whether the file is no longer used
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
        except sqlite3.OperationalError as error:
            raise CacheError(f"{self.path}: cannot be used ({error}); {_remedy(error, folder)}") from None
        except sqlite3.DatabaseError as error:
            warnings.warn(f"{self.path}: damaged ({error}); an empty one replaces it", stacklevel=3)
            for path in (self.path, *(self.path.with_name(NAME + end) for end in ("-wal", "-shm"))):
                path.unlink(missing_ok=True)
            self._file = self._open()
        except OSError as error:
            raise CacheError(
                f"{folder}: no cache can be written there ({error.strerror or error}); {remedy(error)}"
            ) from None
        self._bytes = self._measure()

    def get(self, key: bytes) -> bytes | None:
        """The blob under a key. A damaged one is deleted, with a warning."""
        found = self._try(lambda: self._file.execute("SELECT data, sum FROM kept WHERE key = ?", (key,)).fetchone())
        if found is None:
            return None
        data, total = found
        if not isinstance(data, bytes) or zlib.crc32(data) != total:
            warnings.warn(f"{self.path}: an entry is damaged; it is generated again", stacklevel=3)
            self._write("DELETE FROM kept WHERE key = ?", (key,))
            return None
        self._write("UPDATE kept SET used = 1 + (SELECT MAX(used) FROM kept) WHERE key = ?", (key,))
        return data

    def put(self, key: bytes, data: bytes) -> None:
        """Write a blob, in place of what was under its key; nothing where it is larger than the limit."""
        if len(data) > self.limit:
            return
        self._write(
            "INSERT OR REPLACE INTO kept VALUES (?, 1 + (SELECT COALESCE(MAX(used), 0) FROM kept), ?, ?, ?)",
            (key, len(data), zlib.crc32(data), data),
        )
        self._bytes += len(data)
        if self._bytes > self.limit:
            self._bytes = self._measure()  # other processes write too, and entries are replaced
            if self._bytes > self.limit:
                self._write(_SHRINK, (int(0.9 * self.limit),))
                self._bytes = self._measure()

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):
            self._file.close()

    def _open(self) -> sqlite3.Connection:
        """The file, made where it is missing; one process after another, as SQLite does not wait to change to WAL."""
        with FileLock(f"{self.path}.lock", timeout=_PATIENCE):
            return self._opened()

    def _opened(self) -> sqlite3.Connection:
        file = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            version = file.execute("PRAGMA user_version").fetchone()[0]
            tables = file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            if tables and version != FORMAT:
                raise CacheError(
                    f"{self.path}: written in format {version}, and this dragin_lab writes format {FORMAT}; "
                    "delete the file, or give another folder"
                )
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            file.executescript(f"BEGIN IMMEDIATE;{_TABLE}PRAGMA user_version = {FORMAT};COMMIT;")
            file.execute("SELECT COUNT(*) FROM kept WHERE used < 0").fetchone()
        except BaseException:
            file.close()
            raise
        return file

    def _measure(self) -> int:
        return int(self._try(lambda: self._file.execute("SELECT SUM(size) FROM kept").fetchone()[0]) or 0)

    def _write(self, command: str, values: tuple[object, ...]) -> None:
        self._try(lambda: self._file.execute(command, values))

    def _try(self, work: Callable[[], T]) -> T | None:
        if self._broken:
            return None
        try:
            return work()
        except sqlite3.Error as error:
            if "locked" in str(error) or "busy" in str(error):
                return None  # another process holds it for long; this entry is generated again
            self._broken = True
            warnings.warn(
                f"{self.path}: {error}; nothing more is written there, what is there stays, and the run goes on. "
                f"{_remedy(error, self.path.parent).capitalize()}",
                stacklevel=4,
            )
            return None


def _remedy(error: sqlite3.Error, folder: Path) -> str:
    # SQLite may call a full disk an I/O error, or a file that cannot be opened.
    if "full" in str(error) or shutil.disk_usage(folder).free < _LEAST_SPACE:
        return "free some space, or give a folder on another disk"
    if "locked" in str(error):
        return "another process holds it; wait for that one, or give another folder"
    return "give a folder that you may write to"
