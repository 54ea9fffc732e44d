"""From texts to vectors: SGPT as the paper uses it (Table 7), and models of sentence-transformers.

SGPT (Muennighoff, 2022) averages the last hidden states of a decoder, each weighted by its position from 1, so that
later tokens, which have seen more, count more. Its models for search read a query between [ and ], and a passage
between { and }. So does the DRAGIN authors' ``src/retriever.py``.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dragin_lab.checks import EMBEDDED
from dragin_lab.errors import MissingPackageError, ModelError
from dragin_lab.trace.trace import Passage

QUERY, PASSAGE = ("[", "]"), ("{", "}")
_HUGE = 1 << 20  # tokenizers without a limit name an astronomical one


class Encoder(Protocol):
    """Turns texts into vectors of length 1."""

    name: str
    dimension: int

    def encode_queries(self, queries: list[str]) -> np.ndarray:
        """(queries, dimension) float32, each row of length 1; zeros for a text without a finite vector.

        A query's vector does not depend on the other queries.
        """
        ...

    def encode_passages(self, passages: list[Passage]) -> np.ndarray:
        """(passages, dimension), of title and text together, as ``encode_queries`` except for rounding."""
        ...

    def provenance(self) -> dict[str, Any]:
        """All that the vectors depend on, as plain data."""
        ...


def open_encoder(model: str, device: str | None = None) -> Encoder:
    """The encoder that a folder or Hugging Face id names; ``almanac`` is the embedded model's hidden states.

    A model with sentence-transformers' ``modules.json`` is opened with that library, unless its name contains "sgpt".
    All others are pooled as SGPT, with brackets unless the name contains "nli" (SGPT's models for similarity).

    Raises ``ModelError`` for a model that cannot be loaded.
    """
    from dragin_lab.model.load import choose_device
    from dragin_lab.model.sources import find_source

    where = choose_device(device)
    if model == EMBEDDED:  # its hidden states make a poor encoder, which needs no download
        from dragin_lab.almanac import embedded_model_path

        return SGPT(str(embedded_model_path()), EMBEDDED, where)
    name, folder = find_source(model)
    title = folder.resolve().name if folder else name
    if "sgpt" not in title.lower() and _has_modules(name, folder):
        return SentenceEncoder(name, title, where)
    return SGPT(name, title, where, brackets="nli" not in title.lower())


class _Texts:
    """Queries and passages as the texts that a subclass encodes."""

    dimension: int

    def encode(self, texts: list[str], *, query: bool) -> np.ndarray:
        raise NotImplementedError

    def encode_queries(self, queries: list[str]) -> np.ndarray:
        vectors = [self.encode([query], query=True) for query in queries]  # one by one: a batch changes the last bits
        return np.concatenate(vectors) if vectors else np.zeros((0, self.dimension), np.float32)

    def encode_passages(self, passages: list[Passage]) -> np.ndarray:
        """Title, space and text, as in the BEIR benchmark."""
        return self.encode([f"{p.title} {p.text}".strip() for p in passages], query=False)


class SGPT(_Texts):
    """Weighted-mean pooling over the last hidden states of a model of ``transformers``.

    ``pool`` is the formula; ``brackets`` adds those of SGPT's search models around query and passage.
    """

    def __init__(self, source: str, name: str, device: Any, *, brackets: bool = True, batch_size: int = 32) -> None:
        from dragin_lab.model.sources import find_source, load_encoder, weight_files, weights_hash

        self.name = name
        self.brackets = brackets
        self.batch_size = batch_size
        self.model, self._tokenizer = load_encoder(source, device)
        self.dimension = int(self.model.config.get_text_config().hidden_size)
        self._hash = weights_hash(self.model, weight_files(*find_source(source)))
        limits = (self._tokenizer.model_max_length, getattr(self.model.config, "max_position_embeddings", None))
        self.longest: int | None = min((int(n) for n in limits if n is not None and n < _HUGE), default=None)
        self._marks = {True: self._ids(QUERY), False: self._ids(PASSAGE)}

    def _ids(self, marks: tuple[str, str]) -> tuple[list[int], list[int]]:
        """The tokens around a text: the last token of each bracket, as some tokenizers put a space mark before it."""
        if not self.brackets:
            return [], []
        first, last = (self._tokenizer.encode(mark, add_special_tokens=False)[-1:] for mark in marks)
        return first, last

    def ids(self, text: str, *, query: bool) -> list[int]:
        """The tokens of a text as the model reads them, with brackets, cut to the model's length."""
        before, after = self._marks[query]
        room = None if self.longest is None else self.longest - len(before) - len(after)
        found = self._tokenizer(text, truncation=False, verbose=False)["input_ids"][:room]
        return before + [int(i) for i in found] + after

    def encode(self, texts: list[str], *, query: bool) -> np.ndarray:
        """(texts, dimension) float32; texts of similar length are read together."""
        rows = [self.ids(text, query=query) for text in texts]
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(order), self.batch_size):
            places = [i for i in order[start : start + self.batch_size] if rows[i]]
            if places:
                vectors[places] = self._pooled([rows[i] for i in places])
        return unit_rows(vectors)

    def _pooled(self, rows: list[list[int]]) -> np.ndarray:
        import torch

        longest = max(map(len, rows))
        ids = torch.zeros((len(rows), longest), dtype=torch.int64, device=self.model.device)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):  # padded on the right, so that positions are those of the text alone
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        with torch.inference_mode():
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state  # (texts, tokens, dimension)
        return pool(hidden.float().cpu().numpy(), mask.cpu().numpy())

    def provenance(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "weights_sha256": self._hash,
            "pooling": "weighted mean",
            "brackets": self.brackets,
            "longest": self.longest,
            "dimension": self.dimension,
        }


class SentenceEncoder(_Texts):
    """A model of sentence-transformers, with its own prompts for queries and passages."""

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
        self.name = name
        self.dimension = int(self.model.encode(["."], show_progress_bar=False).shape[1])
        digest = hashlib.sha256()
        for key, tensor in sorted(self.model.state_dict().items()):
            digest.update(key.encode() + tensor.detach().float().cpu().numpy().tobytes())
        self._hash = digest.hexdigest()

    def encode(self, texts: list[str], *, query: bool) -> np.ndarray:
        """(texts, dimension) float32."""
        read = self.model.encode_query if query else self.model.encode_document
        return unit_rows(np.asarray(read(texts, show_progress_bar=False, convert_to_numpy=True), np.float32))

    def provenance(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "weights_sha256": self._hash,
            "pooling": f"sentence-transformers {version('sentence-transformers')}",
            "longest": self.model.max_seq_length,
            "dimension": self.dimension,
        }


def pool(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean of a text's hidden states, weighted by 1 to n (SGPT, Eq. 2).

    ``hidden`` (texts, tokens, dimension), ``mask`` (texts, tokens) 1 for a token and 0 for padding; returns
    (texts, dimension) float32.
    """
    weights = mask * np.arange(1, mask.shape[1] + 1)  # (texts, tokens)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return np.einsum("npd,np->nd", hidden, weights).astype(np.float32)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1, float32; rows that are zero or not finite become zeros."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)  # (texts, 1)
    sound = np.isfinite(lengths) & (lengths > 0)
    scaled = np.where(sound, vectors, 0.0) / np.where(sound, lengths, 1.0)
    return scaled.astype(np.float32)


def _has_modules(name: str, folder: Path | None) -> bool:
    if folder is not None:
        return (folder / "modules.json").is_file()
    from dragin_lab.model.sources import hub_has

    return hub_has(name, "modules.json")
