"""A corpus: the passages that a retriever searches, in a fixed order, in memory or on disk."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from tqdm.auto import tqdm

from dragin_lab.checks import EMBEDDED, is_embedded, shown, text
from dragin_lab.errors import CorpusError
from dragin_lab.files import as_path
from dragin_lab.retrieval.build import build_corpus
from dragin_lab.retrieval.sources import Row, as_rows, find_source, long_passage, long_warning
from dragin_lab.retrieval.stored import Stored, is_stored, json_line
from dragin_lab.text import compose, printable
from dragin_lab.trace.trace import Passage

_AT_ONCE = 4096  # passages read together


class Corpus(Sequence[Passage]):
    """Passages by position (``corpus[3]``) and by id (``corpus.get("17")``).

    ``name`` is short, for tables; ``source`` says where the passages came from; ``warnings`` are lines on what is
    unusual about them. Get one with ``load``, ``build`` or ``from_passages``.
    """

    def __init__(self, rows: Iterable[Row] | Stored, *, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.passages: list[Passage] | Stored
        self._row_of: Callable[[str], int]
        self.warnings: tuple[str, ...]
        if isinstance(rows, Stored):
            self.passages, self._row_of = rows, rows.row_of
            self.warnings = tuple(rows.about["warnings"])
            self.fingerprint = str(rows.about["fingerprint"])
        else:
            self.passages, position, self.warnings = _index_rows(rows, source)
            self._row_of = position.__getitem__
        for warning in self.warnings:
            warnings.warn(warning, stacklevel=3)

    @classmethod
    def load(
        cls, source: Any = None, *, fields: str | Mapping[str, str] | None = None, progress: bool | None = None
    ) -> Corpus:
        """Open a built corpus, or read a source into memory; ``None`` or "almanac" is the embedded one.

        Args:
            source: a folder that ``build`` made, whose passages stay on disk; or a JSON lines, CSV, TSV (DPR's
                ``psgs_w100.tsv.gz`` too) or parquet file, a BEIR folder, a folder of .txt and .md files, a DataFrame,
                an iterable of dictionaries, a Hugging Face data set, its saved folder, or ``hub:NAME``.
            fields: the names of the fields for id, title and text, where they differ:
                ``"id=doc_id,title=headline,text=contents"`` or a mapping. A missing id is made from the row.
            progress: a bar on the error output; by default where that is a terminal.

        Raises:
            CorpusError: what is wrong, with file, row and field, and what would be accepted; nothing is repaired or
                left out. A built corpus that is damaged or of another version.
        """
        stored = isinstance(source, str | Path) and is_stored(as_path(source, CorpusError))
        if fields is not None and (stored or is_embedded(source)):
            raise CorpusError(f"fields={shown(fields)}: {source or EMBEDDED} has fields of its own; leave it out")
        if is_embedded(source):
            from dragin_lab import almanac

            return cls.from_passages(almanac.passages(), name=EMBEDDED)
        if stored:
            path = as_path(source, CorpusError)
            return cls(Stored(path), name=path.resolve().name, source=str(path))
        opened = find_source(source, fields)
        disable = None if progress is None else not progress
        with tqdm(
            total=opened.bytes or None,
            desc=printable(opened.name),
            unit="B",
            unit_scale=True,
            disable=disable,
            leave=False,
        ) as bar:
            where = str(as_path(source, CorpusError)) if isinstance(source, str | Path) else opened.name
            return cls(opened.rows(bar.update), name=opened.name.split(".")[0] or opened.name, source=where)

    @classmethod
    def build(cls, source: Any, out: str | Path, **options: Any) -> Corpus:
        """Build a corpus on disk from a source, and open it; arguments and errors as of ``build_corpus``."""
        stored = build_corpus(source, out, **options)
        return cls(stored, name=stored.folder.resolve().name, source=str(stored.folder))

    @classmethod
    def from_passages(cls, passages: Iterable[Passage], *, name: str = "passages") -> Corpus:
        """A corpus of ``Passage`` objects; the rules for files apply to them too."""
        return cls(as_rows(passages, text("name", name)), name=name, source=name)

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> list[Passage]: ...
    def __getitem__(self, index: int | slice) -> Passage | list[Passage]:
        rows = range(len(self))[index]
        if isinstance(rows, int):
            return self.passages[rows : rows + 1][0]
        if rows.step != 1:
            return [self[row] for row in rows]
        return list(self._between(rows.start, rows.stop))

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[Passage]:
        return self._between(0, len(self))

    def _between(self, start: int, stop: int) -> Iterator[Passage]:
        for row in range(start, stop, _AT_ONCE):
            yield from self.passages[row : min(row + _AT_ONCE, stop)]

    @property
    def folder(self) -> Path | None:
        """The folder of a built corpus; None for one in memory."""
        return self.passages.folder if isinstance(self.passages, Stored) else None

    def get(self, id: str) -> Passage:
        """The passage with this id, in any canonically equivalent form; ``KeyError`` where there is none."""
        return self[self._row_of(compose(id))]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the ids, titles and texts, in order; the same in memory and on disk."""
        digest = hashlib.sha256()
        for p in self:
            digest.update(json_line(p.id, p.title, p.text))
        return digest.hexdigest()

    def facts(self) -> dict[str, Any]:
        """What identifies it, for the provenance of a retriever."""
        return {"corpus": self.name, "corpus_fingerprint": self.fingerprint, "passages": len(self)}

    def __repr__(self) -> str:
        return f"Corpus({self.name}, {len(self):,} passages)"


def _index_rows(rows: Iterable[Row], source: str) -> tuple[list[Passage], dict[str, int], tuple[str, ...]]:
    """The passages of rows, their positions by id, and warnings."""
    passages: list[Passage] = []
    position: dict[str, int] = {}
    places: list[str] = []  # only messages need them
    long: list[Row] = []
    for row in rows:
        if (first := position.setdefault(compose(row.id), len(passages))) != len(passages):
            raise CorpusError(
                f"{row.place}: the id {row.id!r} was used before, at {places[first]}; give every passage its own"
            )
        if long_passage(row):
            long.append(row)
        places.append(row.place)
        passages.append(Passage(row.id, row.title, row.text))
    if not passages:
        raise CorpusError(f"{source}: holds no passages")
    return passages, position, (long_warning(len(long), long[0]),) if long else ()
