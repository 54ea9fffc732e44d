"""A built corpus on disk: a folder whose passages are read one by one, by row or by id.

    passages.jsonl   a passage a line, {"id", "title", "text"} in UTF-8; its SHA-256 is the corpus's fingerprint
    rows.bin         (passages,) of ROW: where each line ends, the hash of its id, the CRC-32 of its bytes
    order.bin        (passages,) int32: the rows sorted by the hash of their id
    corpus.json      what the corpus is: counts, checksums, source, settings, canary queries
    skipped.jsonl    the records that were left out, where the build was asked to leave bad ones out

The form is plain on purpose: any tool reads the text, ``sha256sum`` checks it, a row is found in two reads and an id in
a binary search, 24 bytes a passage beside the text. Arrow or Parquet would add a dependency of 50 MB; Parquet unpacks
a whole group of rows to give one, and neither tells a flipped byte of one passage when that passage is read.

Passages are read with ``pread`` and not through a memory map, so that the resident memory of a process that has seen
all of Wikipedia stays as small as at its start, and so that threads and forked processes can share a corpus.
"""

from __future__ import annotations

import hashlib
import json
import os
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from dragin_lab.core.trace import Passage
from dragin_lab.errors import CorpusError

FORMAT = 1
PASSAGES, ROWS, ORDER, MANIFEST, SKIPPED = "passages.jsonl", "rows.bin", "order.bin", "corpus.json", "skipped.jsonl"
#: There while a build is under way, or was broken off.
PROGRESS = "corpus.partial.json"
ROW = np.dtype([("end", "<i8"), ("id", "<u8"), ("crc", "<u4")])  # byte where the line ends, hash of the id, CRC-32
ORDER_TYPE = np.dtype("<i4")
#: A corpus of at most so many bytes is hashed whole whenever it is opened, which takes a fraction of a second.
HASHED_AT_ONCE = 64 << 20
_ROWS_AT_ONCE = 4096
_AGAIN = "copy it anew from where it is whole, or build it again with --force"


def is_store(path: Path) -> bool:
    """Whether a build was made, or begun, in this folder."""
    return path.is_dir() and any((path / name).exists() for name in (MANIFEST, PROGRESS))


def id_hash(id: str) -> int:
    """64 bits of an id, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest(), "little")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Manifest:
    """What ``corpus.json`` says. ``files``: bytes and SHA-256 by name; ``canaries``: ids, and what finds them."""

    passages: int
    files: dict[str, dict[str, Any]]
    source: dict[str, Any]
    settings: dict[str, Any]
    counts: dict[str, int]
    canaries: list[dict[str, str]]
    warnings: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        sha256: str = self.files[PASSAGES]["sha256"]
        return sha256

    @property
    def stored(self) -> int:
        """Bytes of the passages."""
        count: int = self.files[PASSAGES]["bytes"]
        return count

    def dumped(self) -> bytes:
        """With a checksum of itself, so that a flipped digit is not believed."""
        facts = {"format": FORMAT} | asdict(self)
        facts["checksum"] = _checksum(facts)
        return (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        path = folder / MANIFEST
        if not path.exists() and (folder / PROGRESS).exists():
            raise CorpusError(f"{folder}: the build of this corpus was not finished; run the same command to go on")
        try:
            facts = json.loads(path.read_bytes())
            if facts["format"] != FORMAT:
                raise CorpusError(
                    f"{path}: format {facts['format']!r} and not {FORMAT}; build it again with this version, by --force"
                )
            if facts.pop("checksum") != _checksum(facts):
                raise CorpusError(f"{path}: does not match its own checksum, so it was damaged or edited; {_AGAIN}")
            del facts["format"]
            return cls(**facts | {"warnings": tuple(facts["warnings"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorpusError(f"{path}: is damaged ({type(error).__name__}: {error}); {_AGAIN}") from None
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read ({error.strerror or error})") from None


def _checksum(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Whether all files are there at their length, and hold as many rows as they should."""
    for name, facts in manifest.files.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read ({error.strerror or error}); {_AGAIN}") from None
        if size != facts["bytes"]:
            raise CorpusError(f"{path}: has {size:,} bytes and not {facts['bytes']:,}; {_AGAIN}")
    for name, dtype in ((ROWS, ROW), (ORDER, ORDER_TYPE)):
        if manifest.files[name]["bytes"] != manifest.passages * dtype.itemsize:
            raise CorpusError(f"{folder / name}: does not hold {manifest.passages:,} passages; {_AGAIN}")


def check_hashes(folder: Path, manifest: Manifest) -> None:
    """Whether all files are, to the byte, what was built."""
    for name, facts in manifest.files.items():
        if sha256_of(folder / name) != facts["sha256"]:
            raise CorpusError(f"{folder / name}: does not have the SHA-256 it was built with; {_AGAIN}")


