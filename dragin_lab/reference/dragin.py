"""``variant="reference"``: what the authors' released code does, to the letter (docs/reference-behaviour.md).

Spaces count: prompts and answer text are joined exactly as the page says, doubled spaces and stray ones included.
"""

from __future__ import annotations

import numpy as np

from dragin_lab.core.answers import ANSWER_PHRASE, RELEASED_ENDS
from dragin_lab.core.draft import Draft, Laid
from dragin_lab.core.episode import Episode, Stop, attend
from dragin_lab.core.gap import Gap
from dragin_lab.core.loop import STANDS_IN, Loop
from dragin_lab.core.scores import doubts, reference_token_ranges
from dragin_lab.core.stops import FirstSentence
from dragin_lab.core.triggers import Clock
from dragin_lab.core.words import lay_sentences, reference_words
from dragin_lab.trace.trace import Continuation, Decision, Query, Step, Words

_STRAY = "Answer in t he same format as before."
_CLOSING = "Answer in the same format as before."


class ReleasedLoop(Loop):
    """What the loops of both released codes share."""

    def without_end_marks(self, text: str) -> str:
        """The text that the answer is read from; a note names the marks that the released code keeps in it."""
        if kept := [mark for mark in self.tokenizer.end_marks if mark in text and mark not in RELEASED_ENDS]:
            self.trace.notes.append(f"the released code keeps {', '.join(kept)} in the answer; it is read without")
        return super().without_end_marks(text)


