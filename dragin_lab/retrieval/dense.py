"""Dense retrieval: passages and queries as vectors; FAISS finds those of the largest inner product.

The vectors come from a model of sentence-transformers, or from SGPT as the paper uses it (Table 7).
SGPT (Muennighoff, 2022) averages the last hidden states of a decoder, each weighted by its position
from 1, so that later tokens, which have seen more, count more. Its models for search read a query
between [ and ], and a passage between { and }. So does the DRAGIN authors' ``src/retriever.py``. A
vector has length 1, unless its model was made for the dot product. Texts are read in composed form
(NFC).

``Dense.build`` encodes a corpus in blocks and writes each at once, so that a killed encoding
resumes where it stopped and ends with the same bytes. A search compares the query with every
passage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.checks import EMBEDDED, count, shown
from dragin_lab.checks import text as check_text
from dragin_lab.errors import BrokenOffError, CorpusError, MissingPackageError, ModelError
from dragin_lab.files import LOCK, as_path, locked, not_saved, user_cache, write_whole
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.stored import ABOUT, INDEXES, read_manifest, write_manifest
from dragin_lab.text import compose, printable
from dragin_lab.trace.trace import Passage

#: Version of a folder's layout; any other is refused.
FORMAT = 4
_AGAIN = "build it again: dragin-lab corpus build CORPUS --index dense:MODEL --force"
VECTORS, PROGRESS = "vectors.f32", "encoding.partial.json"
_BLOCK = 256  # passages that are sorted by length and encoded together


class Dense:
    """A ``Retriever``: the passages whose vectors are nearest to the query's, by the encoder's
    similarity.

    Made by ``open`` or ``build``, or from a folder with a finished index, which must be of this
    corpus and by this encoder: raises ``CorpusError`` for any other and for damaged files. Needs
    ``faiss`` (the extra ``dense``).
    """

    kind = "dense"

    def __init__(self, corpus: Corpus, encoder: Encoder, folder: Path) -> None:
        self.corpus = corpus
        self.encoder = encoder
        self._about = read_manifest(folder / ABOUT, _AGAIN, _describe_index(corpus, encoder))
        shape = (len(corpus), encoder.dimension)
        # (passages, dimension)
        self._vectors = np.memmap(folder / VECTORS, "<f4", "r", shape=shape)

    @classmethod
    def open(cls, corpus: Corpus, model: str) -> Dense:
        """The index of a corpus by a model (``open_encoder``).

        A corpus in memory is encoded at once, and its index is cached for the user. Raises
        ``CorpusError`` where a built corpus has no such index.
        """
        encoder = open_encoder(model)
        folder = index_folder(corpus, encoder)
        if (folder / ABOUT).exists():
            return cls(corpus, encoder, folder)
        if corpus.folder is not None:
            raise CorpusError(
                f"{corpus.folder}: has no index by {encoder.name}; "
                f"dragin-lab corpus build {corpus.folder} --index dense:{model}"
            )
        return cls.build(corpus, encoder)

    @classmethod
    def build(
        cls, corpus: Corpus, encoder: Encoder, folder: Path | None = None, *, force: bool = False
    ) -> Dense:
        """Encode a corpus into a folder, or resume where an earlier call was stopped; a finished
        index is opened.

        Args:
            folder: by default ``index_folder``.
            force: begin again, whatever the folder holds.

        Raises ``CorpusError`` where the folder holds an encoding of something else or another
        process writes to it, ``BrokenOffError`` where it cannot be finished; what was encoded is
        kept.
        """
        _import("faiss")
        target = index_folder(corpus, encoder) if folder is None else as_path(folder, CorpusError)
        facts = _describe_index(corpus, encoder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            with locked(target, "another encoding is writing here; wait for it, or end it"):
                if force:
                    for name in (ABOUT, PROGRESS, VECTORS):
                        (target / name).unlink(missing_ok=True)
                if not (target / ABOUT).exists():
                    _encode_rest(corpus, encoder, target, facts)
                    write_manifest(
                        target / ABOUT,
                        facts | {"faiss": _import("faiss").__version__},
                        [target / VECTORS],
                    )
                    (target / PROGRESS).unlink(missing_ok=True)
        except OSError as error:
            raise BrokenOffError(
                f"{not_saved(error.filename or target, error)}; then run it again, and it goes on"
                " where it stopped"
            ) from error
        return cls(corpus, encoder, target)

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, nearest first, with their similarity; equal ones in corpus order,
        none for no text.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, in one pass over the vectors."""
        k, faiss = min(count("k", k), len(self.corpus)), _import("faiss")
        results: list[list[Passage]] = [[] for _ in queries]
        if asked := [
            number for number, query in enumerate(queries) if check_text("query", query).strip()
        ]:
            # (asked, dimension)
            vectors = self.encoder.encode_queries([queries[number] for number in asked])
            # (asked, k) each
            scores, rows = faiss.knn(vectors, self._vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
            for number, similar, nearest in zip(asked, -scores, rows, strict=True):
                hits = sorted(zip(similar.tolist(), nearest.tolist(), strict=True))
                results[number] = [
                    replace(self.corpus[row], score=-negative) for negative, row in hits if row >= 0
                ]
        return results

    def provenance(self) -> dict[str, Any]:
        """All that is needed to repeat these searches, as plain data."""
        return (
            {"kind": self.kind}
            | self.encoder.facts
            | {"faiss": self._about["faiss"]}
            | self.corpus.facts()
        )

    def __repr__(self) -> str:
        return f"Dense({self.corpus!r}, {self.encoder.name})"


def index_folder(corpus: Corpus, encoder: Encoder) -> Path:
    """Where the index of a corpus by an encoder is: with the corpus, or in the user's cache."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", encoder.name).strip("-.") or "model"
    own = user_cache() / f"{INDEXES}-{FORMAT}" / corpus.fingerprint[:32]
    above = own if corpus.folder is None else corpus.folder / INDEXES
    return above / f"dense-{short[:80]}-{str(encoder.facts['weights_sha256'])[:8]}"


def _describe_index(corpus: Corpus, encoder: Encoder) -> dict[str, Any]:
    """The facts that an index depends on; all of them must be the same when it is opened."""
    corpus_facts = {"corpus_fingerprint": corpus.fingerprint, "passages": len(corpus)}
    return {"format": FORMAT, "kind": Dense.kind} | corpus_facts | encoder.facts


def _encode_rest(corpus: Corpus, encoder: Encoder, folder: Path, facts: dict[str, Any]) -> None:
    """Encode what ``VECTORS`` lacks, in blocks that begin at fixed rows, so that the bytes are
    the same.
    """
    rows = _count_encoded(folder, facts)
    title = printable(f"encode by {encoder.name}")
    bar = tqdm(
        total=len(corpus), initial=rows, desc=title, unit=" passages", leave=False, disable=None
    )
    with (folder / VECTORS).open("ab") as file, bar:
        file.truncate(rows * encoder.dimension * 4)
        for start in range(rows, len(corpus), _BLOCK):
            vectors = encoder.encode_passages(corpus[start : start + _BLOCK])  # (block, dimension)
            file.write(vectors.astype("<f4").tobytes())
            file.flush()
            bar.update(len(vectors))


def _count_encoded(folder: Path, facts: dict[str, Any]) -> int:
    """The number of passages in the whole blocks that an earlier call wrote; records what is
    encoded here.
    """
    path, vectors = folder / PROGRESS, folder / VECTORS
    if not path.exists():
        if any(entry.name not in (VECTORS, LOCK) for entry in folder.iterdir()):
            raise CorpusError(
                f"{folder}: is not empty and holds no index; give a folder of its own"
            )
        vectors.unlink(missing_ok=True)
        write_whole(path, json.dumps(facts).encode())
    if path.read_bytes() != json.dumps(facts).encode():
        raise CorpusError(
            f"{folder}: holds an unfinished encoding of another corpus or by another encoder;"
            " delete it, or give another folder"
        )
    return (
        vectors.stat().st_size // (facts["dimension"] * 4) // _BLOCK * _BLOCK
        if vectors.exists()
        else 0
    )


def _import(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        needs = "dense retrieval needs faiss-cpu and sentence-transformers"
        raise MissingPackageError(f"{needs}; pip install 'dragin-lab[dense]'") from None


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
        facts |= {
            "longest": model.max_seq_length,
            "dimension": self.dimension,
            "similarity": similarity,
        }
        self.facts: dict[str, Any] = {"model": name} | facts
        self._around = {
            marks: self._build_brackets(marks) for marks in ("[]", "{}") if facts.get("brackets")
        }

    def encode_queries(self, queries: list[str]) -> np.ndarray:
        """(queries, dimension) float32, each by itself: a batch changes the last bits."""
        return self._encode(self.model.encode_query, queries, "[]", batch_size=1)

    def encode_passages(self, passages: list[Passage]) -> np.ndarray:
        """(passages, dimension) float32 of title, space and text, as in the BEIR benchmark."""
        return self._encode(
            self.model.encode_document, [f"{p.title} {p.text}".strip() for p in passages], "{}"
        )

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
        own = zip(read["input_ids"], read["special_tokens_mask"], strict=True)
        parts = [
            str(first),
            *dict.fromkeys(str(id) if special else "$A" for id, special in own),
            str(last),
        ]
        return TemplateProcessing(
            parts, special_tokens=[(part, int(part)) for part in parts if part != "$A"]
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
    from dragin_lab.engines.names import find_source, refuse_adapter

    library, where = _import("sentence_transformers"), str(sources.choose_device(device))
    # The embedded model's hidden states make a poor encoder, which needs no download.
    source, folder = find_source(embedded_model_path() if model == EMBEDDED else model)
    refuse_adapter(source)
    name = EMBEDDED if model == EMBEDDED else folder.resolve().name if folder else source
    whole = (
        sources.hub_has(source, "modules.json")
        if folder is None
        else (folder / "modules.json").is_file()
    )
    try:
        if whole and "sgpt" not in name.lower():
            opened = library.SentenceTransformer(source, device=where, trust_remote_code=False)
            pooling = f"sentence-transformers {version('sentence-transformers')}"
            return Encoder(
                name, opened, weights_sha256=sources.hash_weights(opened, []), pooling=pooling
            )
        # Read once for what is missing: sentence-transformers fills what the files lack at random.
        sources.load_weights(AutoModel, source, device_map="meta")
        modules = _import("sentence_transformers.sentence_transformer.modules")
        words = modules.Transformer(
            source, model_kwargs={"dtype": "float32"}, processor_kwargs={"padding_side": "right"}
        )
        # masked
        words.tokenizer.pad_token = (
            words.tokenizer.pad_token or words.tokenizer.convert_ids_to_tokens(0)
        )
        pooled = modules.Pooling(words.get_embedding_dimension(), "weightedmean")
        opened = library.SentenceTransformer(modules=[words, pooled], device=where)
        digest, brackets = (
            sources.hash_weights(opened, sources.weight_files(source, folder)),
            "nli" not in name.lower(),
        )
        return Encoder(
            name, opened, weights_sha256=digest, pooling="weighted mean", brackets=brackets
        )
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise ModelError(f"{name} cannot be loaded as an encoder: {str(error)[:300]}") from error
