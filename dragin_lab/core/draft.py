"""What triggers and formulators see: a draft with what was measured on its tokens, and the gap where it fires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dragin_lab.core.episode import SoFar, Tokenizer
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.words import Word, character_words
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Continuation, Prompt


def _seal_array(values: Sequence[float] | np.ndarray, dtype: type) -> np.ndarray:
    """A read-only copy."""
    array: np.ndarray = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


def _measured_array(name: str, dtype: type) -> cached_property[np.ndarray]:
    """An array of what was measured on the tokens, sealed when it is first read."""
    return cached_property(lambda draft: _seal_array(getattr(draft.written, name), dtype))


@dataclass(eq=False)
class Draft:
    """What a trigger may look at: the tokens written since the last decision. n tokens, w words, k alternatives.

    Arrays are read-only, have one entry per token where nothing else is said, and are computed when they are first
    read. While a draft is being written, ``received`` is 0 for its last two tokens, because no later token has looked
    back at them yet.
    """

    written: Continuation | SoFar = field(repr=False)
    pipeline: Pipeline = field(repr=False)
    question: str = ""
    answer_so_far: str = ""  # the answer before this draft
    ended: bool = True  # False while the draft is being written

    ids = _measured_array("ids", np.int64)
    """(n,) int64, vocabulary ids."""
    entropy = _measured_array("entropy", np.float64)
    """(n,) float64, nats, of the raw distribution that each token was drawn from (DRAGIN Eq. 1)."""
    logprob = _measured_array("logprob", np.float64)
    """(n,) float64, nats, of each token under that distribution."""
    received = _measured_array("received", np.float64)
    """(n,) float64, the largest head-mean attention that a later token pays to each (DRAGIN Eq. 2-3)."""
    alternatives = _measured_array("alternative_ids", np.int64)
    """(n, k) int64, ids of the k likeliest tokens at each place, best first."""
    alternative_probs = _measured_array("alternative_probs", np.float64)
    """(n, k) float64, their probabilities."""

    def __len__(self) -> int:
        return len(self.written.ids)

    @property
    def text(self) -> str:
        """The draft's text, without special tokens."""
        return self.written.text

    @cached_property
    def offsets(self) -> np.ndarray:
        """(n, 2) int32, half-open character spans in ``text``."""
        return _seal_array(np.asarray(self.written.offsets, np.int32).reshape(-1, 2), np.int32)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """n texts: what each token added to ``text``."""
        return tuple(self.text[a:b] for a, b in self.offsets)

    @cached_property
    def attention(self) -> np.ndarray:
        """(h, n, p + n) float32: row t is what token t pays to the p tokens of the prompt and to the draft, per head.

        Only for a trigger with ``needs=("attention",)``. The row of the last token is 0 while the draft is written.
        """
        rows = self.written.attention
        if rows is None:
            raise SettingError("draft.attention was not captured; define the trigger with needs=('attention',)")
        return _seal_array(rows[:, 1 : len(self) + 1], np.float32)

    @cached_property
    def hidden(self) -> np.ndarray:
        """(n, d) float32: the hidden state that each token was drawn from; row t + 1 is the one after reading token t.

        Only for a trigger with ``needs=("hidden",)``, the last layer's as the output head reads it, or such as
        ``needs=("hidden:12",)``, what layer 12 gives to the next.
        """
        if self.written.hidden is None and len(self):
            raise SettingError("draft.hidden was not captured; define the trigger with needs=('hidden',)")
        return _seal_array(np.zeros((0, 0)) if self.written.hidden is None else self.written.hidden, np.float32)

    # -- words and sentences ------------------------------------------------------------------------------------------

    @cached_property
    def word_list(self) -> list[Word]:
        """The w words with their half-open token ranges."""
        return character_words(self.text, self.offsets)

    @property
    def words(self) -> tuple[str, ...]:
        """w texts."""
        return tuple(word.text for word in self.word_list)

    @cached_property
    def word_of_token(self) -> np.ndarray:
        """(n,) int32, the number of each token's word."""
        lengths = [word.stop - word.start for word in self.word_list]
        return _seal_array(np.repeat(np.arange(len(lengths)), lengths), np.int32)

    @cached_property
    def sentence_of_word(self) -> np.ndarray:
        """(w,) int32, the number of each word's sentence."""
        ends = np.array([stop for _, stop in self.pipeline.spans(self.text)])
        starts = [int(self.offsets[word.start, 0]) for word in self.word_list]
        return _seal_array(np.array([int((ends <= start).sum()) for start in starts]), np.int32)

    @cached_property
    def sentence_of_token(self) -> np.ndarray:
        """(n,) int32, the number of each token's sentence."""
        return _seal_array(self.sentence_of_word[self.word_of_token], np.int32)

    @cached_property
    def stop_of_word(self) -> np.ndarray:
        """(w,) bool, whether the word says nothing by itself (DRAGIN Eq. 4)."""
        return _seal_array(np.array([self.pipeline.is_stop(text) for text in self.words], dtype=bool), np.bool_)

    @cached_property
    def stop_word(self) -> np.ndarray:
        """(n,) bool, whether the token belongs to such a word."""
        return _seal_array(self.stop_of_word[self.word_of_token], np.bool_)

    @cached_property
    def settled(self) -> int:
        """How many sentences at the start of the draft no further text can change."""
        return len(self.pipeline.spans(self.text) if self.ended else self.pipeline.complete(self.text))

    @property
    def spans(self) -> np.ndarray:
        """(w, 2) int32, half-open token ranges of the words."""
        return np.array([(word.start, word.stop) for word in self.word_list], dtype=np.int32).reshape(-1, 2)


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
