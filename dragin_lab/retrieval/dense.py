"""Dense retrieval: passages and queries as vectors; FAISS finds those of the largest inner product.

The vectors come from a model of sentence-transformers, or from SGPT as the paper uses it (Table 7).
SGPT (Muennighoff, 2022) averages the last hidden states of a decoder, each weighted by its position
from 1, so that later tokens, which have seen more, count more. Its models for search read a query
between [ and ], and a passage between { and }. So does the DRAGIN authors' ``src/retriever.py``. A
vector has length 1, unless its model was made for the dot product. Texts are read in composed form
(NFC).

All vectors are in memory, in a flat index that compares the query with every passage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.checks import EMBEDDED, check_text, count, shown
from dragin_lab.errors import DataError, MissingPackageError, ModelError
from dragin_lab.files import cache_remedy, not_saved, user_cache, write_whole
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.text import compose, printable
from dragin_lab.trace.trace import Passage
from dragin_lab.warning import warn

_BLOCK = 256  # passages that are encoded together, sorted by length


class Dense:
    """A ``Retriever``: the passages whose vectors are nearest to the query's, by the encoder's
    similarity.

    ``file`` keeps the vectors: it is read where it is there, else written. None keeps nothing.
    Raises ``DataError`` for a file that cannot be read or written. Needs ``faiss`` (the extra
    ``dense``).
    """

    kind = "dense"

    def __init__(self, corpus: Corpus, encoder: Encoder, file: Path | None = None) -> None:
        self.corpus = corpus
        self.encoder = encoder
        self._faiss = _import_package("faiss").__version__
        self._cut = ""  # what the encoder left out of the passages
        if file is not None and file.exists():
            self._index = _read_index(file)
            note = _note_of(file)
            self._cut = note.read_text(encoding="utf-8") if note.exists() else ""
        else:
            encoder.cut[:] = 0
            self._index = _encode_corpus(corpus, encoder)
            self._cut = say_cut(encoder)
            if file is not None:
                _write_index(self._index, file, self._cut)
        if self._cut:
            warn(f"{encoder.name} {self._cut}; cut the passages to that length first")

    @classmethod
    def open(cls, corpus: Corpus, model: str) -> Dense:
        """The vectors of a corpus by a model (``open_encoder``), from the user's cache or encoded
        now.
        """
        encoder = open_encoder(model)
        return cls(corpus, encoder, index_file(corpus, encoder))

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, nearest first, with their similarity; equal ones in corpus order,
        none for no text.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, in one pass over the vectors."""
        k = min(count("k", k), len(self.corpus))
        results: list[list[Passage]] = [[] for _ in queries]
        asked = []
        for number, query in enumerate(queries):
            if check_text("query", query).strip():
                asked.append(number)
        if not asked:
            return results
        # (asked, dimension)
        vectors = self.encoder.encode_queries([queries[number] for number in asked])
        scores, rows = self._index.search(vectors, k)  # (asked, k) each
        for number, similar, nearest in zip(asked, -scores, rows, strict=True):
            hits = sorted(zip(similar.tolist(), nearest.tolist(), strict=True))
            results[number] = [replace(self.corpus[row], score=-minus) for minus, row in hits]
        return results

    def provenance(self) -> dict[str, Any]:
        """All that is needed to repeat these searches, as plain data."""
        facts = {"kind": self.kind, **self.encoder.facts, "faiss": self._faiss}
        if self._cut:
            facts["cut"] = self._cut
        return facts | self.corpus.facts()

    def __repr__(self) -> str:
        return f"Dense({self.corpus!r}, {self.encoder.name})"


def index_file(corpus: Corpus, encoder: Encoder) -> Path:
    """Where the vectors of a corpus by an encoder are kept: their name says all they depend on."""
    facts = json.dumps([corpus.fingerprint, encoder.facts], sort_keys=True)
    return user_cache() / "vectors" / f"{sha256(facts.encode()).hexdigest()[:32]}.faiss"


