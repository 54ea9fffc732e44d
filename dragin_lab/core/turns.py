"""``variant="paper"``: writing, judging and keeping, as the papers' equations and texts describe them.

The answer so far is kept to the character, passages stay in the prompt until the next retrieval, and a draft ends as
soon as its outcome is known (DRAGIN §3; FLARE, "Active Retrieval Augmented Generation"). ``core.loop`` has the loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dragin_lab.core.answers import ANSWER_TOKENS, cut_prediction, fold_phrase
from dragin_lab.core.episode import Episode, Stop
from dragin_lab.core.formulators import Gap
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.scores import doubts
from dragin_lab.core.steps import Loop
from dragin_lab.core.stops import (
    AnswerLine,
    AnyOf,
    Certainty,
    NextExample,
    Watch,
    find_answer_end,
    find_next_example,
    lead,
)
from dragin_lab.core.trigger import Trigger, Verdict
from dragin_lab.text import write_compared
from dragin_lab.trace.draft import character_words
from dragin_lab.trace.trace import Decision, Draft, Passage, Prompt, Query, Step

#: The note of a query whose trigger flags no words.
STANDS_IN = "the last token stands in for the hits that this trigger does not give"


@dataclass
class PaperLoop(Loop):
    """An episode of the papers' algorithms."""

    text: str = ""  # the answer so far, exact
    passages: tuple[Passage, ...] | None = None  # what the prompt holds
    kept_ids: list[int] = field(default_factory=list)  # the tokens of the answer as they were generated
    inserted: int = 0  # how many of them the model did not write
    writes_on = True  # whether the loop has another turn after a whole draft

    @property
    def trigger(self) -> Trigger:
        """When to retrieve."""
        trigger: Trigger = self.method.trigger
        return trigger

    @property
    def running(self) -> bool:
        """Whether the answer has not ended."""
        return self.trace.ended == "running"

    @property
    def written(self) -> int:
        """How many tokens of the answer the model wrote."""
        return len(self.kept_ids) - self.inserted

    # -- writing ------------------------------------------------------------------------------------------------------

    def write_draft(self, step: Step, stop: Stop | None, limit: int | None = None, **options: Any) -> Episode[Draft]:
        """Write what the trigger judges."""
        step.prompt = self._prompt(step)
        among = "received" in self.trigger.needs or not self.trigger.built_in  # a custom one may not say what it reads
        options |= {"hidden": self.trigger.hidden, "among": among}
        draft = step.draft = yield from self._write_until(step, stop, limit, **options)
        return draft

    def write_on(self, step: Step, stop: Stop | None, limit: int | None = None) -> Episode[Draft]:
        """Write with the step's passages in view, without a judgement."""
        step.passages_prompt = self._prompt(step)
        continuation = step.continuation = yield from self._write_until(step, stop, limit, with_passages=True)
        return continuation

    def _write_until(self, step: Step, stop: Stop | None, limit: int | None, **options: Any) -> Episode[Draft]:
        left = self.method.max_new_tokens - self.written
        answer = AnswerLine(self.tokenizer, self.text, self.template.shape)
        example = NextExample(self.template.example_marks, bool(self.text.strip()))
        continuation = yield from self.write(
            step,
            min(left, limit or left),
            AnyOf(tuple(one for one in (example, stop, answer) if one is not None)),
            attention=self.method.keeps_attention,
            **options,
        )
        m = min(len(self.kept_ids), len(continuation.prompt_ids))
        encoded = continuation.prompt_ids[len(continuation.prompt_ids) - m :].tolist()
        if encoded != self.kept_ids[len(self.kept_ids) - m :]:
            step.notes.append("the answer so far, encoded again, gives other ids than were generated")
        end = find_next_example(continuation.text, example.marks, example.begun)
        if end is None:
            return continuation
        if cut := continuation.text[end:].strip():
            step.notes.append(f"the model began another example, which was cut: {cut!r}")
        return continuation.before(end)

    def insert(self, step: Step, text: str) -> None:
        """Add a text to the answer that the model did not write."""
        ids = self.tokenizer.encode(text, special=False)
        self.kept_ids += ids
        self.inserted += len(ids)
        self.text += text
        self.trace.text = step.answer = self.text

    def fetch(self, step: Step, query: Query) -> Episode[None]:
        """Search, and put what is found into the prompt of all that follows, until the next search that finds any."""
        if not any(map(str.isalnum, query.text)):
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
        text = text.rstrip()
        stop = AnswerLine(self.tokenizer, text, self.template.shape)
        continuation = yield from self.extract(text, stop)
        text += self.lead(continuation) + continuation.text.rstrip()
        text = text[: find_answer_end(text, self.template.shape, ended=True)]
        return text if self.template.shape.closes else cut_prediction(text, at_start=True)

    # -- prompts ------------------------------------------------------------------------------------------------------

    def _prompt(self, step: Step) -> Prompt:
        prompt = self._fit_prompt(self.text, self.passages, self.method.max_new_tokens - self.written)
        step.notes.extend(prompt.notes)
        return prompt

    def extraction_prompt(self, text: str) -> Prompt:
        tail = text if text[:1].isspace() else f" {text}"
        prompt = self._fit_prompt(tail, self.passages, ANSWER_TOKENS)
        self.trace.notes.extend(prompt.notes)
        return prompt

    def _fit_prompt(self, tail: str, passages: Sequence[Passage] | None, room: int) -> Prompt:
        """The prompt, with as little dropped as leaves room for ``room`` tokens in the window."""

        def build(template: PromptTemplate, passages: Sequence[Passage] | None) -> Prompt:
            return template.render(self.question, tail, passages or None)

        def fits(prompt: Prompt) -> bool:
            if self.window is None:
                return True
            return len(self.tokenizer.encode(prompt.text, special=prompt.special)) + room <= self.window

        limit = f"the model's window of {self.window} tokens, {room} of them for what is to be written"
        return self.template.fit(build, passages, fits, limit)

    # -- judging ------------------------------------------------------------------------------------------------------

    def watch(self, resumed: bool) -> Watch:
        """What ends a draft where the trigger fires; ``resumed`` where the draft resumes what was cut."""
        return Watch(self.trigger, self.method.pipeline, resumed, self.question, self.text)

    def view(self, draft: Draft) -> Draft:
        """What the trigger looks at of a draft: its first sentence, or all of it."""
        trigger, written, ended = self.trigger, draft, True
        if trigger.span == "sentence":
            _, end = self.first_sentence(draft.text)
            written = draft.first(int((draft.offsets[:, 0] < end).sum()))
        elif trigger.span == "word":
            ended = draft.closed or draft.stopped == "length"
        return written.read_by(self.method.pipeline, self.question, self.text, ended=ended)

    def first_sentence(self, text: str) -> tuple[int, int]:
        """Half-open characters of a draft's first sentence; one that states the answer takes the rest of its line."""
        start, end = next(iter(self.method.pipeline.spans(text)), (0, 0))
        form = self.template.shape
        states = form.phrase in fold_phrase(text[:end], form.phrase)
        return start, (find_answer_end(text, form, ended=True) if states else None) or end

    def judge(self, draft: Draft, prompt: Prompt, resumed: bool) -> tuple[Verdict, Decision, Gap | None]:
        """The trigger's verdict on a draft, the decision, and the gap where it fires."""
        trigger, seen = self.trigger, self.view(draft)
        if trigger.span == "sentence":
            sentence = self.first_sentence(draft.text)
            verdict = trigger.judge(seen)
        else:
            sentence = (0, len(draft.text))
            verdict = trigger.judge(seen, resumed=resumed, until=self._answer_end(draft))
        peaks = () if trigger.unit == "word" else (verdict.peak,)
        certain = self._is_certain(draft)
        if not verdict.fires:
            certain &= trigger.span == "sentence" or draft.stopped != "length"
            return verdict, Decision(False, _explain_silence(verdict, resumed), peaks=peaks, certain=certain), None
        hits = tuple(_character_span(draft, a, b) for a, b in verdict.draft.spans[verdict.hit].tolist())
        cut = hits[0][0]
        if trigger.span == "word":
            sentence = self.method.pipeline.around(draft.text, cut)
        start = _token_start(draft.offsets, sentence[0])
        ends = {"word": cut, "sentence": start, "step": start, "draft": 0}
        decision = Decision(
            True,
            trigger.describe_hit(verdict),
            cut=0 if trigger.span == "sentence" else ends[trigger.cut],
            token=verdict.token,
            sentence=int(verdict.words.sentence[verdict.word]),
            peaks=peaks,
            certain=certain,
        )
        answer = self.text + self.lead(draft) + draft.text[:cut]
        return verdict, decision, self.gap(draft, prompt, verdict.token, cut, sentence, hits, answer=answer)

    def _is_certain(self, draft: Draft) -> bool:
        """Whether the trigger decides alike wherever entropies lie between their bounds, which a server may give."""
        if draft.entropy_width is None:
            return True
        low, high = (draft.entropy + sign * draft.entropy_width / 2 for sign in (-1, 1))
        certainty = Certainty(self.trigger, self.method.pipeline, self.question, self.text)
        return not len(certainty.lacking(draft, low, high, ended=True))

    def _answer_end(self, draft: Draft) -> int | None:
        """The character of what was written at which the final answer ends; None while it has not."""
        before = self.text + self.lead(draft)
        close = find_answer_end(before + draft.text, self.template.shape, ended=True)
        return None if close is None else max(close - len(before), 0)

    def gap(
        self,
        written: Draft,
        prompt: Prompt,
        token: int,
        cut: int,
        span: tuple[int, int],
        hits: tuple[tuple[int, int], ...],
        *,
        answer: str,
        term: str = "",
        note: str = "",
    ) -> Gap:
        """The gap in a written text: t_i, the character where its word begins, its sentence, the flagged words."""
        start, end = span
        inside = np.flatnonzero((written.offsets[:, 1] > start) & (written.offsets[:, 0] < end))
        words = character_words(written.text, np.clip(written.offsets[inside], start, end))
        spans = [_character_span(written, inside[w.start], inside[w.stop - 1] + 1) for w in words]
        return Gap(
            question=self.question,
            answer=answer,
            sentence=written.text[start:end],
            words=tuple(word.text for word in words),
            hits=np.array([any(a < d and c < b for c, d in hits) for a, b in spans], dtype=bool),
            tokens=tuple(written.text[a:b] for a, b in written.offsets[inside]),
            doubt=doubts(written.logprob)[inside],
            draft=written,
            prompt=prompt,
            pipeline=self.method.pipeline,
            tokenizer=self.tokenizer,
            token=token,
            cut=cut,
            span=span,
            hit_spans=hits,
            term=term,
            chunk_tokens=getattr(self.trigger, "tokens", None) if self.trigger.loop == "clock" else None,
            note=note,
        )

    def gap_at_end(self, written: Draft, prompt: Prompt, span: tuple[int, int], *, answer: str, term: str = "") -> Gap:
        """The gap of a text whose trigger flags no words: its last visible token stands in for them."""
        starts, stops = written.offsets.T  # (n,), (n,)
        visible = np.flatnonzero((starts < span[1]) & (stops > starts))
        token = int(visible[-1]) if len(visible) else 0
        last = (int(starts[token]), min(int(stops[token]), span[1])) if len(visible) else (0, 0)
        return self.gap(written, prompt, token, span[1], span, (last,), answer=answer, term=term, note=STANDS_IN)

    # -- keeping ------------------------------------------------------------------------------------------------------

    def keep(self, step: Step, written: Draft, end: int, *, ended: bool = True) -> None:
        """Add the first ``end`` characters of what was written to the answer; with ``ended``, see if it ends there."""
        start = self.lead(written) if end else ""  # the space goes with the word after it
        whole = (written.closed or written.stopped == "length") and not written.text[end:].strip()
        new = self.text + start + written.text[:end]
        if ended:
            over = bool(written.text[end:].strip()) or written.closed or written.stopped == "answer"
            close = find_answer_end(new, self.template.shape, ended=over)
            if close is not None:
                end = max(end - (len(new) - close), 0)
                new = new[:close]
                self.trace.ended = "answered"
        tokens = int((written.offsets[:, 0] < end).sum())
        step.kept, step.answer = new[len(self.text) :], new
        if step.continuation is None:
            step.discarded = (step.draft.text if step.draft is not None else written.text)[end:]
            if step.decision is not None and step.discarded:
                step.decision.cut = end
        else:
            step.continuation_kept = end
        grew = len(new) > len(self.text)
        self.text = self.trace.text = new
        self.kept_ids += written.ids[:tokens].tolist()
        if not ended or not self.running:
            return
        if whole and written.closed:
            self.trace.ended = "answered" if new.strip() else "stalled"
        elif self.written >= self.method.max_new_tokens or (whole and not self.writes_on):
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


def _character_span(written: Draft, start: int, stop: int) -> tuple[int, int]:
    """The characters of the tokens ``start`` to ``stop - 1``."""
    return int(written.offsets[start, 0]), int(written.offsets[stop - 1, 1])


def _token_start(offsets: np.ndarray, character: int) -> int:
    """The first character of the token that holds ``character``, its leading space included."""
    return int(offsets[int(np.flatnonzero(offsets[:, 1] > character)[0]), 0])
