"""What a corpus is built from: kinds of source, the files of each, and their content in blocks of whole lines."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path

from dragin_lab.errors import CorpusError
from dragin_lab.retrieval.corpora import lines as corpus_lines
from dragin_lab.retrieval.corpora.files import JSON_LINES, TABLES, read_header, text_files
from dragin_lab.retrieval.corpora.lines import Advance, Lines, decoded, naming_damage, raising, unpacked

TABLE, JSONL, TEXT, ARTICLES = KINDS = ("dpr", "jsonl", "text", "wikiextractor")
#: Bytes, unpacked, that are read, parsed and written at a time.
BLOCK_BYTES = 2 << 20
#: Bytes of a record's line; Wikipedia's longest articles stay below.
LONGEST_RECORD = 8 << 20
#: Stands for a line that was too long to be kept; no other line begins with NUL and is accepted.
TOO_LONG = b"\0too long"
_WIKI_FILE = re.compile(r"wiki_\d+(\.bz2)?")  # as WikiExtractor names its files, in folders AA, AB, ...


@dataclass(frozen=True)
class Source:
    """A file or folder with passages, or with articles to cut."""

    path: Path
    kind: str
    files: tuple[Path, ...]
    header: tuple[str, ...] = ()  # of a table
    head: int = 0  # CRC-32 of the first 64 KiB on disk

    @property
    def bytes(self) -> int:
        """On disk, packed or not."""
        return sum(path.stat().st_size for path in self.files)

    def relative(self, file: Path) -> str:
        return file.relative_to(self.path).as_posix() if file != self.path else file.name


def find_source(path: Path, kind: str | None = None) -> Source:
    """Say what a path holds; ``kind`` is one of ``KINDS``, by default what its name and its files' names tell."""
    if not path.exists():
        raise CorpusError(f"{path}: no such file or folder")
    told = kind is None
    files: list[Path] = [path]
    if path.is_dir():
        articles = [p for p in path.rglob("wiki_*") if p.is_file() and _WIKI_FILE.fullmatch(p.name)]
        kind = kind or (ARTICLES if articles else TEXT)
        if kind not in (ARTICLES, TEXT):
            raise CorpusError(f"{path}: is a folder, and --kind {kind} is a file's; give the file")
        files = sorted(articles, key=lambda p: p.as_posix()) if kind == ARTICLES else text_files(path)
        if not files:
            what = "files named wiki_00, wiki_01, ..." if kind == ARTICLES else ".txt files"
            raise CorpusError(f"{path}: holds no {what}")
    else:
        name = path.name.lower()
        named = TABLE if name.endswith(TABLES) else JSONL if name.endswith(JSON_LINES) else None
        kind = kind or named or (ARTICLES if _WIKI_FILE.fullmatch(path.name) else None)
        if kind is None:
            raise CorpusError(
                f"{path}: cannot tell what this is by its name; it may be a {', '.join(TABLES + JSON_LINES)} file, a "
                "folder of .txt files, or WikiExtractor's folder. If it is one of these, say which with --kind"
            )
    source = Source(path, kind, tuple(files))
    if not source.bytes:
        raise CorpusError(f"{path}: is empty")
    first = next(blocks(source, Position()), None)
    if first is None:
        raise CorpusError(f"{path}: is empty")
    if kind == TABLE:
        lines = Lines(decoded(path, enumerate(first.data.split(b"\n"), 1), raising))
        source = replace(source, header=tuple(read_header(path, lines)))
    if told and kind == JSONL and b"?curid=" in first.data.split(b"\n", 1)[0]:
        raise CorpusError(
            f"{path}: holds WikiExtractor's articles, by its first line; give --kind wikiextractor to cut them into "
            "passages, or --kind jsonl to take each as one"
        )
    with files[0].open("rb") as file:
        return replace(source, head=zlib.crc32(file.read(1 << 16)))


