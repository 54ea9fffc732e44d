"""A corpus: the passages that a retriever searches, in memory, in a fixed order."""

from __future__ import annotations

import hashlib
import json
import warnings
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

from tqdm.auto import tqdm

from dragin_lab.corpus_files import Row, read_rows, total_bytes
from dragin_lab.errors import CorpusError
from dragin_lab.trace import Passage

#: A passage of more words is read and searched, and announced: no prompt will hold it.
LONG_PASSAGE_WORDS = 10_000


class Corpus(Sequence[Passage]):
    """Passages by position (``corpus[3]``) and by id (``corpus.get("17")``).

    ``name`` is short, for tables; ``source`` says where the passages came from; ``warnings`` holds a line for each
    thing worth knowing about them.
    """

    def __init__(self, rows: Iterable[Row], *, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self._passages: list[Passage] = []
        self._position: dict[str, int] = {}
        places: tuple[list[str], array[int]] = [], array("q")  # of each passage; only messages need them
        long: list[str] = []
        for row in rows:
            _check(row)
            if (first := self._position.setdefault(row.id, len(self))) != len(self):
                before = f"{places[0][first]} {places[1][first]}"
                raise CorpusError(f"{row.place}: the id {row.id!r} was used before, at {before}")
            if len(row.text) > 2 * LONG_PASSAGE_WORDS - 2 and (count := len(row.text.split())) > LONG_PASSAGE_WORDS:
                long.append(f"{row.place} (id {row.id!r}, {count:,} words)")
            places[0].append(row.where)
            places[1].append(row.number)
            self._passages.append(Passage(row.id, row.title, row.text))
        if not self._passages:
            raise CorpusError(f"{source}: holds no passages")
        self.warnings: tuple[str, ...] = ()
        if long:
            self.warnings = (
                f"passages longer than {LONG_PASSAGE_WORDS:,} words will not fit into a prompt; "
                f"cut them: {len(long)}, first {long[0]}",
            )
            warnings.warn(self.warnings[0], stacklevel=3)

    @classmethod
    def load(cls, source: str | Path | None = None, *, progress: bool | None = None) -> Corpus:
        """Read a corpus, row by row; ``None`` is the embedded one.

        Args:
            source: DPR's ``psgs_w100.tsv[.gz]`` (tab-separated, a header that names id, text, title, quoted the way a
                CSV writer does it), JSON lines (``.jsonl[.gz]``: id or _id, text, title if there is one; other fields
                are ignored), or a folder of .txt files, cut into passages of 100 words with the file's name as title.
                Text is UTF-8. Blank lines are skipped.
            progress: a bar on the error output; by default where that is a terminal.

        Raises:
            CorpusError: what is wrong, with file and line. Nothing is repaired or left out.
        """
        if source is None:
            from dragin_lab.almanac import embedded_corpus_path

            return cls._read(Path(embedded_corpus_path()), "almanac", progress)
        path = Path(source).expanduser()
        return cls._read(path, path.name.split(".")[0] or path.resolve().name, progress)

    @classmethod
    def _read(cls, path: Path, name: str, progress: bool | None) -> Corpus:
        if not path.exists():
            raise CorpusError(f"{path}: no such file or folder")
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

    def get(self, id: str) -> Passage:
        """The passage with this id; ``KeyError`` where there is none."""
        return self._passages[self._position[id]]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the ids, titles and texts, in order."""
        digest = hashlib.sha256()
        for p in self._passages:
            digest.update(json.dumps([p.id, p.title, p.text], ensure_ascii=False).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"Corpus({self.name}, {len(self):,} passages)"


def _check(row: Row) -> None:
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
