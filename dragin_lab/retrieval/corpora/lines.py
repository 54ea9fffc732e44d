"""Lines of text files: unpacked, numbered from 1, decoded; what is wrong with one is said with its place."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dragin_lab.errors import CorpusError

#: Bytes of one line, or characters of one quoted field, that are still read; more is a file that went wrong.
LONGEST_LINE = 64 << 20

Advance = Callable[[int], Any]  # is told how many bytes of the file were read since the last time
Refuse = Callable[[int, str], Any]  # is told the line on which a wrong record begins, and the whole message


class OpenQuoteError(CorpusError):
    """The lines at hand ended, and more follow, inside a quoted field of the record that begins on line ``number``."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class Lines(Iterator[tuple[int, str]]):
    """Numbered lines that can be given back; ``more``: the file goes on where they end."""

    def __init__(self, lines: Iterable[tuple[int, str]], *, more: bool = False) -> None:
        self.more = more
        self._lines = iter(lines)
        self._back: deque[tuple[int, str]] = deque()

    def __next__(self) -> tuple[int, str]:
        return self._back.popleft() if self._back else next(self._lines)

    def give_back(self, lines: list[tuple[int, str]]) -> None:
        self._back.extendleft(reversed(lines))


def raising(number: int, message: str) -> None:
    """A ``Refuse`` that leaves nothing out."""
    raise CorpusError(message)


def unpacked(path: Path, raw: io.BufferedReader) -> io.BufferedReader:
    """The content of an open file, unpacked where its name says that it is packed."""
    name = path.name.lower()
    if name.endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 20)
    if name.endswith(".bz2"):
        return io.BufferedReader(bz2.BZ2File(raw), 1 << 20)
    return raw


@contextmanager
def naming_damage(path: Path, number: int) -> Iterator[None]:
    """Say where a packed file is damaged."""
    kind = "bzip2" if path.name.lower().endswith(".bz2") else "gzip"
    try:
        yield
    except EOFError:
        raise CorpusError(f"{path}, line {number}: the {kind} file is cut off here; fetch it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path}, line {number}: not a sound {kind} file ({error})") from None
    except OSError as error:
        if error.errno is None:  # bz2 says so, with no error of the system behind it
            raise CorpusError(f"{path}, line {number}: not a sound {kind} file ({error})") from None
        raise


def _raw_lines(path: Path, advance: Advance) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as raw:
        stream = unpacked(path, raw)
        number = done = 0
        while True:
            number += 1
            with naming_damage(path, number):
                line = stream.readline(LONGEST_LINE)
            if not line:
                return
            if len(line) == LONGEST_LINE:
                raise CorpusError(f"{path}, line {number}: {too_long(LONGEST_LINE)}")
            yield number, line
            if (position := raw.tell()) != done:
                advance(position - done)
                done = position


def too_long(limit: int) -> str:
    return f"longer than {limit >> 20} MiB; break it into lines"


def decoded(path: Path, raw: Iterable[tuple[int, bytes]], refuse: Refuse) -> Iterator[tuple[int, str]]:
    """Numbered lines as text, without their ends."""
    for number, line in raw:
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            text = _decode(path, number, line)
        except CorpusError as error:
            refuse(number, str(error))
            continue
        yield number, text.rstrip("\r\n")


def text_lines(path: Path, advance: Advance) -> Lines:
    """All lines of a file."""
    return Lines(decoded(path, _raw_lines(path, advance), raising))


def _decode(path: Path, number: int, line: bytes) -> str:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "unpack it or name it .gz" if line.startswith(b"\x1f\x8b") else "convert it: iconv -f LATIN1 -t UTF-8"
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            hint = "convert it: iconv -f UTF-16 -t UTF-8"
        raise CorpusError(
            f"{path}, line {number}: byte {error.start + 1} (0x{line[error.start]:02x}) is not UTF-8; {hint}"
        ) from None
    if "\0" in text:
        raise CorpusError(f"{path}, line {number}: holds a NUL character; damaged, or UTF-16 and not UTF-8")
    return text
