"""``variant="reference"``: what the authors' released code does, to the letter (docs/reference-behaviour.md).

Spaces count: prompts and answer text are joined exactly as the page says, doubled spaces and stray ones included.
"""

from __future__ import annotations

import numpy as np

from dragin_lab.core.answers import ANSWER_PHRASE, RELEASED_ENDS
from dragin_lab.core.clock import Clock
from dragin_lab.core.episode import Episode, Stop, attend
from dragin_lab.core.scores import doubts
from dragin_lab.core.steps import Loop
from dragin_lab.core.stops import FirstSentence
from dragin_lab.reference.measures import assign_tokens, assign_words, merge_words
from dragin_lab.reference.rules import QUERY_TOKENS, Reader, ReleasedDraft, ReleasedGap
from dragin_lab.text import write_compared
from dragin_lab.trace.trace import Decision, Draft, Query, Step, Words

#: The note of a query whose rule flags no words.
STANDS_IN = "the last word stands in for the hits that this trigger does not give"

_STRAY = "Answer in t he same format as before."
_CLOSING = "Answer in the same format as before."


class ReferenceLoop(Loop):
    """An episode of the DRAGIN authors' code."""

    released = True

    def sendable(self, text: str) -> str:
        """A query's last tokens (§4)."""
        ids = self.tokenizer.encode(text, special=False)[-QUERY_TOKENS:]
        return self.tokenizer.decode(ids, special=False)

    def _end_marks_in(self, text: str) -> list[str]:
        marks = super()._end_marks_in(text)
        if kept := [mark for mark in marks if mark not in RELEASED_ENDS]:
            self.trace.notes.append(f"the released code keeps {', '.join(kept)} in the answer; it is read without")
        return marks

    def run(self) -> Episode[None]:
        rule = self.method.trigger
        if not isinstance(rule, Clock):
            yield from self._look_ahead(rule)
        elif rule.searches == "always":
            yield from self._search_first(rule)
        else:
            yield from self._write_once(rule)

    # -- the three loops (§1, §4, §5) --------------------------------------------------------------------------------

    def _write_once(self, rule: Clock) -> Episode[None]:
        """wo-RAG and SR-RAG: one generation, not stripped, no loop."""
        step = self.new_step()
        if rule.searches == "once":
            self.schedule(step, rule.reason)
            yield from self.retrieve(step, Query(self.question, self.question))
            written = yield from self._write_again(step, "", _CLOSING)
            step.continuation_kept = len(written.text)
        else:
            step.prompt = self.template.render(self.question)
            written = step.draft = yield from self.write(step, self.method.max_new_tokens)
            step.decision = Decision(retrieve=False, reason=rule.reason)
        step.kept = step.answer = self.trace.text = written.raw_text
        answered = written.stopped == "eos" or ANSWER_PHRASE in written.raw_text
        self.trace.ended = "answered" if answered else "length"

    def _search_first(self, rule: Clock) -> Episode[None]:
        """FL-RAG and FS-RAG: search, write a chunk or a sentence with the passages in view, search again."""
        text, chunk, last = "", "", None
        stop = FirstSentence(self.method.pipeline, self.tokenizer) if rule.sentences else None
        while True:
            step = self.new_step()
            query = yield from self._scheduled_query(text, chunk, last)
            self.schedule(step, rule.reason)
            yield from self.retrieve(step, query)
            last = yield from self._write_again(step, " " + text, _STRAY, stop, rule.tokens)
            chunk = last.raw_text.strip()  # of which FS-RAG takes the first sentence: stripped, then split
            if rule.sentences and not (chunk := self._first_sentence(chunk)):
                self.trace.ended = "stalled"
                return
            step.continuation_kept = _end_of(chunk, last.text) if rule.sentences else len(last.text)
            if self._joined(step, text, f"{text.strip()} {chunk}"):
                return
            text = self.trace.text

    def _look_ahead(self, rule: Reader) -> Episode[None]:
        """FLARE and DRAGIN: write without passages, look back at it, and where information is missing write again."""
        text, rest = "", rule.rewrites_rest
        # Of DRAGIN's second generation only the first sentence is kept, so it need not be written further.
        stop = None if rest else FirstSentence(self.method.pipeline, self.tokenizer)
        while True:
            step = self.new_step()
            step.prompt = self.template.render(self.question, f" {text}" if rest else _lead_parts(text))
            step.draft = yield from self.write(step, self.method.max_new_tokens)
            gap, kept = yield from self._look_back(step, rule, text)
            if gap is None:
                new = f"{text.strip()} {step.draft.raw_text.strip()}"
            else:
                kept = kept.strip()
                yield from self.retrieve(step, (yield from self.method.formulator.query(gap)))
                tail = f" {text} {kept}" if rest else _lead_parts(text, kept)
                written = yield from self._write_again(step, tail, _CLOSING, stop)
                if rest:
                    step.continuation_kept = len(written.text)
                    new = f"{text.strip()} {kept} {written.raw_text.strip()}"
                else:
                    sentence = self._first_sentence(written.raw_text)
                    step.continuation_kept = _end_of(sentence, written.text)
                    new = _join_parts(text.strip(), kept, sentence)
            if self._joined(step, text, new):
                return
            text = self.trace.text

    # -- steps -------------------------------------------------------------------------------------------------------

    def _first_sentence(self, text: str) -> str:
        return next(iter(self.method.pipeline.split(text)), "")

    def _write_again(
        self, step: Step, tail: str, closing: str, stop: Stop | None = None, most: int | None = None
    ) -> Episode[Draft]:
        """Write with the step's passages in view."""
        step.passages_prompt = self.template.render(
            self.question, tail, step.passages, slots=self.method.top_k, closing=closing
        )
        written = yield from self.write(step, most or self.method.max_new_tokens, stop, with_passages=True)
        step.continuation = written
        return written

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

    def _look_back(self, step: Step, rule: Reader, text: str) -> Episode[tuple[ReleasedGap | None, str]]:
        """Judge the whole draft: the gap in the first sentence that fires, and the text kept before it."""
        assert step.draft is not None
        draft, attention = self.cut_draft(step.draft), None
        if rule.rereads:
            attention = rule.read_attention((yield from attend(step.draft.ids.tolist())), draft)  # (w,)
        step.words, step.decision, gap = self.judge(draft, attention, text)
        return gap, " ".join(draft.sentences[: step.decision.sentence or 0])

    def cut_draft(self, written: Draft) -> ReleasedDraft:
        """A draft, cut into the released code's words, sentences and tokens."""
        ids = written.ids.tolist()
        words = merge_words(written.pieces, ids, self.tokenizer.marker)
        sentences = self.method.pipeline.split(written.raw_text)
        tokens = [self.tokenizer.decode([i], special=True) for i in ids]
        ranges = assign_words(sentences, [word.text for word in words])
        return ReleasedDraft(written, words, sentences, ranges, tokens, assign_tokens(sentences, tokens))

    def judge(
        self, draft: ReleasedDraft, attention: np.ndarray | None, text: str
    ) -> tuple[Words, Decision, ReleasedGap | None]:
        """The words and the decision on a draft after the answer ``text``, and the gap where it fires.

        ``attention`` (w,) is there for a rule that ``rereads`` (§2.2).
        """
        rule: Reader = self.method.trigger
        assert rule.theta is not None
        scores = rule.score(draft, attention)
        table = Words(
            text=draft.texts,
            spans=draft.spans,
            sentence=draft.sentence_of_word,
            attention=scores.attention.astype(np.float32),
            entropy=scores.entropy.astype(np.float32),
            stop=np.zeros(len(draft.words), dtype=bool),
            score=np.full(len(draft.words), np.nan, dtype=np.float32),
            hit=np.zeros(len(draft.words), dtype=bool),
        )
        for (start, stop), values in zip(draft.ranges, scores.words, strict=True):
            table.score[start:stop] = values
        peaks = tuple(scores.peaks)
        fired = next((i for i, peak in enumerate(peaks) if peak > rule.theta), None)
        if fired is None:
            highest, theta = write_compared(max((p for p in peaks if not np.isnan(p)), default=0.0), rule.theta)
            reason = f"no sentence scores above θ {theta} (the highest: {highest})"
            return table, Decision(False, reason, peaks=peaks), None
        start, stop = draft.ranges[fired]
        hits = scores.words[fired] > rule.theta  # (m,)
        spared = rule.find_spared(draft.texts[start:stop], draft.sentences[fired], self.method.pipeline)  # (m,)
        if spared is not None:
            table.stop[start:stop] = spared
            hits &= ~spared
        table.hit[start:stop] = hits
        most = int(scores.words[fired].argmax()) if stop > start else None
        best = None if most is None else draft.words[start + most]
        reason = rule.explain(fired, peaks[fired], best and best.text)
        if most is not None and spared is not None and spared[most]:
            reason += "; it is not a content word, so the released code fires on it but does not count it as a hit"
        cut = _begin_of(draft.sentences, fired, draft.continuation.text)
        decision = Decision(True, reason, cut=cut, token=best and best.start, sentence=fired, peaks=peaks)
        return table, decision, self._gap(draft, fired, hits, text)

    def _gap(self, draft: ReleasedDraft, number: int, hits: np.ndarray, text: str) -> ReleasedGap:
        """The sentence that fires, with what stands before it."""
        rule, kept = self.method.trigger, " ".join(draft.sentences[:number])
        (start, stop), (a, b) = draft.ranges[number], draft.token_ranges[number]
        return ReleasedGap(
            question=self.question,
            answer=_join_parts(text, kept),
            context=_join_parts(self.question, text, kept),
            sentence=draft.sentences[number],
            words=draft.texts[start:stop],
            hits=hits,
            tokens=tuple(draft.tokens[a:b]),
            doubt=doubts(draft.continuation.logprob)[a:b],
            pipeline=self.method.pipeline,
            tokenizer=self.tokenizer,
            before=f"{self.question} {text} {kept} ",
            doubt_limit=rule.theta if rule.rewrites_rest else None,
        )

    # -- what of a loop that searches first (§5) ---------------------------------------------------------------------

    def _scheduled_query(self, text: str, chunk: str, last: Draft | None) -> Episode[Query]:
        """The query of a loop that searches first: the question, then what the formulation makes of the last chunk."""
        if last is None:
            return self.first_query()
        before = text.strip().removesuffix(chunk).strip()
        tokens = [self.tokenizer.decode([i], special=True) for i in last.ids.tolist()]
        _, owned = assign_tokens([chunk], tokens)[0]
        words = tuple(chunk.split())
        gap = ReleasedGap(
            question=self.question,
            answer=text,
            context=_join_parts(self.question, text),
            sentence=chunk,
            words=words,
            hits=np.arange(len(words)) == len(words) - 1,
            tokens=tuple(tokens[:owned]),
            doubt=doubts(last.logprob)[:owned],
            pipeline=self.method.pipeline,
            tokenizer=self.tokenizer,
            before=f"{self.question} {before}  ",
            chunk=chunk,
            note=STANDS_IN,
        )
        return (yield from self.method.formulator.query(gap))


def _join_parts(*parts: str) -> str:
    """The non-empty parts, joined by single spaces."""
    return " ".join(part for part in parts if part)


def _lead_parts(*parts: str) -> str:
    """The same as it stands after ``Answer:``: each non-empty part brings its space."""
    return "".join(f" {part}" for part in parts if part)


def _begin_of(sentences: list[str], number: int, text: str) -> int:
    """Where a sentence of a generated text begins in it (characters); one that is not found has no length."""
    cut = end = 0
    for sentence in sentences[: number + 1]:
        begin = text.find(sentence, end)
        cut, end = (begin, begin + len(sentence)) if begin >= 0 else (end, end)
    return cut


def _end_of(sentence: str, text: str) -> int:
    """Where a sentence that begins a generated text ends in it (characters)."""
    place = text.find(sentence)
    return place + len(sentence) if place >= 0 else len(text)