@dataclass(frozen=True)
class Position:
    """How far a source was read: bytes of one of its files, unpacked; the line that follows; and what is still open.

    ``crc`` is the CRC-32 of all that was read of all files; ``left`` the end of it that is part of a record which goes
    on, ``made`` the passages so far of a text file that is being cut.
    """

    file: int = 0
    offset: int = 0
    number: int = 1
    crc: int = 0
    left: bytes = b""
    made: int = 0


@dataclass(frozen=True)
class Block:
    """Whole lines of one file; ``number`` is the first one's, ``last`` whether the file ends here.

    ``after`` is the position behind it, of which ``left`` and ``made`` are known when it is parsed. ``made`` is that of
    the position before it.
    """

    path: Path
    relative: str
    data: bytes
    number: int
    last: bool
    after: Position
    made: int = 0

    def following(self, before: Position) -> Block:
        """This block with what was left of the one before."""
        if before.file != self.after.file:
            return self
        left = before.left
        return replace(self, data=left + self.data, number=self.number - left.count(b"\n"), made=before.made)


def blocks(source: Source, begin: Position, advance: Advance = lambda count: None) -> Iterator[Block]:
    """The source from a position on. What lies before is read once more, and must have the checksum it had.

    Reading it again, unpacking included, takes a fraction of the time that parsing it took, and is the only way to know
    that a resumed build and an uninterrupted one are of the same source.
    """
    crc = 0
    for index, path in enumerate(source.files):
        crc = zlib.crc32(source.relative(path).encode(), crc)
        number, offset, told = 1, 0, 0
        with path.open("rb") as raw:
            stream = unpacked(path, raw)
            while index < begin.file or (index == begin.file and offset < begin.offset):
                ahead = BLOCK_BYTES if index < begin.file else min(BLOCK_BYTES, begin.offset - offset)
                with naming_damage(path, number):
                    data = stream.read(ahead)
                if not data:
                    break
                crc, offset = zlib.crc32(data, crc), offset + len(data)
                advance(raw.tell() - told)
                told = raw.tell()
            if index < begin.file:
                continue
            if index == begin.file and begin.offset:
                if (offset, crc) != (begin.offset, begin.crc):
                    raise CorpusError(
                        f"{path}: before its line {begin.number:,} it is not what it was when this build was broken "
                        "off; start over with --force"
                    )
                number = begin.number
            last = False
            while not last:
                with naming_damage(path, number):
                    data, skipped, crc = _take(stream, crc, longest_line(source.kind))
                    last = not stream.peek(1)
                if not data and not (index == begin.file and begin.left and offset == begin.offset):
                    break
                first, number, offset = number, number + data.count(b"\n"), offset + len(data) + skipped
                advance(raw.tell() - told)
                told = raw.tell()
                yield Block(path, source.relative(path), data, first, last, Position(index, offset, number, crc))


def longest_line(kind: str) -> int:
    """Text is cut by its words, so that its lines may be any length that memory holds."""
    return corpus_lines.LONGEST_LINE if kind == TEXT else LONGEST_RECORD


def _take(stream: BufferedReader, crc: int, longest: int) -> tuple[bytes, int, int]:
    """Whole lines, about ``BLOCK_BYTES``; how much longer a line was than what stands for it here; the new CRC."""
    data = stream.read(BLOCK_BYTES)
    crc = zlib.crc32(data, crc)
    start = data.rfind(b"\n") + 1  # of the last line
    parts, size = [data[start:]], len(data) - start
    while parts[-1] and not parts[-1].endswith(b"\n"):
        part = stream.readline(1 << 20)
        crc, size = zlib.crc32(part, crc), size + len(part)
        parts = [*parts, part] if size <= longest else [TOO_LONG, part]
    if size <= longest:
        return data[:start] + b"".join(parts), 0, crc
    end = b"\n" if parts[-1] else b""
    return data[:start] + TOO_LONG + end, size - len(TOO_LONG + end), crc
