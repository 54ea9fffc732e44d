"""``variant="paper"``: the algorithms as the papers' equations and texts describe them.

The answer so far is kept to the character, passages stay in the prompt until the next retrieval, and a draft ends as
soon as its outcome is known (DRAGIN §3; FLARE, "Active Retrieval Augmented Generation").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dragin_lab.core.answers import ANSWER_TOKENS, cut_prediction
from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import Episode, Stop
from dragin_lab.core.gap import Gap
from dragin_lab.core.loop import STANDS_IN, Loop
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.scores import doubts
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.stops import (
    AnswerSentence,
    AnyOf,
    FirstSentence,
    NextExample,
    Watch,
    answer_end,
    lead,
    next_example,
)
from dragin_lab.core.trigger import Judgement
from dragin_lab.core.triggers import Clock
from dragin_lab.core.words import character_words
from dragin_lab.trace.trace import Continuation, Decision, Passage, Prompt, Query, Step, Words


@dataclass
class PaperLoop(Loop):
    """An episode of the papers' algorithms."""

    text: str = ""  # the answer so far, exact
    passages: tuple[Passage, ...] | None = None  # what the prompt holds
    kept_ids: list[int] = field(default_factory=list)  # the tokens of the answer as they were generated
    given: int = 0  # how many of them were put in, not written

    def run(self) -> Episode[None]:
        when = self.method.trigger
        once = isinstance(when, Clock) and when.searches == "once"
        if once or when.asks_first:
            step = self.new_step()
            self.scheduled(step, "once, before anything is written")
            yield from self._fetch(step, Query(self.question, self.question))
        resumed = False
        while self.trace.ended == "running":
            step = self.trace.steps[-1] if once else self.new_step()
            if isinstance(when, Clock):
                yield from self._clock_turn(step, when)
            else:
                resumed = yield from self._look_ahead(step, resumed)

    # -- one turn of each loop ---------------------------------------------------------------------------------------

    def _look_ahead(self, step: Step, resumed: bool) -> Episode[bool]:
        """Write until the trigger fires, search, and resume what was cut (DRAGIN §3) or write it again (FLARE).

        Whether a sentence is being resumed.
        """
        when, stop = self.method.trigger, None
        if when.span != "draft":
            stop = self.watch(resumed) if when.span == "word" else FirstSentence(self.method.pipeline)
        made = yield from self._draft(step, stop)
        assert step.prompt is not None
        step.words, step.decision, place = self.judge(made, step.prompt, resumed)
        if place is None:
            whole = when.span != "sentence"
            self._keep(step, made, len(made.text) if whole else self.method.pipeline.first_end(made.text))
            return False
        yield from self._fetch(step, (yield from self.method.formulator.formulate(place)))
        if when.span == "sentence":
            step.discarded = made.text
            yield from self._write_sentence(step)
            return False
        assert step.decision.cut is not None
        self._keep(step, made, step.decision.cut, ended=False)
        return True

    def watch(self, resumed: bool) -> Watch:
        """What ends a draft where the trigger fires; ``resumed`` where the draft resumes what was cut."""
        return Watch(self.method.trigger, self.method.pipeline, resumed, self.question, self.text)

    def judge(self, made: Continuation, prompt: Prompt, resumed: bool) -> tuple[Words, Decision, Gap | None]:
        """The trigger's words and decision on a draft, and the place that lacks information where it fires."""
        when = self.method.trigger
        if when.span == "sentence":
            start, end = (self.method.pipeline.spans(made.text) or [(0, 0)])[0]
            first = made.beginning(int((made.offsets[:, 0] < end).sum()))
            draft, sentence = Draft(first, self.method.pipeline, self.question, self.text), (start, end)
            found = when.judge(draft)
        else:
            ended = made.closed or made.stopped == "length"
            draft = Draft(made, self.method.pipeline, self.question, self.text, ended or when.span == "draft")
            found = when.judge(draft, resumed=resumed, until=self._answer_end(made))
            sentence = (0, len(made.text))
        peaks = () if when.unit == "word" else (found.peak,)
        if found.word is None or found.token is None:
            certain = when.span == "sentence" or made.stopped != "length"
            return found.words, Decision(False, self._quiet(found, resumed), peaks=peaks, certain=certain), None
        hits = tuple(_span(made, a, b) for a, b in found.words.spans[found.words.hit].tolist())
        cut = hits[0][0]
        if when.span == "word":
            sentence = _around(self.method.pipeline, made.text, cut)
        ends = {"word": cut, "sentence": _token_start(made.offsets, sentence[0]), "draft": 0}
        decision = Decision(
            True,
            self._loud(found, made),
            cut=0 if when.span == "sentence" else ends[when.cut],
            token=found.token,
            sentence=int(found.words.sentence[found.word]),
            peaks=peaks,
        )
        return found.words, decision, self.place(made, prompt, found.token, cut, sentence, hits)

    def _quiet(self, found: Judgement, resumed: bool) -> str:
        """Why nothing fires."""
        when, words = self.method.trigger, found.words
        reason = when.says_nothing(found.peak)
        spared = (words.score > when.theta) & ~found.judged & (words.sentence == 0)
        if resumed and spared.any():
            word = words.text[int(np.flatnonzero(spared)[0])]
            reason += f"; {word!r} does, but in the sentence being resumed nothing may fire"
        return reason

    def _loud(self, found: Judgement, known: Continuation) -> str:
        """Why the trigger fires."""
        when = self.method.trigger
        assert found.word is not None
        assert found.token is not None
        if when.unit != "word":
            return f"the {when.unit} {when.says(found.peak)} ({when.pool}), above θ {when.theta:g}"
        word = found.words.text[found.word] or known.tokens[found.token]
        return f"{word!r} {when.says(float(found.words.score[found.word]))}, above θ {when.theta:g}"

    def _write_sentence(self, step: Step) -> Episode[None]:
        """Write one sentence with the passages in view, and keep it."""
        made = yield from self._continue(step, FirstSentence(self.method.pipeline))
        self._keep(step, made, self.method.pipeline.first_end(made.text))

    def _clock_turn(self, step: Step, when: Clock) -> Episode[None]:
        """wo-RAG, SR-RAG, FL-RAG, FS-RAG: search by the clock (or not at all), then write."""
        if when.searches == "never":
            step.decision = Decision(False, when.reason)
            made = yield from self._draft(step, None)
            self._keep(step, made, len(made.text))
            return
        if when.searches == "always":
            self.scheduled(step, when.reason)
            yield from self._fetch(step, (yield from self._scheduled_query()))
        if when.sentences:
            yield from self._write_sentence(step)
            return
        made = yield from self._continue(step, None, when.tokens)
        self._keep(step, made, len(made.text))

    @property
    def written(self) -> int:
        """How many tokens of the answer the model wrote."""
        return len(self.kept_ids) - self.given

    def put_in(self, step: Step, text: str) -> None:
        """Add a text to the answer that the model did not write."""
        ids = self.tokenizer.encode(text, special=False)
        self.kept_ids += ids
        self.given += len(ids)
        self.text += text
        self.trace.text = step.answer = self.text

    # -- writing and keeping -----------------------------------------------------------------------------------------

    def _draft(self, step: Step, stop: Stop | None, limit: int | None = None, **options: Any) -> Episode[Continuation]:
        step.prompt = self._prompt(step)
        options |= {"hidden": self.method.trigger.hidden}
        made = step.draft = yield from self._write_until(step, stop, limit, **options)
        return made

    def _continue(self, step: Step, stop: Stop | None, limit: int | None = None) -> Episode[Continuation]:
        step.passages_prompt = self._prompt(step)
        made = step.continuation = yield from self._write_until(step, stop, limit, with_passages=True)
        return made

    def _write_until(self, step: Step, stop: Stop | None, limit: int | None, **options: Any) -> Episode[Continuation]:
        left = self.method.max_new_tokens - self.written
        answer = AnswerSentence(self.method.pipeline, self.tokenizer, self.text, self.template.shape)
        marks = self.template.example_marks
        made = yield from self.write(
            step,
            min(left, limit or left),
            AnyOf(tuple(one for one in (NextExample(marks), stop, answer) if one is not None)),
            attention=self.method.keeps_attention,
            **options,
        )
        m = min(len(self.kept_ids), len(made.prompt_ids))
        if made.prompt_ids[len(made.prompt_ids) - m :].tolist() != self.kept_ids[len(self.kept_ids) - m :]:
            step.notes.append("the answer so far, encoded again, gives other ids than were generated")
        end = next_example(made.text, marks)
        if end is None:
            return made
        step.notes.append(f"the model began another example, which was cut: {made.text[end:].strip()!r}")
        return made.before(end)

    def _prompt(self, step: Step) -> Prompt:
        prompt = self._fitting(self.text, self.passages, self.method.max_new_tokens - self.written)
        step.notes.extend(prompt.notes)
        return prompt

    def request_answer(self, text: str) -> Episode[str]:
        """Have the model complete ``text``, which ends by asking for the answer; it ends with its line or sentence.

        The space after the request is left to the model: byte-level vocabularies write it as part of the next word.
        """
        text = text.rstrip()
        stop = AnswerSentence(self.method.pipeline, self.tokenizer, text, self.template.shape)
        made = yield from self._extract(text, stop)
        text += self._lead(made) + made.text.rstrip()
        text = text[: answer_end(self.method.pipeline, text, ended=True, form=self.template.shape)]
        return text if self.template.shape.closes else cut_prediction(text, at_start=True)

    def extraction_prompt(self, tail: str) -> Prompt:
        prompt = self._fitting(tail, None, ANSWER_TOKENS)
        self.trace.notes.extend(prompt.notes)
        return prompt

    def _fitting(self, tail: str, passages: Sequence[Passage] | None, room: int) -> Prompt:
        """The prompt, with as little dropped as leaves room for ``room`` tokens in the window."""

        def build(template: PromptTemplate, passages: Sequence[Passage] | None) -> Prompt:
            return template.render(self.question, tail, passages or None)

        def fits(prompt: Prompt) -> bool:
            if self.window is None:
                return True
            return len(self.tokenizer.encode(prompt.text, special=prompt.special)) + room <= self.window

        limit = f"the model's window of {self.window} tokens, {room} of them for what is to be written"
        return self.template.fit(build, passages, fits, limit)

    def _fetch(self, step: Step, query: Query) -> Episode[None]:
        yield from self.retrieve(step, query)
        self.passages = step.passages

    def _keep(self, step: Step, made: Continuation, end: int, *, ended: bool = True) -> None:
        """Add the first ``end`` characters of what was written to the answer; with ``ended``, see if it ends there."""
        lead = self._lead(made) if end else ""  # the space goes with the word after it
        whole = (made.closed or made.stopped == "length") and not made.text[end:].strip()
        new = self.text + lead + made.text[:end]
        if ended:
            form = self.template.shape
            close = answer_end(self.method.pipeline, new, ended=True, form=form)
            over = form.closes or made.text[end:].strip() or made.closed or made.stopped == "answer"
            if close is not None and (close < len(new) or over):
                end = max(end - (len(new) - close), 0)
                new = new[:close]
                self.trace.ended = "answered"
        tokens = int((made.offsets[:, 0] < end).sum())
        step.kept, step.answer = new[len(self.text) :], new
        if step.continuation is None:
            written = step.draft.text if step.draft is not None else made.text
            step.discarded = written[end:]
            if step.decision is not None and step.discarded:
                step.decision.cut = end
        else:
            step.continuation_kept = end
        grew = len(new) > len(self.text)
        self.text = self.trace.text = new
        self.kept_ids += made.ids[:tokens].tolist()
        if not ended or self.trace.ended != "running":
            return
        if whole and made.closed:
            self.trace.ended = "answered"
        elif self.written >= self.method.max_new_tokens or (whole and not self._goes_on):
            self.trace.ended = "length"
        elif not grew:
            self.trace.ended = "stalled"

    @property
    def _goes_on(self) -> bool:
        """Whether the loop has another turn after a whole draft."""
        return not isinstance(self.method.trigger, Clock) or self.method.trigger.searches == "always"

    def _answer_end(self, made: Continuation) -> int | None:
        """The character of what was written at which the final answer ends; None while it has not."""
        before = self.text + self._lead(made)
        close = answer_end(self.method.pipeline, before + made.text, ended=True, form=self.template.shape)
        return None if close is None else max(close - len(before), 0)

    def _lead(self, made: Continuation) -> str:
        return lead(self.tokenizer, made.ids.tolist(), made.text)

    # -- what --------------------------------------------------------------------------------------------------------

    def _scheduled_query(self) -> Episode[Query]:
        """The query of a loop that searches by the clock: from what it wrote last, at the start from the question."""
        step = self.trace.steps[-2] if len(self.trace.steps) > 1 else None
        if step is None or step.continuation is None or step.passages_prompt is None:
            return self.first_query()
        made = step.continuation
        end = len(made.text) if step.continuation_kept is None else step.continuation_kept
        place = self.end_place(made, step.passages_prompt, (0, end), answer=self.text)
        return (yield from self.method.formulator.formulate(place))

    def end_place(self, made: Continuation, prompt: Prompt, span: tuple[int, int], **told: Any) -> Gap:
        """The place of a text whose trigger flags no words: its last visible token stands in for them."""
        starts, stops = made.offsets.T  # (n,), (n,)
        visible = np.flatnonzero((starts < span[1]) & (stops > starts))
        token = int(visible[-1]) if len(visible) else 0
        last = (int(starts[token]), min(int(stops[token]), span[1])) if len(visible) else (0, 0)
        return self.place(made, prompt, token, span[1], span, (last,), note=STANDS_IN, **told)

    def place(
        self,
        made: Continuation,
        prompt: Prompt,
        token: int,
        cut: int,
        span: tuple[int, int],
        hits: tuple[tuple[int, int], ...],
        *,
        answer: str | None = None,
        term: str = "",
        note: str = "",
    ) -> Gap:
        """The place in a written text: t_i, the character where its word begins, its sentence, the flagged words.

        ``answer`` is the answer up to there; a clock's loop has kept what it wrote, a trigger's keeps what stands
        before the cut.
        """
        if answer is None:
            answer = self.text + self._lead(made) + made.text[:cut]
        start, end = span
        inside = np.flatnonzero((made.offsets[:, 1] > start) & (made.offsets[:, 0] < end))
        words = character_words(made.text, np.clip(made.offsets[inside], start, end))
        spans = [_span(made, inside[w.start], inside[w.stop - 1] + 1) for w in words]
        when = self.method.trigger
        return Gap(
            question=self.question,
            answer=answer,
            context=f"{self.question}{answer}" if answer.startswith(" ") else f"{self.question} {answer}",
            sentence=made.text[start:end],
            words=tuple(word.text for word in words),
            hits=np.array([any(a < d and c < b for c, d in hits) for a, b in spans], dtype=bool),
            tokens=tuple(made.text[a:b] for a, b in made.offsets[inside]),
            doubt=doubts(made.logprob)[inside],
            pipeline=self.method.pipeline,
            tokenizer=self.tokenizer,
            term=term,
            chunk_tokens=when.tokens if isinstance(when, Clock) else None,
            note=note,
            written=made,
            prompt=prompt,
            token=token,
            cut=cut,
            span=span,
            hit_spans=hits,
        )


def _span(made: Continuation, start: int, stop: int) -> tuple[int, int]:
    """The characters of the tokens ``start`` to ``stop - 1``."""
    return int(made.offsets[start, 0]), int(made.offsets[stop - 1, 1])


def _token_start(offsets: np.ndarray, place: int) -> int:
    """The first character of the token that holds the character at ``place``, its leading space included."""
    return int(offsets[int(np.flatnonzero(offsets[:, 1] > place)[0]), 0])


def _around(pipeline: Pipeline, text: str, place: int) -> tuple[int, int]:
    """The sentence of ``text`` that holds the visible character at or after ``place``; characters."""
    spans = pipeline.spans(text)
    return next(((a, b) for a, b in spans if b > place), (min(place, len(text)), len(text)))