class ReferenceLoop(ReleasedLoop):
    """An episode of the released code's algorithms."""

    def run(self) -> Episode[None]:
        when = self.method.trigger
        if not isinstance(when, Clock):
            yield from self._look_ahead()
        elif when.searches == "always":
            yield from self._search_first(when)
        else:
            yield from self._single(when)

    # -- the three loops (§1, §4, §5) --------------------------------------------------------------------------------

    def _single(self, when: Clock) -> Episode[None]:
        """wo-RAG and SR-RAG: one generation, not stripped, no loop."""
        step = self.new_step()
        if when.searches == "once":
            self.scheduled(step, when.reason)
            yield from self.retrieve(step, Query(self.question, self.question))
            made = yield from self._write_again(step, "", _CLOSING)
            step.continuation_kept = len(made.text)
        else:
            step.prompt = self.template.render(self.question)
            made = step.draft = yield from self.write(step, self.method.max_new_tokens)
            step.decision = Decision(retrieve=False, reason=when.reason)
        step.kept = step.answer = self.trace.text = made.raw_text
        answered = made.stopped == "eos" or ANSWER_PHRASE in made.raw_text
        self.trace.ended = "answered" if answered else "length"

    def _search_first(self, when: Clock) -> Episode[None]:
        """FL-RAG and FS-RAG: search, write a chunk or a sentence with the passages in view, search again."""
        text, chunk, last = "", "", None
        stop = FirstSentence(self.method.pipeline, self.tokenizer) if when.sentences else None
        while True:
            step = self.new_step()
            query = yield from self._scheduled_query(text, chunk, last)
            self.scheduled(step, when.reason)
            yield from self.retrieve(step, query)
            last = yield from self._write_again(step, " " + text, _STRAY, stop, when.tokens)
            chunk = last.raw_text.strip()  # of which FS-RAG takes the first sentence: stripped, then split
            if when.sentences and not (chunk := self._first_sentence(chunk)):
                self.trace.ended = "stalled"
                return
            step.continuation_kept = _end_of(chunk, last.text) if when.sentences else len(last.text)
            if self._joined(step, text, f"{text.strip()} {chunk}"):
                return
            text = self.trace.text

    def _look_ahead(self) -> Episode[None]:
        """FLARE and DRAGIN: write without passages, look back at it, and where information is missing write again."""
        when, text, rest = self.method.trigger, "", self.method.trigger.rewrites_rest
        # Of DRAGIN's second generation only the first sentence is kept, so it need not be written further.
        stop = None if rest else FirstSentence(self.method.pipeline, self.tokenizer)
        while True:
            step = self.new_step()
            step.prompt = self.template.render(self.question, f" {text}" if rest else _tail(text))
            step.draft = yield from self.write(
                step, self.method.max_new_tokens, attention="attention" in when.needs, hidden=when.hidden
            )
            place, kept = yield from self._look_back(step, text)
            if place is None:
                new = f"{text.strip()} {step.draft.raw_text.strip()}"
            else:
                kept = kept.strip()
                yield from self.retrieve(step, (yield from self.method.formulator.formulate(place)))
                tail = f" {text} {kept}" if rest else _tail(text, kept)
                made = yield from self._write_again(step, tail, _CLOSING, stop)
                if rest:
                    step.continuation_kept = len(made.text)
                    new = f"{text.strip()} {kept} {made.raw_text.strip()}"
                else:
                    sentence = self._first_sentence(made.raw_text)
                    step.continuation_kept = _end_of(sentence, made.text)
                    new = _join(text.strip(), kept, sentence)
            if self._joined(step, text, new):
                return
            text = self.trace.text

    # -- steps -------------------------------------------------------------------------------------------------------

    def _first_sentence(self, text: str) -> str:
        return next(iter(self.method.pipeline.split(text)), "")

    def _write_again(
        self, step: Step, tail: str, closing: str, stop: Stop | None = None, most: int | None = None
    ) -> Episode[Continuation]:
        """Write with the step's passages in view."""
        step.passages_prompt = self.template.render(
            self.question, tail, step.passages, slots=self.method.top_k, closing=closing
        )
        made = yield from self.write(step, most or self.method.max_new_tokens, stop, with_passages=True)
        step.continuation = made
        return made

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

    def _look_back(self, step: Step, text: str) -> Episode[tuple[Gap | None, str]]:
        """Judge the whole draft: the place of the first firing sentence, and the text kept before it."""
        made, attended = step.draft, None
        assert made is not None
        draft = self.look(made, text)
        assert draft.laid is not None
        if self.method.trigger.rereads:
            attended = self.method.trigger.reread((yield from attend(made.ids.tolist())), draft)  # (w,)
        step.words, step.decision, place = self.judge(draft, attended)
        return place, " ".join(draft.laid.sentences[: step.decision.sentence or 0])

    def look(self, made: Continuation, text: str) -> Draft:
        """A draft after the answer ``text``, cut into the released code's words, sentences and tokens."""
        ids = made.ids.tolist()
        words = reference_words(made.tokens, ids, self.tokenizer.marker)
        sentences = self.method.pipeline.split(made.raw_text)
        tokens = [self.tokenizer.decode([i], special=True) for i in ids]
        ranges = lay_sentences(sentences, [word.text for word in words])
        token_ranges = reference_token_ranges(sentences, tokens)
        if self.method.trigger.unit == "draft" and sentences:
            sentences, ranges, token_ranges = [made.raw_text.strip()], [(0, len(words))], [(0, len(tokens))]
        laid = Laid(words, sentences, ranges, tokens, token_ranges)
        return Draft(made, self.method.pipeline, self.question, text, True, laid)

    def judge(self, draft: Draft, attended: np.ndarray | None) -> tuple[Words, Decision, Gap | None]:
        """The trigger's words and decision on a draft, and the place that lacks information where it fires.

        ``attended`` (w,) is there for a trigger that ``rereads`` (§2.2).
        """
        when, made, laid = self.method.trigger, draft.made, draft.laid
        assert isinstance(made, Continuation)
        assert laid is not None
        theta, ranges = when.theta, laid.ranges
        assert theta is not None
        seen = when.released(draft, attended)
        table = Words(
            text=draft.words,
            spans=draft.spans,
            sentence=np.array(draft.sentence_of_word),
            attention=seen.attention.astype(np.float32),
            entropy=seen.entropy.astype(np.float32),
            stop=np.zeros(len(draft.words), dtype=bool),
            score=np.full(len(draft.words), np.nan, dtype=np.float32),
            hit=np.zeros(len(draft.words), dtype=bool),
        )
        for (start, stop), values in zip(ranges, seen.scores, strict=True):
            table.score[start:stop] = values
        fired = next((i for i, peak in enumerate(seen.peaks) if peak > theta), None)
        if fired is None:
            best = max((peak for peak in seen.peaks if not np.isnan(peak)), default=0.0)
            quiet = f"no sentence scores above θ {theta:g} (the highest: {best:.3g})"
            return table, Decision(False, quiet, peaks=tuple(seen.peaks)), None
        start, stop = ranges[fired]
        hits = seen.scores[fired] > theta  # (m,)
        spared = when.spared(draft.words[start:stop], laid.sentences[fired], self.method.pipeline)  # (m,)
        if spared is not None:
            table.stop[start:stop] = spared
            hits &= ~spared
        table.hit[start:stop] = hits
        kept = " ".join(laid.sentences[:fired])
        most = int(seen.scores[fired].argmax()) if stop > start else None
        loudest = None if most is None else laid.words[start + most]
        reason = when.says_of_sentence(fired, seen.peaks[fired], loudest and loudest.text)
        if most is not None and spared is not None and spared[most]:
            reason += "; it is not a content word, so the released code fires on it but does not count it as a hit"
        decision = Decision(
            True,
            reason,
            cut=_begin_of(laid.sentences, fired, made.text),
            token=loudest and loudest.start,
            sentence=fired,
            peaks=tuple(seen.peaks),
        )
        a, b = laid.token_ranges[fired]
        place = Gap(
            question=self.question,
            answer=_join(draft.answer_so_far, kept),
            context=_join(self.question, draft.answer_so_far, kept),
            sentence=laid.sentences[fired],
            words=draft.words[start:stop],
            hits=hits,
            tokens=tuple(laid.tokens[a:b]),
            doubt=doubts(made.logprob)[a:b],
            pipeline=self.method.pipeline,
            tokenizer=self.tokenizer,
            variant="reference",
            doubt_limit=theta if when.on_doubt else None,
            before=f"{self.question} {draft.answer_so_far} {kept} ",
        )
        return table, decision, place

    # -- what of a loop that searches first (§5) ---------------------------------------------------------------------

    def _scheduled_query(self, text: str, chunk: str, last: Continuation | None) -> Episode[Query]:
        """The query of a loop that searches first: the question, then whatever *what* makes of the last chunk."""
        if last is None:
            return self.first_query()
        before = text.strip().removesuffix(chunk).strip()
        tokens = [self.tokenizer.decode([i], special=True) for i in last.ids.tolist()]
        _, owned = reference_token_ranges([chunk], tokens)[0]
        place = self.chunk_place(text, before, chunk, tokens[:owned], doubts(last.logprob)[:owned])
        return (yield from self.method.formulator.formulate(place))

    def chunk_place(self, answer: str, before: str, chunk: str, tokens: list[str], doubt: np.ndarray) -> Gap:
        """A text that was written, as the released code's formulators see it; its last word stands in for hits.

        ``before`` is the answer before it, ``tokens`` and ``doubt`` (m,) are those of the text.
        """
        words = tuple(chunk.split())
        return Gap(
            question=self.question,
            answer=answer,
            context=_join(self.question, answer),
            sentence=chunk,
            words=words,
            hits=np.arange(len(words)) == len(words) - 1,
            tokens=tuple(tokens),
            doubt=doubt,
            pipeline=self.method.pipeline,
            tokenizer=self.tokenizer,
            variant="reference",
            chunk=chunk,
            note=STANDS_IN.replace("token", "word"),
            before=f"{self.question} {before}  ",
        )


def _join(*parts: str) -> str:
    """The non-empty parts, joined by single spaces."""
    return " ".join(part for part in parts if part)


def _tail(*parts: str) -> str:
    """The same as it stands after ``Answer:``: each non-empty part brings its space."""
    return "".join(f" {part}" for part in parts if part)


def _begin_of(sentences: list[str], number: int, text: str) -> int:
    """Where a sentence of a generated text begins in it (characters); one that is not found has no length."""
    cut = end = 0
    for sentence in sentences[: number + 1]:
        found = text.find(sentence, end)
        cut, end = (found, found + len(sentence)) if found >= 0 else (end, end)
    return cut


def _end_of(sentence: str, text: str) -> int:
    """Where a sentence that begins a generated text ends in it (characters)."""
    place = text.find(sentence)
    return place + len(sentence) if place >= 0 else len(text)
