"""Readers of passage files: DPR's tab-separated tables, JSON lines, folders of text. Row by row, never a file at once.

Every reader yields ``Row`` and raises ``CorpusError`` with the file and the line (counted from 1) of what is wrong.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dragin_lab.errors import CorpusError

#: Words of a passage cut from a text file; the paper's passages have 100 tokens.
PASSAGE_WORDS = 100
#: Bytes of one line, or characters of one quoted field, that are still read; more is a file that went wrong.
LONGEST_LINE = 64 << 20
TABLES = (".tsv", ".tsv.gz")
JSON_LINES = (".jsonl", ".jsonl.gz")

Advance = Callable[[int], Any]  # is told how many bytes of the file were read since the last time


class Row(NamedTuple):
    """One passage as it stands in a file; ``where`` is "FILE, line" and ``number`` that line, for messages."""

    where: str
    number: int
    id: str
    title: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.where} {self.number}"


def read_rows(path: Path, advance: Advance) -> Iterator[Row]:
    """The passages of a file or folder, in its order, by its kind."""
    if path.is_dir():
        return _read_folder(path, advance)
    name = path.name.lower()
    if name.endswith(TABLES):
        return _read_table(path, advance)
    if name.endswith(JSON_LINES):
        return _read_json_lines(path, advance)
    raise CorpusError(
        f"{path}: cannot tell what this is by its name; a corpus is a {', '.join(TABLES + JSON_LINES)} file "
        "or a folder of .txt files"
    )


def text_files(folder: Path) -> list[Path]:
    """The .txt files of a folder and of all folders in it, in the order of their relative paths."""
    found = (p for p in folder.rglob("*") if p.suffix.lower() == ".txt" and p.is_file())
    return sorted(found, key=lambda p: p.relative_to(folder).as_posix())


def total_bytes(path: Path) -> int:
    """What ``advance`` will have been told in sum."""
    return sum(p.stat().st_size for p in (text_files(path) if path.is_dir() else [path]))


# -- lines ------------------------------------------------------------------------------------------------------------


def _lines(path: Path, advance: Advance) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends, unpacked and decoded."""
    with path.open("rb") as raw:
        stream: BinaryIO | io.BufferedReader = raw
        if path.name.lower().endswith(".gz"):
            stream = io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 20)
        number = done = 0
        while True:
            number += 1
            try:
                line = stream.readline(LONGEST_LINE)
            except EOFError:
                raise CorpusError(f"{path}, line {number}: the gzip file is cut off here; fetch it again") from None
            except (gzip.BadGzipFile, zlib.error) as error:
                raise CorpusError(f"{path}, line {number}: not a sound gzip file ({error})") from None
            if not line:
                return
            if len(line) == LONGEST_LINE:
                raise CorpusError(f"{path}, line {number}: longer than {LONGEST_LINE >> 20} MiB; break it into lines")
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            yield number, _decode(path, number, line).rstrip("\r\n")
            if (position := raw.tell()) != done:
                advance(position - done)
                done = position


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


# -- tables -----------------------------------------------------------------------------------------------------------

_IN_QUOTES = re.compile(r'(?:[^"]++|"")*+')  # what a quoted field holds: quotes in pairs only


def _read_table(path: Path, advance: Advance) -> Iterator[Row]:
    where = f"{path}, line"
    lines = _lines(path, advance)
    records = _records(path, lines)
    _, header = next(records, (1, [""]))
    missing = [name for name in ("id", "text", "title") if name not in header]
    if missing:
        raise CorpusError(
            f"{path}, line 1: no column {', '.join(missing)}; the first line must name the columns, "
            f"id text title between tabs, and reads {chr(9).join(header)[:60]!r}"
        )
    columns = [header.index(name) for name in ("id", "title", "text")]
    for number, fields in records:
        if len(fields) != len(header):
            raise CorpusError(
                f"{path}, line {number}: {len(fields)} fields between tabs and not {len(header)} as in the header; "
                "quote fields that hold tabs or line ends"
            )
        yield Row(where, number, *(fields[c] for c in columns))


def _records(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Fields of each record, as a CSV writer with tabs wrote them, with the line it starts on; blank lines are skipped.

    The csv module is not used: its limit on the length of a field is one setting for the whole process, and an open
    quote makes it swallow the rest of the file before it complains.
    """
    for number, line in lines:
        if not line.strip():
            continue
        if '"' not in line:
            yield number, line.split("\t")
            continue
        fields: list[str] = []
        at = 0  # where the next field starts; behind the line's end when there is none
        while at <= len(line):
            if line.startswith('"', at):
                line, field, at = _quoted(path, number, line, at, lines)
            else:
                stop = line.find("\t", at)
                stop = len(line) if stop < 0 else stop
                field, at = line[at:stop], stop + 1
            fields.append(field)
        yield number, fields


def _quoted(path: Path, number: int, line: str, at: int, lines: Iterator[tuple[int, str]]) -> tuple[str, str, int]:
    """A field whose quote opens at ``at``: the line it closes on (reading on as needed), its text, the next's start."""
    parts: list[str] = []
    length = 0
    at += 1
    while True:
        inside = _IN_QUOTES.match(line, at)
        assert inside is not None  # it matches the empty text too
        parts.append(inside[0])
        if (stop := inside.end()) < len(line):
            break
        length += len(line) - at + 1
        following = next(lines, None) if length < LONGEST_LINE else None
        if following is None:
            raise CorpusError(f'{path}, line {number}: a quote (") opens in this row and never closes')
        at, line = 0, following[1]
    if stop + 1 < len(line) and line[stop + 1] != "\t":
        raise CorpusError(
            f"{path}, line {number}: {line[stop + 1 : stop + 21]!r} follows a closing quote; "
            "quote the whole field and double the quotes inside it, as a CSV writer does"
        )
    return line, "\n".join(parts).replace('""', '"'), stop + 2


# -- JSON lines -------------------------------------------------------------------------------------------------------


def _read_json_lines(path: Path, advance: Advance) -> Iterator[Row]:
    where = f"{path}, line"
    for number, line in _lines(path, advance):
        if not line.strip():
            continue
        place = f"{where} {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{place}: not JSON ({error}); every line is one JSON object") from None
        if not isinstance(record, dict):
            raise CorpusError(f"{place}: a JSON {type(record).__name__}, not an object with id, title and text")
        key = "id" if "id" in record else "_id"
        for name in (key, "text"):
            if name not in record:
                names = ", ".join(record) or "none"
                raise CorpusError(f"{place}: no field {name.lstrip('_')!r}; the fields are {names[:80]}")
        identity, title, text = record[key], record.get("title"), record["text"]
        if isinstance(identity, int) and not isinstance(identity, bool):
            identity = str(identity)
        title = "" if title is None else title
        for name, value in ((key, identity), ("title", title), ("text", text)):
            if not isinstance(value, str):
                raise CorpusError(f"{place}: field {name!r} is {str(value)[:40]!r} and not a text")
        yield Row(where, number, identity, title, text)


# -- folders ----------------------------------------------------------------------------------------------------------


def _read_folder(folder: Path, advance: Advance) -> Iterator[Row]:
    for path in text_files(folder):
        relative = path.relative_to(folder).as_posix()
        where = f"{path}, line"
        words: list[str] = []
        number = made = 0
        for number, line in _lines(path, advance):
            for word in line.split():
                words.append(word)
                if len(words) == PASSAGE_WORDS:
                    made += 1
                    yield Row(where, number, f"{relative}#{made}", path.stem, " ".join(words))
                    words = []
        if words:
            yield Row(where, number, f"{relative}#{made + 1}", path.stem, " ".join(words))
