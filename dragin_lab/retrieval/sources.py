"""Sources of a corpus: rows of passages, and folders of texts, which are cut into passages.

``find_source`` recognises every kind of source (docs/how-to/passages.md), and reads it one passage at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dragin_lab.checks import several
from dragin_lab.data import tabular
from dragin_lab.data.tabular import Advance, Placed
from dragin_lab.errors import CorpusError, DataError
from dragin_lab.files import as_path
from dragin_lab.text import without_secrets
from dragin_lab.trace.trace import Passage

FIELDS = {"id": ("id", "_id"), "title": ("title",), "text": ("text",)}
#: Words per passage cut from a longer text (the paper's have 100), and how many of them the next one repeats.
WORDS, OVERLAP = 100, 20
#: A longer passage (in words) is read and searched, with a warning that it fits in no prompt.
LONG_PASSAGE_WORDS = 10_000
#: Characters of a passage's text, title or id; a longer one is refused, as no index takes it.
LONGEST = 8 << 20
_TEXTS = (".txt", ".md")
_BEIR = ("corpus.jsonl", "corpus.jsonl.gz")
_ARTICLES = re.compile(r"wiki_\d+")  # as WikiExtractor names its files, in folders AA, AB, ...
_FRONT_MATTER = re.compile(r"\A---\n(.*?)^(?:---|\.\.\.)\s*$\n?", re.DOTALL | re.MULTILINE)
_ACCEPTED = f"{tabular.ACCEPTED}, a BEIR folder, or a folder of .txt and .md files"


class Row(NamedTuple):
    """One passage and where it stands, for messages."""

    place: str
    id: str
    title: str
    text: str


class Source(NamedTuple):
    """A recognised source: what it is, its size in bytes (0 where unknown), and its rows."""

    name: str
    kind: str
    bytes: int
    rows: Callable[[Advance], Iterator[Row]]
    cut: Mapping[str, int] | None = None  # words and overlap where texts are cut into passages


def find_source(source: Any, fields: str | Mapping[str, str] | None = None) -> Source:
    """Recognise a source, without reading its first row. Raises ``CorpusError`` for anything else."""
    try:
        chosen = tabular.parse_fields(fields, FIELDS)
    except DataError as error:
        raise CorpusError(str(error)) from None

    def table(name: str, of: Any, kind: str = "rows", size: int = 0) -> Source:
        def rows(advance: Advance) -> Iterator[Row]:
            return _check_rows(_read_row(placed, chosen) for placed in tabular.read_rows(of, advance))

        return Source(name, kind, size, rows)

    if not isinstance(source, str | Path):
        if not tabular.is_tabular(source):
            raise CorpusError(f"{type(source).__name__} {str(source)[:40]!r}: holds no passages; give {_ACCEPTED}")
        return table(type(source).__name__, source)
    if str(source).startswith(tabular.HUB):
        return table(str(source), source)
    path = as_path(source, CorpusError)
    if not path.exists():
        raise CorpusError(f"{without_secrets(str(source))}: no such file or folder")
    if path.is_dir():
        beir = next((path / name for name in _BEIR if (path / name).is_file()), None)
        if beir is not None:
            return table(path.resolve().name, beir, "BEIR", beir.stat().st_size)
        return table(path.name, path) if tabular.is_tabular(path) else _open_folder(path)
    if not tabular.is_tabular(path):
        raise CorpusError(f"{without_secrets(str(source))}: cannot tell by its name what this is; give {_ACCEPTED}")
    if not (size := path.stat().st_size):
        raise CorpusError(f"{path}: is empty")
    return table(path.name, path, size=size)


def _open_folder(path: Path) -> Source:
    """A folder of texts or of WikiExtractor's articles, which are cut into passages."""
    articles = sorted(p for p in path.rglob("wiki_*") if _ARTICLES.fullmatch(p.name))
    files = articles or sorted(p for p in path.rglob("*") if p.suffix.lower() in _TEXTS and p.is_file())
    if not files:
        raise CorpusError(f"{path}: holds no passages; give {_ACCEPTED}")
    kind, read, overlap = ("WikiExtractor", _read_articles, 0) if articles else ("texts", _read_texts, OVERLAP)
    size = sum(p.stat().st_size for p in files)
    cut = {"words": WORDS, "overlap": overlap}
    return Source(path.resolve().name, kind, size, lambda advance: _check_rows(read(path, files, advance)), cut)


def _read_row(placed: Placed, fields: Mapping[str, str]) -> Row:
    """The passage of a record; a missing id is made from the row, a missing title is empty."""
    id, title, text = (tabular.pick_value(placed, name, usual, fields) for name, usual in FIELDS.items())
    if text is None and isinstance(contents := placed.record.get("contents"), str):  # FlashRAG's
        first, _, rest = contents.partition("\n")
        title, text = (title or first.strip().strip('"'), rest) if rest.strip() else (title, contents)
    if text is None:
        raise DataError(
            f"{placed.place}: has no text; {tabular.list_fields(placed)}, as in --fields text=contents "
            "for 'corpus build', --corpus-fields elsewhere"
        )
    return Row(
        placed.place,
        tabular.text_of(placed, "id", placed.number if id is None else id),
        tabular.text_of(placed, "title", "" if title is None else title),
        tabular.text_of(placed, "text", text),
    )


