"""What every loop does: write, judge, search, keep, and end the episode.

``PaperLoop`` follows the papers (DRAGIN §3; FLARE, "Active Retrieval Augmented Generation"): the answer so far is kept
to the character, passages stay in the prompt until the next retrieval, and a draft ends once its outcome is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dragin_lab.core.answers import ANSWER_TOKENS, cut_prediction, fold_phrase, without_thoughts
from dragin_lab.core.episode import (
    AnswerLine,
    AnyOf,
    Episode,
    NextExample,
    Search,
    Stop,
    Tokenizer,
    Watch,
    Write,
    find_answer_end,
    find_next_example,
    lead,
)
from dragin_lab.core.formulators import Gap
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.trigger import Trigger, Verdict
from dragin_lab.text import write_compared
from dragin_lab.trace.trace import Decision, Draft, Passage, Prompt, Query, Step, Trace

#: The note of a query whose trigger flags no words.
STANDS_IN = "the last token stands in for the hits that this trigger does not give"


def holds_word(query: str) -> bool:
    """Whether a query is searched for: one without a letter or digit is not (paper variant)."""
    return any(map(str.isalnum, query))


@dataclass
class Loop:
    """One episode: a method at work on ``trace.question``."""

    method: Method
    trace: Trace
    template: PromptTemplate
    tokenizer: Tokenizer
    window: int | None = None
    released: ClassVar[bool] = False  # whether answers are read and scored as a released code does

    @property
    def question(self) -> str:
        """What is asked."""
        return self.trace.question.text

    def run(self) -> Episode[None]:
        """All turns, until ``trace.ended`` says how the episode ended; the answer is then read from ``trace.text``."""
        raise NotImplementedError

    def new_step(self) -> Step:
        step = Step(len(self.trace.steps))
        self.trace.steps.append(step)
        return step

    def write(
        self, prompt: Prompt, most: int, notes: list[str], stop: Stop | None = None, **options: Any
    ) -> Episode[Draft]:
        """Write after a prompt, and note a window that was overrun."""
        written: Draft = yield Write(prompt, most, stop or Stop(), **options)
        total = len(written.prompt_ids) + len(written)
        if self.window is not None and total > self.window:
            notes.append(f"prompt and text have {total} tokens, more than the model's window of {self.window}")
        return written

    def first_query(self) -> Query:
        """The query of a loop that searches before anything is written."""
        note = "the question: nothing is written yet" if self.method.formulator.needs else ""
        return Query(self.question, self.question, note=note)

    def retrieve(self, step: Step, query: Query) -> Episode[None]:
        """Search for a query, and record both."""
        query.sent = self.sendable(query.text)
        step.query = query
        step.passages = tuple((yield Search(query.sent, self.method.top_k)))
        if len(step.passages) < self.method.top_k:
            step.notes.append(f"asked for {self.method.top_k} passages, found {len(step.passages)}")

    def sendable(self, text: str) -> str:
        """What of a query's text is sent to the retriever."""
        return text

    def finish(self) -> Episode[None]:
        """Read the answer from the text; ask for one where the text has none (Appendix B; reference-behaviour §6)."""
        form = self.template.shape
        text = without_thoughts(self.trace.text).strip()
        text = text if form.closes else cut_prediction(text)  # passages that were put in may hold the marks of a cut
        if form.phrase not in (text if self.released else fold_phrase(text, form.phrase)):
            text = yield from self.request_answer(text + form.request)
        for mark in self._end_marks_in(text):
            text = text.replace(mark, "")
        self.trace.answer = self.template.read(text, released=self.released)
        self.trace.readable = self.template.readable(text)
        if golds := self.trace.question.golds:
            self.trace.scores = self.template.score(self.trace.answer, golds, released=self.released)

    def request_answer(self, text: str) -> Episode[str]:
        """Have the model complete ``text``, which ends by asking for the answer (§6.2)."""
        continuation = yield from self.extract(self.template.render(self.question, " " + text))
        text += continuation.raw_text.strip()
        return text if self.template.shape.closes else cut_prediction(text, at_start=True)

    def extract(self, prompt: Prompt, stop: Stop | None = None) -> Episode[Draft]:
        """What the model writes where the answer is asked for, recorded as the trace's extraction."""
        self.trace.extraction_prompt = prompt
        written = self.trace.extraction = yield from self.write(prompt, ANSWER_TOKENS, self.trace.notes, stop)
        return written

    def _end_marks_in(self, text: str) -> list[str]:
        """The model's end marks that a text holds; the answer is read without them."""
        return [mark for mark in self.tokenizer.end_marks if mark in text]