def _encode_corpus(corpus: Corpus, encoder: Encoder) -> Any:
    """A flat FAISS index of the vectors of all passages."""
    index = _import_package("faiss").IndexFlatIP(encoder.dimension)
    title = printable(f"encode by {encoder.name}")
    with tqdm(total=len(corpus), desc=title, unit=" passages", leave=False, disable=None) as bar:
        for start in range(0, len(corpus), _BLOCK):
            vectors = encoder.encode_passages(corpus[start : start + _BLOCK])  # (block, dimension)
            index.add(vectors)
            bar.update(len(vectors))
    return index


def _read_index(file: Path) -> Any:
    try:
        return _import_package("faiss").read_index(str(file))
    except RuntimeError as error:  # of FAISS
        raise DataError(
            f"{file}: cannot be read ({str(error)[:100]}); delete it, and it is made again"
        ) from None


def _note_of(file: Path) -> Path:
    """Beside an index, what its encoder left out."""
    return file.with_suffix(".txt")


def _write_index(index: Any, file: Path, cut: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if cut:
            write_whole(_note_of(file), cut.encode())
        write_whole(file, _import_package("faiss").serialize_index(index))
    except OSError as error:
        raise DataError(not_saved(file, error)) from error


def _import_package(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise MissingPackageError(
            "dense retrieval needs faiss-cpu and sentence-transformers; pip install"
            " 'dragin-lab[dense]'"
        ) from None


# -- from texts to vectors -------------------------------------------------------------------------


class Encoder:
    """Turns texts into vectors by a ``SentenceTransformer``, of length 1 where it compares them by
    their cosine.

    ``facts`` are all that the vectors depend on, as plain data; with ``brackets``, SGPT's stand
    around each text.
    """

    def __init__(self, name: str, model: Any, **facts: Any) -> None:
        self.name = name
        self.model = model
        self.dimension = int(model.get_embedding_dimension())
        similarity = str(model.similarity_fn_name)
        if similarity not in ("cosine", "dot"):
            raise ModelError(
                f"{name} compares vectors by {similarity}; use an encoder made for cosine or dot"
            )
        self.facts: dict[str, Any] = {
            "model": name,
            **facts,
            "longest": model.max_seq_length,
            "dimension": self.dimension,
            "similarity": similarity,
        }
        self.cut = np.zeros(3, int)  # of the passages encoded now: ``count_cut``
        self._around = {}
        if facts.get("brackets"):
            self._around = {marks: self._build_brackets(marks) for marks in ("[]", "{}")}

    def encode_queries(self, queries: list[str]) -> np.ndarray:
        """(queries, dimension) float32, each by itself: a batch changes the last bits."""
        return self._encode(self.model.encode_query, queries, "[]", batch_size=1)

    def encode_passages(self, passages: list[Passage]) -> np.ndarray:
        """(passages, dimension) float32 of title, space and text, as in the BEIR benchmark."""
        texts = [f"{p.title} {p.text}".strip() for p in passages]
        self.cut += count_cut(self.model, texts)
        return self._encode(self.model.encode_document, texts, "{}")

    def _encode(self, encode: Any, texts: list[str], marks: str, **options: Any) -> np.ndarray:
        if self._around:
            self.model.tokenizer.backend_tokenizer.post_processor = self._around[marks]
        options |= {
            "normalize_embeddings": self.facts["similarity"] == "cosine",
            "show_progress_bar": False,
        }
        vectors = np.asarray(encode([compose(text) for text in texts], **options), np.float32)
        odd = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(odd):
            raise ModelError(
                f"{self.name} gives no finite vector for {shown(texts[odd[0]])}; use another"
                " encoder or dtype"
            )
        return vectors

    def _build_brackets(self, marks: str) -> Any:
        """Puts the last token of a bracket on each side; some tokenizers put a space mark before
        it.
        """
        from tokenizers.processors import TemplateProcessing

        first, last = (
            self.model.tokenizer.encode(mark, add_special_tokens=False)[-1] for mark in marks
        )
        read = self.model.tokenizer("a", return_special_tokens_mask=True)
        tokens = zip(read["input_ids"], read["special_tokens_mask"], strict=True)
        parts = [
            str(first),
            *dict.fromkeys(str(id) if special else "$A" for id, special in tokens),
            str(last),
        ]
        return TemplateProcessing(
            parts, special_tokens=[(part, int(part)) for part in parts if part != "$A"]
        )


def count_cut(model: Any, texts: Sequence[str]) -> np.ndarray:
    """How many texts are longer than an encoder reads, how many tokens it leaves out, of how many:
    (3,).
    """
    longest = model.max_seq_length
    read = getattr(model, "tokenizer", None)
    if longest is None or not callable(read):
        return np.zeros(3, int)
    ids = read([compose(text) for text in texts], truncation=False, verbose=False)["input_ids"]
    lengths = np.array(list(map(len, ids)), int)  # (texts,)
    over = (lengths - longest).clip(min=0)
    return np.array([np.count_nonzero(over), over.sum(), lengths.sum()])


def say_cut(encoder: Encoder) -> str:
    """What an encoder left out of the passages that it encoded; "" for nothing."""
    passages, lost, tokens = encoder.cut.tolist()
    if not passages:
        return ""
    return (
        f"reads the first {encoder.facts['longest']:,} tokens of a passage: {passages:,} are"
        f" longer, {100 * lost / tokens:.3g} % of all tokens stand in no vector"
    )


def open_encoder(model: str, device: str | None = None) -> Encoder:
    """The encoder that a folder or Hugging Face id names; ``almanac`` is the embedded model's
    hidden states.

    A model with sentence-transformers' ``modules.json`` is opened as it says, unless its name
    contains "sgpt". All others are pooled as SGPT, with brackets unless the name contains "nli"
    (SGPT's models for similarity).

    Raises ``ModelError`` for a model that cannot be loaded.
    """
    from transformers import AutoModel

    from dragin_lab.almanac import embedded_model_path
    from dragin_lab.engines import sources
    from dragin_lab.engines.identity import hash_weights
    from dragin_lab.engines.names import find_source, refuse_adapter

    library = _import_package("sentence_transformers")
    where = str(sources.choose_device(device))
    # The embedded model's hidden states make a poor encoder, which needs no download.
    source, folder = find_source(embedded_model_path() if model == EMBEDDED else model)
    refuse_adapter(source)
    if folder is None:
        name = source
        whole = sources.hub_has(source, "modules.json")
    else:
        name = folder.resolve().name
        whole = (folder / "modules.json").is_file()
    if model == EMBEDDED:
        name = EMBEDDED
    try:
        if whole and "sgpt" not in name.lower():
            opened = library.SentenceTransformer(source, device=where, trust_remote_code=False)
            pooling = f"sentence-transformers {version('sentence-transformers')}"
            return Encoder(name, opened, weights_sha256=hash_weights(opened, []), pooling=pooling)
        # Read once for what is missing: sentence-transformers fills what the files lack at random.
        sources.load_weights(AutoModel, source, device_map="meta")
        modules = _import_package("sentence_transformers.sentence_transformer.modules")
        words = modules.Transformer(
            source, model_kwargs={"dtype": "float32"}, processor_kwargs={"padding_side": "right"}
        )
        tokenizer = words.tokenizer
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.convert_ids_to_tokens(0)  # masked
        pooled = modules.Pooling(words.get_embedding_dimension(), "weightedmean")
        opened = library.SentenceTransformer(modules=[words, pooled], device=where)
        return Encoder(
            name,
            opened,
            weights_sha256=hash_weights(opened, sources.weight_files(source, folder)),
            pooling="weighted mean",
            brackets="nli" not in name.lower(),
        )
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        todo = cache_remedy(error)
        why = str(error)[:300] + (f"; {todo}" if todo else "")
        raise ModelError(f"{name} cannot be loaded as an encoder: {why}") from error
