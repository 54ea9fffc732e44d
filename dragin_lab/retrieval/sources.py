"""Sources of a corpus: rows of passages, and folders of texts, which are cut into passages.

``open_source`` recognises every kind of source (docs/how-to/passages.md), and reads it one passage at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dragin_lab.checks import text as check_text
from dragin_lab.data import tabular
from dragin_lab.data.tabular import Placed
from dragin_lab.errors import CorpusError, SettingError
from dragin_lab.files import as_path
from dragin_lab.text import without_secrets
from dragin_lab.trace.trace import Passage

FIELDS = {"id": ("id", "_id"), "title": ("title",), "text": ("text",)}
#: Words per passage cut from a longer text (the paper's have 100), and how many of them the next one repeats.
WORDS, OVERLAP = 100, 20
_TEXTS = (".txt", ".md")
_BEIR = ("corpus.jsonl", "corpus.jsonl.gz")
_ACCEPTED = f"{tabular.ACCEPTED}, a BEIR folder, or a folder of .txt and .md files"

Sourced = tuple[str, Passage]  # the place of a passage, for messages, and the passage


def open_source(source: Any, fields: str | Mapping[str, str] | None = None) -> tuple[str, Iterator[Sourced]]:
    """The name of a source, and its passages in order. Raises ``DataError`` with the place of what is wrong."""
    chosen, name = tabular.parse_fields(fields, FIELDS), type(source).__name__
    if isinstance(source, str | Path):
        name = without_secrets(str(source))
        if not name.startswith(tabular.HUB):
            path = as_path(source, CorpusError)
            if not path.exists():
                raise CorpusError(f"{name}: no such file or folder")
            source = next((path / file for file in _BEIR if (path / file).is_file()), path)
            if source.is_dir() and not tabular.is_tabular(source):
                return path.resolve().name, _read_texts(path)
            name = path.resolve().name
    if not tabular.is_tabular(source):
        raise CorpusError(f"{name} {without_secrets(str(source))[:60]!r}: holds no passages; give {_ACCEPTED}")
    return name, (_read_row(placed, chosen) for placed in tabular.read_rows(source))


def _read_row(placed: Placed, fields: Mapping[str, str]) -> Sourced:
    """The passage of a record; a missing id is made from the row, a missing title is empty."""
    id, title, text = (tabular.pick_value(placed, name, usual, fields) for name, usual in FIELDS.items())
    if text is None and isinstance(contents := placed.record.get("contents"), str):  # FlashRAG's
        first, _, rest = contents.partition("\n")
        title, text = (title or first.strip().strip('"'), rest) if rest.strip() else (title, contents)
    if text is None:
        raise CorpusError(
            f"{placed.place}: has no text; {tabular.list_fields(placed)}, as in --fields text=contents "
            "for 'corpus build', --corpus-fields elsewhere"
        )
    return place_passage(
        placed.place,
        tabular.text_of(placed, "id", placed.number if id is None else id),
        tabular.text_of(placed, "title", "" if title is None else title),
        tabular.text_of(placed, "text", text),
    )


def place_passage(place: str, id: str, title: str, text: str) -> Sourced:
    """A passage with its place; ``CorpusError`` for one that no retriever can use."""
    if not id.strip():
        raise CorpusError(f"{place}: the id is empty; give it one, or leave the field out")
    if not text.strip():
        raise CorpusError(f"{place}: the text of passage {id!r} is empty; give it one, or remove the row")
    try:
        return place, Passage(check_text("id", id), check_text("title", title), check_text("text", text))
    except SettingError as error:
        raise CorpusError(f"{place}: {error}") from None


def _read_texts(folder: Path) -> Iterator[Sourced]:
    """The .txt and .md files of a folder, cut into passages; each begins with the last words of the one before."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _TEXTS and path.is_file())
    if not paths:
        raise CorpusError(f"{folder}: holds no passages; give {_ACCEPTED}")
    for path in paths:
        try:
            words = path.read_text(encoding="utf-8-sig").split()
        except (OSError, UnicodeDecodeError) as error:
            raise CorpusError(f"{path}: cannot be read ({error}); save it as UTF-8") from None
        name = path.relative_to(folder).as_posix()
        for number, start in enumerate(range(0, max(len(words) - OVERLAP, 1), WORDS - OVERLAP), 1):
            if part := " ".join(words[start : start + WORDS]):
                yield f"{path}, passage {number}", Passage(f"{name}#{number}", path.stem, part)
