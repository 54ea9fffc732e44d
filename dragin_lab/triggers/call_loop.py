"""The loop in which the model itself asks: FLARE-instruct, self-ask, and any ``dl.Call`` (FLARE, Prompts D.2, D.3).

It is not part of the DRAGIN authors' code, so both variants run the same loop. They differ in how a *what* that is
exchanged makes its query: as the released code does, or as the papers say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from dragin_lab.core.episode import Episode
from dragin_lab.core.gap import Gap
from dragin_lab.core.paper import PaperLoop
from dragin_lab.core.scores import doubts
from dragin_lab.reference.dragin import ReferenceLoop
from dragin_lab.trace.trace import Continuation, Decision, Query, Step
from dragin_lab.triggers.call import PASSAGES, Call, CallMade


@dataclass
class CallLoop(PaperLoop):
    """An episode in which the model writes until it asks, is given passages, and goes on.

    A call that does not stay is taken out of the answer, and the text resumes where it stood. Passages stay in the
    prompt until the next ones replace them, or are written into the text after the call, as the call says.
    """

    @property
    def call(self) -> Call:
        """What opens and closes a call, and what becomes of it."""
        assert isinstance(self.method.trigger, Call)
        return self.method.trigger

    @property
    def _before(self) -> str:
        """The answer so far, after the mark of a thought that the prompt opens."""
        opened = self.template.render(self.question).text.rstrip().endswith("<think>")
        return "<think>" * opened + self.text

    def run(self) -> Episode[None]:
        asked_before = False
        while self.trace.ended == "running":
            asked_before = yield from self._turn(self.new_step(), asked_before)

    def _turn(self, step: Step, asked_before: bool) -> Episode[bool]:
        """One draft, and the search it asks for. Whether it asked."""
        made = yield from self._draft(step, CallMade(self.call, self._before), bias=self.call.bias(asked_before))
        found = self.call.find(made.text, self._before)
        if found is None:
            self._close(step, made)
            return False
        cut, asks = self._cut(made, found), _asked(found)
        why, ended = "", ""
        if asked_before and not made.text[:cut].strip():
            why, ended = " with nothing written since the last search", "stalled"
        elif self.written + int((made.offsets[:, 0] < cut).sum()) >= self.method.max_new_tokens:
            why, ended = ", and no token is left to answer it with", "length"
        if ended:
            step.decision = Decision(False, f"asks for {asks!r}{why}")
            self._keep_before(step, made, cut)
            self.trace.ended = ended
            return True
        step.decision = Decision(True, f"the model {self.call.asking} {asks!r}")
        yield from self._fetch(step, (yield from self._query(step, made, found)))
        self._keep_before(step, made, cut)
        self._put_in(step)
        return True

    def _keep_before(self, step: Step, made: Continuation, cut: int) -> None:
        """Keep what stands before the cut; the space that opens a draft is not text by itself."""
        if made.text[:cut].strip():
            self.put_in(step, self.call.puts_before)
            self._keep(step, made, cut, ended=False)
            return
        assert step.decision is not None
        step.answer, step.discarded, step.decision.cut = self.text, made.text, 0

    def _put_in(self, step: Step) -> None:
        """Write the passages into the text after the call, where the call says so."""
        if self.call.puts_in is None:
            return
        lines = "".join(f"Doc {i}(Title: {p.title}) {p.text}\n" for i, p in enumerate(step.passages, 1))
        self.put_in(step, self.call.puts_in.replace(PASSAGES, lines))
        self.passages = None

    def _cut(self, made: Continuation, found: re.Match[str]) -> int:
        """Where the kept part of a draft that asks ends; a call that does not stay goes with the space before it."""
        return found.end() if self.call.stays else len(made.text[: found.start()].rstrip())

    def _close(self, step: Step, made: Continuation) -> None:
        """Keep a draft that asks for nothing; a call that it breaks off in does not become part of the answer."""
        start = self.call.broken_off(made.text)
        certain = made.stopped != "length"
        if start is None:
            step.decision = Decision(False, f"the model asks for {self.call.not_asking}", certain=certain)
            self._keep(step, made, len(made.text))
            return
        step.decision = Decision(False, "the text ends in a call that is not closed", certain=certain)
        self._keep(step, made, len(made.text[:start].rstrip()))
        if self.trace.ended == "running":
            self.trace.ended = "length" if made.stopped == "length" else "stalled"

    # -- what --------------------------------------------------------------------------------------------------------

    def _query(self, step: Step, made: Continuation, found: re.Match[str]) -> Episode[Query]:
        """What the call asks for, or what another *what* makes of the place where it stands."""
        place = self._asked_at(step, made, found)
        if self.method.variant == "reference":
            place = self._as_released(place)
        query = yield from self.method.formulator.formulate(place)
        if query.text.strip():
            return query
        return Query(self.question, self.question, note="the question: there is nothing else to ask for")

    def _asked_at(self, step: Step, made: Continuation, found: re.Match[str]) -> Gap:
        """The sentence before a call that is taken out, or what a call asks; its last token stands in for hits."""
        assert step.prompt is not None
        span = found.span(1)
        if not self.call.stays:
            end = self._cut(made, found)
            span = ((self.method.pipeline.spans(made.text[:end]) or [(0, 0)])[-1][0], end)
        return self.end_place(made, step.prompt, span, term=_asked(found))

    def _as_released(self, place: Gap) -> Gap:
        """The same as the released code's formulators see it."""
        made, (start, end) = place.written, place.span
        assert made is not None
        sentence = made.text[start:end].strip()
        before = (self.text + self._lead(made) + made.text[:start]).strip()
        inside = np.flatnonzero((made.offsets[:, 1] > start) & (made.offsets[:, 0] < end))
        tokens = [self.tokenizer.decode([i], special=True) for i in made.ids[inside].tolist()]
        loop = ReferenceLoop(self.method, self.trace, self.template, self.tokenizer, self.window)
        answer = " ".join(part for part in (before, sentence) if part)
        seen = loop.chunk_place(answer, before, sentence, tokens, doubts(made.logprob)[inside])
        return replace(seen, term=place.term, note=place.note)


def _asked(call: re.Match[str]) -> str:
    return " ".join(call[1].split())
