"""``variant="reference"``: what the authors' released code does, to the letter (docs/reference-behaviour.md).

Spaces count: prompts and answer text are joined exactly as the page says, doubled spaces and stray ones included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragin_lab.core.answers import ANSWER_PHRASE
from dragin_lab.core.confidence import (
    doubts,
    reference_confident_sentence,
    reference_piece_ranges,
    sentence_doubt,
)
from dragin_lab.core.episode import Episode, attend
from dragin_lab.core.loop import FirstSentence, Loop, Need
from dragin_lab.core.qfs import reference_word_attention, top_words
from dragin_lab.core.rind import contains_any, over_words, reference_attention, reference_scores
from dragin_lab.core.trace import Continuation, Decision, Query, Step, Words
from dragin_lab.core.words import Word, lay_sentences, reference_words

_STRAY = "Answer in t he same format as before."
_CLOSING = "Answer in the same format as before."


@dataclass(frozen=True)
class Seen:
    """A draft as the released code cuts it: words, sentences, and the words and pieces of each sentence."""

    words: list[Word]
    sentences: list[str]
    ranges: list[tuple[int, int]]  # half-open, words of each sentence
    pieces: list[str]  # decoded one by one
    piece_ranges: list[tuple[int, int]]  # half-open, pieces of each sentence


@dataclass(frozen=True)
class Found:
    """What a trigger made of a draft; without a need, and nothing kept before its sentence, where it is quiet."""

    words: Words
    decision: Decision
    need: Need | None
    kept: str


class ReferenceLoop(Loop):
    """An episode of the released code's algorithms."""

    def run(self) -> Episode[None]:
        if self.method.when in ("never", "once"):
            yield from self._single()
        elif self.method.when in ("every-n", "every-sentence"):
            yield from self._search_first()
        else:
            yield from self._look_ahead()
        yield from self.finish()

    # -- the three loops (§1, §4, §5) --------------------------------------------------------------------------------

    def _single(self) -> Episode[None]:
        """wo-RAG and SR-RAG: one generation, not stripped, no loop."""
        step = self.new_step()
        once = self.method.when == "once"
        if once:
            self.scheduled(step, "once, before anything is written")
            yield from self.retrieve(step, Query(self.question, self.question))
            self._prompt_with_passages(step, "", _CLOSING)
            made = yield from self.write(step, self.method.max_new_tokens, with_passages=True)
            step.continuation, step.continuation_kept = made, len(made.text)
        else:
            step.prompt = self.template.render(self.question)
            made = step.draft = yield from self.write(step, self.method.max_new_tokens)
            step.decision = Decision(retrieve=False, reason="this method never retrieves")
        step.kept = step.answer = self.trace.text = made.raw_text
        answered = made.stopped == "eos" or ANSWER_PHRASE in made.raw_text
        self.trace.ended = "answered" if answered else "length"

    def _search_first(self) -> Episode[None]:
        """FL-RAG and FS-RAG: search, write a chunk or a sentence with the passages in view, search again."""
        by_length = self.method.when == "every-n"
        text, chunk, last = "", "", None
        while True:
            step = self.new_step()
            query = yield from self._scheduled_query(text, chunk, last)
            self.scheduled(step, f"every {self.method.n} pieces" if by_length else "every sentence")
            yield from self.retrieve(step, query)
            self._prompt_with_passages(step, " " + text, _STRAY)
            if by_length:
                last = step.continuation = yield from self.write(step, self.method.n, with_passages=True)
                chunk = last.raw_text.strip()
                step.continuation_kept = len(last.text)
            else:
                stop = FirstSentence(self.method.pipeline, self.tokenizer)
                last = step.continuation = yield from self.write(
                    step, self.method.max_new_tokens, stop, with_passages=True
                )
                sentences = self.method.pipeline.split(last.raw_text.strip())
                if not sentences:
                    self.trace.ended = "stalled"
                    return
                chunk = sentences[0]
                step.continuation_kept = _end_of(chunk, last.text)
            if self._joined(step, text, f"{text.strip()} {chunk}"):
                return
            text = self.trace.text

    def _look_ahead(self) -> Episode[None]:
        """FLARE and DRAGIN: write without passages, look back at it, and where information is missing write again."""
        text = ""
        dragin = self.method.when == "rind"
        while True:
            step = self.new_step()
            step.prompt = self.template.render(self.question, _tail(text) if dragin else f" {text}")
            step.draft = yield from self.write(step, self.method.max_new_tokens)
            need, kept = yield from self._look_back(step, text)
            if need is None:
                new = f"{text.strip()} {step.draft.raw_text.strip()}"
            else:
                kept = kept.strip()
                yield from self.retrieve(step, (yield from self.formulate(need)))
                self._prompt_with_passages(step, _tail(text, kept) if dragin else f" {text} {kept}", _CLOSING)
                # Only the first sentence of DRAGIN's second generation is kept, so it need not be written further.
                stop = FirstSentence(self.method.pipeline, self.tokenizer) if dragin else None
                made = step.continuation = yield from self.write(
                    step, self.method.max_new_tokens, stop, with_passages=True
                )
                if dragin:
                    sentence = (self.method.pipeline.split(made.raw_text.strip()) or [""])[0]
                    step.continuation_kept = _end_of(sentence, made.text)
                    new = _join(text.strip(), kept, sentence)
                else:
                    step.continuation_kept = len(made.text)
                    new = f"{text.strip()} {kept} {made.raw_text.strip()}"
            if self._joined(step, text, new):
                return
            text = self.trace.text

    # -- steps -------------------------------------------------------------------------------------------------------

    def _prompt_with_passages(self, step: Step, tail: str, closing: str) -> None:
        step.passages_prompt = self.template.render(
            self.question, tail, step.passages, slots=self.method.top_k, closing=closing
        )

    def _joined(self, step: Step, old: str, new: str) -> bool:
        """Record the step's text; whether the loop ends here (§4)."""
        self.trace.text = step.answer = new
        step.kept = new.strip().removeprefix(old.strip()).strip()
        if step.draft is not None and step.decision is not None and step.decision.retrieve:
            step.discarded = step.draft.text[step.decision.cut or 0 :]
        if ANSWER_PHRASE in new:
            self.trace.ended = "answered"
        elif len(self.tokenizer.encode(new, special=True)) > self.method.max_new_tokens:
            self.trace.ended = "length"
        elif len(new) <= len(old):
            self.trace.ended = "stalled"
        return self.trace.ended != "running"

    # -- when (§2, §5) -----------------------------------------------------------------------------------------------

    def _look_back(self, step: Step, text: str) -> Episode[tuple[Need | None, str]]:
        """Judge the whole draft: what the first firing sentence needs, and the text kept before it."""
        made = step.draft
        assert made is not None
        seen, attended = self.measure(made), None
        if self.method.when == "rind":
            attention = yield from attend(made.ids.tolist())  # (h, n, n)
            received = reference_attention(attention, first_is_eos=made.pieces[0] == "</s>")  # (n,)
            attended = over_words(received, seen.words, "sum")  # (w,)
        found = self.judge(made, seen, attended, text)
        step.words, step.decision = found.words, found.decision
        return found.need, found.kept

    def measure(self, made: Continuation) -> Seen:
        """Cut a draft into the released code's words, sentences and pieces."""
        ids = made.ids.tolist()
        words = reference_words(made.pieces, ids, self.tokenizer.marker)
        sentences = self.method.pipeline.split(made.raw_text)
        pieces = [self.tokenizer.decode([i], special=True) for i in ids]
        return Seen(
            words=words,
            sentences=sentences,
            ranges=lay_sentences(sentences, [word.text for word in words]),
            pieces=pieces,
            piece_ranges=reference_piece_ranges(sentences, pieces),
        )

    def judge(self, made: Continuation, seen: Seen, attended: np.ndarray | None, text: str) -> Found:
        """What the trigger makes of a draft behind the answer ``text``.

        ``attended`` (w,) is the attention that each word receives (§2.2); only RIND looks at it.
        """
        theta, words, ranges = self.method.threshold, seen.words, seen.ranges
        assert theta is not None
        texts = [word.text for word in words]
        doubt = doubts(made.logprob)  # (n,)
        entropy = made.entropy if made.entropy_processed is None else made.entropy_processed  # (n,)
        mean_entropy = over_words(entropy, words, "mean")  # (w,)
        table = Words(
            text=tuple(texts),
            spans=np.array([(w.start, w.stop) for w in words], dtype=np.int32).reshape(-1, 2),
            sentence=np.full(len(words), -1, dtype=np.int32),
            attention=np.full(len(words), np.nan, dtype=np.float32),
            entropy=mean_entropy.astype(np.float32),
            stop=np.zeros(len(words), dtype=bool),
            score=np.full(len(words), np.nan, dtype=np.float32),
            hit=np.zeros(len(words), dtype=bool),
        )
        for number, (start, stop) in enumerate(ranges):
            table.sentence[start:stop] = number
        if attended is not None:
            scores = reference_scores(attended, mean_entropy, ranges)  # per sentence (m,)
            peaks = [float(values.max(initial=-np.inf)) for values in scores]
            table.attention = attended.astype(np.float32)
        else:
            scores = [over_words(doubt, words[a:b], "max") for a, b in ranges]  # per sentence (m,)
            peaks = [sentence_doubt(doubt[a:b], self.method.sentence_solver) for a, b in seen.piece_ranges]
        for (start, stop), values in zip(ranges, scores, strict=True):
            table.score[start:stop] = values
        fired = next((i for i, peak in enumerate(peaks) if peak > theta), None)
        if fired is None:
            best = max((peak for peak in peaks if not np.isnan(peak)), default=0.0)
            quiet = Decision(False, f"no sentence scores above θ {theta:g} (the highest: {best:.3g})")
            return Found(table, quiet, None, "")
        start, stop = ranges[fired]
        hits = scores[fired] > theta  # (m,)
        if self.method.when == "rind" and self.method.check_content_words:
            content = contains_any(texts[start:stop], self.method.pipeline.content_words(seen.sentences[fired]))
            table.stop[start:stop] = ~content
            hits &= content
        table.hit[start:stop] = hits
        kept = " ".join(seen.sentences[:fired])
        loudest = words[start + int(scores[fired].argmax())] if stop > start else None
        a, b = seen.piece_ranges[fired]
        need = Need(
            context=_join(self.question, text, kept),
            before=f"{self.question} {text} {kept} ",
            sentence=seen.sentences[fired],
            words=texts[start:stop],
            hits=hits,
            pieces=seen.pieces[a:b],
            doubt=doubt[a:b],
        )
        return Found(table, self._decision(made, seen.sentences, fired, peaks[fired], loudest), need, kept)

    def _decision(
        self, made: Continuation, sentences: list[str], fired: int, peak: float, loudest: Word | None
    ) -> Decision:
        cut = end = 0
        for sentence in sentences[: fired + 1]:
            found = made.text.find(sentence, end)
            cut = found if found >= 0 else end
            end = cut + len(sentence) if found >= 0 else end
        theta = f"above θ {self.method.threshold:g}"
        if self.method.when == "rind" and loudest is not None:
            reason = f"{loudest.text!r} in sentence {fired + 1} scores {peak:.3g}, {theta}"
        else:
            reason = f"sentence {fired + 1} has 1 - p of {peak:.3g} ({self.method.sentence_solver}), {theta}"
        return Decision(True, reason, cut=cut, piece=loudest.start if loudest else None, sentence=fired)

    # -- what (§3, §5) -----------------------------------------------------------------------------------------------

    def _scheduled_query(self, text: str, chunk: str, last: Continuation | None) -> Episode[Query]:
        """The query of a loop that searches first: the question, then whatever *what* makes of the last chunk."""
        if last is None:
            note = "" if self.method.what == "question" else "the question: nothing is written yet"
            return Query(self.question, self.question, note=note)
        before = text.strip().removesuffix(chunk).strip()
        words = chunk.split()
        pieces = [self.tokenizer.decode([i], special=True) for i in last.ids.tolist()]
        _, owned = reference_piece_ranges([chunk], pieces)[0]
        need = Need(
            context=_join(self.question, text),
            before=f"{self.question} {before}  ",
            sentence=chunk,
            words=words,
            hits=np.arange(len(words)) == len(words) - 1,
            pieces=pieces[:owned],
            doubt=doubts(last.logprob)[:owned],
            chunk=chunk,
            note="the last word stands for the hits that this trigger does not give",
        )
        return (yield from self.formulate(need))

    def formulate(self, need: Need) -> Episode[Query]:
        """The query that the method's *what* makes of a need."""
        what, top_n, pipeline = self.method.what, self.method.top_n, self.method.pipeline
        note = ""
        if what == "qfs":
            return (yield from self._qfs(need))
        if what == "question":
            text = self.question
        elif what == "confident-sentence":
            text = reference_confident_sentence(need.sentence, need.pieces, need.doubt, self.method.doubt_limit)
        elif what == "current":
            text = " ".join(need.words) if need.chunk is None else need.sentence
        elif what == "current-without-hits":
            text = " ".join("" if hit else word for word, hit in zip(need.words, need.hits, strict=True))
            note = need.note
        elif what == "full-context":
            text = need.context
        elif what == "last-sentence":
            text = need.chunk if need.chunk is not None else (pipeline.split(need.context) or [""])[-1]
        elif need.chunk is not None and top_n is None:
            text = need.chunk
        else:
            pieces = self.tokenizer.pieces(self.tokenizer.encode(need.context, special=False))
            assert top_n is not None
            text = " ".join(pieces[-top_n:]) if len(pieces) > top_n else need.context
        return Query(text, text, note=note)

    def _qfs(self, need: Need) -> Episode[Query]:
        """``real_words``: the words that the flagged ones were predicted from (§3)."""
        assert self.method.top_n is not None
        text = need.before + " ".join(need.words)
        ids = self.tokenizer.encode(text, special=True)
        words = reference_words(self.tokenizer.pieces(ids), ids, self.tokenizer.marker, eos=None)
        texts = [word.text for word in words]
        paid = reference_word_attention((yield from attend(ids)), words)  # (w, w)
        first = len(words) - len(need.words)
        flagged = [first + i for i in np.flatnonzero(need.hits) if first + i >= 0]
        weights = paid[flagged].mean(axis=0) if flagged else np.full(len(words), np.nan)  # (w,)
        eligible = contains_any(texts, self.method.pipeline.content_words(text))
        eligible[flagged] = False
        chosen = top_words(weights, self.method.top_n, eligible)
        query = " ".join(t for t, c in zip(texts, chosen, strict=True) if c)
        note = need.note if flagged else "no flagged word is left, so text order ranks the words"
        shown = np.flatnonzero(eligible)
        return Query(
            text=query,
            sent=query,
            words=tuple(texts[i] for i in shown),
            weights=weights[shown].astype(np.float32),
            chosen=chosen[shown],
            note=note,
        )


def _join(*parts: str) -> str:
    """The non-empty parts, joined by single spaces."""
    return " ".join(part for part in parts if part)


def _tail(*parts: str) -> str:
    """The same as it stands behind ``Answer:``: each non-empty part brings its space."""
    return "".join(f" {part}" for part in parts if part)


def _end_of(sentence: str, text: str) -> int:
    """Where a sentence that begins a generated text ends in it (characters)."""
    place = text.find(sentence)
    return place + len(sentence) if place >= 0 else len(text)
