"""Dense retrieval: passages and queries as vectors of length 1, the nearest by inner product, in a FAISS index.

``Dense.build`` encodes a corpus in blocks and writes each as it is made, so that a killed encoding resumes where it
stopped and ends with the same bytes. Up to ``EXACT`` passages, a search compares them all. Above, it is approximate:
passages are grouped (FAISS's ``IVFFlat``), and a search looks through as many groups as it took to reach a recall of
``RECALL`` when the index was built.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.core.trace import Passage
from dragin_lab.errors import BrokenOffError, CorpusError, MissingPackageError
from dragin_lab.files import LOCK, locked, not_saved, user_cache, write_whole
from dragin_lab.retrieval.bm25 import check_number
from dragin_lab.retrieval.check import ABOUT, INDEXES
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.dense_encoders import Encoder, open_encoder
from dragin_lab.retrieval.manifest import read_manifest, write_manifest
from dragin_lab.retrieval.stored import spread

#: Version of a folder's layout; any other is refused.
FORMAT = 3
#: Passages up to which a query is compared with all of them.
EXACT = 200_000
#: Share of the exact first ten that an approximate index must find in its first ten when it is built.
RECALL = 0.95
_AGAIN = "build it again with 'dragin-lab corpus index --force'"
VECTORS, INDEX, PROGRESS = "vectors.f32", "index.faiss", "encoding.partial.json"
_BLOCK = 256  # passages that are sorted by length and encoded together
_CHECKPOINT_SECONDS = 10.0
_PROBES, _PROBE_WORDS = 200, 12  # recall is measured with the first words of this many passages
_SAMPLE = 64  # vectors per group from which the groups are learnt

Found = tuple[np.ndarray, np.ndarray]  # inner products and rows, (queries, k) each


class Dense:
    """A ``Retriever``: the passages whose vectors are nearest to the query's; scores are cosines.

    Get one with ``open``, ``build`` or ``load``. Needs ``faiss`` (the extra ``dense``).
    """

    kind = "dense"

    def __init__(
        self, corpus: Corpus, encoder: Encoder, search: Callable[[np.ndarray, int], Found], about: dict[str, Any]
    ) -> None:
        self.corpus = corpus
        self.encoder = encoder
        self._search = search
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
        cls,
        corpus: Corpus,
        encoder: Encoder,
        folder: str | Path | None = None,
        *,
        exact: bool | None = None,
        force: bool = False,
        progress: bool | None = None,
    ) -> Dense:
        """Encode a corpus and build its index in a folder, or resume where an earlier call was stopped.

        An index that is there is opened; one of the other exactness is replaced by one built from its vectors.

        Args:
            folder: by default ``folder_of`` the corpus.
            exact: compare a query with every passage; by default up to ``EXACT`` passages.
            force: begin again, whatever the folder holds.
            progress: a bar on the error output; by default where that is a terminal.

        Raises ``CorpusError`` where the folder holds an encoding of something else or another process writes to it,
        ``BrokenOffError`` where it cannot be finished; what was encoded is kept.
        """
        _faiss()
        target = folder_of(corpus, encoder) if folder is None else Path(folder).expanduser()
        exactly = len(corpus) <= EXACT if exact is None else exact
        facts = _facts(corpus, encoder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            with locked(target, "another encoding is writing here; wait for it, or end it"):
                if force:
                    for name in (ABOUT, PROGRESS, VECTORS, INDEX):
                        (target / name).unlink(missing_ok=True)
                if (target / ABOUT).exists():
                    if read_manifest(target / ABOUT, _AGAIN, facts)["exact"] == exactly:
                        return cls.load(target, corpus, encoder)
                    _note(target, facts, len(corpus))
                    (target / ABOUT).unlink()
                _encode(corpus, encoder, target, facts, progress)
                vectors = _mapped(target / VECTORS, len(corpus), encoder.dimension)
                (target / INDEX).unlink(missing_ok=True)
                how: dict[str, Any] = {"exact": True}
                if not exactly:
                    index, how = _grouped(vectors, corpus, encoder)
                    _write_index(index, target / INDEX)
                zeros = len(vectors) - int(np.any(vectors, axis=1).sum())  # passages without a vector
                written = [target / name for name in (VECTORS, INDEX) if (target / name).exists()]
                write_manifest(target / ABOUT, facts | how | {"zeros": zeros, "faiss": version("faiss-cpu")}, written)
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
        faiss = _faiss()
        source = Path(folder).expanduser()
        if (source / PROGRESS).exists() and not (source / ABOUT).exists():
            raise CorpusError(f"{source}: its encoding was not finished; run the same command to go on")
        about = read_manifest(source / ABOUT, _AGAIN, _facts(corpus, encoder))
        if about["exact"]:
            vectors = _mapped(source / VECTORS, len(corpus), encoder.dimension)
            return cls(corpus, encoder, lambda queries, k: nearest(queries, vectors, k), about)
        try:
            index = faiss.read_index(str(source / INDEX), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise CorpusError(f"{source / INDEX}: cannot be read ({str(error)[:200]}); build it again") from None
        faiss.extract_index_ivf(index).nprobe = about["groups_searched"]
        return cls(corpus, encoder, index.search, about)

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, nearest first, with their cosines; equal ones in corpus order."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, in one search of the index."""
        check_number(k)
        if not queries:
            return []
        vectors = self.encoder.encode_queries(list(queries))  # (queries, dimension)
        scores, rows = self._search(vectors, min(int(k), len(self.corpus)))  # (queries, k) each
        return [self._passages(*one) for one in zip(scores, rows, vectors, strict=True)]

    def _passages(self, scores: np.ndarray, rows: np.ndarray, vector: np.ndarray) -> list[Passage]:
        """The passages found; none for a query without a vector, whose cosines would mean nothing."""
        if not vector.any():
            return []
        found = sorted((-float(s), int(r)) for s, r in zip(scores, rows, strict=True) if r >= 0)
        return [replace(self.corpus[row], score=-score) for score, row in found]

    def provenance(self) -> dict[str, Any]:
        """All that is needed to repeat these searches, as plain data."""
        kept = ("exact", "groups", "groups_searched", "recall", "zeros", "faiss")
        found = {key: self._about[key] for key in kept if key in self._about}
        return {"kind": self.kind} | self.encoder.provenance() | found | self.corpus.facts()

    def __repr__(self) -> str:
        how = "exact" if self._about["exact"] else f"recall {self._about['recall']:.2f}"
        return f"Dense({self.corpus!r}, {self.encoder.name}, {how})"


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
        if any(one.name not in (VECTORS, INDEX, LOCK) for one in folder.iterdir()):
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


