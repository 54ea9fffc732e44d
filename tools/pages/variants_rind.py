"""RIND with each of its parts as the paper has it or as the released code has it, so that one can be swapped alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dragin_lab.core.scores import pool_words, scale_by_sentence
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.words import Word, character_words, contain_any
from dragin_lab.reference.measures import assign_words, merge_words, receive_attention
from dragin_lab.trace.trace import Continuation


@dataclass(frozen=True)
class Rind:
    """One way to score a text; ``REFERENCE`` and ``PAPER`` are the two variants'."""

    unit: str  # "token" or "word"
    words: str  # "characters" or "marker": by what tokens are merged into words
    view: str  # "context" or "alone": which attention is looked at
    own: bool  # whether a token's attention to itself counts
    heads: str  # "mean first" or "maximum first"
    attention: str  # of a word: "sum" or "max" over its tokens
    entropy: str  # of a word: "mean" or "max" over its tokens
    scale: str  # "sentence" or "none"
    laid: str  # "characters" or "substring": how words are given to sentences
    spared: str  # "stop words", "no content" or "none": which words score 0 before the decision

    def scores(self, made: Continuation, alone: np.ndarray, marker: str, eos: str, pipeline: Pipeline) -> np.ndarray:
        """The score of every token (n,), a word's on each of its tokens.

        ``made`` has its attention, ``alone`` is the (h, n, n) map of its ids by themselves, ``marker`` the
        vocabulary's mark of a space, ``eos`` the token behind which the released code opens a word.
        """
        received = self._received(made, alone)  # (n,)
        if self.words == "marker":
            words = merge_words(made.tokens, made.ids.tolist(), marker, eos=eos)
        else:
            words = character_words(made.text, made.offsets)
        sentence = self._sentences(made, words, pipeline)  # (w,)
        spared = self._spared(made, words, sentence, pipeline)  # (w,)
        lengths = [word.stop - word.start for word in words]
        entropy = made.entropy.astype(np.float64)  # (n,)
        if self.unit == "word":
            received = pool_words(received, words, self.attention)  # (w,)
            entropy = pool_words(entropy, words, self.entropy)  # (w,)
        else:
            sentence, spared = np.repeat(sentence, lengths), np.repeat(spared, lengths)  # (n,), (n,)
        if self.scale == "sentence":
            received = scale_by_sentence(received, sentence)
        score = np.where(spared | (sentence < 0), 0.0, received * entropy)
        return np.repeat(score, lengths) if self.unit == "word" else score

    def _received(self, made: Continuation, alone: np.ndarray) -> np.ndarray:
        attention = alone
        if self.view == "context":
            assert made.attention is not None
            attention = made.attention[:, 1:, len(made.prompt_ids) :].astype(np.float32)  # (h, n, n)
        if not self.own:
            attention = attention * ~np.eye(attention.shape[1], dtype=bool)
        if self.heads == "maximum first":
            return receive_attention(attention, first_is_eos=False)
        largest: np.ndarray = attention.mean(axis=0).max(axis=0)  # (n,)
        return largest

    def _sentences(self, made: Continuation, words: list[Word], pipeline: Pipeline) -> np.ndarray:
        """The number of each word's sentence (w,), -1 where it has none."""
        if self.laid == "characters":
            ends = np.array([end for _, end in pipeline.spans(made.text)])
            return np.array([int((ends <= made.offsets[word.start, 0]).sum()) for word in words], dtype=int)
        number = np.full(len(words), -1)  # (w,)
        for i, (start, stop) in enumerate(assign_words(pipeline.split(made.raw_text), [w.text for w in words])):
            number[start:stop] = i
        return number

    def _spared(self, made: Continuation, words: list[Word], sentence: np.ndarray, pipeline: Pipeline) -> np.ndarray:
        if self.spared == "stop words":
            return np.array([pipeline.is_stop(word.text) for word in words], dtype=bool)
        spared = np.zeros(len(words), dtype=bool)  # (w,)
        if self.spared == "no content":
            sentences = pipeline.split(made.raw_text)
            for number in set(sentence[(sentence >= 0) & (sentence < len(sentences))].tolist()):
                inside = np.flatnonzero(sentence == number)
                texts = [words[i].text for i in inside]
                spared[inside] = ~contain_any(texts, pipeline.content_words(sentences[number]))
        return spared


REFERENCE = Rind(
    unit="word", words="marker", view="alone", own=True, heads="maximum first", attention="sum", entropy="mean",
    scale="sentence", laid="substring", spared="none",
)  # fmt: skip
PAPER = Rind(
    unit="token", words="characters", view="context", own=False, heads="mean first", attention="max", entropy="max",
    scale="none", laid="characters", spared="stop words",
)  # fmt: skip


@dataclass(frozen=True)
class WhenSwap:
    """One part of RIND swapped alone: ``difference`` is its number on the page, ``base`` what it is compared with."""

    difference: str
    base: str
    label: str
    rind: Rind


BASES = {"reference": REFERENCE, "paper": PAPER}


def _swap(difference: str, base: str, label: str, **parts: object) -> WhenSwap:
    return WhenSwap(difference, base, label, replace(BASES[base], **parts))  # type: ignore[arg-type]


TRIGGERS = (
    _swap("R1", "reference", "tokens, not words", unit="token"),
    _swap("R1", "paper", "words, the largest of each", unit="word"),
    _swap("R2", "reference", "words by characters", words="characters"),
    _swap("R2", "paper", "words by the space marker", words="marker"),
    _swap("R3", "reference", "attention in context", view="context"),
    _swap("R3", "paper", "attention of the text by itself", view="alone"),
    _swap("R4", "reference", "only what later tokens pay", own=False),
    _swap("R4", "paper", "what a token pays itself too", own=True),
    _swap("R5", "reference", "mean over heads first", heads="mean first"),
    _swap("R5", "paper", "maximum of each head first", heads="maximum first"),
    _swap("R6", "reference", "a word's largest attention", attention="max"),
    _swap("R7", "reference", "a word's largest entropy", entropy="max"),
    _swap("R8", "reference", "not scaled", scale="none"),
    _swap("R8", "paper", "scaled by sentence", scale="sentence"),
    _swap("R9", "reference", "stop words score 0", spared="stop words"),
    _swap("R9", "reference", "words without content score 0", spared="no content"),
    _swap("R9", "paper", "every word may fire", spared="none"),
    _swap("R10", "reference", "sentences by characters", laid="characters"),
)
