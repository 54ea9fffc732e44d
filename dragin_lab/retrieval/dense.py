"""Dense retrieval: passages and queries as vectors of length 1; FAISS finds the nearest by inner product.

``Dense.build`` encodes a corpus in blocks and writes each as it is made, so that a killed encoding resumes where it
stopped and ends with the same bytes. A search compares the query with every passage.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.errors import BrokenOffError, CorpusError, MissingPackageError
from dragin_lab.files import LOCK, as_path, locked, not_saved, user_cache, write_whole
from dragin_lab.retrieval.bm25 import check_number
from dragin_lab.retrieval.check import ABOUT, INDEXES
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.dense_encoders import Encoder, open_encoder
from dragin_lab.retrieval.stored import read_manifest, write_manifest
from dragin_lab.trace.trace import Passage

#: Version of a folder's layout; any other is refused.
FORMAT = 3
_AGAIN = "build it again with 'dragin-lab corpus index --force'"
VECTORS, PROGRESS = "vectors.f32", "encoding.partial.json"
_BLOCK = 256  # passages that are sorted by length and encoded together
_CHECKPOINT_SECONDS = 10.0


class Dense:
    """A ``Retriever``: the passages whose vectors are nearest to the query's; scores are cosines.

    Get one with ``open``, ``build`` or ``load``. Needs ``faiss`` (the extra ``dense``).
    """

    kind = "dense"

    def __init__(self, corpus: Corpus, encoder: Encoder, vectors: np.ndarray, about: dict[str, Any]) -> None:
        self.corpus = corpus
        self.encoder = encoder
        self._vectors = vectors  # (passages, dimension) float32
        self._about = about

    @classmethod
    def open(cls, corpus: Corpus, model: str, *, device: str | None = None) -> Dense:
        """The index of a corpus by a model (``open_encoder``).

        A corpus in memory is encoded at once, and its index is cached for the user. Raises ``CorpusError`` where a
        built corpus has no such index, and as ``load`` does.
        """
        encoder = open_encoder(model, device)
        folder = folder_of(corpus, encoder)
        if (folder / ABOUT).exists():
            return cls.load(folder, corpus, encoder)
        if corpus.folder is not None:
            raise CorpusError(
                f"{corpus.folder}: has no index by {encoder.name}; "
                f"dragin-lab corpus index {corpus.folder} --retriever dense:{model}"
            )
        return cls.build(corpus, encoder)

    @classmethod
    def build(
        cls, corpus: Corpus, encoder: Encoder, folder: str | Path | None = None, *,
        force: bool = False, progress: bool | None = None,
    ) -> Dense:  # fmt: skip
        """Encode a corpus into a folder, or resume where an earlier call was stopped; a finished index is opened.

        Args:
            folder: by default ``folder_of`` the corpus.
            force: begin again, whatever the folder holds.
            progress: a bar on the error output; by default where that is a terminal.

        Raises ``CorpusError`` where the folder holds an encoding of something else or another process writes to it,
        ``BrokenOffError`` where it cannot be finished; what was encoded is kept.
        """
        _faiss()
        target = folder_of(corpus, encoder) if folder is None else as_path(folder, CorpusError)
        facts = _facts(corpus, encoder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            with locked(target, "another encoding is writing here; wait for it, or end it"):
                if force:
                    for name in (ABOUT, PROGRESS, VECTORS):
                        (target / name).unlink(missing_ok=True)
                if (target / ABOUT).exists():
                    return cls.load(target, corpus, encoder)
                _encode(corpus, encoder, target, facts, progress)
                vectors = _mapped(target / VECTORS, len(corpus), encoder.dimension)
                zeros = len(vectors) - int(np.any(vectors, axis=1).sum())  # passages without a vector
                facts |= {"zeros": zeros, "faiss": version("faiss-cpu")}
                write_manifest(target / ABOUT, facts, [target / VECTORS])
                (target / PROGRESS).unlink(missing_ok=True)
        except OSError as error:
            raise BrokenOffError(
                f"{not_saved(error.filename or target, error)}; then run it again, and it goes on where it stopped"
            ) from error
        return cls.load(target, corpus, encoder)

    @classmethod
    def load(cls, folder: str | Path, corpus: Corpus, encoder: Encoder) -> Dense:
        """The index in a folder, which must be of this corpus and by this encoder.

        Raises ``CorpusError`` for no index or an unfinished one, for another corpus, encoder or format, and for
        damaged files.
        """
        source = as_path(folder, CorpusError)
        if (source / PROGRESS).exists() and not (source / ABOUT).exists():
            raise CorpusError(f"{source}: its encoding was not finished; run the same command to go on")
        about = read_manifest(source / ABOUT, _AGAIN, _facts(corpus, encoder))
        return cls(corpus, encoder, _mapped(source / VECTORS, len(corpus), encoder.dimension), about)

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, nearest first, with their cosines; equal ones in corpus order."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, in one pass over the vectors."""
        wanted = min(check_number(k), len(self.corpus))
        if not queries:
            return []
        faiss = _faiss()
        vectors = self.encoder.encode_queries(list(queries))  # (queries, dimension)
        scores, rows = faiss.knn(vectors, self._vectors, wanted, metric=faiss.METRIC_INNER_PRODUCT)  # (queries, k) each
        return [self._passages(*one) for one in zip(scores, rows, vectors, strict=True)]

    def _passages(self, scores: np.ndarray, rows: np.ndarray, vector: np.ndarray) -> list[Passage]:
        """The passages found; none for a query without a vector, whose cosines would mean nothing."""
        if not vector.any():
            return []
        found = sorted((-float(s), int(r)) for s, r in zip(scores, rows, strict=True) if r >= 0)
        return [replace(self.corpus[row], score=-score) for score, row in found]

    def provenance(self) -> dict[str, Any]:
        """All that is needed to repeat these searches, as plain data."""
        about = {name: self._about[name] for name in ("zeros", "faiss")}
        return {"kind": self.kind} | self.encoder.provenance() | about | self.corpus.facts()

    def __repr__(self) -> str:
        return f"Dense({self.corpus!r}, {self.encoder.name})"