@dataclass
class PaperLoop(Loop):
    """An episode of the papers' algorithms."""

    text: str = ""  # the answer so far, exact
    passages: tuple[Passage, ...] | None = None  # what the prompt holds
    written: int = 0  # how many tokens of the answer the model wrote
    writes_on = True  # whether the loop has another turn after a whole draft

    @property
    def trigger(self) -> Trigger:
        """When to retrieve."""
        return self.method.trigger

    @property
    def running(self) -> bool:
        """Whether the answer has not ended."""
        return self.trace.ended == "running"

    @property
    def left(self) -> int:
        """How many tokens the answer may still have."""
        return self.method.max_new_tokens - self.written

    # -- writing ------------------------------------------------------------------------------------------------------

    def write_draft(self, step: Step, stop: Stop | None, limit: int | None = None, **options: Any) -> Episode[Draft]:
        """Write what the trigger judges."""
        step.prompt = self._fit_prompt(self.text, self.left, step.notes)
        among = "received" in self.trigger.needs or not self.trigger.built_in  # a custom one may not say what it reads
        options |= {"hidden": self.trigger.hidden, "among": among}
        draft = step.draft = yield from self._write_until(step.prompt, step, stop, limit, **options)
        return draft

    def write_on(self, step: Step, stop: Stop | None, limit: int | None = None) -> Episode[Draft]:
        """Write with the step's passages in view, without a judgement."""
        step.passages_prompt = self._fit_prompt(self.text, self.left, step.notes)
        continuation = step.continuation = yield from self._write_until(step.passages_prompt, step, stop, limit)
        return continuation

    def _write_until(
        self, prompt: Prompt, step: Step, stop: Stop | None, limit: int | None, **options: Any
    ) -> Episode[Draft]:
        answer = AnswerLine(self.tokenizer, self.text, self.template.shape)
        example = NextExample(self.template.example_marks, bool(self.text.strip()))
        stops = AnyOf(tuple(one for one in (example, stop, answer) if one is not None))
        options["attention"] = self.method.keeps_attention
        written = yield from self.write(prompt, min(self.left, limit or self.left), step.notes, stops, **options)
        end = find_next_example(written.text, example.marks, example.begun)
        if end is None:
            return written
        if cut := written.text[end:].strip():
            step.notes.append(f"the model began another example, which was cut: {cut!r}")
        return written.before(end)

    def fetch(self, step: Step, query: Query) -> Episode[None]:
        """Search, and put what is found into the prompt of all that follows, until the next search that finds any."""
        if not holds_word(query.text):
            step.notes.append(f"the query {query.text!r} holds no word, so nothing was searched for")
            return
        yield from self.retrieve(step, query)
        if self.passages and not step.passages:
            step.notes.append("nothing was found, so the passages stay")
        self.passages = step.passages or self.passages

    def request_answer(self, text: str) -> Episode[str]:
        """Have the model complete ``text``, which ends by asking for the answer; it ends with its line.

        The space after the request is left to the model: byte-level vocabularies write it as part of the next word.
        """
        if not self.text.strip():
            how = "began another example" if self.trace.continuations[-1].stopped == "example" else "ended"
            self.trace.notes.append(f"the model {how} before it wrote anything; the answer was asked for")
        text, form = text.rstrip(), self.template.shape
        prompt = self._fit_prompt(text if text[:1].isspace() else f" {text}", ANSWER_TOKENS, self.trace.notes)
        continuation = yield from self.extract(prompt, AnswerLine(self.tokenizer, text, form))
        text += self.lead(continuation) + continuation.text.rstrip()
        text = text[: find_answer_end(text, form, ended=True)]
        return text if form.closes else cut_prediction(text, at_start=True)

    def _fit_prompt(self, tail: str, room: int, notes: list[str]) -> Prompt:
        """The prompt, with as little dropped as leaves room for ``room`` tokens in the window."""

        def fits(prompt: Prompt) -> bool:
            if self.window is None:
                return True
            return len(self.tokenizer.encode(prompt.text, special=prompt.special)) + room <= self.window

        limit = f"the model's window of {self.window} tokens, {room} of them for what is to be written"
        prompt = self.template.fit(self.question, tail, self.passages, fits, limit)
        notes.extend(prompt.notes)
        return prompt

    # -- judging ------------------------------------------------------------------------------------------------------

    def watch(self, resumed: bool) -> Watch:
        """What ends a draft where the trigger fires; ``resumed`` where the draft resumes what was cut."""
        return Watch(self.trigger, self.method.pipeline, resumed, self.question, self.text)

    def first_sentence(self, text: str) -> tuple[int, int]:
        """Half-open characters of a draft's first sentence; one that states the answer takes the rest of its line."""
        start, end = next(iter(self.method.pipeline.spans(text)), (0, 0))
        form = self.template.shape
        states = form.phrase in fold_phrase(text[:end], form.phrase)
        return start, (find_answer_end(text, form, ended=True) if states else None) or end

    def judge(self, step: Step, draft: Draft, resumed: bool = False) -> Gap | None:
        """Judge a draft and record the words and the decision; the gap where the trigger fires."""
        trigger, verdict = self.trigger, self._verdict(draft, resumed)
        step.words, peaks = verdict.words, () if trigger.unit == "word" else (verdict.peak,)
        if not verdict.fires:
            certain = trigger.span == "sentence" or draft.stopped != "length"
            step.decision = Decision(False, _explain_silence(verdict, resumed), peaks=peaks, certain=certain)
            return None
        words = verdict.draft.spans[verdict.hit]
        hits = tuple((int(draft.offsets[a, 0]), int(draft.offsets[b - 1, 1])) for a, b in words)
        sentence = self.first_sentence(draft.text) if trigger.span == "sentence" else (0, len(draft.text))
        cut = hits[0][0]
        if trigger.span == "word":
            sentence = self.method.pipeline.around(draft.text, cut)
        start = int(draft.offsets[draft.offsets[:, 1] > sentence[0]][0, 0])  # with the space before it
        ends = {"word": cut, "sentence": start, "step": start, "draft": 0}
        step.decision = Decision(
            True,
            trigger.describe_hit(verdict),
            cut=0 if trigger.span == "sentence" else ends[trigger.cut],
            token=verdict.token,
            sentence=int(step.words.sentence[verdict.word]),
            peaks=peaks,
        )
        answer = self.text + self.lead(draft) + draft.text[:cut]
        return self.gap(step.prompt, draft, answer, token=verdict.token, cut=cut, span=sentence, hit_spans=hits)

    def _verdict(self, draft: Draft, resumed: bool) -> Verdict:
        """The trigger's verdict on what it looks at of a draft: its first sentence, or all of it."""
        trigger, seen, ended, until = self.trigger, draft, True, None
        if trigger.span == "sentence":
            resumed, end = False, self.first_sentence(draft.text)[1]
            seen = draft.first(int((draft.offsets[:, 0] < end).sum()))
        else:
            before = self.text + self.lead(draft)
            close = find_answer_end(before + draft.text, self.template.shape, ended=True)
            until = None if close is None else max(close - len(before), 0)  # nothing fires after the final answer
            ended = trigger.span != "word" or draft.closed or draft.stopped == "length"
        seen = seen.read_by(self.method.pipeline, self.question, self.text, ended=ended)
        return trigger.judge(seen, resumed=resumed, until=until)

    def gap(self, prompt: Prompt | None, draft: Draft, answer: str, **place: Any) -> Gap:
        """The gap at a ``place`` of a draft."""
        assert prompt is not None
        return Gap(self.question, answer, draft, prompt, self.method.pipeline, self.tokenizer, **place)

    def gap_at_end(
        self, written: Draft, prompt: Prompt | None, span: tuple[int, int], *, answer: str, **more: Any
    ) -> Gap:
        """The gap of a text in which no word was flagged: its last visible token stands in for the hits."""
        starts, stops = written.offsets.T  # (n,), (n,)
        visible = np.flatnonzero((starts < span[1]) & (stops > starts))
        token = int(visible[-1]) if len(visible) else 0
        last = (int(starts[token]), min(int(stops[token]), span[1])) if len(visible) else (0, 0)
        place = {"token": token, "cut": span[1], "span": span, "hit_spans": (last,), "note": STANDS_IN}
        return self.gap(prompt, written, answer, **place, **more)

    # -- keeping ------------------------------------------------------------------------------------------------------

    def keep(self, step: Step, written: Draft, end: int, *, ended: bool = True) -> None:
        """Add the first ``end`` characters of what was written to the answer; with ``ended``, see if it ends there."""
        start = self.lead(written) if end else ""  # the space goes with the word after it
        more = bool(written.text[end:].strip())
        new = self.text + start + written.text[:end]
        if ended:
            over = more or written.closed or written.stopped == "answer"
            close = find_answer_end(new, self.template.shape, ended=over)
            if close is not None:
                end = max(end - (len(new) - close), 0)
                new = new[:close]
                self.trace.ended = "answered"
        step.kept, step.answer = new[len(self.text) :], new
        if step.continuation is None:
            step.discarded = (step.draft.text if step.draft is not None else written.text)[end:]
            if step.decision is not None and step.discarded:
                step.decision.cut = end
        else:
            step.continuation_kept = end
        grew = len(new) > len(self.text)
        self.text = self.trace.text = new
        self.written += int((written.offsets[:, 0] < end).sum())
        if not ended or not self.running:
            return
        if written.closed and not more:
            self.trace.ended = "answered" if new.strip() else "stalled"
        elif self.left <= 0 or (written.stopped == "length" and not more and not self.writes_on):
            self.trace.ended = "length"
        elif not grew:
            self.trace.ended = "stalled"

    def lead(self, written: Draft) -> str:
        """The space before a text that decoding it by itself drops."""
        return lead(self.tokenizer, written)


def _explain_silence(verdict: Verdict, resumed: bool) -> str:
    """Why nothing fires."""
    trigger, words, theta = verdict.trigger, verdict.words, float(verdict.trigger.theta or 0.0)
    if resumed and trigger.cut == "draft":
        return "the draft was written again after a retrieval, and is kept"
    reason = trigger.describe_silence(verdict.peak)
    spared = np.where(verdict.judged | (resumed & (words.sentence > 0)), -np.inf, verdict.score)  # (w,)
    if spared.max(initial=-np.inf) > (-np.inf if resumed else theta):
        highest, word = write_compared(float(spared.max()), theta)[0], words.text[int(spared.argmax())]
        resuming = f"the sentence being resumed is not judged (the highest: {highest}, {word!r})"
        reason += f"; {resuming}" if resumed else f"; {word!r} scores {highest}, but may not fire"
    return reason
