"""An encoder without a model: the vector of a text is the sum of its words' own, so that like
texts lie near.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np

from dragin_lab.trace.trace import Passage


class WordEncoder:
    """Counts what it encodes in ``seen``; ``weights`` stands for the weights of a model."""

    dimension = 16

    def __init__(self, name: str = "words", weights: str = "0" * 64) -> None:
        self.name = name
        self.seen = 0
        self.cut = np.zeros(3, int)  # it reads all
        self.facts: dict[str, Any] = {
            "model": name,
            "weights_sha256": weights,
            "dimension": self.dimension,
        }

    def encode_queries(self, queries: list[str]) -> np.ndarray:
        return np.array([self._vector(query) for query in queries], np.float32).reshape(
            -1, self.dimension
        )

    def encode_passages(self, passages: list[Passage]) -> np.ndarray:
        self.seen += len(passages)
        return self.encode_queries([f"{p.title} {p.text}" for p in passages])

    def _vector(self, text: str) -> np.ndarray:
        words = re.findall(r"\w+", text.lower())
        total = np.sum([_word(word, self.dimension) for word in words], axis=0)
        return total / np.linalg.norm(total)


def _word(word: str, dimension: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).normal(size=dimension)
