"""From a block of a source to passages as they are stored: the part of a build that runs on all cores."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dragin_lab.errors import CorpusError
from dragin_lab.retrieval.corpora.files import (
    Cutter,
    Row,
    article_rows,
    check_row,
    json_line,
    json_rows,
    long_words,
    read_header,
    table_rows,
)
from dragin_lab.retrieval.corpora.lines import Lines, OpenQuoteError, Refuse, decoded, too_long
from dragin_lab.retrieval.corpora.sources import ARTICLES, TABLE, TEXT, TOO_LONG, Block, longest_line
from dragin_lab.retrieval.corpora.store import id_hash

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Plan:
    """What a build does with every block: the kind of source, a table's columns, and what was asked for."""

    kind: str
    header: tuple[str, ...]
    dedupe: bool
    skip_bad: bool


@dataclass
class Parsed:
    """The passages of a block, n of them; one that repeats an earlier id or text is still among them."""

    lines: list[bytes] = field(default_factory=list)  # n, JSON with a line end
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))  # (n,) hashes of the ids
    crcs: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint32))  # (n,) CRC-32 of the lines
    texts: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))  # (n,) hashes of title and text, or (0,)
    numbers: list[int] = field(default_factory=list)  # n, of the lines in the source
    bad: list[tuple[int, str]] = field(default_factory=list)  # line in the source and message of what is left out
    empty: int = 0  # articles without text
    long: list[str] = field(default_factory=list)  # passages that no prompt will hold
    left: bytes = b""  # the end of the block that belongs to a record which goes on in the next
    made: int = 0  # passages so far of the text file that is being cut


def parse(block: Block, plan: Plan) -> Parsed:
    """Parse a block; ``CorpusError`` at the first bad record, unless the plan is to leave those out."""
    parsed = Parsed(made=block.made)
    ids: list[int] = []
    texts: list[int] = []

    def refuse(number: int, message: str) -> None:
        if not plan.skip_bad:
            raise CorpusError(message)
        parsed.bad.append((number, message))

    for row in _rows(block, plan, parsed, refuse):
        if plan.kind == ARTICLES and not row.text:
            parsed.empty += 1
            continue
        try:
            check_row(row)
        except CorpusError as error:
            refuse(row.number, str(error))
            continue
        if count := long_words(row):
            parsed.long.append(f"{row.place} (id {row.id!r}, {count:,} words)")
        parsed.lines.append(json_line(row.id, row.title, row.text))
        parsed.numbers.append(row.number)
        ids.append(id_hash(row.id))
        if plan.dedupe:
            texts.append(text_hash(row.title, row.text))
    parsed.ids = np.array(ids, np.uint64)
    parsed.texts = np.array(texts, np.uint64)
    parsed.crcs = np.array([zlib.crc32(line) for line in parsed.lines], np.uint32)
    if parsed.left:  # what is wrong with these lines is said when they are parsed as a whole
        begin = block.number + block.data.count(b"\n") - parsed.left.count(b"\n")
        parsed.bad = [(number, message) for number, message in parsed.bad if number < begin]
    return parsed


def text_hash(title: str, text: str) -> int:
    """64 bits of what two passages share when one of them is superfluous."""
    return int.from_bytes(hashlib.blake2b(f"{title}\0{text}".encode(), digest_size=8).digest(), "little")


def _rows(block: Block, plan: Plan, parsed: Parsed, refuse: Refuse) -> Iterator[Row]:
    raw = block.data.split(b"\n")
    if not raw[-1]:
        raw.pop()

    def kept() -> Iterator[tuple[int, bytes]]:
        for number, line in enumerate(raw, block.number):
            if line == TOO_LONG:
                refuse(number, f"{block.path}, line {number}: {too_long(longest_line(plan.kind))}")
            else:
                yield number, line

    def end(number: int) -> bytes:
        return b"".join(line + b"\n" for line in raw[number - block.number :])

    lines = Lines(decoded(block.path, kept(), refuse), more=not block.last)
    if plan.kind == TEXT:
        cutter = Cutter(block.path, block.relative, block.made)
        for number, line in lines:
            yield from cutter.add(number, line)
        if block.last:
            yield from cutter.rest()
        parsed.made = cutter.made
        if cutter.under_way:
            number, place = cutter.start
            line = raw[number - block.number].decode()
            begin = next(word.start() for at, word in enumerate(_WORD.finditer(line)) if at == place)
            parsed.left = line[begin:].encode() + b"\n" + end(number + 1)
    elif plan.kind == TABLE:
        if block.number == 1:
            read_header(block.path, lines)
        try:
            yield from table_rows(block.path, lines, list(plan.header), refuse)
        except OpenQuoteError as error:
            parsed.left = end(error.number)
    else:
        yield from (article_rows if plan.kind == ARTICLES else json_rows)(block.path, lines, refuse)
