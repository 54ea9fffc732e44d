"""Fill a Milvus collection with the passages of a corpus; a filling that was broken off goes on where it stopped.

A passage's primary key is its row in the corpus, and rows are replaced, never added twice: what a lost connection sends
again, or two processes at once, does no harm. A collection is whole when it holds as many passages as the row that
describes it says, which is written before the first of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab import __version__
from dragin_lab.core.trace import Passage
from dragin_lab.errors import BrokenOffError, ClusterError, CorpusError
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.best_fields import check_formula
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.milvus import (
    ABOUT,
    DENSE,
    FORMAT,
    SIDES,
    check_about,
    described,
    read_about,
    read_text,
)
from dragin_lab.retrieval.milvus_server import LONGEST, Address, Server
from dragin_lab.retrieval.sparse import NOTHING, Weigher

if TYPE_CHECKING:
    from dragin_lab.retrieval.dense_encoders import Encoder

#: Passages, and characters of theirs, that are sent at a time; a server takes 64 MB.
BATCH, BATCH_CHARACTERS = 1000, 4 << 20
#: Passages up to which every dense vector is compared with a query; above, Milvus chooses an approximate index.
EXACT = 1_000_000


@dataclass(frozen=True)
class Filled:
    """What a filling made. ``resumed``: the passages that were there when it began."""

    passages: int
    resumed: int


def fill(
    address: str | Address,
    corpus: Corpus,
    *,
    encoder: Encoder | None = None,
    opened: str | None = None,
    k1: float = 1.2,
    b: float = 0.75,
    tie_breaker: float = 0.5,
    force: bool = False,
    progress: bool | None = None,
) -> Filled:
    """Fill the collection at ``address`` with the passages of ``corpus``, or go on with a filling of it.

    Args:
        address: as of ``Milvus``; a database file is made where there is none.
        encoder: for dense vectors; None for BM25 with ``k1``, ``b`` and ``tie_breaker``.
        opened: what ``open_encoder`` opens that encoder by, where it is not its name.
        force: begin anew, whatever the collection holds.
        progress: a bar on the error output; by default where that is a terminal.

    Raises:
        CorpusError: a passage longer than Milvus takes.
        ClusterError: a server that cannot be reached, a collection of another corpus or with other settings.
        BrokenOffError: the server went away or is full. The same call goes on where this one stopped.
    """
    address = address if isinstance(address, Address) else Address.parse(address)
    check_formula(k1, b, tie_breaker)
    about: dict[str, Any] = {"format": FORMAT, "corpus": corpus.name, "corpus_fingerprint": corpus.fingerprint}
    about["passages"] = len(corpus)
    if encoder is None:
        about |= {"search": "bm25", "analysis": analysis.NAME, "k1": k1, "b": b, "tie_breaker": tie_breaker}
    else:
        about |= {"search": "dense", "encoder": described(encoder)}
    with Server(address, create=True) as server:
        there = _begun(server, about, force)
        if there is not None and server.count() - 1 == len(corpus):
            return Filled(len(corpus), len(corpus))
        disable = None if progress is None else not progress
        with tqdm(total=len(corpus), unit=" passages", desc="count", disable=disable, leave=False) as bar:
            passages = _counted(_short_enough(corpus), bar)
            if encoder is None:
                vectors = _sparse(Weigher(passages, k1=k1, b=b, tie_breaker=tie_breaker))
                fields: dict[str, int | None] = dict.fromkeys(SIDES)
            else:
                for _ in passages:
                    pass
                vectors = _dense(encoder)
                fields = {DENSE: encoder.dimension}
        if there is None:
            if server.exists():  # to be replaced, or killed before its first row
                server.drop()
            server.create(fields, exact=len(corpus) <= EXACT)
            about["made_by"] = f"dragin_lab {__version__}, pymilvus {version('pymilvus')}"
            if encoder is not None:
                about["opened"] = opened or encoder.name
            there = json.dumps(about)
            nothing = {
                name: {NOTHING: 1.0} if dim is None else np.zeros(dim, np.float32) for name, dim in fields.items()
            }
            server.put([{"row": ABOUT, "id": "", "title": "", "text": there} | nothing])
        resumed = server.count() - 1
        try:
            with tqdm(initial=resumed, total=len(corpus), unit=" passages", desc=corpus.name, disable=disable) as bar:
                _send(server, corpus, vectors, resumed, there, bar)
            server.finish()
            count = server.count() - 1
        except ClusterError as error:
            raise BrokenOffError(f"{error}; then run it again, and it goes on where it stopped") from error
    if count != len(corpus):
        raise ClusterError(
            f"{address}: holds {count:,} passages where {len(corpus):,} were sent; fill it anew with --force"
        )
    return Filled(count, resumed)


def _begun(server: Server, about: dict[str, Any], force: bool) -> str | None:
    """What the collection says of itself, if there is one that may be gone on with."""
    there = read_about(server)
    if there is not None and not force:
        check_about(server.address, there, {name: value for name, value in about.items() if name != "corpus"})
        return read_text(server)
    return None


def _send(
    server: Server, corpus: Corpus, vectors: Callable[[list[Passage]], list[dict[str, Any]]], resumed: int, said: str,
    bar: Any,
) -> None:  # fmt: skip
    missed = resumed  # of the rows that were there, those that have not been met yet
    for start, batch in _batches(corpus):
        stop = start + len(batch)
        there = {row["row"] for row in server.get(start, stop)} if missed > 0 else set()
        missed -= len(there)
        left = [(row, passage) for row, passage in enumerate(batch, start) if row not in there]
        if left:
            made = vectors([passage for _, passage in left])
            if read_text(server) != said:
                raise CorpusError(
                    f"{server.address}: another 'corpus index --force' replaced this collection; let one of them end "
                    "before the other begins"
                )
            server.put([
                {"row": row, "id": p.id, "title": p.title, "text": p.text} | vector
                for (row, p), vector in zip(left, made, strict=True)
            ])  # fmt: skip
        bar.update(len(left))


def _batches(corpus: Corpus) -> Iterator[tuple[int, list[Passage]]]:
    """The passages in blocks, each with the row of its first."""
    batch: list[Passage] = []
    characters = 0
    for row, passage in enumerate(corpus, 1):
        batch.append(passage)
        characters += len(passage.title) + len(passage.text)
        if len(batch) == BATCH or characters >= BATCH_CHARACTERS or row == len(corpus):
            yield row - len(batch), batch
            batch, characters = [], 0


def _short_enough(corpus: Corpus) -> Iterator[Passage]:
    for row, passage in enumerate(corpus, 1):
        for name in ("id", "title", "text"):
            size = len(getattr(passage, name).encode())
            if size > LONGEST:
                raise CorpusError(
                    f"{corpus.source}: the {name} of passage {row} (id {passage.id[:40]!r}) has {size:,} bytes, and "
                    f"Milvus takes {LONGEST:,}; cut the corpus into shorter passages"
                )
        yield passage


def _counted(passages: Iterable[Passage], bar: Any) -> Iterator[Passage]:
    for passage in passages:
        yield passage
        bar.update()


def _sparse(weigher: Weigher) -> Callable[[list[Passage]], list[dict[str, Any]]]:
    return lambda passages: [dict(zip(SIDES, weigher.vectors(passage), strict=True)) for passage in passages]


def _dense(encoder: Encoder) -> Callable[[list[Passage]], list[dict[str, Any]]]:
    def encoded(passages: list[Passage]) -> list[dict[str, Any]]:
        vectors = np.asarray(encoder.encode_passages(passages), np.float32)  # (passages, d)
        if vectors.shape != (len(passages), encoder.dimension) or not np.isfinite(vectors).all():
            raise CorpusError(
                f"{encoder.name} gives vectors of shape {vectors.shape} for {len(passages)} passages, or such that are "
                f"not finite; it must give {encoder.dimension} finite numbers for each"
            )
        return [{DENSE: vector} for vector in vectors]

    return encoded
