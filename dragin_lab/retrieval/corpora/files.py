"""Readers of passage files: DPR's tab-separated tables, JSON lines, folders of text. Row by row, never a file at once.

Every reader yields ``Row`` and tells ``refuse`` the file and the line (counted from 1) of a record that is wrong: by
default that raises ``CorpusError``; where it returns, the record is left out and the next one starts on the next line.
What leaves nothing to go on with, such as a damaged gzip file, always raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dragin_lab.errors import CorpusError
from dragin_lab.retrieval.corpora import lines as corpus_lines
from dragin_lab.retrieval.corpora.lines import Advance, Lines, OpenQuoteError, Refuse, raising, text_lines
from dragin_lab.retrieval.corpora.store import Store, is_store

#: Words of a passage cut from a text file; the paper's passages have 100 tokens.
PASSAGE_WORDS = 100
#: A passage of more words is read and searched, and announced: no prompt will hold it.
LONG_PASSAGE_WORDS = 10_000
TABLES = (".tsv", ".tsv.gz")
JSON_LINES = (".jsonl", ".jsonl.gz")


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
    if is_store(path):
        return _read_store(path, advance)
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
    if is_store(path):
        return Store(path).manifest.stored
    return sum(p.stat().st_size for p in (text_files(path) if path.is_dir() else [path]))


def _read_store(path: Path, advance: Advance) -> Iterator[Row]:
    for number, passage in enumerate(Store(path), 1):
        row = Row(f"{path}, passage", number, passage.id, passage.title, passage.text)
        advance(len(json_line(*row[2:])))
        yield row


# -- tables -----------------------------------------------------------------------------------------------------------

_IN_QUOTES = re.compile(r'(?:[^"]++|"")*+')  # what a quoted field holds: quotes in pairs only


def _read_table(path: Path, advance: Advance) -> Iterator[Row]:
    lines = text_lines(path, advance)
    return table_rows(path, lines, read_header(path, lines), raising)


def read_header(path: Path, lines: Lines) -> list[str]:
    """The names of a table's columns, from its first record."""
    _, header = next(_records(path, lines, raising), (1, [""]))
    missing = [name for name in ("id", "text", "title") if name not in header]
    if missing:
        raise CorpusError(
            f"{path}, line 1: no column {', '.join(missing)}; the first line must name the columns, "
            f"id text title between tabs, and reads {chr(9).join(header)[:60]!r}"
        )
    return header


def table_rows(path: Path, lines: Lines, header: list[str], refuse: Refuse) -> Iterator[Row]:
    """The passages below a table's header; ``OpenQuoteError`` where ``lines.more`` is needed to close a quote."""
    where = f"{path}, line"
    columns = [header.index(name) for name in ("id", "title", "text")]
    for number, fields in _records(path, lines, refuse):
        if len(fields) != len(header):
            refuse(
                number,
                f"{path}, line {number}: {len(fields)} fields between tabs and not {len(header)} as in the header; "
                "quote fields that hold tabs or line ends",
            )
            continue
        yield Row(where, number, *(fields[c] for c in columns))


def _records(path: Path, lines: Lines, refuse: Refuse) -> Iterator[tuple[int, list[str]]]:
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
        taken: list[tuple[int, str]] = []  # the record's further lines
        try:
            fields = _fields(path, number, line, lines, taken)
        except OpenQuoteError:
            raise
        except CorpusError as error:
            refuse(number, str(error))
            lines.give_back(taken)
        else:
            yield number, fields


def _fields(path: Path, number: int, line: str, lines: Lines, taken: list[tuple[int, str]]) -> list[str]:
    fields: list[str] = []
    at = 0  # where the next field starts; behind the line's end when there is none
    while at <= len(line):
        if line.startswith('"', at):
            line, field, at = _quoted(path, number, line, at, lines, taken)
        else:
            stop = line.find("\t", at)
            stop = len(line) if stop < 0 else stop
            field, at = line[at:stop], stop + 1
        fields.append(field)
    return fields


def _quoted(
    path: Path, number: int, line: str, at: int, lines: Lines, taken: list[tuple[int, str]]
) -> tuple[str, str, int]:
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
        message = f'{path}, line {number}: a quote (") opens in this row and never closes'
        short = length < corpus_lines.LONGEST_LINE
        following = next(lines, None) if short else None
        if following is None:
            raise OpenQuoteError(message, number) if short and lines.more else CorpusError(message)
        taken.append(following)
        at, line = 0, following[1]
    if stop + 1 < len(line) and line[stop + 1] != "\t":
        raise CorpusError(
            f"{path}, line {number}: {line[stop + 1 : stop + 21]!r} follows a closing quote; "
            "quote the whole field and double the quotes inside it, as a CSV writer does"
        )
    return line, "\n".join(parts).replace('""', '"'), stop + 2


