"""Retrieval from Milvus: BM25 or dense vectors, from a cluster or from a Milvus Lite database (in this process).

``fill`` puts a corpus into a collection, as ``dragin-lab corpus index`` does, and ``Milvus`` searches it. BM25 is
searched as sparse vectors (``bm25``): Milvus' own full-text search has another analysis, no ``best_fields``, and in
Milvus Lite separate statistics for each part of a collection.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.checks import instance, shown
from dragin_lab.data import web
from dragin_lab.errors import BrokenOffError, CorpusError, MissingPackageError, SearchServerError, SettingError
from dragin_lab.files import as_path
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.answers import TIMEOUT_VARIABLE, check_ranking, search_timeout
from dragin_lab.retrieval.bm25 import K1, TIE_BREAKER, B, Weigher, check_number, query_vectors
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.text import printable, split_credentials
from dragin_lab.trace.trace import Passage

if TYPE_CHECKING:
    from dragin_lab.retrieval.dense import Encoder

#: Version of what a collection holds; any other is refused.
FORMAT = 3
#: Seconds within which a server must be reached.
CONNECT = 10.0
#: Passages per request; passages up to which every dense vector is compared (above, Milvus' index is approximate).
BATCH, EXACT = 1000, 1_000_000
#: Longest string in bytes (https://milvus.io/docs/limitations.md), and most hits of one search.
LONGEST, MOST_HITS = 65_535, 16_384
FIELDS, VECTOR = ("id", "title", "text"), "vector"  # sparse or dense
#: The property of a collection that says what it holds, as JSON.
ABOUT = "dragin_lab"
_HOW = "dragin-lab corpus index CORPUS --retriever"
_SPARE, _TOGETHER = 5, 64  # hits asked for beyond k, so that ties are in corpus order; queries per request
_FORMS = "milvus:./wiki.db or milvus:http://host:19530, with #collection if it is not 'passages'"


@dataclass(frozen=True)
class Address:
    """Where a collection is. ``str`` leaves ``token`` out, so it appears in no message, trace or record."""

    uri: str
    collection: str = "passages"
    token: str = field(default="", repr=False)
    file: Path | None = None  # Milvus Lite's, which is a folder

    @classmethod
    def parse(cls, text: str) -> Address:
        """``./wiki.db`` or ``http[s]://host:port[/database]``, with ``milvus:`` before and ``#collection`` after.

        Credentials come from the address (``http://user:password@host``) or from ``MILVUS_TOKEN``.
        """
        credentials, bare = split_credentials(instance("address", text, str, f"give {_FORMS}"))
        uri, _, collection = bare.removeprefix("milvus:").partition("#")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", collection := collection or "passages"):
            raise SettingError(f"collection {collection!r}: give letters, digits and _, not beginning with a digit")
        if uri.endswith(".db") and "://" not in uri:
            return cls(str(as_path(uri)), collection, file=as_path(uri))
        url = web.parse_server(uri, "Milvus", _FORMS)
        port = url.port or (443 if url.scheme == "https" else 19530)
        token = ":".join(filter(None, web.parse_credentials(credentials))) or os.environ.get("MILVUS_TOKEN", "")
        return cls(f"{url.scheme}://{url.host}:{port}{(url.path or '').rstrip('/')}", collection, token)

    def __str__(self) -> str:
        return f"milvus:{self.uri}" + (f"#{self.collection}" if self.collection != "passages" else "")


#: gRPC waits at most two seconds before it connects again; by default that grows to two minutes.
_CHANNEL = {"grpc.use_local_subchannel_pool": 1, "grpc.max_reconnect_backoff_ms": 2000}


class Collection:
    """A connection to the collection at an address, through ``pymilvus.MilvusClient``.

    Raises ``SearchServerError`` where the server is down, silent for too long, or answers with an error.
    """

    def __init__(self, address: Address, timeout: float | None = None, *, create: bool = False) -> None:
        try:
            import grpc
            import pymilvus

            if address.file is not None:
                import milvus_lite.server_manager  # noqa: F401 - pymilvus' own error for this says less
        except ImportError:
            raise MissingPackageError("Milvus needs pymilvus: pip install 'dragin-lab[cluster]'") from None
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints tracebacks of what it raises
        self.address, self.timeout = address, math.ceil(search_timeout(timeout))  # pymilvus wants a whole number
        self._errors = (pymilvus.MilvusException, grpc.RpcError)
        file = address.file
        if file is not None and not create and not file.exists():  # Milvus Lite would create it
            raise SearchServerError(f"{file}: no such database; fill one: {_HOW} milvus:{file}")
        if file is not None and (file.is_file() or (any(file.glob("*")) and not (file / "collections").is_dir())):
            raise SearchServerError(f"{file}: is not a database of this Milvus Lite; give another path")
        options = {"token": address.token, "timeout": min(CONNECT, self.timeout), "grpc_options": _CHANNEL}
        self.client = self.call(pymilvus.MilvusClient, address.uri, **options)
        self.close = self.client.close

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """A call of a method of ``pymilvus.MilvusClient`` on the collection."""
        function = getattr(self.client, method)
        return self.call(function, self.address.collection, *arguments, timeout=self.timeout, **options)

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except self._errors as error:
            reason = error.details() if hasattr(error, "details") else getattr(error, "message", "")
            lines = str(reason or error).strip().splitlines() or [type(error).__name__]
            text = lines[0].replace(self.address.token or "\0", "***")[:300]
            raise SearchServerError(
                f"{self.address}: Milvus fails ({text}); check that it runs and has room, and that no other process "
                f"has a Milvus Lite file open; it has {self.timeout} s for an answer ({TIMEOUT_VARIABLE})"
            ) from error

    def about(self) -> dict[str, Any] | None:
        """What the collection holds, or will hold once it is filled; None where there is none yet.

        Raises ``SearchServerError`` for a collection that ``fill`` did not create.
        """
        if not self.ask("has_collection"):
            return None
        try:
            about: dict[str, Any] = json.loads(self.ask("describe_collection")["properties"][ABOUT])
        except (KeyError, TypeError, ValueError):
            other = "is a collection of something else; name another, by #name after the address"
            raise SearchServerError(f"{self.address}: {other}") from None
        if not self.ask("list_indexes"):  # the last step of its creation
            return None
        self.ask("load_collection")
        return about

    def count(self) -> int:
        """The number of passages in the collection now."""
        return int(self.ask("query", filter="", output_fields=["count(*)"])[0]["count(*)"])

    def create(self, about: Mapping[str, Any], dimension: int | None) -> None:
        """Create the collection, for dense vectors of a dimension or sparse ones (None); replaces an old one."""
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        for name in FIELDS:
            schema.add_field(name, DataType.VARCHAR, max_length=LONGEST)
        if dimension is None:
            schema.add_field(VECTOR, DataType.SPARSE_FLOAT_VECTOR)
            kind = "SPARSE_INVERTED_INDEX"
        else:
            schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=dimension)
            kind = "FLAT" if about["passages"] <= EXACT else "AUTOINDEX"
        indexes = MilvusClient.prepare_index_params()
        indexes.add_index(field_name=VECTOR, index_type=kind, metric_type="IP")
        if self.ask("has_collection"):
            self.ask("drop_collection")
        options = {"consistency_level": "Strong", "properties": {ABOUT: json.dumps(about)}}
        self.ask("create_collection", schema=schema, index_params=indexes, **options)


def describe_filling(corpus: Corpus | None, encoder: Encoder | None) -> dict[str, Any]:
    """The facts that identify a collection's content, as plain data; they must be the same when it is opened."""
    facts: dict[str, Any] = {"format": FORMAT}
    if corpus is not None:
        facts |= {"corpus_fingerprint": corpus.fingerprint, "passages": len(corpus)}
    if encoder is None:
        return facts | {"search": "bm25", "analysis": analysis.NAME, "k1": K1, "b": B, "tie_breaker": TIE_BREAKER}
    return facts | {"search": "dense", "encoder": json.loads(json.dumps(encoder.provenance()))}


def check_about(address: Address, about: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a collection that differs from what is wanted."""
    for name, value in wanted.items():
        if about.get(name) != value:
            raise SearchServerError(
                f"{address}: was filled with {name} {shown(about.get(name))} ({about['corpus']}, "
                f"{about['passages']:,} passages), and this is {shown(value)}; give another collection, as #name after "
                "the address, or fill it again with --force"
            )


# -- filling ----------------------------------------------------------------------------------------------------------


def fill(
    address: str | Address, corpus: Corpus, *, encoder: Encoder | None = None, opened: str | None = None,
    force: bool = False, progress: bool | None = None,
) -> int:  # fmt: skip
    """Fill the collection at ``address``, or resume; returns the number of passages that were there at the start.

    Passages are sent in order, with their row as key, so those present are the first ones, except perhaps in the last
    batch, and a passage that is sent twice is stored once.

    Args:
        encoder: makes dense vectors, and is opened again by ``opened``, by default its name; None for BM25.
        force: begin again, whatever the collection holds.
        progress: a bar on the error output; by default where that is a terminal.

    Raises:
        CorpusError: a passage longer than Milvus takes.
        SearchServerError: a server that cannot be reached, a collection of another corpus or with other settings.
        BrokenOffError: the server went away or is full. The same call resumes where this one stopped.
    """
    where = address if isinstance(address, Address) else Address.parse(address)
    wanted = describe_filling(corpus, encoder)
    with closing(Collection(where, create=True)) as collection:
        about, resumed = collection.about(), 0
        if about is not None and not force:
            check_about(where, about, wanted)
            resumed = collection.count()
        if resumed == len(corpus):
            return resumed
        _check_lengths(corpus)  # before anything is sent or dropped
        weigher = Weigher(corpus) if encoder is None else None
        if about is None or force:
            about = wanted | {"corpus": corpus.name, "opened": opened or getattr(encoder, "name", "")}
            collection.create(about, None if encoder is None else encoder.dimension)
        first = resumed - resumed % BATCH
        disable = None if progress is None else not progress
        try:
            with tqdm(
                total=len(corpus), initial=first, unit=" passages", desc=printable(corpus.name), disable=disable
            ) as bar:
                for start in range(first, len(corpus), BATCH):
                    if collection.about() != about:
                        raise CorpusError(f"{where}: another 'corpus index --force' replaced it; run one at a time")
                    batch = corpus[start : start + BATCH]
                    vectors = encoder.encode_passages(batch) if encoder else map(weigher.vector, batch)  # type: ignore[union-attr]
                    rows = zip(range(start, start + len(batch)), batch, vectors, strict=True)
                    data = [{"row": i, "id": p.id, "title": p.title, "text": p.text, VECTOR: v} for i, p, v in rows]
                    collection.ask("upsert", data)
                    bar.update(len(batch))
            collection.ask("flush")
            count = collection.count()
        except SearchServerError as error:
            raise BrokenOffError(f"{error}; then run it again, and it goes on where it stopped") from error
    if count != len(corpus):
        raise SearchServerError(
            f"{where}: holds {count:,} of {len(corpus):,} passages sent; fill it again with --force"
        )
    return resumed


def _check_lengths(corpus: Corpus) -> None:
    for row, passage in enumerate(corpus, 1):
        for name in FIELDS:
            if (size := len(getattr(passage, name).encode())) > LONGEST:
                raise CorpusError(
                    f"{corpus.source}: the {name} of passage {row} (id {passage.id[:40]!r}) has {size:,} bytes, and "
                    f"Milvus takes {LONGEST:,}; cut the corpus into shorter passages"
                )


# -- searching --------------------------------------------------------------------------------------------------------


class Milvus:
    """A ``Retriever`` over a collection that ``fill`` filled. It stays connected until ``close``.

    Args:
        address: ``./wiki.db``, ``http[s]://host:port[/database]``, with ``#collection`` if it is not ``passages``.
        corpus: what the collection must hold; None takes any corpus.
        encoder: what filled a dense collection; by default the model that the collection names.
        timeout: seconds for each answer of the server; by default those of ``answers.search_timeout``.

    Raises:
        SearchServerError: a server that cannot be reached; a collection that is not there, holds a part of its
            corpus or another one, or was filled with another analysis, encoder or version.
        ModelError: the model of a dense collection cannot be opened here.
        MissingPackageError: ``pymilvus`` (the extra ``cluster``) is not installed.
    """

    def __init__(
        self, address: str | Address, corpus: Corpus | None = None, *, encoder: Encoder | None = None,
        timeout: float | None = None,
    ) -> None:  # fmt: skip
        self.address = address if isinstance(address, Address) else Address.parse(address)
        self.encoder = encoder
        self._collection = Collection(self.address, timeout)
        self.close = self._collection.close
        try:
            self.about = self._check(corpus)
            self._version = str(self._collection.call(self._collection.client.get_server_version))
        except BaseException:
            self.close()
            raise
        self.kind = f"milvus-{self.about['search']}"

    def _check(self, corpus: Corpus | None) -> dict[str, Any]:
        """What the collection holds, which must be all of the corpus."""
        about = self._collection.about()
        if about is None:
            raise SearchServerError(f"{self.address}: holds no such collection; fill it: {_HOW} {self.address}")
        if about["search"] == "dense" and self.encoder is None:
            from dragin_lab.retrieval.dense import open_encoder

            self.encoder = open_encoder(about["opened"])
        check_about(self.address, about, describe_filling(corpus, self.encoder))
        if (count := self._collection.count()) != about["passages"]:
            raise SearchServerError(
                f"{self.address}: holds {count:,} of {about['passages']:,} passages of {about['corpus']}; run the same "
                "'dragin-lab corpus index' to go on, with --force to fill it again"
            )
        return about

    def __len__(self) -> int:
        return int(self.about["passages"])

    def search(self, query: str, k: int) -> list[Passage]:
        """The at most k best passages, best first, with their scores; equal scores in corpus order.

        With BM25, a passage that holds no term of the query is never among them.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, many in one request."""
        k = check_number(k, MOST_HITS)
        results: list[dict[int, Passage]] = [{} for _ in queries]  # of each query: row -> passage
        vectors = [(i, vector) for i, sides in enumerate(self._vectors(list(queries))) for vector in sides]
        for start in range(0, len(vectors), _TOGETHER):
            batch = vectors[start : start + _TOGETHER]
            limit = min(k + _SPARE, MOST_HITS)
            answer = self._collection.ask(
                "search", data=[vector for _, vector in batch], limit=limit, output_fields=list(FIELDS),
                anns_field=VECTOR, search_params={"metric_type": "IP", "params": {}}, consistency_level="Eventually",
            )  # fmt: skip
            if len(answer) != len(batch):
                raise SearchServerError(f"{self.address}: answers {len(answer)} of {len(batch)} searches; run it again")
            for (i, _), hits in zip(batch, answer, strict=True):
                passages = [Passage(**hit["entity"], score=hit["distance"]) for hit in hits]
                check_ranking(passages, limit, f"{self.address} answered {queries[i][:80]!r}")
                for hit, passage in zip(hits, passages, strict=True):
                    results[i][hit["row"]] = max(results[i].get(hit["row"], passage), passage, key=lambda p: p.score)
        return [[hits[row] for row in sorted(hits, key=lambda row: (-hits[row].score, row))[:k]] for hits in results]

    def _vectors(self, queries: list[str]) -> list[list[Any]]:
        """What each query is searched by: two vectors for BM25, one for dense, none for a query without terms."""
        if self.encoder is None:
            return [list(sides) if all(sides := query_vectors(query)) else [] for query in queries]
        vectors = np.asarray(self.encoder.encode_queries(queries), np.float32)  # (queries, d)
        return [[vector.tolist()] if vector.any() else [] for vector in vectors]

    def provenance(self) -> dict[str, Any]:
        """Everything that a repetition of these searches needs, as plain data; no secrets."""
        left_out = ("format", "search", "encoder", "opened")
        about = {key: value for key, value in self.about.items() if key not in left_out}
        library = f"pymilvus {version('pymilvus')}"
        there = {"kind": self.kind, "library": library, "server": self._version, "address": str(self.address)}
        return about | self.about.get("encoder", {}) | there

    def __repr__(self) -> str:
        return f"Milvus({str(self.address)!r}, {self.about['search']}, {len(self):,} passages)"
