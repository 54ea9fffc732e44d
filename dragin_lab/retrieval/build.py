"""``dragin-lab corpus build``: from a source to a corpus on disk (``stored``), in bounded memory.

The index is built in a folder beside the target, its manifest is written last, and one rename puts it in place: the
target is always complete, or what was there before. A build that was killed leaves the other folder, which the next
build clears; one that failed or was interrupted leaves nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab import __version__
from dragin_lab.errors import BrokenOffError, CorpusError
from dragin_lab.files import as_path, locked, not_saved
from dragin_lab.retrieval import analysis, stored
from dragin_lab.retrieval.analysis import prepare_text
from dragin_lab.retrieval.sources import Row, Source, find_source, long_passage, long_warning
from dragin_lab.retrieval.stored import INDEX, TEXT, TITLE, Stored, json_line, write_manifest
from dragin_lab.text import compose, printable

#: Bytes that tantivy collects before it writes a segment; with the merging of segments they determine the peak.
_HEAP = 128 << 20
#: In the folder of a build in progress: what is being built, and the corpus that it replaces.
NEW, OLD = "new", "old"


def build_corpus(
    source: Any,
    out: str | Path,
    *,
    fields: str | Mapping[str, str] | None = None,
    expect: int | None = None,
    force: bool = False,
    progress: bool | None = None,
) -> Stored:
    """Build a corpus in the folder ``out``.

    Args:
        source, fields: as for ``Corpus.load``.
        expect: refuse to finish with another number of passages.
        force: replace the corpus that the folder holds.
        progress: a bar on the error output; by default where that is a terminal.

    Raises:
        CorpusError: what is wrong with the source, with file and line, or with the folder.
        BrokenOffError: it could not be finished, for example because the disk is full.
    """
    folder = as_path(out, CorpusError)
    opened = find_source(source, fields)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not stored.is_stored(folder):
            raise CorpusError(f"{folder}: is not empty and holds no corpus; give a folder of its own with --output")
        if not force:
            raise CorpusError(f"{folder}: holds a corpus already; give another --output, or --force to replace it")
    try:
        with _replace_folder(folder) as work:
            _write_corpus(opened, work, expect, progress)
    except OSError as error:
        raise BrokenOffError(f"{not_saved(error.filename or folder, error)}; nothing was left of it") from error
    return Stored(folder)


@contextmanager
def _replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder beside the target, which no other build uses; once it is filled, it takes the target's place."""
    work = folder.absolute().with_name(f".{folder.absolute().name}.building")
    work.mkdir(parents=True, exist_ok=True)
    try:
        with locked(work, "another build of this corpus is under way; wait for it, or give another --output"):
            _clear_work(work)  # what a killed build left
            try:
                (work / NEW).mkdir()
                yield work / NEW
                if folder.exists():
                    os.replace(folder, work / OLD)
                os.replace(work / NEW, folder)
            finally:
                _clear_work(work)
    finally:
        with suppress(OSError):  # another build has just begun
            work.rmdir()


def _clear_work(work: Path) -> None:
    for name in (NEW, OLD):
        shutil.rmtree(work / name, ignore_errors=True)


def _write_corpus(source: Source, work: Path, expect: int | None, progress: bool | None) -> None:
    """Write the index of a source's passages, then the manifest."""
    (work / INDEX).mkdir()
    try:
        index = stored.open_index(work / INDEX, new=True)
        writer = index.writer(heap_size=_HEAP, num_threads=1)
        try:
            added = _add_rows(writer, source, progress)
            if not (count := len(added.ids)):
                raise CorpusError(f"{source.name}: holds no passages")
            if expect is not None and count != expect:
                raise CorpusError(
                    f"{source.name}: gives {count:,} passages and not {expect:,} as expected; it may be cut off, so "
                    "fetch it again"
                )
            writer.commit()
        finally:
            writer.wait_merging_threads()
    except ValueError as error:  # of tantivy, such as for a full disk
        raise BrokenOffError(
            f"{source.name}: tantivy cannot write its index ({str(error)[:200]}); free some space and run it again"
        ) from error
    facts = {
        "format": stored.FORMAT,
        "passages": count,
        "fingerprint": added.fingerprint.hexdigest(),
        "analysis": analysis.NAME,
        "analysis_sha256": analysis.fingerprint(),
        "source": {"name": source.name, "kind": source.kind, "bytes": source.bytes},
        "cut": source.cut,
        "warnings": [long_warning(added.long, added.first_long)] if added.first_long else [],
        "versions": {"dragin_lab": __version__, "tantivy": version("tantivy")},
    }
    write_manifest(work / stored.MANIFEST, facts, sorted(path for path in (work / INDEX).iterdir() if path.is_file()))


def _add_rows(writer: Any, source: Source, progress: bool | None) -> _Added:
    added = _Added(writer)
    disable = None if progress is None else not progress
    size = {"total": source.bytes, "unit": "B", "unit_scale": True} if source.bytes else {"unit": " passages"}
    with tqdm(desc=printable(source.name), disable=disable, leave=False, **size) as bar:
        for row in source.rows(bar.update if source.bytes else lambda count: None):
            added.add(row)
            if not source.bytes:
                bar.update()
    added.check_ids(source)
    return added


class _Added:
    """The passages given to a writer so far, and the facts about them for the manifest."""

    def __init__(self, writer: Any) -> None:
        from tantivy import Document

        self._add, self._document = writer.add_document, Document
        self.ids = array("q")  # a hash of each
        self.fingerprint = hashlib.sha256()
        self.long = 0
        self.first_long: Row | None = None

    def add(self, row: Row) -> None:
        line = json_line(row.id, row.title, row.text)
        self.fingerprint.update(line)
        document = self._document()  # its methods take a third of the time of its constructor
        document.add_integer("row", len(self.ids))
        document.add_text("id", id := compose(row.id))
        document.add_bytes("passage", line)
        document.add_text(TITLE, prepare_text(row.title))
        document.add_text(TEXT, prepare_text(row.text))
        self._add(document)
        self.ids.append(hash(id))
        if long_passage(row):
            self.long += 1
            self.first_long = self.first_long or row

    def check_ids(self, source: Source) -> None:
        """Refuse an id that was used twice; the source is read again to say where."""
        ids = np.frombuffer(self.ids, np.int64)
        ordered = np.sort(ids)
        twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        if not twice:
            return
        seen: dict[str, str] = {}
        for row in source.rows(lambda count: None):
            if hash(id := compose(row.id)) in twice and (first := seen.setdefault(id, row.place)) != row.place:
                raise CorpusError(
                    f"{row.place}: the id {row.id!r} was used before, at {first}; give every passage its own"
                )
        if not seen:  # an iterator, which cannot be read again
            raise CorpusError(f"{source.name}: {len(twice):,} ids are used more than once; give every passage its own")