def folder_of(corpus: Corpus, encoder: Encoder) -> Path:
    """Where the index of a corpus by an encoder is: with the corpus, or in the user's cache."""
    facts = encoder.provenance()
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", encoder.name).strip("-.") or "model"
    own = user_cache() / f"{INDEXES}-{FORMAT}" / corpus.fingerprint[:32]
    above = own if corpus.folder is None else corpus.folder / INDEXES
    return above / f"dense-{short[:80]}-{str(facts['weights_sha256'])[:8]}"


# -- encoding ---------------------------------------------------------------------------------------------------------


def _facts(corpus: Corpus, encoder: Encoder) -> dict[str, Any]:
    """What an index was made from, all of which must be the same when it is opened."""
    return {
        "format": FORMAT,
        "kind": Dense.kind,
        "corpus_fingerprint": corpus.fingerprint,
        "passages": len(corpus),
    } | encoder.provenance()


def _encode(corpus: Corpus, encoder: Encoder, folder: Path, facts: dict[str, Any], progress: bool | None) -> None:
    """Encode what ``VECTORS`` lacks; a passage without a vector is a row of zeros."""
    rows = _resumed(folder, facts)
    bar = tqdm(
        total=len(corpus), initial=rows, desc=f"encode by {encoder.name}", unit=" passages", leave=False,
        disable=None if progress is None else not progress,
    )  # fmt: skip
    with (folder / VECTORS).open("ab") as file, bar:
        file.truncate(rows * encoder.dimension * 4)
        last = time.monotonic()
        for start in range(rows, len(corpus), _BLOCK):  # blocks begin at fixed rows, so the bytes are the same
            vectors = encoder.encode_passages(corpus[start : start + _BLOCK])  # (block, dimension)
            file.write(vectors.astype("<f4").tobytes())
            rows = start + len(vectors)
            bar.update(len(vectors))
            if time.monotonic() - last >= _CHECKPOINT_SECONDS or rows == len(corpus):
                file.flush()
                os.fsync(file.fileno())
                _note(folder, facts, rows)
                last = time.monotonic()


def _note(folder: Path, facts: dict[str, Any], rows: int) -> None:
    """Record how many vectors are safely on the disk."""
    write_whole(folder / PROGRESS, json.dumps({"of": facts, "rows": rows}).encode())


def _resumed(folder: Path, facts: dict[str, Any]) -> int:
    """The number of passages that an earlier call safely encoded."""
    path = folder / PROGRESS
    if not path.exists():
        if any(one.name not in (VECTORS, LOCK) for one in folder.iterdir()):
            raise CorpusError(f"{folder}: is not empty and holds no index; give a folder of its own")
        return 0
    try:
        there = json.loads(path.read_bytes())
        rows, of = int(there["rows"]), there["of"]
        written = (folder / VECTORS).stat().st_size
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{path}: is damaged ({error}); delete {folder} to start over") from None
    if of != json.loads(json.dumps(facts)):
        raise CorpusError(
            f"{folder}: holds an unfinished encoding of another corpus or by another encoder; delete it, or give "
            "another folder"
        )
    if written < rows * facts["dimension"] * 4:
        raise CorpusError(f"{folder / VECTORS}: is shorter than the encoding left it; delete {folder} to start over")
    return rows


def _mapped(path: Path, count: int, dimension: int) -> np.ndarray:
    return np.memmap(path, "<f4", "r", shape=(count, dimension))


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingPackageError("dense retrieval needs faiss-cpu; pip install 'dragin_lab[dense]'") from None
    return faiss
