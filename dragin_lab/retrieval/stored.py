"""A corpus on disk: one tantivy index that holds the passages and finds them.

``corpus.json`` is the manifest, ``tantivy/`` the index: row, id, title and text of each passage, indexed, and the
passage itself as a line of JSON. Passages are read when they are needed, so a corpus may be larger than memory.

The manifest is written last, so a folder without one is unfinished. It holds facts and the length and CRC-32 of every
file; lengths are compared whenever the folder is opened, the rest by ``corpus check --full``.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring as quoted  # json.dumps takes four times as long
from pathlib import Path
from typing import Any

from dragin_lab.checks import shown
from dragin_lab.errors import CorpusError
from dragin_lab.files import write_whole
from dragin_lab.retrieval import analysis
from dragin_lab.trace.trace import Passage

MANIFEST, INDEX = "corpus.json", "tantivy"
#: In the folder of a built corpus: a folder for each of its vector indexes, with its own manifest.
INDEXES, ABOUT = "indexes", "index.json"
#: Version of the folder's layout; any other is refused.
FORMAT = 3
_AT_ONCE = 4096  # passages read together
#: Index fields of a passage's title and text.
TITLE, TEXT = FIELDS = ("title_terms", "text_terms")


def is_stored(folder: Path) -> bool:
    """Whether a folder holds a built corpus."""
    return (folder / MANIFEST).is_file()


def remedy(folder: Path) -> str:
    return f"build it again: dragin-lab corpus build SOURCE --output {folder} --force"


def index_schema() -> Any:
    """The fields of the index. Frequencies are indexed; positions are not, as no query has phrases."""
    from tantivy import SchemaBuilder

    fields = SchemaBuilder()
    fields.add_integer_field("row", indexed=True, fast=True)
    fields.add_text_field("id", tokenizer_name="raw", index_option="basic")
    fields.add_bytes_field("passage", stored=True)
    for name in FIELDS:
        fields.add_text_field(name, tokenizer_name=analysis.NAME, index_option="freq")
    return fields.build()


def open_index(folder: Path, *, new: bool = False) -> Any:
    """The ``tantivy.Index`` in a folder; the texts that it indexes must be ``analysis.prepare_text``."""
    import tantivy

    index = tantivy.Index(index_schema(), path=str(folder), reuse=False) if new else tantivy.Index.open(str(folder))
    index.register_tokenizer(analysis.NAME, analysis.build_analyzer())
    return index


def json_line(passage: Passage) -> bytes:
    """A passage as the line of JSON that is stored and fingerprinted."""
    id, title, text = quoted(passage.id), quoted(passage.title), quoted(passage.text)
    return f'{{"id": {id}, "title": {title}, "text": {text}}}\n'.encode()


def hash_passages(passages: Iterable[Passage]) -> str:
    """SHA-256 (hex) of the ids, titles and texts of passages, in order."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(json_line(passage))
    return digest.hexdigest()


class Stored:
    """The passages of a built corpus, by row. ``about`` is the manifest.

    Raises ``CorpusError`` where the folder is unfinished, cut short or of another version.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        wanted = {"format": FORMAT, "analysis": analysis.NAME, "analysis_sha256": analysis.fingerprint()}
        self.about = read_manifest(self.folder / MANIFEST, remedy(self.folder), wanted)
        try:
            index = open_index(self.folder / INDEX)
        except ValueError as error:  # from tantivy
            raise CorpusError(f"{self.folder}: is damaged ({str(error)[:100]}); {remedy(self.folder)}") from None
        index.config_reader(reload_policy="manual")  # no thread that watches the files
        self.searcher, self.schema = index.searcher(), index.schema
        if self.searcher.num_docs != len(self):
            raise CorpusError(
                f"{self.folder}: holds {self.searcher.num_docs:,} passages and not {len(self):,}; {remedy(self.folder)}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Stored, (self.folder,)

    def __len__(self) -> int:
        return int(self.about["passages"])

    def __getitem__(self, rows: slice) -> list[Passage]:
        """The passages of consecutive rows."""
        from tantivy import FieldType, Order, Query

        start, stop, _ = rows.indices(len(self))
        if start >= stop:
            return []
        query = Query.range_query(
            self.schema, "row", FieldType.Integer, start, stop, include_upper=False, use_inverted_index=True
        )
        hits = self.searcher.search(query, stop - start, count=False, order_by_field="row", order=Order.Asc).hits
        if [row for row, _ in hits] != [*range(start, stop)]:
            raise CorpusError(f"{self.folder}: lacks some of the rows {start} to {stop - 1}; {remedy(self.folder)}")
        return [self.passage(address) for _, address in hits]

    def __iter__(self) -> Iterator[Passage]:
        for row in range(0, len(self), _AT_ONCE):
            yield from self[row : row + _AT_ONCE]

    def row_of(self, id: str) -> int:
        """The row of the passage with this id, in composed form; ``KeyError`` where there is none."""
        from tantivy import Query

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
        rows: list[int] = self.searcher.fast_field_values("row", list(addresses))
        return rows


# -- the manifest of a corpus or an index -----------------------------------------------------------------------------


def write_manifest(path: Path, facts: Mapping[str, Any], files: Iterable[Path]) -> None:
    """Write ``facts`` and the length and CRC-32 of each file, all of which must be written already."""
    described = {file.relative_to(path.parent).as_posix(): _describe_file(file, full=True) for file in files}
    write_whole(path, (json.dumps({**facts, "files": described}, indent=1, ensure_ascii=False) + "\n").encode())


def read_manifest(
    path: Path, remedy: str, wanted: Mapping[str, Any] | None = None, *, full: bool = False
) -> dict[str, Any]:
    """The facts of a manifest, which must include all that is ``wanted`` and describe the files beside it.

    Raises ``CorpusError``, ending in the ``remedy``: no manifest, one that describes something else, a file that is
    missing or of another length; with ``full`` every file is read, and one that was changed is refused too.
    """
    try:
        about = dict(json.loads(path.read_bytes()))
        there = {name: _describe_file(path.parent / name, full=full) for name in about["files"]}
        damaged = [name for name, facts in there.items() if not facts.items() <= about["files"][name].items()]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorpusError(f"{path}: cannot be read ({str(error)[:200]}); {remedy}") from None
    for name, value in (wanted or {}).items():
        if about.get(name) != value:
            was = shown(about.get(name))
            raise CorpusError(f"{path.parent}: was built with {name} {was}, and this is {shown(value)}; {remedy}")
    if damaged:
        raise CorpusError(f"{path.parent / damaged[0]}: is damaged; {remedy}")
    return about


def _describe_file(path: Path, *, full: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"bytes": path.stat().st_size}
    if full:
        crc = 0
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                crc = zlib.crc32(chunk, crc)
        facts["crc32"] = f"{crc:08x}"
    return facts