# -- JSON lines -------------------------------------------------------------------------------------------------------


def _read_json_lines(path: Path, advance: Advance) -> Iterator[Row]:
    return json_rows(path, text_lines(path, advance), raising)


def json_rows(path: Path, lines: Iterable[tuple[int, str]], refuse: Refuse) -> Iterator[Row]:
    """A passage a line."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = Row(f"{path}, line", number, *_json_passage(f"{path}, line {number}", line))
        except CorpusError as error:
            refuse(number, str(error))
            continue
        yield row


def article_rows(path: Path, lines: Iterable[tuple[int, str]], refuse: Refuse) -> Iterator[Row]:
    """An article a line, as WikiExtractor's ``--json`` writes them (id, url, title, text, and more): its passages.

    Older versions begin the text with the title, as a line of its own, which is left out. An article without text
    (a redirect) yields one row with an empty text, so that it can be counted.
    """
    for row in json_rows(path, lines, refuse):
        if not row.id.strip():
            refuse(row.number, f"{row.place}: the id is empty")
            continue
        text = row.text
        if row.title and text.lstrip().startswith(f"{row.title}\n"):
            text = text.lstrip()[len(row.title) :]
        words = text.split()
        if not words:
            yield row._replace(text="")
        for made, start in enumerate(range(0, len(words), PASSAGE_WORDS), 1):
            yield row._replace(id=f"{row.id}#{made}", text=" ".join(words[start : start + PASSAGE_WORDS]))


def _json_passage(place: str, line: str) -> tuple[str, str, str]:
    """The id, title and text of one line."""
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
    return identity, title, text


# -- folders ----------------------------------------------------------------------------------------------------------


def _read_folder(folder: Path, advance: Advance) -> Iterator[Row]:
    for path in text_files(folder):
        cutter = Cutter(path, path.relative_to(folder).as_posix())
        for number, line in text_lines(path, advance):
            yield from cutter.add(number, line)
        yield from cutter.rest()


class Cutter:
    """Cuts a text file into passages of ``PASSAGE_WORDS`` words, with the file's name as their title.

    ``made`` counts them; ``start`` is the line, and the word in it from 0, where the one under way begins.
    """

    def __init__(self, path: Path, relative: str, made: int = 0) -> None:
        self.made = made
        self.start = (0, 0)
        self._path = path
        self._relative = relative
        self._words: list[str] = []
        self._number = 0

    def add(self, number: int, line: str) -> Iterator[Row]:
        self._number = number
        for place, word in enumerate(line.split()):
            if not self._words:
                self.start = (number, place)
            self._words.append(word)
            if len(self._words) == PASSAGE_WORDS:
                yield from self.rest()

    def rest(self) -> Iterator[Row]:
        """The passage under way, if there is one, as it is."""
        if self._words:
            self.made += 1
            text = " ".join(self._words)
            yield Row(f"{self._path}, line", self._number, f"{self._relative}#{self.made}", self._path.stem, text)
            self._words = []

    @property
    def under_way(self) -> bool:
        return bool(self._words)


# -- rows -------------------------------------------------------------------------------------------------------------


def check_row(row: Row) -> None:
    """Refuse what no retriever could use."""
    if not row.id.strip():
        raise CorpusError(f"{row.place}: the id is empty")
    if not row.text.strip():
        raise CorpusError(f"{row.place}: the text of passage {row.id!r} is empty")
    for name in ("id", "title", "text"):
        value = getattr(row, name)
        if "\0" in value:
            raise CorpusError(f"{row.place}: the {name} holds a NUL character; remove it")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"{row.place}: character {error.start + 1} of the {name} is half a surrogate pair"
            ) from None


def long_words(row: Row) -> int:
    """The words of a passage that has more than ``LONG_PASSAGE_WORDS``, else 0."""
    if len(row.text) <= 2 * LONG_PASSAGE_WORDS - 2:
        return 0
    count = len(row.text.split())
    return count if count > LONG_PASSAGE_WORDS else 0


def long_warning(count: int, first: str) -> str:
    long = f"passages longer than {LONG_PASSAGE_WORDS:,} words"
    return f"{long} will not fit into a prompt; cut them: {count:,}, first {first}"


def json_line(id: str, title: str, text: str) -> bytes:
    """A passage as the line of JSON that it is stored as, and that fingerprints are taken over."""
    return (json.dumps({"id": id, "title": title, "text": text}, ensure_ascii=False) + "\n").encode()
