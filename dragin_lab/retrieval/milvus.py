"""Retrieval from Milvus: BM25 or dense vectors, from a cluster or from a Milvus Lite database (in this process).

BM25 is searched as sparse vectors (``sparse``): Milvus' own full-text search has another analysis, no ``best_fields``,
and in Milvus Lite separate statistics for each part of a collection.
"""

from __future__ import annotations

import json
import logging
import os
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.core.given import instance
from dragin_lab.core.trace import Passage
from dragin_lab.data import web
from dragin_lab.errors import MissingPackageError, SearchServerError, SettingError
from dragin_lab.files import as_path
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.bm25 import K1, TIE_BREAKER, B, check_number
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.sparse import Hit, best, larger, query_vectors
from dragin_lab.text import split_credentials

if TYPE_CHECKING:
    from dragin_lab.retrieval.dense_encoders import Encoder

#: Version of what a collection holds; any other is refused.
FORMAT = 3
#: Seconds within which a server must be reached, and within which it must answer (pymilvus wants a whole number);
#: pymilvus repeats lost requests until then.
CONNECT, TIMEOUT = 10.0, 60
#: Longest string in bytes (https://milvus.io/docs/limitations.md), and most hits of one search.
LONGEST, MOST_HITS = 65_535, 16_384
#: gRPC waits at most two seconds before it connects again; by default that grows to two minutes.
_CHANNEL = {"grpc.use_local_subchannel_pool": 1, "grpc.max_reconnect_backoff_ms": 2000}
FIELDS = ("id", "title", "text")
VECTOR = "vector"  # sparse or dense
#: The property of a collection that says what it holds, as JSON.
ABOUT = "dragin_lab"
_SPARE, _TOGETHER = 5, 64  # hits asked for beyond k, so that most ties are complete; queries per request
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


class Collection:
    """The collection at an address; connected until ``close``.

    Raises ``SearchServerError`` where the server is down, silent for ``TIMEOUT`` seconds, or answers with an error.
    """

    def __init__(self, address: Address, *, create: bool = False) -> None:
        try:
            import grpc
            import pymilvus

            if address.file is not None:
                import milvus_lite.server_manager  # noqa: F401 - pymilvus' own error for this says less
        except ImportError:
            raise MissingPackageError("Milvus needs pymilvus: pip install 'dragin-lab[cluster]'") from None
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints tracebacks of what it raises
        self.address = address
        self._errors = (pymilvus.MilvusException, grpc.RpcError)
        if address.file is not None:
            _check_file(address.file, create)
        with self._asking():
            self._client = pymilvus.MilvusClient(
                address.uri, token=address.token, timeout=CONNECT, grpc_options=_CHANNEL
            )

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            reason = error.details() if hasattr(error, "details") else getattr(error, "message", "")
            text = (str(reason or error).strip().splitlines() or [type(error).__name__])[0]
            text = text.replace(self.address.token, "***") if self.address.token else text
            remedy = "free some space" if "No space left" in text else "check that it runs and has room"
            if self.address.file is not None and not hasattr(self, "_client"):
                remedy = "Milvus Lite serves one process at a time, so end any other that has it open"
            raise SearchServerError(f"{self.address}: Milvus fails ({text[:300]}); {remedy}") from error

    def ask(self, what: str, *given: Any, **options: Any) -> Any:
        """A call of ``pymilvus.MilvusClient`` on the collection."""
        with self._asking():
            return getattr(self._client, what)(self.address.collection, *given, timeout=TIMEOUT, **options)

    def server(self) -> str:
        """Its version."""
        with self._asking():
            return str(self._client.get_server_version(timeout=TIMEOUT))

    def about(self) -> dict[str, Any] | None:
        """What the collection holds, or will hold once it is filled; None where there is none yet.

        Raises ``SearchServerError`` for a collection of something else.
        """
        if not self.ask("has_collection"):
            return None
        try:
            about: dict[str, Any] = json.loads(self.ask("describe_collection")["properties"][ABOUT])
        except (KeyError, ValueError):
            raise SearchServerError(
                f"{self.address}: is a collection of something else; name another, by #name after the address"
            ) from None
        if not self.ask("list_indexes"):  # the last step of its creation
            return None
        self.ask("load_collection")
        return about

    def count(self) -> int:
        """The passages that are there now."""
        return int(self.ask("query", filter="", output_fields=["count(*)"])[0]["count(*)"])

    def create(self, about: Mapping[str, Any], dimension: int | None, exact: bool) -> None:
        """Create the collection, for dense vectors of a dimension or sparse ones (None); replaces one that is there."""
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
            kind = "FLAT" if exact else "AUTOINDEX"
        indexes = MilvusClient.prepare_index_params()
        indexes.add_index(field_name=VECTOR, index_type=kind, metric_type="IP")
        if self.ask("has_collection"):
            self.ask("drop_collection")
        self.ask(
            "create_collection", schema=schema, index_params=indexes, consistency_level="Strong",
            properties={ABOUT: json.dumps(about)},
        )  # fmt: skip

    def search(self, queries: Sequence[Any], limit: int) -> list[list[Hit]]:
        """For the vector of each query, the at most ``limit`` largest inner products."""
        found = self.ask(
            "search", data=list(queries), limit=limit, output_fields=list(FIELDS), anns_field=VECTOR,
            search_params={"metric_type": "IP", "params": {}}, consistency_level="Eventually",
        )  # fmt: skip
        return [[(float(hit["distance"]), int(hit["row"]), hit["entity"]) for hit in hits] for hits in found]


