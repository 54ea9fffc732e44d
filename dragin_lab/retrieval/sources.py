"""Sources of a corpus: rows of passages, and folders of texts, which are cut into passages.

``open_source`` recognises every kind of source (docs/how-to/passages.md), and reads it one passage
at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dragin_lab.checks import check_text
from dragin_lab.data import tabular
from dragin_lab.data.tabular import FieldNames, Fields, Placed
from dragin_lab.errors import DataError, SettingError
from dragin_lab.files import as_path, is_set_aside
from dragin_lab.trace.trace import Passage
from dragin_lab.warning import warn

#: ``contents`` is the text of pyserini and FlashRAG.
FIELDS = {"id": ("id", "_id"), "title": ("title",), "text": ("text", "contents")}
BARE = {1: ("text",), 2: ("id", "text")}  # columns without a header: MS MARCO's collection
#: Characters of a title or text; an analysis of 20 million takes gigabytes.
LONGEST = 1_000_000
#: Words per passage cut from a longer text (the paper's have 100), and how many of them the next
#: one repeats.
WORDS = 100
OVERLAP = 20
_TEXTS = (".txt", ".md")
_BEIR = ("corpus.jsonl", "corpus.jsonl.gz")
_ACCEPTED = f"{tabular.ACCEPTED}, a BEIR folder, or a folder of .txt and .md files"

Sourced = tuple[str, Passage]  # the place of a passage, for messages, and the passage


def open_source(source: Any, fields: Fields = None) -> tuple[str, Iterator[Sourced]]:
    """The name of a source, and its passages in order. Raises ``DataError`` with the place of
    what is wrong.
    """
    chosen = tabular.parse_fields(fields, FIELDS)
    name = type(source).__name__
    if isinstance(source, str | Path):
        name = str(source)
        if not name.startswith(tabular.HUB):
            path = as_path(source, DataError)
            if not path.exists():
                raise DataError(f"{name}: no such file or folder")
            source = next((path / file for file in _BEIR if (path / file).is_file()), path)
            if source.is_dir() and not tabular.is_tabular(source):
                return path.resolve().name, _read_texts(path)
            name = path.resolve().name
    if not tabular.is_tabular(source):
        raise DataError(f"{name} {str(source)[:60]!r}: holds no passages; give {_ACCEPTED}")
    return name, _read_passages(tabular.read_rows(source, chosen, FIELDS, BARE), chosen)


def _read_passages(rows: Iterable[Placed], fields: FieldNames) -> Iterator[Sourced]:
    """The passages of records, with a warning for each field that is in none of them."""
    warned = set[Any]()
    for placed in rows:
        place, passage = _read_row(placed, fields)
        if placed.record.keys() - warned - {"id", "text", "title"}:
            whole = f"{passage.id}\n{passage.title}\n{passage.text}"
            lost = [
                key
                for key, value in placed.record.items()
                if key not in warned and not _is_in(value, whole)
            ]
            warned.update(lost)
            if lost:
                warn(
                    f"{place}: {', '.join(map(str, lost))[:200]} stand in no passage; where they"
                    " should, say which field is the text with fields"
                )
        yield place, passage


def _is_in(value: Any, whole: str) -> bool:
    """Whether a passage holds a field, line by line; quotation marks around a title are none of
    it.
    """
    empty = value is None or value in ([], {}) or tabular.is_missing(value)
    return empty or all(line.strip().strip('"') in whole for line in str(value).splitlines())


def _read_row(placed: Placed, fields: FieldNames) -> Sourced:
    """The passage of a record; a missing id is made from the row, a missing title is empty.

    FlashRAG's ``contents`` begin with a line that is the title: one in quotation marks, or the
    title beside them.
    """
    id, title, text = (
        tabular.pick_value(placed, name, usual, fields) for name, usual in FIELDS.items()
    )
    if text is None:
        raise DataError(
            f"{placed.place}: has no text; {tabular.list_fields(placed)}, as in"
            " fields='text=contents'"
        )
    if isinstance(text, str) and text is placed.record.get("contents", ""):
        first, _, rest = text.partition("\n")
        heading = first.strip()
        if rest.strip() and heading in ("", title, f'"{title}"'):
            text = rest
        elif rest.strip() and not title and re.fullmatch('".+"', heading):
            title = heading[1:-1]
            text = rest
    return place_passage(
        placed.place,
        tabular.id_of(placed, id),
        tabular.text_of(placed, "title", "" if title is None else title),
        tabular.text_of(placed, "text", text),
    )


def place_passage(place: str, id: str, title: str, text: str) -> Sourced:
    """A passage with its place; ``DataError`` for one that no retriever can use."""
    if not id.strip():
        raise DataError(f"{place}: the id is empty; give it one, or leave the field out")
    if not text.strip():
        raise DataError(
            f"{place}: the text of passage {id!r} is empty; give it one, or remove the row"
        )
    if (longest := max(len(title), len(text))) > LONGEST:
        raise DataError(
            f"{place}: passage {id!r} has {longest:,} characters, and a passage has at most"
            f" {LONGEST:,}; cut it, or give it in a folder as .txt, which is cut"
        )
    try:
        return place, Passage(
            check_text("id", id), check_text("title", title), check_text("text", text)
        )
    except SettingError as error:
        raise DataError(f"{place}: {error}") from None


def _read_texts(folder: Path) -> Iterator[Sourced]:
    """The .txt and .md files of a folder, cut into passages; each begins with the last words of the
    one before.

    Hidden files and folders are left out: notebooks' checkpoints, .git, macOS's "._" files.
    """
    paths = []
    for path in sorted(folder.rglob("*")):
        aside = any(map(is_set_aside, path.relative_to(folder).parts))
        if path.suffix.lower() in _TEXTS and path.is_file() and not aside:
            paths.append(path)
    if not paths:
        raise DataError(f"{folder}: holds no passages; give {_ACCEPTED}")
    for path in paths:
        try:
            words = path.read_text(encoding="utf-8-sig").split()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot be read ({error}); save it as UTF-8") from None
        name = path.relative_to(folder).as_posix()
        for number, start in enumerate(range(0, max(len(words) - OVERLAP, 1), WORDS - OVERLAP), 1):
            if part := " ".join(words[start : start + WORDS]):
                yield f"{path}, passage {number}", Passage(f"{name}#{number}", path.stem, part)
