"""Fill a Milvus collection with a corpus: ``dragin-lab corpus index CORPUS --retriever milvus:URI``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.core.trace import Passage
from dragin_lab.errors import BrokenOffError, CorpusError, SearchServerError
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.milvus import FIELDS, LONGEST, VECTOR, Address, Collection, check_about, facts_of
from dragin_lab.retrieval.sparse import Weigher

if TYPE_CHECKING:
    from dragin_lab.retrieval.dense_encoders import Encoder

#: Passages per request; passages up to which every dense vector is compared (above, Milvus' index is approximate).
BATCH, EXACT = 1000, 1_000_000

_Make = Callable[[list[Passage]], Sequence[Any]]  # the vectors of passages


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
    about = facts_of(corpus, encoder)
    with closing(Collection(where, create=True)) as collection:
        there, resumed = collection.about(), 0
        if there is not None and not force:
            check_about(where, there, about)
            resumed = collection.count()
        if resumed == len(corpus):
            return resumed
        make = _weighed(corpus) if encoder is None else _encoded(encoder, corpus)
        if there is None or force:
            there = about | {"corpus": corpus.name, "opened": opened or getattr(encoder, "name", "")}
            collection.create(there, None if encoder is None else encoder.dimension, exact=len(corpus) <= EXACT)
        begin = resumed - resumed % BATCH
        bar = tqdm(
            total=len(corpus), initial=begin, unit=" passages", desc=corpus.name,
            disable=None if progress is None else not progress,
        )  # fmt: skip
        try:
            with bar:
                for start in range(begin, len(corpus), BATCH):
                    _send(collection, there, start, corpus[start : start + BATCH], make)
                    bar.update(min(BATCH, len(corpus) - start))
            collection.ask("flush")
            count = collection.count()
        except SearchServerError as error:
            raise BrokenOffError(f"{error}; then run it again, and it goes on where it stopped") from error
    if count != len(corpus):
        raise SearchServerError(
            f"{where}: holds {count:,} passages where {len(corpus):,} were sent; fill it again with --force"
        )
    return resumed


def _send(collection: Collection, about: Mapping[str, Any], start: int, batch: list[Passage], make: _Make) -> None:
    if collection.about() != about:
        raise CorpusError(
            f"{collection.address}: another 'corpus index --force' replaced this collection; run one at a time"
        )
    rows = zip(range(start, start + len(batch)), batch, make(batch), strict=True)
    collection.ask(
        "upsert", [{"row": row, "id": p.id, "title": p.title, "text": p.text, VECTOR: v} for row, p, v in rows]
    )


def _short_enough(corpus: Corpus) -> Iterator[Passage]:
    for row, passage in enumerate(corpus, 1):
        for name in FIELDS:
            if (size := len(getattr(passage, name).encode())) > LONGEST:
                raise CorpusError(
                    f"{corpus.source}: the {name} of passage {row} (id {passage.id[:40]!r}) has {size:,} bytes, and "
                    f"Milvus takes {LONGEST:,}; cut the corpus into shorter passages"
                )
        yield passage


def _weighed(corpus: Corpus) -> _Make:
    weigher = Weigher(_short_enough(corpus))
    return lambda passages: [weigher.vector(passage) for passage in passages]


def _encoded(encoder: Encoder, corpus: Corpus) -> _Make:
    for _ in _short_enough(corpus):
        pass

    def make(passages: list[Passage]) -> Sequence[Any]:
        vectors = np.asarray(encoder.encode_passages(passages), np.float32)  # (passages, d)
        if vectors.shape != (len(passages), encoder.dimension) or not np.isfinite(vectors).all():
            raise CorpusError(
                f"{encoder.name} gives vectors of shape {vectors.shape} for {len(passages)} passages, or such that are "
                f"not finite; it must give {encoder.dimension} finite numbers for each"
            )
        return list(vectors)

    return make
