"""Retrieval from Milvus: BM25 or dense, from a cluster or from the file of Milvus Lite (Milvus in this process).

BM25 is ours (``retrieval.sparse``), kept in Milvus as sparse vectors, and not Milvus' own full-text function: that one
has another analysis, no ``best_fields``, and in Milvus Lite statistics of every part of a collection by itself, so the
same corpus would be ranked in three ways. Weights are float32: passages whose scores differ by less than about one part
in a million may change places with ``BM25``'s order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.core.trace import Passage
from dragin_lab.errors import ClusterError, SettingError
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.milvus_server import FIELDS, MOST_HITS, Address, Server
from dragin_lab.retrieval.sparse import Sparse, query_vector

if TYPE_CHECKING:
    from dragin_lab.retrieval.dense_encoders import Encoder

#: Of what a collection holds; another number is refused.
FORMAT = 1
#: The two sides of a passage's BM25 (``retrieval.sparse``), or its one dense vector.
SIDES = ("title_led", "text_led")
DENSE = "vector"
#: The row, beside those of the passages, whose text says what the collection is.
ABOUT = -1
#: Hits asked for beyond k, so that equal scores at the end of a list are mostly all there.
_SPARE = 5
_TOGETHER = 64  # queries a request
_ROWS_AT_ONCE = 1000
_NOT_OF_SEARCHES = ("format", "search", "made_by", "encoder", "opened")

Hit = tuple[float, int, dict[str, str]]  # score, row, the passage's fields


class Milvus:
    """A ``Retriever`` over a collection that ``dragin-lab corpus index --retriever milvus:URI`` filled.

    Passages come from the collection. ``close`` leaves the server, which else is left when the process ends.

    Args:
        address: ``./wiki.db``, ``http[s]://host:port[/database]``, with ``#collection`` if it is not ``passages``.
        corpus: what the collection must hold; None takes any corpus.
        encoder: what filled a dense collection; by default the model is opened that the collection names.

    Raises:
        ClusterError: a server that cannot be reached; a collection that is not there, holds a part of its corpus or
            another one, or was filled with another analysis, encoder or version.
        ModelError: the model of a dense collection cannot be opened here.
        MissingPackageError: ``pymilvus`` (the extra ``cluster``) is not installed.
    """

    def __init__(self, address: str | Address, corpus: Corpus | None = None, *, encoder: Encoder | None = None) -> None:
        self.address = address if isinstance(address, Address) else Address.parse(address)
        self.encoder = encoder
        self._server = Server(self.address)
        try:
            about = read_about(self._server)
            if about is None:
                raise ClusterError(f"{self.address}: holds no such collection; {_how_to_fill(self.address)}")
            self.about = about
            self._check(corpus)
            self._version = self._server.version
        except BaseException:
            self._server.close()
            raise

    def _check(self, corpus: Corpus | None) -> None:
        wanted: dict[str, Any] = {"format": FORMAT}
        if corpus is not None:
            wanted["corpus_fingerprint"] = corpus.fingerprint
        if self.about["search"] == "bm25":
            wanted["analysis"] = analysis.NAME
        else:
            if self.encoder is None:
                from dragin_lab.retrieval.dense_encoders import open_encoder

                self.encoder = open_encoder(self.about["opened"])
            wanted["encoder"] = described(self.encoder)
        check_about(self.address, self.about, wanted)
        count = self._server.count() - 1
        if count != self.about["passages"]:
            raise ClusterError(
                f"{self.address}: holds {count:,} of {self.about['passages']:,} passages of {self.about['corpus']}; "
                + ("run the same 'dragin-lab corpus index' to go on" if count < self.about["passages"] else
                   "fill it anew with 'dragin-lab corpus index --force'")
            )  # fmt: skip

    def __enter__(self) -> Milvus:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the server; Milvus Lite's file may then be opened elsewhere."""
        self._server.close()

    @property
    def kind(self) -> str:
        """``milvus-bm25`` or ``milvus-dense``."""
        return f"milvus-{self.about['search']}"

    def __len__(self) -> int:
        passages: int = self.about["passages"]
        return passages

    # -- searching ----------------------------------------------------------------------------------------------------

    def search(self, query: str, k: int) -> list[Passage]:
        """The at most k best passages, best first, with their scores; equal scores in corpus order.

        With BM25, a passage that holds no term of the query is never among them.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, many in one request."""
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MOST_HITS - 1:
            raise SettingError(f"k={k!r}: the number of passages must be a whole number from 1 to {MOST_HITS - 1:,}")
        found: list[list[Passage]] = []
        for start in range(0, len(queries), _TOGETHER):
            some = list(queries[start : start + _TOGETHER])
            hits = self._sparse(some, int(k)) if self.about["search"] == "bm25" else self._dense(some, int(k))
            found += [[Passage(e["id"], e["title"], e["text"], score) for score, _, e in each] for each in hits]
        return found

    def _sparse(self, queries: list[str], k: int) -> list[list[Hit]]:
        vectors = [query_vector(query) for query in queries]
        asked = [number for number, vector in enumerate(vectors) if vector]
        found: list[list[Hit]] = [[] for _ in queries]
        limit = min(k + _SPARE, MOST_HITS)
        while asked:
            sides = self._sides([vectors[number] for number in asked], limit)
            cut = []
            for number, *two in zip(asked, *sides, strict=True):
                found[number], whole = _larger(two, k, limit)
                if not whole and limit < MOST_HITS:
                    cut.append(number)
            asked, limit = cut, min(4 * limit, MOST_HITS)
        return found

    def _sides(self, vectors: list[Sparse], limit: int) -> list[list[list[Hit]]]:
        return [self._server.search(side, vectors, limit) for side in SIDES]

    def _dense(self, queries: list[str], k: int) -> list[list[Hit]]:
        assert self.encoder is not None
        vectors = np.asarray(self.encoder.encode_queries(queries), np.float32)  # (queries, d)
        found = self._server.search(DENSE, vectors.tolist(), min(k + _SPARE, MOST_HITS))
        # A query that the encoder can make nothing of has no vector, and all passages are equally far from it.
        return [_best(hits)[:k] if vector.any() else [] for hits, vector in zip(found, vectors, strict=True)]

    def compare(self, corpus: Corpus, rows: Sequence[int]) -> Iterator[str]:
        """What is wrong with these passages of the collection, a line each."""
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            found = {each["row"]: each for each in self._server.pick(some)}
            for row in some:
                passage = corpus[row]
                if row not in found:
                    yield f"{self.address}: passage {row + 1} (id {passage.id!r}) is not there"
                elif any(found[row][name] != getattr(passage, name) for name in FIELDS):
                    yield f"{self.address}: passage {row + 1} (id {passage.id!r}) has another text"

    def provenance(self) -> dict[str, Any]:
        """Everything that a repetition of these searches needs, as plain data; no secrets."""
        about = {
            key: value for key, value in self.about.items() if key not in ("format", "search", "made_by", "encoder")
        }
        return about | self.about.get("encoder", {}) | {
            "kind": self.kind,
            "library": f"pymilvus {version('pymilvus')}",
            "server": self._version,
            "address": str(self.address),
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"Milvus({str(self.address)!r}, {self.about['search']}, {len(self):,} passages)"


def build_index(
    address: str, corpus: str | None, *, model: str | None = None, device: str | None = None, force: bool = False,
    progress: bool | None = None,
) -> Milvus:  # fmt: skip
    """Fill the collection at an address with a corpus, and open it; with a ``model``, by its vectors."""
    from dragin_lab.retrieval.milvus_fill import fill

    where, passages, encoder = Address.parse(address), Corpus.load(corpus), None
    if model is not None:
        from dragin_lab.retrieval.dense_encoders import open_encoder

        encoder = open_encoder(model, device)
    fill(where, passages, encoder=encoder, opened=model, force=force, progress=progress)
    return Milvus(where, passages, encoder=encoder)


def open_retriever(address: str, corpus: str | None) -> Milvus:
    """The collection at an address; where a corpus is given, it must be the one that the collection holds."""
    return Milvus(address, None if corpus is None else Corpus.load(corpus))


def _best(hits: Sequence[Hit]) -> list[Hit]:
    return sorted((hit for hit in hits if hit[1] != ABOUT), key=lambda hit: (-hit[0], hit[1]))


def _larger(sides: list[list[Hit]], k: int, limit: int) -> tuple[list[Hit], bool]:
    """The k passages whose larger side is largest, and whether none that is as good as the last was cut off."""
    rows: dict[int, Hit] = {}
    for hit in (hit for side in sides for hit in side):
        if hit[1] not in rows or rows[hit[1]][0] < hit[0]:
            rows[hit[1]] = hit
    best = _best([*rows.values()])[:k]
    whole = all(len(side) < limit or (len(best) == k and side[-1][0] < best[-1][0]) for side in sides)
    return best, whole


# -- what a collection says of itself ---------------------------------------------------------------------------------


def _how_to_fill(address: Address) -> str:
    return f"fill it with 'dragin-lab corpus index CORPUS --retriever {address}'"


def described(encoder: Encoder) -> dict[str, Any]:
    """What an encoder says of itself, as it comes back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(encoder.provenance()))
    return plain


def read_text(server: Server) -> str:
    """The text of the row that says what the collection is; "" where there is none."""
    rows = server.get(ABOUT, ABOUT + 1, ("row", "text"))
    return str(rows[0]["text"]) if rows else ""


def read_about(server: Server) -> dict[str, Any] | None:
    """What the collection holds, or is to hold when it is whole; None where there is no collection, or an empty one.

    Raises ``ClusterError`` for a collection of something else.
    """
    if not server.exists():
        return None
    ours = {"row", *FIELDS} <= server.fields()
    if ours:
        server.load()
        if not server.count():
            return None
    try:
        about: dict[str, Any] = json.loads(read_text(server) if ours else "{}")
        return {name: about[name] for name in ("format", "search", "passages", "corpus")} | about
    except (KeyError, TypeError, ValueError):
        raise ClusterError(
            f"{server.address}: is a collection of something else; name another, by #name behind the address"
        ) from None


def check_about(address: Address, about: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse a collection that differs from what is wanted."""
    for name, value in wanted.items():
        if about.get(name) != value:
            was = f" of {about['corpus']} ({about['passages']:,} passages)" if name.startswith("corpus") else ""
            raise ClusterError(
                f"{address}: was filled with {name} {_short(about.get(name))}{was}, and this is {_short(value)}; "
                "give another collection, as #name behind the address, or fill it anew with --force"
            )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:25]}…{text[-5:]}"
