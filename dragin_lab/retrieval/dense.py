"""Dense retrieval: passages and queries as vectors; FAISS finds those of the largest inner product.

The vectors come from SGPT as the paper uses it (Table 7), or from a model of sentence-transformers. SGPT (Muennighoff,
2022) averages the last hidden states of a decoder, each weighted by its position from 1, so that later tokens, which
have seen more, count more. Its models for search read a query between [ and ], and a passage between { and }. So does
the DRAGIN authors' ``src/retriever.py``. A vector has length 1, unless its model was made for the dot product. Texts
are read in composed form (NFC).

``Dense.build`` encodes a corpus in blocks and writes each at once, so that a killed encoding resumes where it stopped
and ends with the same bytes. A search compares the query with every passage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.checks import EMBEDDED
from dragin_lab.errors import BrokenOffError, CorpusError, MissingPackageError, ModelError
from dragin_lab.files import LOCK, as_path, locked, not_saved, user_cache, write_whole
from dragin_lab.retrieval.bm25 import check_number
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.stored import ABOUT, INDEXES, read_manifest, write_manifest
from dragin_lab.text import compose, printable
from dragin_lab.trace.trace import Passage

#: Version of a folder's layout; any other is refused.
FORMAT = 4
_AGAIN = "build it again: dragin-lab corpus build CORPUS --index dense:MODEL --force"
VECTORS, PROGRESS = "vectors.f32", "encoding.partial.json"
_BLOCK = 256  # passages that are sorted by length and encoded together
_HUGE = 1 << 20  # tokenizers without a limit name an astronomical one


class Dense:
    """A ``Retriever``: the passages whose vectors are nearest to the query's, by the encoder's similarity.

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
        folder = index_folder(corpus, encoder)
        if (folder / ABOUT).exists():
            return cls.load(folder, corpus, encoder)
        if corpus.folder is not None:
            raise CorpusError(
                f"{corpus.folder}: has no index by {encoder.name}; "
                f"dragin-lab corpus build {corpus.folder} --index dense:{model}"
            )
        return cls.build(corpus, encoder)

    @classmethod
    def build(
        cls, corpus: Corpus, encoder: Encoder, folder: str | Path | None = None, *,
        force: bool = False, progress: bool | None = None,
    ) -> Dense:  # fmt: skip
        """Encode a corpus into a folder, or resume where an earlier call was stopped; a finished index is opened.

        Args:
            folder: by default ``index_folder``.
            force: begin again, whatever the folder holds.
            progress: a bar on the error output; by default where that is a terminal.

        Raises ``CorpusError`` where the folder holds an encoding of something else or another process writes to it,
        ``BrokenOffError`` where it cannot be finished; what was encoded is kept.
        """
        _import_faiss()
        target = index_folder(corpus, encoder) if folder is None else as_path(folder, CorpusError)
        facts = _describe_index(corpus, encoder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            with locked(target, "another encoding is writing here; wait for it, or end it"):
                if force:
                    for name in (ABOUT, PROGRESS, VECTORS):
                        (target / name).unlink(missing_ok=True)
                if (target / ABOUT).exists():
                    return cls.load(target, corpus, encoder)
                _encode_rest(corpus, encoder, target, facts, progress)
                vectors = _map_vectors(target / VECTORS, len(corpus), encoder.dimension)
                zeros = len(vectors) - int(np.any(vectors, axis=1).sum())  # passages without a vector
                write_manifest(
                    target / ABOUT, facts | {"zeros": zeros, "faiss": version("faiss-cpu")}, [target / VECTORS]
                )
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
        about = read_manifest(source / ABOUT, _AGAIN, _describe_index(corpus, encoder))
        return cls(corpus, encoder, _map_vectors(source / VECTORS, len(corpus), encoder.dimension), about)

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, nearest first, with their similarity; equal ones in corpus order."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, in one pass over the vectors."""
        k = min(check_number(k), len(self.corpus))
        if not queries:
            return []
        faiss = _import_faiss()
        vectors = self.encoder.encode_queries(list(queries))  # (queries, dimension)
        scores, rows = faiss.knn(vectors, self._vectors, k, metric=faiss.METRIC_INNER_PRODUCT)  # (queries, k) each
        results: list[list[Passage]] = []
        for vector, similar, nearest in zip(vectors, scores.tolist(), rows.tolist(), strict=True):
            # a query without a vector gives no passages, as its scores would mean nothing
            hits = [(-score, row) for score, row in zip(similar, nearest, strict=True) if vector.any() and row >= 0]
            results.append([replace(self.corpus[row], score=-negative) for negative, row in sorted(hits)])
        return results

    def provenance(self) -> dict[str, Any]:
        """All that is needed to repeat these searches, as plain data."""
        about = {name: self._about[name] for name in ("zeros", "faiss")}
        return {"kind": self.kind} | self.encoder.provenance() | about | self.corpus.facts()

    def __repr__(self) -> str:
        return f"Dense({self.corpus!r}, {self.encoder.name})"


def index_folder(corpus: Corpus, encoder: Encoder) -> Path:
    """Where the index of a corpus by an encoder is: with the corpus, or in the user's cache."""
    facts = encoder.provenance()
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", encoder.name).strip("-.") or "model"
    own = user_cache() / f"{INDEXES}-{FORMAT}" / corpus.fingerprint[:32]
    above = own if corpus.folder is None else corpus.folder / INDEXES
    return above / f"dense-{short[:80]}-{str(facts['weights_sha256'])[:8]}"


# -- building an index ------------------------------------------------------------------------------------------------


def _describe_index(corpus: Corpus, encoder: Encoder) -> dict[str, Any]:
    """The facts that an index depends on; all of them must be the same when it is opened."""
    corpus_facts = {"corpus_fingerprint": corpus.fingerprint, "passages": len(corpus)}
    return {"format": FORMAT, "kind": Dense.kind} | corpus_facts | encoder.provenance()


def _encode_rest(corpus: Corpus, encoder: Encoder, folder: Path, facts: dict[str, Any], progress: bool | None) -> None:
    """Encode what ``VECTORS`` lacks; a passage without a vector is a row of zeros."""
    rows = _count_encoded(folder, facts)
    bar = tqdm(
        total=len(corpus), initial=rows, desc=printable(f"encode by {encoder.name}"), unit=" passages", leave=False,
        disable=None if progress is None else not progress,
    )  # fmt: skip
    with (folder / VECTORS).open("ab") as file, bar:
        file.truncate(rows * encoder.dimension * 4)
        for start in range(rows, len(corpus), _BLOCK):  # blocks begin at fixed rows, so the bytes are the same
            vectors = encoder.encode_passages(corpus[start : start + _BLOCK])  # (block, dimension)
            file.write(vectors.astype("<f4").tobytes())
            file.flush()
            bar.update(len(vectors))


def _count_encoded(folder: Path, facts: dict[str, Any]) -> int:
    """The number of passages in the whole blocks that an earlier call wrote; records what is encoded here."""
    path = folder / PROGRESS
    if not path.exists():
        if any(entry.name not in (VECTORS, LOCK) for entry in folder.iterdir()):
            raise CorpusError(f"{folder}: is not empty and holds no index; give a folder of its own")
        (folder / VECTORS).unlink(missing_ok=True)
        write_whole(path, json.dumps(facts).encode())
    try:
        started = json.loads(path.read_bytes())
    except ValueError as error:
        raise CorpusError(f"{path}: is damaged ({error}); delete {folder} to start over") from None
    if started != json.loads(json.dumps(facts)):
        raise CorpusError(
            f"{folder}: holds an unfinished encoding of another corpus or by another encoder; delete it, or give "
            "another folder"
        )
    vectors = folder / VECTORS
    return vectors.stat().st_size // (facts["dimension"] * 4) // _BLOCK * _BLOCK if vectors.exists() else 0


def _map_vectors(path: Path, count: int, dimension: int) -> np.ndarray:
    return np.memmap(path, "<f4", "r", shape=(count, dimension))


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingPackageError("dense retrieval needs faiss-cpu; pip install 'dragin_lab[dense]'") from None
    return faiss


# -- from texts to vectors --------------------------------------------------------------------------------------------

QUERY, PASSAGE = ("[", "]"), ("{", "}")


class Encoder:
    """Turns texts into vectors, of length 1 where their similarity is the cosine and not the dot product."""

    name: str
    dimension: int
    similarity = "cosine"
    facts: dict[str, Any]  # further ones of its provenance

    def encode(self, texts: list[str], *, query: bool) -> np.ndarray:
        """(texts, dimension) float32; zeros for a text without a finite vector."""
        raise NotImplementedError

    def encode_queries(self, queries: list[str]) -> np.ndarray:
        """``encode`` one by one: a batch changes the last bits, and a query's vector must not depend on the others."""
        vectors = [self.encode([compose(query)], query=True) for query in queries]
        return np.concatenate(vectors) if vectors else np.zeros((0, self.dimension), np.float32)

    def encode_passages(self, passages: list[Passage]) -> np.ndarray:
        """``encode`` title, space and text, as in the BEIR benchmark."""
        return self.encode([compose(f"{p.title} {p.text}".strip()) for p in passages], query=False)

    def provenance(self) -> dict[str, Any]:
        """All that the vectors depend on, as plain data."""
        return {"model": self.name} | self.facts | {"dimension": self.dimension, "similarity": self.similarity}


def open_encoder(model: str, device: str | None = None) -> Encoder:
    """The encoder that a folder or Hugging Face id names; ``almanac`` is the embedded model's hidden states.

    A model with sentence-transformers' ``modules.json`` is opened with that library, unless its name contains "sgpt".
    All others are pooled as SGPT, with brackets unless the name contains "nli" (SGPT's models for similarity).

    Raises ``ModelError`` for a model that cannot be loaded.
    """
    from dragin_lab.engines.load import choose_device
    from dragin_lab.engines.sources import find_source, hub_has

    where = choose_device(device)
    if model == EMBEDDED:  # its hidden states make a poor encoder, which needs no download
        from dragin_lab.almanac import embedded_model_path

        return SGPT(str(embedded_model_path()), EMBEDDED, where)
    name, folder = find_source(model)
    title = folder.resolve().name if folder else name
    modules = hub_has(name, "modules.json") if folder is None else (folder / "modules.json").is_file()
    if modules and "sgpt" not in title.lower():
        return SentenceEncoder(name, title, where)
    return SGPT(name, title, where, brackets="nli" not in title.lower())


class SGPT(Encoder):
    """Weighted-mean pooling over the last hidden states of a model of ``transformers``.

    ``pool_weighted`` is the formula; ``brackets`` adds those of SGPT's search models around query and passage.
    """

    def __init__(self, source: str, name: str, device: Any, *, brackets: bool = True, batch_size: int = 32) -> None:
        from dragin_lab.engines.sources import find_source, hash_weights, load_encoder, weight_files

        self.name = name
        self.brackets = brackets
        self.batch_size = batch_size
        self.model, self._tokenizer = load_encoder(source, device)
        self.dimension = int(self.model.config.get_text_config().hidden_size)
        limits = (self._tokenizer.model_max_length, getattr(self.model.config, "max_position_embeddings", None))
        self.longest: int | None = min((int(n) for n in limits if n is not None and n < _HUGE), default=None)
        self._brackets = {True: self._bracket_ids(QUERY), False: self._bracket_ids(PASSAGE)}
        self.facts = {
            "weights_sha256": hash_weights(self.model, weight_files(*find_source(source))),
            "pooling": "weighted mean",
            "brackets": brackets,
            "longest": self.longest,
        }

    def _bracket_ids(self, brackets: tuple[str, str]) -> tuple[list[int], list[int]]:
        """The tokens around a text: the last token of each bracket, as some tokenizers put a space mark before it."""
        if not self.brackets:
            return [], []
        first, last = (self._tokenizer.encode(mark, add_special_tokens=False)[-1:] for mark in brackets)
        return first, last

    def ids(self, text: str, *, query: bool) -> list[int]:
        """The tokens of a text as the model reads them, with brackets, cut to the model's length."""
        before, after = self._brackets[query]
        room = None if self.longest is None else self.longest - len(before) - len(after)
        ids = self._tokenizer(text, truncation=False, verbose=False)["input_ids"][:room]
        return before + [int(i) for i in ids] + after

    def encode(self, texts: list[str], *, query: bool) -> np.ndarray:
        """Texts of similar length are read together."""
        rows = [self.ids(text, query=query) for text in texts]
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(order), self.batch_size):
            batch = [i for i in order[start : start + self.batch_size] if rows[i]]
            if batch:
                vectors[batch] = self._pool_states([rows[i] for i in batch])
        return scale_rows(vectors)

    def _pool_states(self, rows: list[list[int]]) -> np.ndarray:
        import torch

        longest = max(map(len, rows))
        ids = torch.zeros((len(rows), longest), dtype=torch.int64, device=self.model.device)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):  # padded on the right, so that positions are those of the text alone
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        with torch.inference_mode():
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state  # (texts, tokens, dimension)
        return pool_weighted(hidden.float().cpu().numpy(), mask.cpu().numpy())


