"""The gap: where a draft lacks information. Every query starts from one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dragin_lab.core.episode import Tokenizer
from dragin_lab.core.sentences import Pipeline
from dragin_lab.trace.trace import Continuation, Prompt


@dataclass(frozen=True, eq=False)
class Gap:
    """Where a draft lacks information, and what stands around it. w words and m tokens in the sentence.

    ``words`` and ``hits`` have the same length, and so have ``tokens`` and ``doubt``. A method that searches by the
    clock has no hits: the last word stands in for them, and ``note`` says so.
    """

    question: str
    answer: str  # the answer so far, with what is kept of the draft
    sentence: str  # the sentence that lacks information, as far as it was written
    words: tuple[str, ...]  # of the sentence
    hits: np.ndarray  # (w,) bool, the words that were flagged
    tokens: tuple[str, ...]  # of the sentence, decoded one by one
    doubt: np.ndarray  # (m,) float64, 1 - p of each token
    continuation: Continuation = field(repr=False)  # what was written: the draft
    prompt: Prompt = field(repr=False)  # what it was written after
    pipeline: Pipeline = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    token: int = 0  # t_i, the token that fired
    cut: int = 0  # character of the continuation's text where the word of t_i begins
    span: tuple[int, int] = (0, 0)  # the sentence's characters in the continuation's text
    hit_spans: tuple[tuple[int, int], ...] = ()  # the flagged words' characters in the continuation's text
    term: str = ""  # what the model itself asked for, where it did
    chunk_tokens: int | None = None  # how many tokens a method that searches by the clock writes between searches
    note: str = ""  # what stands in for hits, where the trigger gives none

    @property
    def context(self) -> str:
        """Question and answer so far."""
        return f"{self.question}{self.answer}" if self.answer.startswith(" ") else f"{self.question} {self.answer}"
