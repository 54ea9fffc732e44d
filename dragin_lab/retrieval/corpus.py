"""A corpus: the passages that a retriever searches, in a fixed order, in memory or read from disk one by one."""

from __future__ import annotations

import hashlib
import warnings
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

from tqdm.auto import tqdm

from dragin_lab.core.trace import Passage
from dragin_lab.errors import CorpusError
from dragin_lab.retrieval.corpora.files import (
    Row,
    check_row,
    json_line,
    long_warning,
    long_words,
    read_rows,
    total_bytes,
)
from dragin_lab.retrieval.corpora.store import Store, is_store


class Corpus(Sequence[Passage]):
    """Passages by position (``corpus[3]``) and by id (``corpus.get("17")``).

    ``name`` is short, for tables; ``source`` says where the passages came from; ``warnings`` holds a line for each
    thing worth knowing about them.
    """

    def __init__(self, rows: Iterable[Row], *, name: str, source: str) -> None:
        self.name = name
        self.source = source
        passages: list[Passage] = []
        position: dict[str, int] = {}
        places: tuple[list[str], array[int]] = [], array("q")  # of each passage; only messages need them
        long: list[str] = []
        for row in rows:
            check_row(row)
            if (first := position.setdefault(row.id, len(passages))) != len(passages):
                before = f"{places[0][first]} {places[1][first]}"
                raise CorpusError(f"{row.place}: the id {row.id!r} was used before, at {before}")
            if count := long_words(row):
                long.append(f"{row.place} (id {row.id!r}, {count:,} words)")
            places[0].append(row.where)
            places[1].append(row.number)
            passages.append(Passage(row.id, row.title, row.text))
        if not passages:
            raise CorpusError(f"{source}: holds no passages")
        self._passages: list[Passage] | Store = passages
        self._position: Mapping[str, int] = position
        self.warnings: tuple[str, ...] = (long_warning(len(long), long[0]),) if long else ()
        for warning in self.warnings:
            warnings.warn(warning, stacklevel=3)

    @classmethod
    def load(cls, source: str | Path | None = None, *, progress: bool | None = None) -> Corpus:
        """Read a corpus, row by row; ``None`` is the embedded one.

        Args:
            source: DPR's ``psgs_w100.tsv[.gz]`` (tab-separated, a header that names id, text, title, quoted the way a
                CSV writer does it), JSON lines (``.jsonl[.gz]``: id or _id, text, title if there is one; other fields
                are ignored), or a folder of .txt files, cut into passages of 100 words with the file's name as title.
                Text is UTF-8. Blank lines are skipped. Or a folder that ``dragin-lab corpus build`` made
                (``dragin_lab.retrieval.corpora.store``): its passages stay on disk.
            progress: a bar on the error output; by default where that is a terminal.

        Raises:
            CorpusError: what is wrong, with file and line. Nothing is repaired or left out. Of a built corpus, the
                cheap part of ``dragin-lab corpus check``; a passage is held to its checksum whenever it is read.
        """
        if source is None:
            from dragin_lab import almanac

            return cls.from_passages(almanac.passages(), name="almanac")
        path = Path(source).expanduser()
        return cls._read(path, path.name.split(".")[0] or path.resolve().name, progress)

    @classmethod
    def _read(cls, path: Path, name: str, progress: bool | None) -> Corpus:
        if not path.exists():
            raise CorpusError(f"{path}: no such file or folder")
        if is_store(path):
            return cls._open(Store(path), name)
        try:
            total = total_bytes(path)
            if not total:
                raise CorpusError(f"{path}: " + ("holds no .txt files with text" if path.is_dir() else "is empty"))
            disable = None if progress is None else not progress
            with tqdm(total=total, desc=name, unit="B", unit_scale=True, disable=disable, leave=False) as bar:
                return cls(read_rows(path, bar.update), name=name, source=str(path))
        except OSError as error:
            raise CorpusError(f"{error.filename or path}: cannot be read ({error.strerror or error})") from None

    @classmethod
    def _open(cls, store: Store, name: str) -> Corpus:
        corpus = cls.__new__(cls)
        corpus.name, corpus.source = name, str(store.folder)
        corpus._passages, corpus._position = store, store.position
        corpus.warnings = store.manifest.warnings
        corpus.fingerprint = store.manifest.fingerprint
        for warning in corpus.warnings:
            warnings.warn(warning, stacklevel=4)
        return corpus

    @classmethod
    def from_passages(cls, passages: Iterable[Passage], *, name: str = "passages") -> Corpus:
        """A corpus of passages made elsewhere; held to the same rules as a file's."""
        rows = (Row(f"{name}, number", i, p.id, p.title, p.text) for i, p in enumerate(passages, 1))
        return cls(rows, name=name, source=name)

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> list[Passage]: ...
    def __getitem__(self, index: int | slice) -> Passage | list[Passage]:
        return self._passages[index]

    def __len__(self) -> int:
        return len(self._passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._passages)

    @property
    def folder(self) -> Path | None:
        """The folder of a built corpus; None for one that is held in memory."""
        return self._passages.folder if isinstance(self._passages, Store) else None

    def get(self, id: str) -> Passage:
        """The passage with this id; ``KeyError`` where there is none."""
        return self._passages[self._position[id]]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the ids, titles and texts, in order: of the JSON lines that a build stores."""
        digest = hashlib.sha256()
        for p in self._passages:
            digest.update(json_line(p.id, p.title, p.text))
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"Corpus({self.name}, {len(self):,} passages)"