class SentenceEncoder(Encoder):
    """A model of sentence-transformers, with its own prompts for queries and passages and its own similarity."""

    def __init__(self, source: str, name: str, device: Any) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise MissingPackageError(
                f"{name} is a model of sentence-transformers; pip install 'dragin_lab[dense]'"
            ) from None
        try:
            self.model = SentenceTransformer(source, device=str(device), trust_remote_code=False)
        except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
            raise ModelError(f"{name} cannot be loaded by sentence-transformers: {str(error)[:300]}") from error
        from dragin_lab.engines.sources import hash_weights

        self.name, self.similarity = name, str(self.model.similarity_fn_name)
        if self.similarity not in ("cosine", "dot"):
            raise ModelError(f"{name} compares vectors by {self.similarity}; use an encoder made for cosine or dot")
        self.dimension = int(self.model.encode(["."], show_progress_bar=False).shape[1])
        self.facts = {
            "weights_sha256": hash_weights(self.model, []),
            "pooling": f"sentence-transformers {version('sentence-transformers')}",
            "longest": self.model.max_seq_length,
        }

    def encode(self, texts: list[str], *, query: bool) -> np.ndarray:
        read = self.model.encode_query if query else self.model.encode_document
        vectors = np.asarray(read(texts, show_progress_bar=False, convert_to_numpy=True), np.float32)
        return scale_rows(vectors, unit=self.similarity == "cosine")


def pool_weighted(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean of a text's hidden states, weighted by 1 to n (SGPT, Eq. 2).

    ``hidden`` (texts, tokens, dimension), ``mask`` (texts, tokens) 1 for a token and 0 for padding; returns
    (texts, dimension) float32.
    """
    weights = mask * np.arange(1, mask.shape[1] + 1)  # (texts, tokens)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return np.einsum("npd,np->nd", hidden, weights).astype(np.float32)


def scale_rows(vectors: np.ndarray, *, unit: bool = True) -> np.ndarray:
    """Rows as float32, scaled to length 1 where ``unit``; rows that are zero or not finite become zeros."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)  # (texts, 1)
    sound = np.isfinite(lengths) & (lengths > 0)
    divisors = np.where(sound & unit, lengths, 1.0)
    return (np.where(sound, vectors, 0.0) / divisors).astype(np.float32)