def _check_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Refuse passages that no retriever can use."""
    try:
        for row in rows:
            if not row.id.strip():
                raise CorpusError(f"{row.place}: the id is empty; give it one, or leave the field out")
            if not row.text.strip():
                raise CorpusError(
                    f"{row.place}: the text of passage {row.id!r} is empty; give it one, or remove the row"
                )
            if (length := max(map(len, row[1:]))) > LONGEST:
                raise CorpusError(
                    f"{row.place}: passage {row.id[:40]!r} has {length:,} characters, and the limit is {LONGEST:,}; "
                    f"cut it into passages of about {WORDS} words"
                )
            whole = f"{row.id}{row.title}{row.text}"
            if "\0" in whole or not whole.isascii():
                _check_characters(row)
            yield row
    except DataError as error:
        raise CorpusError(str(error)) from None


def _check_characters(row: Row) -> None:
    for name in FIELDS:
        value = getattr(row, name)
        if "\0" in value:
            raise CorpusError(f"{row.place}: the {name} holds a NUL character; remove it")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"{row.place}: character {error.start + 1} of the {name} is half a surrogate pair; remove it"
            ) from None


def long_passage(row: Row) -> bool:
    """Whether this passage is too long for any prompt."""
    return len(row.text) > 2 * LONG_PASSAGE_WORDS - 2 and len(row.text.split()) > LONG_PASSAGE_WORDS


def long_warning(count: int, first: Row) -> str:
    return (
        f"passages longer than {LONG_PASSAGE_WORDS:,} words will not fit into a prompt; cut them: {count:,}, the first "
        f"{first.place} (id {first.id!r}, {len(first.text.split()):,} words)"
    )


def as_rows(passages: Iterable[Passage], name: str) -> Iterator[Row]:
    """Rows of ``Passage`` objects, checked by the same rules as a file's."""
    remedy = "give dl.Passage objects; Corpus.load takes texts, dictionaries and tables"
    rows = several("passages", passages, Passage, remedy)
    return _check_rows(Row(f"{name}, number {n}", p.id, p.title, p.text) for n, p in enumerate(rows, 1))


# -- texts ------------------------------------------------------------------------------------------------------------


def cut_text(text: str, words: int = WORDS, overlap: int = OVERLAP) -> Iterator[str]:
    """A text as passages of ``words`` words; each begins with the last ``overlap`` words of the one before."""
    split = text.split()
    for start in range(0, max(len(split) - overlap, 1), words - overlap):
        yield " ".join(split[start : start + words])


def _read_texts(folder: Path, paths: Iterable[Path], advance: Advance) -> Iterator[Row]:
    for path in paths:
        text, title = "".join(tabular.read_lines(path, advance)), ""
        if path.suffix.lower() == ".md":
            text, title = _strip_markdown(text.replace("\r\n", "\n"))
        name = path.relative_to(folder).as_posix()
        for number, part in enumerate(cut_text(text), 1):
            if part:
                yield Row(f"{path}, passage {number}", f"{name}#{number}", title or path.stem, part)


def _strip_markdown(markdown: str) -> tuple[str, str]:
    """A Markdown text without front matter and markup, and its title from the front matter or the first heading."""
    import yaml
    from markdown_it import MarkdownIt

    title, front = "", _FRONT_MATTER.match(markdown)
    if front:
        try:
            facts = yaml.safe_load(front[1])
        except (yaml.YAMLError, ValueError, RecursionError):
            facts = None  # it is left out all the same, and the title is the heading
        title = str(facts.get("title") or "") if isinstance(facts, dict) else ""
        markdown = markdown[front.end() :]
    parts: list[str] = []
    heading = False
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        heading = token.type == "heading_open" or (heading and token.type != "heading_close")
        if token.type in ("fence", "code_block"):
            parts.append(token.content)
        for child in token.children or ():
            parts.append("\n" if child.type in ("softbreak", "hardbreak") else child.content)
        if token.type == "inline":
            parts.append("\n")
            if heading and not title:
                title = "".join(child.content for child in token.children or ()).strip()
    return "".join(parts), title


def _read_articles(folder: Path, paths: Iterable[Path], advance: Advance) -> Iterator[Row]:
    """The output of WikiExtractor's ``--json``: one article per line, cut like the paper's corpus (no overlap).

    Older versions begin the text with the title on its own line, which is left out; so are articles without text
    (redirects).
    """
    for path in paths:
        for placed in tabular.json_rows(path, advance):
            row = _read_row(Placed(placed.place, placed.number, {"text": ""} | dict(placed.record)), {})
            text = row.text.lstrip()
            text = text[len(row.title) :] if row.title and text.startswith(f"{row.title}\n") else text
            for number, part in enumerate(cut_text(text, overlap=0), 1):
                if part:
                    yield row._replace(id=f"{row.id}#{number}", text=part)
