"""One decision before the answer, on its first pieces (TARG, arXiv 2511.09803). Both variants run this loop."""

from __future__ import annotations

from dragin_lab.core.episode import Episode
from dragin_lab.core.paper import PaperLoop
from dragin_lab.core.when_after import Prefix


class GateLoop(PaperLoop):
    """Draft the first pieces; above θ throw them away, search, and write the answer with passages; else go on."""

    def run(self) -> Episode[None]:
        when, step = self.method.when, self.new_step()
        assert isinstance(when, Prefix)
        step.prompt = self._prompt(step)
        made = step.draft = yield from self._write_until(
            step, None, when.first, with_passages=False, hidden=when.hidden
        )
        step.words, step.decision, place = self.judge(made, step.prompt, False)
        if place is None:
            step.decision.certain = True  # no longer draft would be looked at
            self._keep(step, made, len(made.text), ended=made.stopped == "eos")
        else:
            step.discarded = made.text
            yield from self._fetch(step, (yield from self.method.what.formulate(place)))
        while self.trace.ended == "running":
            turn = self.new_step() if place is None else step
            made = yield from self._continue(turn, None)
            self._keep(turn, made, len(made.text))
