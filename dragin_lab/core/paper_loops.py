"""The loops of the papers: retrieval by the clock (Table 1), DRAGIN (§3.3) and FLARE."""

from __future__ import annotations

from dataclasses import dataclass

from dragin_lab.core.episode import Episode, FirstSentence
from dragin_lab.core.formulators import formulate
from dragin_lab.core.paper_triggers import Clock
from dragin_lab.core.turns import PaperLoop
from dragin_lab.trace.trace import Decision, Draft, Query, Step


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
            gap = self.judge(step, draft, resumed)
            resumed = gap is not None
            if gap is None:
                self.keep(step, draft, len(draft.text))
                continue
            yield from self.fetch(step, formulate(self.method.formulator, gap))
            assert step.decision is not None
            self.keep(step, draft, step.decision.cut or 0, ended=False)  # Eq. 6


@dataclass
class SentenceLoop(PaperLoop):
    """Write a sentence ahead; where the trigger fires, retrieve and write it again with the passages in view."""

    def run(self) -> Episode[None]:
        while self.running:
            step = self.new_step()
            draft = yield from self.write_draft(step, self._sentence)
            gap = self.judge(step, draft)
            if gap is None:
                self._keep_sentence(step, draft)
                continue
            yield from self.fetch(step, formulate(self.method.formulator, gap))
            step.discarded = draft.text
            self._keep_sentence(step, (yield from self.write_on(step, self._sentence)))

    def _keep_sentence(self, step: Step, written: Draft) -> None:
        self.keep(step, written, self.first_sentence(written.text)[1] or len(written.text))

    @property
    def _sentence(self) -> FirstSentence:
        return FirstSentence(self.method.pipeline, phrase=self.template.shape.phrase)


@dataclass
class FlareLoop(SentenceLoop):
    """The same, after a first search for the question (FLARE)."""

    def run(self) -> Episode[None]:
        step = self.new_step()
        step.decision = Decision(True, "once, before anything is written")
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
        clock = self.clock
        while self.running:
            step = self.new_step()
            if not clock.retrieves:
                step.decision = Decision(False, clock.reason)
                draft = yield from self.write_draft(step, None)
                self.keep(step, draft, len(draft.text))
                continue
            step.decision = Decision(True, clock.reason)
            yield from self.fetch(step, self._query())
            if clock.sentences:
                self._keep_sentence(step, (yield from self.write_on(step, self._sentence)))
            else:
                continuation = yield from self.write_on(step, None, clock.tokens)
                self.keep(step, continuation, len(continuation.text))

    def _query(self) -> Query:
        """The query of a turn: from what the last turn wrote, at the start from the question."""
        if len(self.trace.steps) == 1:
            return self.first_query()
        last = self.trace.steps[-2]
        assert last.continuation is not None
        span, tokens = (0, last.continuation_kept or 0), self.clock.tokens
        gap = self.gap_at_end(last.continuation, last.passages_prompt, span, answer=self.text, chunk_tokens=tokens)
        return formulate(self.method.formulator, gap)
