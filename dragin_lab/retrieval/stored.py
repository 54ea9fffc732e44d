"""A corpus on disk: one tantivy index that holds the passages and finds them; it is built in
bounded memory.

``corpus.json`` is the manifest, ``tantivy/`` the index: row, id, title and text of each passage,
indexed, and the passage itself as a line of JSON. Passages are read when they are needed, so a
corpus may be larger than memory.

It is built in a folder beside the target, its manifest is written last, and a rename puts it in
place: the target is always complete, or what was there before. A build that failed or was
interrupted leaves nothing; one that was killed leaves the other folder. Tantivy itself refuses a
file that is cut short.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from json.encoder import encode_basestring as quoted  # json.dumps takes four times as long
from pathlib import Path
from typing import Any

import numpy as np
from tantivy import Document, FieldType, Index, Order, Query, SchemaBuilder
from tqdm.auto import tqdm

from dragin_lab import __version__
from dragin_lab.checks import shown
from dragin_lab.data.tabular import Fields
from dragin_lab.errors import DataError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.sources import Sourced, open_source
from dragin_lab.text import compose, printable
from dragin_lab.trace.trace import Passage

MANIFEST = "corpus.json"
INDEX = "tantivy"
#: Version of the folder's layout; any other is refused.
FORMAT = 3
_AT_ONCE = 4096  # passages read together
#: Index fields of a passage's title and text.
TITLE, TEXT = FIELDS = ("title_terms", "text_terms")
#: Bytes that tantivy collects before it writes a segment; with the merging of segments they
#: determine the peak.
_HEAP = 128 << 20


def is_stored(folder: Path) -> bool:
    """Whether a folder holds a built corpus."""
    return (folder / MANIFEST).is_file()


def _no_corpus(folder: Path, why: str) -> DataError:
    return DataError(
        f"{folder}{why}; build it again: dragin-lab corpus build SOURCE --output {folder} --force"
    )


def _create_index(folder: Path) -> Any:
    """An empty index. Frequencies are indexed; positions are not, as no query has phrases."""
    fields = SchemaBuilder()
    fields.add_integer_field("row", indexed=True, fast=True)
    fields.add_text_field("id", tokenizer_name="raw", index_option="basic")
    fields.add_bytes_field("passage", stored=True)
    for name in FIELDS:
        fields.add_text_field(name, tokenizer_name=analysis.NAME, index_option="freq")
    folder.mkdir()
    return Index(fields.build(), path=str(folder), reuse=False)


def json_line(passage: Passage) -> bytes:
    """A passage as the line of JSON that is stored and fingerprinted."""
    id = quoted(passage.id)
    title = quoted(passage.title)
    text = quoted(passage.text)
    return f'{{"id": {id}, "title": {title}, "text": {text}}}\n'.encode()


def _describe_layout() -> dict[str, Any]:
    """The facts that must be those of this version."""
    return {
        "format": FORMAT,
        "analysis": analysis.NAME,
        "analysis_sha256": analysis.hash_analysis(),
    }


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        about = dict(json.loads((folder / MANIFEST).read_bytes()))
        about["passages"] = int(about["passages"])
        about["fingerprint"] = str(about["fingerprint"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _no_corpus(folder, f"/{MANIFEST}: cannot be read ({str(error)[:200]})") from None
    for name, value in _describe_layout().items():
        if about.get(name) != value:
            was = shown(about.get(name))
            raise _no_corpus(folder, f": was built with {name} {was}, and this is {shown(value)}")
    return about


class Stored:
    """The passages of a built corpus, by row. ``about`` is the manifest.

    Raises ``DataError`` where the folder is unfinished, cut short or of another version.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.about = _read_manifest(self.folder)
        try:
            index: Any = Index.open(str(self.folder / INDEX))
            index.config_reader(reload_policy="manual")  # no thread that watches the files
            self.searcher = index.searcher()
            self.schema = index.schema
        except ValueError as error:  # from tantivy
            raise _no_corpus(self.folder, f": is damaged ({str(error)[:100]})") from None
        if (held := self.searcher.num_docs) != len(self):
            raise _no_corpus(self.folder, f": holds {held:,} passages and not {len(self):,}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Stored, (self.folder,)

    def __len__(self) -> int:
        return int(self.about["passages"])

    def __getitem__(self, rows: slice) -> list[Passage]:
        """The passages of consecutive rows."""
        start, stop, _ = rows.indices(len(self))
        if start >= stop:
            return []
        query = Query.range_query(
            self.schema,
            "row",
            FieldType.Integer,
            start,
            stop,
            include_upper=False,
            use_inverted_index=True,
        )
        hits = self.searcher.search(
            query, stop - start, count=False, order_by_field="row", order=Order.Asc
        ).hits
        if [row for row, _ in hits] != [*range(start, stop)]:
            raise _no_corpus(self.folder, f": lacks some of the rows {start} to {stop - 1}")
        return [self.passage(address) for _, address in hits]

    def __iter__(self) -> Iterator[Passage]:
        for row in range(0, len(self), _AT_ONCE):
            yield from self[row : row + _AT_ONCE]

    def row_of(self, id: str) -> int:
        """The row of the passage with this id, in composed form; ``KeyError`` where there is
        none.
        """
        query = Query.term_query(self.schema, "id", id, index_option="basic")
        hits = self.searcher.search(query, 1, count=False).hits
        if not hits:
            raise KeyError(id)
        return self.rows([hits[0][1]])[0]

    def passage(self, address: Any) -> Passage:
        """The passage at a ``tantivy.DocAddress``."""
        return Passage(**json.loads(self.searcher.doc(address).get_first("passage")))

    def rows(self, addresses: Sequence[Any]) -> list[int]:
        """The rows of the passages at some addresses."""
        return list(self.searcher.fast_field_values("row", list(addresses)))


# -- building -------------------------------------------------------------------------


def build_corpus(
    source: Any,
    out: str | Path,
    *,
    fields: Fields = None,
    force: bool = False,
) -> Stored:
    """Build a corpus in the folder ``out``; source and fields as for ``Corpus.load``, ``force``
    replaces what is there.

    Raises ``DataError`` for what is wrong with the source, with file and row, or with the folder,
    and where it could not be finished, for example because the disk is full.
    """
    folder = as_path(out, DataError)
    name, sourced = open_source(source, fields)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not is_stored(folder):
            raise DataError(
                f"{folder}: is not empty and holds no corpus; give a folder of its own with"
                " --output"
            )
        if not force:
            raise DataError(
                f"{folder}: holds a corpus already; give another --output, or --force to replace it"
            )
    try:
        with _replace_folder(folder) as new:
            _write_corpus(name, sourced, new)
    except OSError as error:
        raise DataError(
            f"{not_saved(error.filename or folder, error)}; nothing was left of it"
        ) from error
    return Stored(folder)


@contextmanager
def _replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder, which no other build uses; once it is filled, it takes the target's
    place.
    """
    work = folder.absolute().with_name(f"{folder.absolute().name}.building")
    try:
        work.mkdir(parents=True)
    except FileExistsError:
        raise DataError(
            f"{work}: another build of this corpus is under way, or was killed; wait for it, or"
            " delete this folder"
        ) from None
    try:
        new = work / "new"
        new.mkdir()
        yield new
        if folder.exists():
            os.replace(folder, work / "old")
        os.replace(new, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_corpus(name: str, sourced: Iterable[Sourced], folder: Path) -> None:
    """Write the index of the passages, then the manifest."""
    facts = _describe_layout()
    try:
        index = _create_index(folder / INDEX)
        index.register_tokenizer(analysis.NAME, analysis.ANALYZER)  # of ``analysis.prepare_text``
        writer = index.writer(heap_size=_HEAP, num_threads=1)
        try:
            facts["passages"], facts["fingerprint"] = _add_passages(writer, name, sourced)
            writer.commit()
        finally:
            writer.wait_merging_threads()
    except ValueError as error:  # of tantivy, such as for a full disk
        raise DataError(
            f"{name}: tantivy cannot write its index ({str(error)[:200]}); free some space and run"
            " it again",
            begun=True,
        ) from error
    facts |= {
        "source": name,
        "versions": {"dragin_lab": __version__, "tantivy": version("tantivy")},
    }
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / MANIFEST, text.encode())


def _add_passages(writer: Any, name: str, sourced: Iterable[Sourced]) -> tuple[int, str]:
    """Give the passages to a writer; returns their number and fingerprint."""
    ids = array("q")  # a hash of each id
    fingerprint = hashlib.sha256()
    with tqdm(sourced, desc=printable(name), unit=" passages", disable=None, leave=False) as bar:
        for _, passage in bar:
            line = json_line(passage)
            id = compose(passage.id)
            fingerprint.update(line)
            document = Document()  # its methods take a third of the time of its constructor
            document.add_integer("row", len(ids))
            document.add_text("id", id)
            document.add_bytes("passage", line)
            document.add_text(TITLE, analysis.prepare_text(passage.title))
            document.add_text(TEXT, analysis.prepare_text(passage.text))
            writer.add_document(document)
            ids.append(hash(id))
    if not ids:
        raise DataError(f"{name}: holds no passages")
    hashes = np.frombuffer(ids, np.int64)
    order = np.argsort(hashes, kind="stable")  # (passages,) rows, those of one id side by side
    if len(twice := np.flatnonzero(np.diff(hashes[order]) == 0)):
        first, second = order[twice[0] :][:2] + 1
        raise DataError(
            f"{name}: the passages {first:,} and {second:,} have one id; give every passage its own"
        )
    return len(ids), fingerprint.hexdigest()
