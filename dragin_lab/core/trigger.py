"""The paper's triggers on a growing draft: where RIND fires, and what ends a draft early (DRAGIN §3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dragin_lab.core.answers import ANSWER_PHRASE
from dragin_lab.core.episode import SoFar, Stop, Tokenizer
from dragin_lab.core.rind import rind_scores, sentence_scaled
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.trace import Words
from dragin_lab.core.words import character_words


@dataclass(frozen=True)
class Judgement:
    """RIND's view of a draft: its words with their scores, and the word and piece that fire, if any."""

    words: Words
    piece_scores: np.ndarray  # (n,) float64, S_RIND of every piece
    judged: np.ndarray  # (w,) bool, the words that were allowed to fire
    exact: np.ndarray  # (w,) float64, the words' scores as they are held against the threshold
    word: int | None
    piece: int | None


@dataclass(frozen=True)
class RindTrigger:
    """RIND against θ (Eq. 5), as data: ends a draft as soon as a judged word scores above ``threshold``.

    A word is judged when it is complete, that is when the next one has begun or the draft has ended; with
    ``normalize`` when its sentence has ended. With ``resumed`` nothing fires before the draft's first sentence has
    ended, so that every retrieval is followed by a finished sentence.
    """

    pipeline: Pipeline
    threshold: float
    normalize: str | None = None
    resumed: bool = False

    def reached(self, so_far: SoFar) -> str | None:
        product = np.asarray(so_far.entropy) * so_far.received  # (n,)
        if self.normalize is None and product.max(initial=0.0) <= self.threshold:
            return None
        return "rind" if self.peak(so_far) > self.threshold else None

    def peak(self, so_far: SoFar) -> float:
        """The highest score of a judged word of an unfinished draft, whatever the threshold; -inf without one."""
        offsets = np.array(so_far.offsets, dtype=np.int32).reshape(-1, 2)
        found = self.judge(so_far.text, offsets, np.asarray(so_far.entropy), so_far.received, ended=False)
        return float(found.exact[found.judged].max(initial=-np.inf))

    def judge(
        self,
        text: str,
        offsets: np.ndarray,
        entropy: np.ndarray,
        received: np.ndarray,
        *,
        ended: bool,
        until: int | None = None,
    ) -> Judgement:
        """Score every word of a draft and find the first that fires.

        ``text`` with ``offsets`` (n, 2), ``entropy`` (n,) nats, ``received`` (n,); ``ended`` says that no further piece
        follows, so that the last word and the last sentence are complete. Words that begin at or behind the character
        ``until`` are not judged.
        """
        words = character_words(text, offsets)
        spans = np.array([(w.start, w.stop) for w in words], dtype=np.int32).reshape(-1, 2)  # (w, 2)
        sentences = self.pipeline.spans(text)
        settled = len(sentences) if ended else len(self.pipeline.complete(text))
        starts = [int(offsets[w.start, 0]) for w in words]
        ends = np.array([stop for _, stop in sentences])
        of_word = np.array([int((ends <= start).sum()) for start in starts], dtype=np.int32)  # (w,)
        of_piece = np.repeat(of_word, [w.stop - w.start for w in words])  # (n,)
        stop = np.array([self.pipeline.is_stop(w.text) for w in words], dtype=bool)  # (w,)
        scale = received if self.normalize is None else sentence_scaled(received, of_piece)  # (n,)
        pieces = rind_scores(entropy, scale, np.repeat(stop, spans[:, 1] - spans[:, 0]))  # (n,)
        loudest = np.array([w.start + int(pieces[w.start : w.stop].argmax()) for w in words], dtype=int)  # (w,)
        score = pieces[loudest]  # (w,)
        judged = np.ones(len(words), dtype=bool)  # (w,)
        if not ended:
            # Pieces without characters may yet turn out to be bytes of the word before them.
            written = np.flatnonzero([offsets[w.stop - 1, 1] > offsets[w.start, 0] for w in words])
            judged[written[-1] if len(written) else 0 :] = False
        if self.normalize is not None:
            judged &= of_word < settled
        if self.resumed:
            judged &= (of_word >= 1) & (settled >= 1)
        if until is not None:
            judged &= np.array(starts, dtype=int) < until
        fires = np.flatnonzero(judged & (score > self.threshold))
        word = int(fires[0]) if len(fires) else None
        hit = np.zeros(len(words), dtype=bool)
        piece = None
        if word is not None:
            hit[word] = True
            start, end = spans[word]
            piece = int(start + np.flatnonzero(pieces[start:end] > self.threshold)[0])
        table = Words(
            text=tuple(w.text for w in words),
            spans=spans,
            sentence=of_word,
            attention=scale[loudest].astype(np.float32),
            entropy=entropy[loudest].astype(np.float32),
            stop=stop,
            score=score.astype(np.float32),
            hit=hit,
        )
        return Judgement(table, pieces, judged, score, word, piece)


@dataclass(frozen=True)
class AnswerSentence:
    """Stop once the sentence that says ``phrase`` has ended; ``before`` is the answer so far."""

    pipeline: Pipeline
    tokenizer: Tokenizer = field(compare=False, repr=False)
    before: str = ""
    phrase: str = ANSWER_PHRASE

    def reached(self, so_far: SoFar) -> str | None:
        text = self.before + lead(self.tokenizer, so_far.ids, so_far.text) + so_far.text
        return "answer" if answer_end(self.pipeline, text, ended=False, phrase=self.phrase) is not None else None


@dataclass(frozen=True)
class AnyOf:
    """Stop where the first of several stops is reached."""

    stops: tuple[Stop, ...]

    def reached(self, so_far: SoFar) -> str | None:
        return next((reason for stop in self.stops if (reason := stop.reached(so_far))), None)


def lead(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> str:
    """The space before ``text``, written by ``ids``, that decoding it by itself drops (SentencePiece vocabularies)."""
    first = tokenizer.pieces(ids[:1])
    opens = bool(tokenizer.marker) and bool(first) and first[0].startswith(tokenizer.marker)
    return " " if opens and not text.startswith(" ") else ""


def answer_end(pipeline: Pipeline, text: str, *, ended: bool, phrase: str = ANSWER_PHRASE) -> int | None:
    """Where the first sentence that says ``phrase`` ends in ``text``; None while it has not ended."""
    place = text.find(phrase)
    if place < 0:
        return None
    spans = pipeline.spans(text) if ended else pipeline.complete(text)
    return next((stop for _, stop in spans if stop > place + len(phrase)), None)
