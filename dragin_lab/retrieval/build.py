"""``dragin-lab corpus build`` and ``check``: from a source to a corpus on disk (``stored``), in bounded memory.

The index is built in a folder beside the target, its manifest is written last, and one rename puts it in place: the
target is always complete, or what was there before. A build that was killed leaves the other folder, which the next
build clears; one that failed or was interrupted leaves nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab import __version__
from dragin_lab.errors import BrokenOffError, CorpusError, DraginLabError
from dragin_lab.files import as_path, locked, not_saved
from dragin_lab.retrieval import analysis, stored
from dragin_lab.retrieval.analysis import prepare_text
from dragin_lab.retrieval.sources import Sourced, open_source
from dragin_lab.retrieval.stored import (
    ABOUT,
    INDEX,
    INDEXES,
    MANIFEST,
    TEXT,
    TITLE,
    Stored,
    hash_passages,
    json_line,
    read_manifest,
    write_manifest,
)
from dragin_lab.text import compose, printable

#: Bytes that tantivy collects before it writes a segment; with the merging of segments they determine the peak.
_HEAP = 128 << 20
_LOOKED_UP = 8  # passages of a check, evenly spaced from the first to the last


def build_corpus(
    source: Any,
    out: str | Path,
    *,
    fields: str | Mapping[str, str] | None = None,
    expect: int | None = None,
    force: bool = False,
) -> Stored:
    """Build a corpus in the folder ``out``.

    Args:
        source, fields: as for ``Corpus.load``.
        expect: refuse to finish with another number of passages.
        force: replace the corpus that the folder holds.

    Raises:
        DataError: what is wrong with the source, with file and row, or with the folder.
        BrokenOffError: it could not be finished, for example because the disk is full.
    """
    folder = as_path(out, CorpusError)
    name, sourced = open_source(source, fields)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not stored.is_stored(folder):
            raise CorpusError(f"{folder}: is not empty and holds no corpus; give a folder of its own with --output")
        if not force:
            raise CorpusError(f"{folder}: holds a corpus already; give another --output, or --force to replace it")
    try:
        with _replace_folder(folder) as new:
            _write_corpus(name, sourced, new, expect)
    except OSError as error:
        raise BrokenOffError(f"{not_saved(error.filename or folder, error)}; nothing was left of it") from error
    return Stored(folder)


@contextmanager
def _replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder, which no other build uses; once it is filled, it takes the target's place."""
    work = folder.absolute().with_name(f".{folder.absolute().name}.building")
    work.mkdir(parents=True, exist_ok=True)
    with locked(work, "another build of this corpus is under way; wait for it, or give another --output"):
        try:
            new, old = work / "new", work / "old"
            shutil.rmtree(new, ignore_errors=True)  # what a killed build left
            new.mkdir()
            yield new
            if folder.exists():
                shutil.rmtree(old, ignore_errors=True)
                os.replace(folder, old)
            os.replace(new, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _write_corpus(name: str, sourced: Iterable[Sourced], folder: Path, expect: int | None) -> None:
    """Write the index of the passages, then the manifest."""
    (folder / INDEX).mkdir()
    try:
        index = stored.open_index(folder / INDEX, new=True)
        writer = index.writer(heap_size=_HEAP, num_threads=1)
        try:
            count, fingerprint = _add_passages(writer, name, sourced, expect)
            writer.commit()
        finally:
            writer.wait_merging_threads()
    except ValueError as error:  # of tantivy, such as for a full disk
        raise BrokenOffError(
            f"{name}: tantivy cannot write its index ({str(error)[:200]}); free some space and run it again"
        ) from error
    facts = {
        "format": stored.FORMAT,
        "passages": count,
        "fingerprint": fingerprint,
        "analysis": analysis.NAME,
        "analysis_sha256": analysis.fingerprint(),
        "source": name,
        "versions": {"dragin_lab": __version__, "tantivy": version("tantivy")},
    }
    write_manifest(folder / MANIFEST, facts, sorted(path for path in (folder / INDEX).iterdir() if path.is_file()))


def _add_passages(writer: Any, name: str, sourced: Iterable[Sourced], expect: int | None) -> tuple[int, str]:
    """Give the passages to a writer; returns their number and fingerprint."""
    from tantivy import Document

    ids, fingerprint = array("q"), hashlib.sha256()  # a hash of each id
    with tqdm(sourced, desc=printable(name), total=expect, unit=" passages", disable=None, leave=False) as bar:
        for _, passage in bar:
            line, id = json_line(passage), compose(passage.id)
            fingerprint.update(line)
            document = Document()  # its methods take a third of the time of its constructor
            document.add_integer("row", len(ids))
            document.add_text("id", id)
            document.add_bytes("passage", line)
            document.add_text(TITLE, prepare_text(passage.title))
            document.add_text(TEXT, prepare_text(passage.text))
            writer.add_document(document)
            ids.append(hash(id))
    if not ids:
        raise CorpusError(f"{name}: holds no passages")
    if expect is not None and len(ids) != expect:
        raise CorpusError(
            f"{name}: gives {len(ids):,} passages and not {expect:,} as expected; it may be cut off, so fetch it again"
        )
    hashes = np.frombuffer(ids, np.int64)
    order = np.argsort(hashes, kind="stable")  # (passages,) rows, those of one id side by side
    if len(twice := np.flatnonzero(np.diff(hashes[order]) == 0)):
        first, second = order[twice[0]] + 1, order[twice[0] + 1] + 1
        raise CorpusError(f"{name}: the passages {first:,} and {second:,} have one id; give every passage its own")
    return len(ids), fingerprint.hexdigest()


def check_corpus(folder: str | Path, *, full: bool = False) -> Iterator[tuple[str, bool]]:
    """Check a built corpus; yields what was checked, or what is wrong with it, and whether it is sound.

    Always: the manifests of the corpus and of the indexes in its folder, the length of every file, and that a few
    passages are found by their ids. With ``full`` also the CRC-32 of every file, and every passage by the fingerprint
    of all.
    """
    path = as_path(folder, CorpusError)
    try:
        corpus = Stored(path)
        if full:
            read_manifest(path / MANIFEST, stored.remedy(path), full=True)
        about = corpus.about
        yield f"{len(corpus):,} passages of {about['source']}, by the manifest and the length of every file", True
        rows = np.unique(np.linspace(0, len(corpus) - 1, _LOOKED_UP).astype(int)).tolist()
        ids = [compose(corpus[row : row + 1][0].id) for row in rows]
        yield f"{len(rows)} passages, by their ids", [corpus.row_of(id) for id in ids] == rows
        if full:
            same = hash_passages(corpus) == about["fingerprint"]
            yield f"all passages, by their fingerprint {about['fingerprint']}", same
    except DraginLabError as error:
        yield str(error), False
        return
    for index in sorted((path / INDEXES).glob("*")):
        again = f"build it again: dragin-lab corpus build {path} --index SPEC --force"
        of_this = {"corpus_fingerprint": about["fingerprint"], "passages": len(corpus)}
        try:
            read_manifest(index / ABOUT, again, of_this, full=full)
            yield f"index {index.name}, of this corpus", True
        except DraginLabError as error:
            yield str(error), False
