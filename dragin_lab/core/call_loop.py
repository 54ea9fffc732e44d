"""FLARE-instruct and self-ask: the model itself writes what to look up (FLARE paper, Prompts D.2 and D.3).

Neither is part of the DRAGIN authors' code, so both variants run the same loop. They differ in how a *what* that is
exchanged makes its query: as the released code does, or as the papers say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragin_lab.core.calls import Call, CallMade, find_call, open_call
from dragin_lab.core.confidence import doubts
from dragin_lab.core.episode import Bias, Episode
from dragin_lab.core.forms import CALL_OPENS
from dragin_lab.core.loop import Need
from dragin_lab.core.paper import PaperLoop, Spot
from dragin_lab.core.released import ReferenceLoop
from dragin_lab.core.trace import Continuation, Decision, Query, Step


@dataclass
class CallLoop(PaperLoop):
    """An episode in which the model writes until it asks, is given passages, and goes on.

    A search call is taken out of the answer, and the text resumes where it stood; a follow-up question stays in it,
    and its intermediate answer is written next. Passages stay in the prompt until the next ones replace them.
    """

    def run(self) -> Episode[None]:
        asked_before = False
        while self.trace.ended == "running":
            asked_before = yield from self._turn(self.new_step(), asked_before)
        yield from self.finish()

    def _turn(self, step: Step, asked_before: bool) -> Episode[bool]:
        """One draft, and the search it asks for. Whether it asked."""
        method = self.method
        made = yield from self._draft(step, CallMade(method.when), bias=self._bias(asked_before))
        call = find_call(method.when, made.text)
        if call is None:
            self._close(step, made)
            return False
        cut = self._cut(made, call)
        if asked_before and not made.text[:cut].strip():
            step.decision = Decision(False, f"asks for {call.asks!r} with nothing written since the last search")
            self._keep_before(step, made, cut)
            self.trace.ended = "stalled"
            return True
        if len(self.kept_ids) + int((made.offsets[:, 0] < cut).sum()) >= method.max_new_tokens:
            step.decision = Decision(False, f"asks for {call.asks!r}, and no piece is left to answer it with")
            self._keep_before(step, made, cut)
            self.trace.ended = "length"
            return True
        said = "calls for a search of" if method.when == "search-call" else "asks the follow-up question"
        step.decision = Decision(True, f"the model {said} {call.asks!r}")
        yield from self._fetch(step, (yield from self._query(step, made, call)))
        self._keep_before(step, made, cut)
        return True

    def _keep_before(self, step: Step, made: Continuation, cut: int) -> None:
        """Keep what stands before the cut; the space that opens a draft is no text by itself."""
        if made.text[:cut].strip():
            self._keep(step, made, cut, ended=False)
            return
        assert step.decision is not None
        step.answer, step.discarded, step.decision.cut = self.text, made.text, 0

    def _bias(self, asked_before: bool) -> tuple[Bias, ...]:
        """Right behind a search the call is forbidden for some pieces, elsewhere it gets a bonus."""
        if self.method.call_bonus is None:
            return ()
        pause = (self.method.call_pause or 0) if asked_before else 0
        forbidden = (Bias(CALL_OPENS, float("-inf"), 0, pause),) if pause else ()
        return (*forbidden, Bias(CALL_OPENS, self.method.call_bonus, pause))

    def _cut(self, made: Continuation, call: Call) -> int:
        """Where the kept part of a draft that asks ends: whole pieces, a search call and the space before it out."""
        return len(made.text[: call.start].rstrip()) if self.method.when == "search-call" else call.stop

    def _close(self, step: Step, made: Continuation) -> None:
        """Keep a draft that asks for nothing; a call that it breaks off in does not become part of the answer."""
        start = open_call(made.text) if self.method.when == "search-call" else None
        if start is None:
            said = "no search" if self.method.when == "search-call" else "no further question"
            step.decision = Decision(False, f"the model asks for {said}", certain=made.stopped != "length")
            self._keep(step, made, len(made.text))
            return
        step.decision = Decision(False, "the text ends in a call that is not closed", certain=made.stopped != "length")
        self._keep(step, made, len(made.text[:start].rstrip()))
        if self.trace.ended == "running":
            self.trace.ended = "length" if made.stopped == "length" else "stalled"

    # -- what --------------------------------------------------------------------------------------------------------

    def _query(self, step: Step, made: Continuation, call: Call) -> Episode[Query]:
        """What the call asks for, or what another *what* makes of the place where it stands."""
        if self.method.what in ("term", "follow-up"):
            query = Query(call.asks, call.asks)
        elif self.method.variant == "paper":
            query = self.formulate(self._spot(step, made, call))
        else:
            loop = ReferenceLoop(self.method, self.trace, self.template, self.tokenizer, self.window)
            query = yield from loop.formulate(self._need(self._spot(step, made, call)))
        if query.text.strip():
            return query
        return Query(self.question, self.question, note="the question: there is nothing else to ask for")

    def _spot(self, step: Step, made: Continuation, call: Call) -> Spot:
        """The sentence before a search call, or the follow-up question; its last piece stands in for hits."""
        assert step.prompt is not None
        if self.method.when == "search-call":
            end = self._cut(made, call)
            spans = self.method.pipeline.spans(made.text[:end])
            start = spans[-1][0] if spans else 0
        else:
            start, end = call.inside
        visible = np.flatnonzero((made.offsets[:, 0] < end) & (made.offsets[:, 1] > made.offsets[:, 0]))
        piece = int(visible[-1]) if len(visible) else 0
        last = (int(made.offsets[piece, 0]), min(int(made.offsets[piece, 1]), end)) if len(visible) else (0, 0)
        note = "the last piece stands for the hits that this trigger does not give"
        return Spot(made, step.prompt, piece, end, (start, end), [last], note)

    def _need(self, spot: Spot) -> Need:
        """The same as the released code's formulators see it."""
        made, (start, end) = spot.written, spot.sentence
        sentence = made.text[start:end].strip()
        before = (self.text + self._lead(made) + made.text[:start]).strip()
        words = sentence.split()
        inside = np.flatnonzero((made.offsets[:, 1] > start) & (made.offsets[:, 0] < end))
        return Need(
            context=" ".join(part for part in (self.question, before, sentence) if part),
            before=f"{self.question} {before}  ",
            sentence=sentence,
            words=words,
            hits=np.arange(len(words)) == len(words) - 1,
            pieces=[self.tokenizer.decode([i], special=True) for i in made.ids[inside].tolist()],
            doubt=doubts(made.logprob)[inside],
            chunk=sentence,
            note=spot.note,
        )
