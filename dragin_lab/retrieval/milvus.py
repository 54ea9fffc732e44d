"""Retrieval from Milvus: BM25 or dense vectors, from a cluster or from the file of Milvus Lite (in this process).

BM25 is ours, as sparse vectors. With a tie breaker c of 0 to 1, the score of ``best_fields`` is

    max(title, text) + c min(title, text) = max(title + c text, text + c title)

and title's and text's BM25 are sums over the query's terms. So each passage has two vectors, one for either side, and
its score is the larger of two inner products; the best k of both hold the best k of all. A term's dimension is a hash
of it. Milvus' own full-text function has another analysis, no ``best_fields``, and in Milvus Lite statistics of its own
for every part of a collection. Weights are float32: passages whose scores differ by less than one part in a million may
stand in another order than ``BM25``'s.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.core.method import without_secrets
from dragin_lab.core.trace import Passage
from dragin_lab.errors import BrokenOffError, CorpusError, MissingPackageError, SearchServerError, SettingError
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.bm25 import K1, TIE_BREAKER, B, check_number, idf
from dragin_lab.retrieval.corpus import Corpus

if TYPE_CHECKING:
    from dragin_lab.retrieval.dense_encoders import Encoder

#: Of what a collection holds; another number is refused.
FORMAT = 2
#: Seconds until a server must be reached, and until it must have answered (whole for pymilvus); what is lost on the
#: way is asked again until then.
CONNECT, TIMEOUT = 10.0, 60
#: Of a string, in bytes (https://milvus.io/docs/limitations.md), and of what one search returns.
LONGEST, MOST_HITS = 65_535, 16_384
#: Passages sent at a time; those up to which every dense vector is compared, above which Milvus' index is approximate.
BATCH, EXACT = 1000, 1_000_000
#: gRPC's pauses before it connects again: at most two seconds, where it would grow to two minutes.
_CHANNEL = {"grpc.use_local_subchannel_pool": 1, "grpc.max_reconnect_backoff_ms": 2000}
FIELDS = ("id", "title", "text")
SIDES, DENSE = ("title_led", "text_led"), "vector"
#: The row, beside those of the passages, whose text says what the collection is; it is written first.
ABOUT = -1
_NOTHING = 0  # the dimension of a vector without terms, as servers refuse an empty one
_SPARE, _TOGETHER = 5, 64  # hits asked for beyond k, so that ties are mostly all there; queries a request
_FORMS = "milvus:./wiki.db or milvus:http://host:19530, with #collection if it is not 'passages'"

Sparse = dict[int, float]  # dimension -> weight
Hit = tuple[float, int, dict[str, str]]  # score, row, the passage's fields


@dataclass(frozen=True)
class Address:
    """Where a collection is. ``token`` is no part of ``str``, so it comes into no message, trace or record."""

    uri: str
    collection: str = "passages"
    token: str = field(default="", repr=False)
    file: Path | None = None  # Milvus Lite's, which is a folder

    @classmethod
    def parse(cls, text: str) -> Address:
        """``./wiki.db`` or ``http[s]://host:port[/database]``, with ``milvus:`` before and ``#collection`` after.

        Who asks stands in the address (``http://user:password@host``) or in ``MILVUS_TOKEN``.
        """
        uri, _, collection = text.removeprefix("milvus:").partition("#")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", collection := collection or "passages"):
            raise SettingError(f"collection {collection!r}: give letters, digits and _, not beginning with a digit")
        if uri.endswith(".db") and "://" not in uri:
            return cls(str(Path(uri).expanduser()), collection, file=Path(uri).expanduser())
        parts = urlsplit(uri)
        try:
            place = f"{parts.hostname or ''}:{parts.port or (443 if parts.scheme == 'https' else 19530)}"
        except ValueError:
            place = ""
        if parts.scheme not in ("http", "https") or not parts.hostname or not place:
            raise SettingError(f"{without_secrets(text)} is not an address of Milvus; give {_FORMS}")
        token = ":".join(unquote(part) for part in (parts.username, parts.password) if part)
        plain = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        return cls(plain, collection, token or os.environ.get("MILVUS_TOKEN", ""))

    def __str__(self) -> str:
        return f"milvus:{self.uri}" + (f"#{self.collection}" if self.collection != "passages" else "")


class Collection:
    """The collection at an address, and what it says of itself (``about``); connected until ``close``.

    Raises ``SearchServerError`` where the server is down, silent for ``TIMEOUT`` seconds, or answers with an error.
    """

    def __init__(self, address: Address, *, create: bool = False) -> None:
        try:
            import grpc
            import pymilvus
        except ImportError:
            raise MissingPackageError("Milvus needs pymilvus: pip install 'dragin-lab[cluster]'") from None
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints a traceback of what it also raises
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

    def about(self) -> dict[str, Any] | None:
        """What the collection holds, or is to hold when it is whole; None where there is none, or an empty one.

        Raises ``SearchServerError`` for a collection of something else.
        """
        if not self.ask("has_collection"):
            return None
        if {"row", *FIELDS} <= {one["name"] for one in self.ask("describe_collection")["fields"]}:
            self.ask("load_collection")
            rows = self.ask("query", ids=[ABOUT], output_fields=["text"])
            if not rows and not self.count():
                return None
            try:
                about: dict[str, Any] = json.loads(rows[0]["text"])
                return {name: about[name] for name in ("format", "search", "passages", "corpus")} | about
            except (IndexError, KeyError, TypeError, ValueError):
                pass  # rows that are not ours
        raise SearchServerError(
            f"{self.address}: is a collection of something else; name another, by #name after the address"
        )

    def count(self) -> int:
        """The rows that are there now."""
        return int(self.ask("query", filter="", output_fields=["count(*)"])[0]["count(*)"])

    def create(self, vectors: Mapping[str, int | None], exact: bool) -> None:
        """A collection of passages with these vectors: their dimensions by field, None for sparse ones."""
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        indexes = MilvusClient.prepare_index_params()
        for name in FIELDS:
            schema.add_field(name, DataType.VARCHAR, max_length=LONGEST)
        for name, dim in vectors.items():
            if dim is None:
                schema.add_field(name, DataType.SPARSE_FLOAT_VECTOR)
                indexes.add_index(field_name=name, index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
            else:
                schema.add_field(name, DataType.FLOAT_VECTOR, dim=dim)
                indexes.add_index(field_name=name, metric_type="IP", index_type="FLAT" if exact else "AUTOINDEX")
        self.ask("create_collection", schema=schema, index_params=indexes, consistency_level="Strong")

    def search(self, vector: str, queries: Sequence[Any], limit: int) -> list[list[Hit]]:
        """For each query, the at most ``limit`` largest inner products."""
        found = self.ask(
            "search", data=list(queries), limit=limit, output_fields=list(FIELDS), anns_field=vector,
            search_params={"metric_type": "IP", "params": {}}, consistency_level="Eventually",
        )  # fmt: skip
        return [[(float(hit["distance"]), int(hit["row"]), hit["entity"]) for hit in hits] for hits in found]


def _check_file(file: Path, create: bool) -> None:
    """Keep Milvus Lite from making a new database where one is looked for, and from writing into something else."""
    try:
        import milvus_lite.server_manager  # noqa: F401 - pymilvus loads it by itself, and says less where it is missing
    except ImportError:
        raise MissingPackageError("a .db file needs Milvus Lite: pip install 'dragin-lab[cluster]'") from None
    if file.is_file() or (file.exists() and any(file.iterdir()) and not (file / "collections").is_dir()):
        raise SearchServerError(f"{file}: is not a database of this Milvus Lite, which is a folder; give another path")
    if not file.exists() and not create:
        raise SearchServerError(
            f"{file}: no such database; fill one with 'dragin-lab corpus index --retriever milvus:{file}'"
        )
    if not file.absolute().parent.is_dir():
        raise SearchServerError(f"{file}: its folder does not exist; create it first")


# -- filling ----------------------------------------------------------------------------------------------------------


def fill(
    address: str | Address, corpus: Corpus, *, encoder: Encoder | None = None, opened: str | None = None,
    force: bool = False, progress: bool | None = None,
) -> int:  # fmt: skip
    """Fill the collection at ``address``, or go on with a filling; returns the passages that were there when it began.

    A passage's key is its row and rows are replaced, never added, so what is sent twice is there once.

    Args:
        encoder: for dense vectors, which ``open_encoder`` opens by ``opened`` or its name; None for BM25.
        force: begin again, whatever the collection holds.
        progress: a bar on the error output; by default where that is a terminal.

    Raises:
        CorpusError: a passage longer than Milvus takes.
        SearchServerError: a server that cannot be reached, a collection of another corpus or with other settings.
        BrokenOffError: the server went away or is full. The same call goes on where this one stopped.
    """
    where = address if isinstance(address, Address) else Address.parse(address)
    about: dict[str, Any] = {"format": FORMAT, "corpus_fingerprint": corpus.fingerprint, "passages": len(corpus)}
    if encoder is None:
        about |= {"search": "bm25", "analysis": analysis.NAME, "k1": K1, "b": B, "tie_breaker": TIE_BREAKER}
    else:
        about |= {"search": "dense", "encoder": _plain(encoder.provenance())}
    collection = Collection(where, create=True)
    try:
        there = None if force else collection.about()
        if there is not None:
            _check_about(where, there, about)
            if (resumed := collection.count() - 1) == len(corpus):
                return resumed
        elif force:
            collection.about()  # which refuses one of something else
        bar = tqdm(
            total=len(corpus), unit=" passages", desc=corpus.name, disable=None if progress is None else not progress
        )
        make = _Weigher(_short_enough(corpus)) if encoder is None else _Encoded(encoder, _short_enough(corpus))
        if there is None:
            resumed = 0
            there = about | {"corpus": corpus.name, "opened": opened or getattr(encoder, "name", "")}
            if collection.ask("has_collection"):
                collection.ask("drop_collection")
            collection.create(make.fields, exact=len(corpus) <= EXACT)
            empty = {"row": ABOUT, "id": "", "title": "", "text": json.dumps(there), **make.nothing}
            collection.ask("upsert", [empty])
        try:
            with bar:
                for start in range(0, len(corpus), BATCH):
                    _send(collection, there, start, corpus[start : start + BATCH], make, resumed)
                    bar.update(min(BATCH, len(corpus) - start))
            collection.ask("flush")
            count = collection.count() - 1
        except SearchServerError as error:
            raise BrokenOffError(f"{error}; then run it again, and it goes on where it stopped") from error
    finally:
        collection.close()
    if count != len(corpus):
        raise SearchServerError(
            f"{where}: holds {count:,} passages where {len(corpus):,} were sent; fill it again with --force"
        )
    return resumed


def _send(
    collection: Collection,
    said: dict[str, Any],
    start: int,
    batch: list[Passage],
    make: _Weigher | _Encoded,
    resumed: int,
) -> None:
    there: set[int] = set()
    if resumed:
        rows = f"row >= {start} and row < {start + len(batch)}"
        there = {one["row"] for one in collection.ask("query", filter=rows, output_fields=["row"])}
    left = [(row, passage) for row, passage in enumerate(batch, start) if row not in there]
    if not left:
        return
    vectors = make([passage for _, passage in left])
    if collection.about() != said:
        raise CorpusError(
            f"{collection.address}: another 'corpus index --force' replaced this collection; run one at a time"
        )
    rows_sent = [
        {"row": row, "id": p.id, "title": p.title, "text": p.text} | vector
        for (row, p), vector in zip(left, vectors, strict=True)
    ]
    collection.ask("upsert", rows_sent)


def _short_enough(corpus: Corpus) -> Iterator[Passage]:
    for row, passage in enumerate(corpus, 1):
        for name in FIELDS:
            if (size := len(getattr(passage, name).encode())) > LONGEST:
                raise CorpusError(
                    f"{corpus.source}: the {name} of passage {row} (id {passage.id[:40]!r}) has {size:,} bytes, and "
                    f"Milvus takes {LONGEST:,}; cut the corpus into shorter passages"
                )
        yield passage


# -- vectors ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 18)
def dimension(term: str) -> int:
    """1 to 2**32 - 2, the same on every machine; of a million terms, one in 4,300 shares its own by chance."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "little") % ((1 << 32) - 2) + 1


def query_vector(query: str) -> Sparse:
    """How often the query holds each term; empty where it holds none."""
    return {dimension(term): float(count) for term, count in Counter(analysis.terms(query)).items()}


class _Weigher:
    """The sparse vectors of passages; reads all of them once, to count in how many each term stands."""

    fields: Mapping[str, int | None] = dict.fromkeys(SIDES)
    nothing: Mapping[str, Any] = {side: {_NOTHING: 1.0} for side in SIDES}

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._holders: tuple[Counter[str], Counter[str]] = (Counter(), Counter())  # of title and text
        self._length, self._count = [0, 0], 0
        for self._count, passage in enumerate(passages, 1):
            for number, value in enumerate((passage.title, passage.text)):
                terms = analysis.terms(value)
                self._holders[number].update(set(terms))
                self._length[number] += len(terms)

    def __call__(self, passages: list[Passage]) -> list[dict[str, Any]]:
        return [dict(zip(SIDES, self.vectors(passage), strict=True)) for passage in passages]

    def vectors(self, passage: Passage) -> tuple[Sparse, Sparse]:
        """The passage's two sides: title + c text, and text + c title."""
        title, text = self._weights(0, passage.title), self._weights(1, passage.text)
        return _side(title, text), _side(text, title)

    def _weights(self, number: int, value: str) -> dict[str, float]:
        """What each term adds to the score of a field (the formula of ``BM25``)."""
        terms = analysis.terms(value)
        mean = self._length[number] / max(self._count, 1)
        norm = K1 * (1 - B + B * len(terms) / (mean or 1))
        holders = self._holders[number]
        return {term: idf(self._count, holders[term]) * tf / (tf + norm) for term, tf in Counter(terms).items()}


def _side(whole: Mapping[str, float], part: Mapping[str, float]) -> Sparse:
    vector: Sparse = {}
    for weights, factor in ((whole, 1.0), (part, TIE_BREAKER)):
        for term, weight in weights.items():
            vector[dimension(term)] = vector.get(dimension(term), 0.0) + weight * factor
    return vector or {_NOTHING: 1.0}


class _Encoded:
    """The dense vectors of passages."""

    def __init__(self, encoder: Encoder, passages: Iterable[Passage]) -> None:
        self._encoder = encoder
        for _ in passages:  # each is short enough
            pass
        self.fields: Mapping[str, int | None] = {DENSE: encoder.dimension}
        self.nothing: Mapping[str, Any] = {DENSE: np.zeros(encoder.dimension, np.float32)}

    def __call__(self, passages: list[Passage]) -> list[dict[str, Any]]:
        vectors = np.asarray(self._encoder.encode_passages(passages), np.float32)  # (passages, d)
        if vectors.shape != (len(passages), self._encoder.dimension) or not np.isfinite(vectors).all():
            raise CorpusError(
                f"{self._encoder.name} gives vectors of shape {vectors.shape} for {len(passages)} passages, or such "
                f"that are not finite; it must give {self._encoder.dimension} finite numbers for each"
            )
        return [{DENSE: vector} for vector in vectors]


# -- searching --------------------------------------------------------------------------------------------------------


class Milvus:
    """A ``Retriever`` over a collection that ``dragin-lab corpus index --retriever milvus:URI`` filled.

    Passages come from the collection. ``close`` leaves the server, which else is left when the process ends.

    Args:
        address: ``./wiki.db``, ``http[s]://host:port[/database]``, with ``#collection`` if it is not ``passages``.
        corpus: what the collection must hold; None takes any corpus.
        encoder: what filled a dense collection; by default the model is opened that the collection names.

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
            with self._collection._asking():
                self._version = str(self._collection._client.get_server_version(timeout=TIMEOUT))
        except BaseException:
            self.close()
            raise
        self.kind = f"milvus-{self.about['search']}"

    def _checked(self, corpus: Corpus | None) -> dict[str, Any]:
        about = self._collection.about()
        if about is None:
            how = f"fill it with 'dragin-lab corpus index CORPUS --retriever {self.address}'"
            raise SearchServerError(f"{self.address}: holds no such collection; {how}")
        wanted: dict[str, Any] = {"format": FORMAT}
        if corpus is not None:
            wanted["corpus_fingerprint"] = corpus.fingerprint
        if about["search"] == "bm25":
            wanted["analysis"] = analysis.NAME
        else:
            if self.encoder is None:
                from dragin_lab.retrieval.dense_encoders import open_encoder

                self.encoder = open_encoder(about["opened"])
            wanted["encoder"] = _plain(self.encoder.provenance())
        _check_about(self.address, about, wanted)
        if (count := self._collection.count() - 1) != about["passages"]:
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
        """Leave the server."""
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
        wanted = check_number(k, MOST_HITS - 1)
        search = self._sparse if self.about["search"] == "bm25" else self._dense
        found: list[list[Passage]] = []
        for start in range(0, len(queries), _TOGETHER):
            for hits in search(list(queries[start : start + _TOGETHER]), wanted):
                found.append([Passage(each["id"], each["title"], each["text"], score) for score, _, each in hits])
        return found

    def _sparse(self, queries: list[str], k: int) -> list[list[Hit]]:
        vectors = [query_vector(query) for query in queries]
        asked, limit = [number for number, vector in enumerate(vectors) if vector], min(k + _SPARE, MOST_HITS)
        found: list[list[Hit]] = [[] for _ in queries]
        while asked:
            both = [self._collection.search(side, [vectors[number] for number in asked], limit) for side in SIDES]
            cut = []
            for number, *two in zip(asked, *both, strict=True):
                found[number], whole = _larger(two, k, limit)
                if not whole and limit < MOST_HITS:
                    cut.append(number)
            asked, limit = cut, min(4 * limit, MOST_HITS)
        return found

    def _dense(self, queries: list[str], k: int) -> list[list[Hit]]:
        assert self.encoder is not None
        vectors = np.asarray(self.encoder.encode_queries(queries), np.float32)  # (queries, d)
        found = self._collection.search(DENSE, vectors.tolist(), min(k + _SPARE, MOST_HITS))
        # A query that the encoder can make nothing of has no vector, and all passages are equally far from it.
        return [_best(hits)[:k] if vector.any() else [] for hits, vector in zip(found, vectors, strict=True)]

    def compare(self, corpus: Corpus, rows: Sequence[int]) -> Iterator[str]:
        """What is wrong with these passages of the collection, one line each."""
        for start in range(0, len(rows), BATCH):
            some = list(rows[start : start + BATCH])
            there = {one["row"]: one for one in self._collection.ask("query", ids=some, output_fields=["row", *FIELDS])}
            for row in some:
                passage = corpus[row]
                if row not in there:
                    yield f"{self.address}: passage {row + 1} (id {passage.id!r}) is not there"
                elif any(there[row][name] != getattr(passage, name) for name in FIELDS):
                    yield f"{self.address}: passage {row + 1} (id {passage.id!r}) has another text"

    def provenance(self) -> dict[str, Any]:
        """Everything that a repetition of these searches needs, as plain data; no secrets."""
        left_out = ("format", "search", "encoder", "opened")
        about = {key: value for key, value in self.about.items() if key not in left_out}
        library = f"pymilvus {version('pymilvus')}"
        there = {"kind": self.kind, "library": library, "server": self._version, "address": str(self.address)}
        return about | self.about.get("encoder", {}) | there

    def __repr__(self) -> str:
        return f"Milvus({str(self.address)!r}, {self.about['search']}, {len(self):,} passages)"


def build_index(
    address: str, corpus: Corpus, *, model: str | None = None, device: str | None = None, force: bool = False,
    progress: bool | None = None,
) -> Milvus:  # fmt: skip
    """Fill the collection at an address with a corpus, and open it; with a ``model``, by its vectors."""
    where, encoder = Address.parse(address), None
    if model is not None:
        from dragin_lab.retrieval.dense_encoders import open_encoder

        encoder = open_encoder(model, device)
    fill(where, corpus, encoder=encoder, opened=model, force=force, progress=progress)
    return Milvus(where, corpus, encoder=encoder)


def open_retriever(address: str, corpus: Corpus | None) -> Milvus:
    """The collection at an address; where a corpus is given, it must be the one that the collection holds."""
    return Milvus(address, corpus)


def _best(hits: Iterable[Hit]) -> list[Hit]:
    return sorted((hit for hit in hits if hit[1] != ABOUT), key=lambda hit: (-hit[0], hit[1]))


def _larger(sides: Sequence[list[Hit]], k: int, limit: int) -> tuple[list[Hit], bool]:
    """The k passages whose larger side is largest, and whether none that is as good as the last was cut off."""
    rows: dict[int, Hit] = {}
    for hit in (hit for side in sides for hit in side):
        if hit[1] not in rows or rows[hit[1]][0] < hit[0]:
            rows[hit[1]] = hit
    best = _best(rows.values())[:k]
    return best, all(len(side) < limit or (len(best) == k and side[-1][0] < best[-1][0]) for side in sides)


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """As it comes back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(facts))
    return plain


def _check_about(address: Address, about: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a collection that differs from what is wanted."""
    for name, value in wanted.items():
        if about.get(name) != value:
            was, now = (
                text if len(text) <= 60 else f"{text[:25]}…{text[-5:]}" for text in map(repr, (about.get(name), value))
            )
            of = f" of {about['corpus']} ({about['passages']:,} passages)" if name.startswith("corpus") else ""
            raise SearchServerError(
                f"{address}: was filled with {name} {was}{of}, and this is {now}; "
                "give another collection, as #name after the address, or fill it again with --force"
            )
