"""Tables in CSV and TSV files: what separates their fields, their encoding, and whether their first
line is a header.

All three are read off the file's first megabyte. What is not as its name promises is said in one
line, and ``fields="delimiter=;,encoding=cp1252,header=no"`` says it instead.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from dragin_lab.errors import DataError
from dragin_lab.warning import warn

#: What ``fields`` may say of a table, beside the names of its columns.
OPTIONS = ("delimiter", "encoding", "header")
SOUND = (
    "a whole file in UTF-8, with one JSON object a line, or rows as long as the first one, whose"
    " fields are quoted where they hold quotation marks;"
    " fields='delimiter=;,encoding=cp1252,header=no' says what a table has instead"
)
#: What cells look like that are no names of columns.
_KINDS = {
    "number": re.compile(r"-?\d+(\.\d+)?"),
    "list": re.compile(r"\[.*\]", re.DOTALL),
    "sentence": re.compile(r".*[.?!]|(\S+\s+){5,}.*", re.DOTALL),
}
_NAMED = {"tab": "\t", "comma": ",", "semicolon": ";", "bar": "|"}
_HEAD = 1 << 20  # bytes
_LOOKED_AT = 20  # rows


class Form(NamedTuple):
    """How a table is written; ``names`` are its columns where no header says them."""

    delimiter: str
    encoding: str
    names: list[str] | None


def read_table(
    path: Path,
    options: Mapping[str, str],
    known: Collection[str],
    bare: Mapping[int, Sequence[str]],
) -> Iterator[dict[str, str]]:
    """The rows of a table by the names of its columns.

    ``known`` are names that a header may have, ``bare`` the columns by their number where there is
    none. Raises ``DataError`` for rows of another length than the first, and what ``csv`` raises.
    """
    form = _find_form(path, options, known, bare)
    csv.field_size_limit(1 << 30)  # characters, in the whole process
    with open_packed(path, "rt", encoding=form.encoding, newline="") as file:
        rows = filter(None, csv.reader(file, delimiter=form.delimiter, strict=True))
        header = form.names or next(rows, [])
        columns = []
        for place, name in enumerate(header):
            columns.append(f"{name}.{place}" if name in header[:place] else name)
        warned = form.delimiter != "\t"
        for number, row in enumerate(rows, 1):
            if len(row) != len(columns):
                size = "fewer" if len(row) < len(columns) else "more"
                raise DataError(
                    f"{path}, row {number}: has {size} fields than the first line; give {SOUND}"
                )
            if not warned and (warned := any("\n" in field and "\t" in field for field in row)):
                warn(
                    f"{path}, row {number}: a field goes over several lines and holds tabs; where a"
                    " quotation mark opens it by mistake, rows below are lost in it: double the"
                    " marks inside a field"
                )
            yield dict(zip(columns, row, strict=True))


def open_packed(path: Path, mode: str, **options: Any) -> Any:
    """A file opened as ``open`` does, one that is packed too."""
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    return opened(path, mode, **options)


def _find_form(
    path: Path,
    options: Mapping[str, str],
    known: Collection[str],
    bare: Mapping[int, Sequence[str]],
) -> Form:
    usual = "\t" if ".tsv" in path.name.lower() else ","
    with open_packed(path, "rb") as file:
        head = file.read(_HEAD)
    encoding = _read_codec(options["encoding"]) if "encoding" in options else _find_encoding(head)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head).removeprefix("\ufeff")
    delimiter = options.get("delimiter", "")
    delimiter = _NAMED.get(delimiter, delimiter)
    if len(delimiter) > 1:
        raise DataError(
            f"fields: delimiter={delimiter!r} is none; give one character, or {', '.join(_NAMED)}"
        )
    signs = [delimiter] if delimiter else [usual, *_NAMED.values()]
    separator, rows = _find_separator(text, signs, known)
    first = rows[0] if rows else []
    has_known = not {*first}.isdisjoint(known)
    if (header := options.get("header", "")) not in ("", "yes", "no"):
        raise DataError(f"fields: header={header!r} is neither; give yes or no")
    bares = header == "no"
    if not header and not has_known and bare:
        bares = _is_data(first) and not _stands_above(rows)
    columns = [*map(str, range(1, len(first) + 1))]
    if bares and len(first) in bare and not {*columns} & {*known}:
        is_numbered = len(first) == 2 and first[0].isdecimal()
        columns = ["id", *bare[1]] if is_numbered else [*bare[len(first)]]
    spelt = {sign: name for name, sign in _NAMED.items()}.get(separator, separator)
    unusual = {
        f"delimiter={spelt}": separator != usual and not delimiter,
        f"encoding={encoding}": encoding != "utf-8-sig" and "encoding" not in options,
        f"header=no (its columns are {', '.join(columns)})": bares and not header,
    }
    reading = ",".join(option for option, applies in unusual.items() if applies)
    if reading:
        warn(f"{path}: read with {reading}; where that is wrong, say it in fields")
    return Form(separator, encoding, columns if bares else None)


def _find_separator(
    text: str, signs: Sequence[str], known: Collection[str]
) -> tuple[str, list[list[str]]]:
    """What separates the fields of a table, and its first rows by that: what finds the most known
    names in the first, else what cuts all rows alike; the usual one, the first of the signs,
    where several do as well.
    """
    rows_by = {sign: _first_rows(text, sign) for sign in signs}
    most = 0
    best = signs[0]
    even = set()
    for sign, rows in rows_by.items():
        first = rows[0] if rows else []
        names = len({*first}.intersection(known))
        if names > most:
            most = names
            best = sign
        lengths = set(map(len, rows))
        if len(first) > 1 and len(lengths) == 1:
            even.add(sign)
    if not most:
        best = next((sign for sign in ("\t", best, ";", "|") if sign in even), best)
    return best, rows_by[best]


def _first_rows(text: str, delimiter: str) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        rows += islice(
            filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)),
            _LOOKED_AT + 1,
        )
    except csv.Error:  # a field longer than csv takes by itself
        return rows
    # the last may be cut
    return rows[:-1] if len(rows) > _LOOKED_AT or len(text) >= _HEAD else rows


def _is_data(first: Sequence[str]) -> bool:
    """Whether a first line holds no names of columns: a number, a list, or a text as long as a
    sentence.
    """
    if first == [*map(str, range(len(first)))]:  # what pandas calls columns without a name
        return False
    return any(map(_kind_of, first))


def _stands_above(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first line of unknown names is a header all the same: the cells below one of its
    own are all of a kind that it is not, and none is of the kind of those below.
    """
    first, *below = rows
    differs = False
    for cell, *others in zip(first, *below, strict=False):
        kinds = {_kind_of(other) for other in others if other.strip()}
        if len(kinds) == 1 and kinds != {""}:
            if _kind_of(cell) in kinds:
                return False
            differs = True
    return differs


def _kind_of(cell: str) -> str:
    """The kind of a cell that is no mere name; "" for one that could be."""
    return next((kind for kind, form in _KINDS.items() if form.fullmatch(cell.strip())), "")


def _read_codec(name: str) -> str:
    try:
        return "utf-8-sig" if codecs.lookup(name).name == "utf-8" else name
    except LookupError:
        raise DataError(
            f"fields: encoding={name!r} is unknown; give one such as utf-8, cp1252 or utf-16"
        ) from None


def _find_encoding(head: bytes) -> str:
    """UTF-8 where the bytes are; UTF-16 by its mark or its zeros, else Windows' cp1252 where
    they are text at all.
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = head[:400:2].count(0), head[1:400:2].count(0)  # beside the bytes of ASCII
    if not all(zeros) and 8 * max(zeros) > len(head[:400]):
        return "utf-16-be" if zeros[0] else "utf-16-le"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < _HEAD)
    except UnicodeDecodeError:
        is_text = not re.search(rb"[\x00-\x08\x0b\x0e-\x1f\x81\x8d\x8f\x90\x9d]", head)
        return "cp1252" if is_text else "utf-8-sig"
    return "utf-8-sig"