def _check_file(file: Path, create: bool) -> None:
    """Keep Milvus Lite from creating a database where one should be read, and from writing into something else."""
    if file.is_file() or (file.exists() and any(file.iterdir()) and not (file / "collections").is_dir()):
        raise SearchServerError(f"{file}: is not a database of this Milvus Lite, which is a folder; give another path")
    if not file.exists() and not create:
        raise SearchServerError(
            f"{file}: no such database; fill one with 'dragin-lab corpus index --retriever milvus:{file}'"
        )
    if not file.absolute().parent.is_dir():
        raise SearchServerError(f"{file}: its folder does not exist; create it first")


def facts_of(corpus: Corpus | None, encoder: Encoder | None) -> dict[str, Any]:
    """What a collection was filled with, as JSON gives it back; all of it must be the same when it is opened."""
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
            was, now = reprlib.repr(about.get(name)), reprlib.repr(value)
            raise SearchServerError(
                f"{address}: was filled with {name} {was} ({about['corpus']}, {about['passages']:,} passages), and "
                f"this is {now}; give another collection, as #name after the address, or fill it again with --force"
            )


# -- searching --------------------------------------------------------------------------------------------------------


class Milvus:
    """A ``Retriever`` over a collection that ``dragin-lab corpus index --retriever milvus:URI`` filled.

    Passages come from the collection. It stays connected until ``close`` or the end of the process.

    Args:
        address: ``./wiki.db``, ``http[s]://host:port[/database]``, with ``#collection`` if it is not ``passages``.
        corpus: what the collection must hold; None takes any corpus.
        encoder: what filled a dense collection; by default the model that the collection names.

    Raises:
        SearchServerError: a server that cannot be reached; a collection that is not there, holds a part of its
            corpus or another one, or was filled with another analysis, encoder or version.
        ModelError: the model of a dense collection cannot be opened here.
        MissingPackageError: ``pymilvus`` (the extra ``cluster``) is not installed.
    """

    def __init__(self, address: str | Address, corpus: Corpus | None = None, *, encoder: Encoder | None = None) -> None:
        self.address = address if isinstance(address, Address) else Address.parse(address)
        self.encoder = encoder
        self._collection = Collection(self.address)
        try:
            self.about = self._checked(corpus)
            self._version = self._collection.server()
        except BaseException:
            self.close()
            raise
        self.kind = f"milvus-{self.about['search']}"

    def _checked(self, corpus: Corpus | None) -> dict[str, Any]:
        about = self._collection.about()
        if about is None:
            how = f"fill it with 'dragin-lab corpus index CORPUS --retriever {self.address}'"
            raise SearchServerError(f"{self.address}: holds no such collection; {how}")
        if about["search"] == "dense" and self.encoder is None:
            from dragin_lab.retrieval.dense_encoders import open_encoder

            self.encoder = open_encoder(about["opened"])
        check_about(self.address, about, facts_of(corpus, self.encoder))
        if (count := self._collection.count()) != about["passages"]:
            raise SearchServerError(
                f"{self.address}: holds {count:,} of {about['passages']:,} passages of {about['corpus']}; run the same "
                "'dragin-lab corpus index' to go on, with --force to fill it again"
            )
        return about

    def __enter__(self) -> Milvus:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the server."""
        self._collection.close()

    def __len__(self) -> int:
        passages: int = self.about["passages"]
        return passages

    def search(self, query: str, k: int) -> list[Passage]:
        """The at most k best passages, best first, with their scores; equal scores in corpus order.

        With BM25, a passage that holds no term of the query is never among them.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, many in one request."""
        wanted = check_number(k, MOST_HITS)
        search = self._sparse if self.about["search"] == "bm25" else self._dense
        found: list[list[Passage]] = []
        for start in range(0, len(queries), _TOGETHER):
            for hits in search(list(queries[start : start + _TOGETHER]), wanted):
                found.append([Passage(each["id"], each["title"], each["text"], score) for score, _, each in hits])
        return found

    def _sparse(self, queries: list[str], k: int) -> list[list[Hit]]:
        asked = {query: two for query in queries if any(two := query_vectors(query))}
        limit, found = min(k + _SPARE, MOST_HITS), []
        while asked:
            hits = self._collection.search([vector for two in asked.values() for vector in two], limit)
            found = [larger(two, k, limit) for two in zip(hits[::2], hits[1::2], strict=True)]
            if limit == MOST_HITS or all(whole for _, whole in found):
                break
            limit = min(4 * limit, MOST_HITS)
        best_of = {query: hits for query, (hits, _) in zip(asked, found, strict=True)}
        return [best_of.get(query, []) for query in queries]

    def _dense(self, queries: list[str], k: int) -> list[list[Hit]]:
        assert self.encoder is not None
        vectors = np.asarray(self.encoder.encode_queries(queries), np.float32)  # (queries, d)
        found = self._collection.search(vectors.tolist(), min(k + _SPARE, MOST_HITS))
        # Where the encoder gives no vector for a query, all passages would be equally far from it.
        return [best(hits)[:k] if vector.any() else [] for hits, vector in zip(found, vectors, strict=True)]

    def provenance(self) -> dict[str, Any]:
        """Everything that a repetition of these searches needs, as plain data; no secrets."""
        left_out = ("format", "search", "encoder", "opened")
        about = {key: value for key, value in self.about.items() if key not in left_out}
        library = f"pymilvus {version('pymilvus')}"
        there = {"kind": self.kind, "library": library, "server": self._version, "address": str(self.address)}
        return about | self.about.get("encoder", {}) | there

    def __repr__(self) -> str:
        return f"Milvus({str(self.address)!r}, {self.about['search']}, {len(self):,} passages)"
