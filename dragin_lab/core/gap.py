"""The place where a draft lacks information: what every query is formulated from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dragin_lab.core.episode import Tokenizer
from dragin_lab.core.sentences import Pipeline
from dragin_lab.trace.trace import Continuation, Prompt


@dataclass(frozen=True, eq=False)
class Ranked:
    """The w words that a query may be made of, in text order, and what the flagged words pay them."""

    words: tuple[str, ...]
    weights: np.ndarray  # (w,) float64
    content: np.ndarray  # (w,) bool, those that carry content


@dataclass(frozen=True, eq=False)
class Gap:
    """Where a draft lacks information, and what stands around it. w words and m tokens in the sentence.

    ``words`` and ``hits`` have the same length, and so have ``tokens``, ``doubt`` and ``offsets``. A method that
    searches by the clock has no hits: the last word stands in for them, and ``note`` says so.
    """

    question: str
    answer: str  # the answer so far, with what is kept of the draft
    context: str  # question and answer
    sentence: str  # the sentence that lacks information, as far as it was written
    words: tuple[str, ...]  # of the sentence
    hits: np.ndarray  # (w,) bool, the words that were flagged
    tokens: tuple[str, ...]  # of the sentence, decoded one by one
    doubt: np.ndarray  # (m,) float64, 1 - p of each token
    pipeline: Pipeline = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    variant: str = "paper"
    term: str = ""  # what the model itself asked for, where it did
    chunk: str | None = None  # what a method that searches by the clock wrote last
    chunk_tokens: int | None = None  # how many tokens such a method writes between searches
    doubt_limit: float | None = None  # θ, where the trigger compares 1 - p with it
    note: str = ""  # what stands in for hits, where the trigger gives none
    # The paper variant's view: characters of ``written.text``, and t_i.
    written: Continuation | None = field(default=None, repr=False)
    prompt: Prompt | None = field(default=None, repr=False)
    token: int = 0  # t_i, the token that fired
    cut: int = 0  # character of ``written.text`` where its word begins
    span: tuple[int, int] = (0, 0)  # the sentence's characters in ``written.text``
    hit_spans: tuple[tuple[int, int], ...] = ()  # the flagged words' characters in ``written.text``
    # The reference variant's view.
    before: str = ""  # what the released code reads before the sentence, empty parts and all
    ranked: Ranked | None = field(default=None, repr=False)  # ETC's released code
