"""The file of a store: a table of blobs in SQLite, bounded in bytes, that several processes may use at once."""

from __future__ import annotations

import sqlite3
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from dragin_lab.errors import DraginLabError

FORMAT = 1  # of the table and of the arrays in it
NAME = "drafts.sqlite"
_PATIENCE = 20.0  # seconds to wait for another process that writes
_TABLE = """
CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, used INTEGER, size INTEGER, sum INTEGER, data BLOB);
CREATE INDEX IF NOT EXISTS by_use ON kept (used, size);
"""
T = TypeVar("T")


class StoreError(DraginLabError):
    """A store's folder that cannot be used, or that another version wrote."""


class Disk:
    """Blobs by key in one file, the least recently used deleted first.

    A file that is damaged is begun anew, with a warning. Where the file fails later (a full disk), a warning says so
    and nothing more is written: what was kept stays, and the run goes on.

    Args:
        folder: made where it is missing.
        limit: bytes of all blobs.

    Raises:
        StoreError: the folder cannot be made or written; the file was written in another format.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.path = folder / NAME
        self.limit = limit
        self._broken = ""  # why the file is used no more
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.path}: cannot be used ({error}); {_remedy(error)}") from None
        except sqlite3.DatabaseError as error:
            warnings.warn(f"{self.path}: damaged ({error}); it is begun anew", stacklevel=3)
            for path in (self.path, *(self.path.with_name(NAME + end) for end in ("-wal", "-shm"))):
                path.unlink(missing_ok=True)
            self._file = self._open()
        except OSError as error:
            raise StoreError(
                f"{folder}: no store can be kept there ({error.strerror or error}); give a folder that you may write to"
            ) from None
        self._bytes = self._measure()

    def get(self, key: bytes) -> bytes | None:
        """The blob kept under a key. One that is damaged is deleted, with a warning."""
        found = self._try(lambda: self._file.execute("SELECT data, sum FROM kept WHERE key = ?", (key,)).fetchone())
        if found is None:
            return None
        data, total = found
        if not isinstance(data, bytes) or zlib.crc32(data) != total:
            warnings.warn(f"{self.path}: an entry is damaged; it is made anew", stacklevel=3)
            self._write("DELETE FROM kept WHERE key = ?", (key,))
            return None
        self._write("UPDATE kept SET used = 1 + (SELECT MAX(used) FROM kept) WHERE key = ?", (key,))
        return data

    def put(self, key: bytes, data: bytes) -> None:
        """Keep a blob, in place of what was under its key; nothing where it is larger than the limit."""
        if len(data) > self.limit:
            return
        self._write(
            "INSERT OR REPLACE INTO kept VALUES (?, 1 + (SELECT COALESCE(MAX(used), 0) FROM kept), ?, ?, ?)",
            (key, len(data), zlib.crc32(data), data),
        )
        self._bytes += len(data)
        if self._bytes > self.limit and not self._broken:
            self._bytes = self._measure()  # others write too, and entries are replaced
            if self._bytes > self.limit:
                self._shrink()

    def close(self) -> None:
        """Let go of the file."""
        with suppress(sqlite3.Error):
            self._file.close()

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            version = file.execute("PRAGMA user_version").fetchone()[0]
            tables = file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            if tables and version != FORMAT:
                raise StoreError(
                    f"{self.path}: written in format {version}, and this dragin_lab keeps format {FORMAT}; "
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

    def _shrink(self) -> None:
        """Delete the least recently used until a tenth of the room is free."""
        rows = self._try(lambda: self._file.execute("SELECT key, size FROM kept ORDER BY used").fetchall()) or []
        gone = []
        for key, size in rows:
            if self._bytes <= 0.9 * self.limit:
                break
            self._bytes -= size
            gone.append((key,))
        self._try(lambda: self._delete(gone))

    def _delete(self, keys: list[tuple[bytes]]) -> None:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            self._file.executemany("DELETE FROM kept WHERE key = ?", keys)
        finally:
            self._file.execute("COMMIT")

    def _write(self, command: str, values: tuple[object, ...]) -> None:
        self._try(lambda: self._file.execute(command, values))

    def _try(self, work: Callable[[], T]) -> T | None:
        if self._broken:
            return None
        try:
            return work()
        except sqlite3.Error as error:
            if "locked" in str(error) or "busy" in str(error):
                return None  # another process has it for long; this entry is made anew
            self._broken = str(error)
            warnings.warn(
                f"{self.path}: {error}; nothing more is kept there, what is there stays, and the run goes on. "
                f"{_remedy(error).capitalize()}",
                stacklevel=4,
            )
            return None


def _remedy(error: sqlite3.Error) -> str:
    if "full" in str(error):
        return "free some space, or give a folder on another disk"
    if "locked" in str(error):
        return "another process holds it; wait for that one, or give another folder"
    return "give a folder that you may write to"