class Records:
    """The lines of a corpus by row, each held to its CRC-32; the files may still grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._text = os.open(folder / PASSAGES, os.O_RDONLY)
            weakref.finalize(self, os.close, self._text)
            self._rows = os.open(folder / ROWS, os.O_RDONLY)
            weakref.finalize(self, os.close, self._rows)
        except OSError as error:
            raise CorpusError(f"{error.filename}: cannot be read ({error.strerror or error})") from None

    def lines(self, start: int, stop: int) -> list[bytes]:
        """The lines of rows ``start`` to ``stop``, which must exist."""
        before = start > 0
        rows = self._entries(start - before, stop)
        ends = rows["end"].tolist()
        begin = ends.pop(0) if before else 0
        text = self._read(begin, ends[-1] - begin) if ends[-1] >= begin else b""
        lines = []
        last = begin
        for row, (end, crc) in enumerate(zip(ends, rows["crc"][before:].tolist(), strict=True), start):
            line = text[last - begin : end - begin]
            if zlib.crc32(line) != crc or not line:
                raise CorpusError(f"{self.folder / PASSAGES}: passage {row + 1} is damaged (its checksum); {_AGAIN}")
            lines.append(line)
            last = end
        return lines

    def passages(self, start: int, stop: int) -> list[Passage]:
        records = (json.loads(line) for line in self.lines(start, stop))
        return [Passage(r["id"], r["title"], r["text"]) for r in records]

    def ids(self, start: int, stop: int) -> list[int]:
        """The hashes of the ids of these rows."""
        hashes: list[int] = self._entries(start, stop)["id"].tolist()
        return hashes

    def _entries(self, start: int, stop: int) -> np.ndarray:
        wanted = (stop - start) * ROW.itemsize
        data = os.pread(self._rows, wanted, start * ROW.itemsize)
        if len(data) != wanted:
            raise CorpusError(f"{self.folder / ROWS}: ends before passage {stop}; {_AGAIN}")
        return np.frombuffer(data, ROW)

    def _read(self, offset: int, count: int) -> bytes:
        parts = []
        while count > 0 and (part := os.pread(self._text, min(count, 1 << 30), offset)):
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return b"".join(parts)


class Store(Sequence[Passage]):
    """The passages of a built corpus, by row; ``position`` gives the row of an id.

    Opening it does the cheap part of the check: the manifest, the files' lengths and counts; all of it where the corpus
    is small. ``CorpusError`` says what is wrong and what to do.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = Manifest.read(self.folder)
        check_sizes(self.folder, self.manifest)
        if sum(facts["bytes"] for facts in self.manifest.files.values()) <= HASHED_AT_ONCE:
            check_hashes(self.folder, self.manifest)
        self.records = Records(self.folder)
        self.rows: np.ndarray = np.memmap(self.folder / ROWS, ROW, "r")  # (passages,)
        self.order: np.ndarray = np.memmap(self.folder / ORDER, ORDER_TYPE, "r")  # (passages,)
        if int(self.rows["end"][-1]) != self.manifest.stored:
            raise CorpusError(f"{self.folder / ROWS}: is not of the {PASSAGES} beside it; {_AGAIN}")
        self.position: Mapping[str, int] = _Position(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.folder,)

    def __len__(self) -> int:
        return self.manifest.passages

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> list[Passage]: ...
    def __getitem__(self, index: int | slice) -> Passage | list[Passage]:
        rows = range(len(self))[index]
        if isinstance(rows, int):
            return self.records.passages(rows, rows + 1)[0]
        if rows.step == 1 and len(rows) <= _ROWS_AT_ONCE:
            return self.records.passages(rows.start, rows.stop) if rows else []
        return [self[row] for row in rows]

    def __iter__(self) -> Iterator[Passage]:
        for start in range(0, len(self), _ROWS_AT_ONCE):
            yield from self.records.passages(start, min(start + _ROWS_AT_ONCE, len(self)))


class _Position(Mapping[str, int]):
    """Rows by id, by a binary search over the sorted hashes; ids that share a hash are told apart by reading them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getitem__(self, id: str) -> int:
        store, wanted = self._store, id_hash(id)
        low, high = 0, len(store)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._hash(middle) < wanted else (low, middle)
        while low < len(store) and self._hash(low) == wanted:
            row = int(store.order[low])
            if store[row].id == id:
                return row
            low += 1
        raise KeyError(id)

    def _hash(self, place: int) -> int:
        return int(self._store.rows["id"][self._store.order[place]])

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[str]:
        return (passage.id for passage in self._store)
