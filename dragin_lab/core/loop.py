"""The loops of the papers: retrieval by the clock (Table 1), DRAGIN (§3.3) and FLARE."""

from __future__ import annotations

from dataclasses import dataclass

from dragin_lab.core.clock import Clock
from dragin_lab.core.episode import Episode
from dragin_lab.core.formulators import formulate
from dragin_lab.core.stops import FirstSentence
from dragin_lab.core.turns import PaperLoop
from dragin_lab.trace.trace import Decision, Query, Step


@dataclass
class DraginLoop(PaperLoop):
    """Write until the trigger fires, retrieve, and resume what was cut (DRAGIN §3.3).

    A trigger that judges the draft as a whole lets it be written to its end.
    """

    def run(self) -> Episode[None]:
        resumed = False
        while self.running:
            step = self.new_step()
            stop = self.watch(resumed) if self.trigger.span == "word" else None
            draft = yield from self.write_draft(step, stop)
            assert step.prompt is not None
            verdict, step.decision, gap = self.judge(draft, step.prompt, resumed)
            step.words, resumed = verdict.words, gap is not None
            if gap is None:
                self.keep(step, draft, len(draft.text))
                continue
            yield from self.fetch(step, formulate(self.method.formulator, gap))
            assert step.decision.cut is not None
            self.keep(step, draft, step.decision.cut, ended=False)  # Eq. 6


@dataclass
class SentenceLoop(PaperLoop):
    """Write a sentence ahead; where the trigger fires, retrieve and write it again with the passages in view."""

    def run(self) -> Episode[None]:
        while self.running:
            step = self.new_step()
            draft = yield from self.write_draft(step, self._sentence)
            assert step.prompt is not None
            verdict, step.decision, gap = self.judge(draft, step.prompt, resumed=False)
            step.words = verdict.words
            if gap is None:
                self.keep(step, draft, self.first_sentence(draft.text)[1] or len(draft.text))
                continue
            yield from self.fetch(step, formulate(self.method.formulator, gap))
            step.discarded = draft.text
            yield from self.write_sentence(step)

    def write_sentence(self, step: Step) -> Episode[None]:
        """Write one sentence with the passages in view, and keep it."""
        continuation = yield from self.write_on(step, self._sentence)
        self.keep(step, continuation, self.first_sentence(continuation.text)[1] or len(continuation.text))

    @property
    def _sentence(self) -> FirstSentence:
        return FirstSentence(self.method.pipeline, phrase=self.template.shape.phrase)


@dataclass
class FlareLoop(SentenceLoop):
    """The same, after a first search for the question (FLARE)."""

    def run(self) -> Episode[None]:
        step = self.new_step()
        self.schedule(step, "once, before anything is written")
        yield from self.fetch(step, Query(self.question, self.question))
        yield from super().run()


@dataclass
class ClockLoop(SentenceLoop):
    """wo-RAG, SR-RAG, FL-RAG, FS-RAG: search by the clock, or not at all, then write (Table 1)."""

    @property
    def clock(self) -> Clock:
        """The trigger."""
        assert isinstance(self.trigger, Clock)
        return self.trigger

    @property
    def writes_on(self) -> bool:  # type: ignore[override]
        return self.clock.searches == "always"

    def run(self) -> Episode[None]:
        step = self.new_step()
        if self.clock.searches == "once":
            self.schedule(step, "once, before anything is written")
            yield from self.fetch(step, Query(self.question, self.question))
        while self.running:
            yield from self._turn(step)
            if self.running and self.clock.searches != "once":
                step = self.new_step()

    def _turn(self, step: Step) -> Episode[None]:
        if self.clock.searches == "never":
            step.decision = Decision(False, self.clock.reason)
            draft = yield from self.write_draft(step, None)
            self.keep(step, draft, len(draft.text))
            return
        if self.clock.searches == "always":
            self.schedule(step, self.clock.reason)
            yield from self.fetch(step, self._query())
        if self.clock.sentences:
            yield from self.write_sentence(step)
            return
        continuation = yield from self.write_on(step, None, self.clock.tokens)
        self.keep(step, continuation, len(continuation.text))

    def _query(self) -> Query:
        """The query of a turn: from what the last turn wrote, at the start from the question."""
        step = self.trace.steps[-2] if len(self.trace.steps) > 1 else None
        if step is None or step.continuation is None or step.passages_prompt is None:
            return self.first_query()
        written = step.continuation
        end = len(written.text) if step.continuation_kept is None else step.continuation_kept
        gap = self.gap_at_end(written, step.passages_prompt, (0, end), answer=self.text)
        return formulate(self.method.formulator, gap)
