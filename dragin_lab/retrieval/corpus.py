"""A corpus: the passages that a retriever searches, in a fixed order, in memory or on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, overload

from tqdm.auto import tqdm

from dragin_lab.checks import EMBEDDED, is_embedded, several, shown
from dragin_lab.data.tabular import Fields
from dragin_lab.errors import DataError
from dragin_lab.files import as_path
from dragin_lab.retrieval.sources import Sourced, open_source, place_passage
from dragin_lab.retrieval.stored import Stored, build_corpus, is_stored, json_line
from dragin_lab.text import compose, facts_html, printable
from dragin_lab.trace.trace import Passage


class Corpus(Sequence[Passage]):
    """Passages by position (``corpus[3]``) and by id (``corpus.get("17")``).

    ``name`` is short, for tables; ``source`` says where the passages came from. Get one with
    ``load``, ``build`` or ``from_passages``.
    """

    def __init__(self, sourced: Iterable[Sourced] | Stored, *, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.passages: list[Passage] | Stored
        self._row_of: Callable[[str], int]
        if isinstance(sourced, Stored):
            self.passages = sourced
            self._row_of = sourced.row_of
            self.fingerprint = str(sourced.about["fingerprint"])
            return
        rows: dict[str, int] = {}
        self.passages = []
        self._row_of = rows.__getitem__
        places: list[str] = []  # only messages need them
        for place, passage in sourced:
            if (first := rows.setdefault(compose(passage.id), len(places))) != len(places):
                raise DataError(
                    f"{place}: the id {passage.id!r} was used before, at {places[first]}; give"
                    " every passage its own"
                )
            places.append(place)
            self.passages.append(passage)
        if not places:
            raise DataError(f"{source}: holds no passages")

    @classmethod
    def load(cls, source: Any = None, *, fields: Fields = None) -> Corpus:
        """Open a built corpus, or read a source into memory; ``None`` or "almanac" is the embedded
        one.

        Args:
            source: a folder that ``build`` made, whose passages stay on disk; or a JSON lines, CSV,
                TSV (DPR's
                ``psgs_w100.tsv.gz`` too) or parquet file, a BEIR folder, a folder of .txt and .md
                files, a DataFrame, an iterable of dictionaries, a Hugging Face data set, its saved
                folder, or ``hub:NAME``.
            fields: the names of the fields for id, title and text, where they differ:
                ``"id=doc_id,title=headline,text=contents"`` or a mapping. A missing id is made from
                the row.

        Raises:
            DataError: what is wrong, with file, row and field, and what would be accepted; nothing
                is repaired or left
                out. ``DataError``, one of them, for a built corpus that is damaged or of another
                version.
        """
        path = as_path(source, DataError) if isinstance(source, str | Path) else None
        stored = path is not None and is_stored(path)
        if fields is not None and (stored or is_embedded(source)):
            raise DataError(
                f"fields={shown(fields)}: {source or EMBEDDED} has fields of its own; leave it out"
            )
        if is_embedded(source):
            from dragin_lab import almanac

            return cls.from_passages(almanac.passages(), name=EMBEDDED)
        if path is not None and stored:
            return cls(Stored(path), name=path.resolve().name, source=str(path))
        name, sourced = open_source(source, fields)
        where = name if path is None else str(path)
        with tqdm(
            sourced, desc=printable(name), unit=" passages", disable=None, leave=False
        ) as bar:
            return cls(bar, name=name.split(".")[0] or name, source=where)

    @classmethod
    def build(cls, source: Any, out: str | Path, **options: Any) -> Corpus:
        """Build a corpus on disk from a source, and open it; arguments and errors as of
        ``build_corpus``.
        """
        stored = build_corpus(source, out, **options)
        return cls(stored, name=stored.folder.resolve().name, source=str(stored.folder))

    @classmethod
    def from_passages(cls, passages: Iterable[Passage], *, name: str = "passages") -> Corpus:
        """A corpus of ``Passage`` objects; the rules for files apply to them too."""
        checked = several(
            "passages",
            passages,
            Passage,
            "give dl.Passage objects; Corpus.load takes texts, dictionaries and tables",
        )
        placed = (
            place_passage(f"{name}, number {number}", p.id, p.title, p.text)
            for number, p in enumerate(checked, 1)
        )
        return cls(placed, name=name, source=name)

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> list[Passage]: ...
    def __getitem__(self, index: int | slice) -> Passage | list[Passage]:
        rows = range(len(self))[index]
        if isinstance(rows, int):
            return self.passages[rows : rows + 1][0]
        return (
            self.passages[rows.start : rows.stop] if rows.step == 1 else [self[row] for row in rows]
        )

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.passages)

    @property
    def folder(self) -> Path | None:
        """The folder of a built corpus; None for one in memory."""
        return self.passages.folder if isinstance(self.passages, Stored) else None

    def get(self, id: str) -> Passage:
        """The passage with this id, in any canonically equivalent form; ``KeyError`` where there
        is none.
        """
        return self[self._row_of(compose(id))]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the ids, titles and texts, in order; the same in memory and on disk."""
        digest = sha256()
        for passage in self:
            digest.update(json_line(passage))
        return digest.hexdigest()

    def facts(self) -> dict[str, Any]:
        """What identifies it, for the provenance of a retriever."""
        return {"corpus": self.name, "corpus_fingerprint": self.fingerprint, "passages": len(self)}

    def __repr__(self) -> str:
        return f"Corpus({self.name}, {len(self):,} passages)"

    def _repr_html_(self) -> str:
        first = {passage.id: f"{passage.title}: {passage.text[:120]}" for passage in self[:3]}
        return facts_html(repr(self), first)