# -- the index --------------------------------------------------------------------------------------------------------


def _grouped(vectors: np.ndarray, corpus: Corpus, encoder: Encoder) -> tuple[Any, dict[str, Any]]:
    """An index of groups, and how many of them a search must look through for a recall of ``RECALL``."""
    faiss = _faiss()
    count, dimension = vectors.shape
    groups = max(1, min(int(4 * count**0.5), count // _SAMPLE))
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimension), dimension, groups, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = 0
    index.train(np.ascontiguousarray(vectors[:: max(1, count // (groups * _SAMPLE))]))
    index.add(vectors)
    probes = [" ".join(corpus[row].text.split()[:_PROBE_WORDS]) for row in spread(count, _PROBES)]
    queries = encoder.encode_queries(probes)
    k = min(10, count)
    wanted = nearest(queries, vectors, k)[1]
    searched, recall = 1, 0.0
    while True:
        index.nprobe = searched
        recall = recall_of(index.search(queries, k)[1], wanted)
        if recall >= RECALL or searched >= groups:
            return index, {"exact": False, "groups": groups, "groups_searched": searched, "recall": round(recall, 4)}
        searched = min(groups, searched * 2)


def nearest(queries: np.ndarray, vectors: np.ndarray, k: int) -> Found:
    """The inner products and rows, (queries, k) each, of the k nearest vectors to each query, comparing all."""
    faiss = _faiss()
    found: Found = faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
    return found


def recall_of(found: np.ndarray, wanted: np.ndarray) -> float:
    """Mean share of each row of ``wanted`` (queries, k) that the same row of ``found`` holds."""
    shares = [len(set(f) & set(w)) / len(w) for f, w in zip(found.tolist(), wanted.tolist(), strict=True)]
    return float(np.mean(shares))


def _mapped(path: Path, count: int, dimension: int) -> np.ndarray:
    return np.memmap(path, "<f4", "r", shape=(count, dimension))


def _write_index(index: Any, path: Path) -> None:
    """Write an index through a Python file, as FAISS's own does not notice a full disk at the end."""
    faiss = _faiss()
    draft = path.with_suffix(".partial")
    with draft.open("wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingPackageError("dense retrieval needs faiss-cpu; pip install 'dragin_lab[dense]'") from None
    return faiss
