"""TARG: one decision before the answer, on its first tokens (arXiv 2511.09803)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragin_lab.core.episode import Episode
from dragin_lab.core.formulators import formulate
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.core.turns import PaperLoop
from dragin_lab.trace.draft import Draft
from dragin_lab.triggers.plain import margin


@TRIGGERS.add
@dataclass(frozen=True)
class PrefixMargin(Trigger):
    """The first tokens have near rivals (TARG): the mean of exp(-(l1 - l2) / β)."""

    name, source = "prefix-margin", "TARG (arXiv 2511.09803)"
    loop, unit, pool, cut = "prefix", "draft", "mean", "draft"
    threshold: float = setting(0.3, label="margin", top=1.0)
    first: int = setting(20, label="tokens judged", unit="tokens")
    beta: float = setting(1.0)

    @classmethod
    def serves(cls) -> frozenset[str]:
        return frozenset({"nothing", "text"})

    def score(self, draft: Draft) -> np.ndarray:
        return margin.function(draft, self.beta)  # type: ignore[attr-defined]


@dataclass
class PrefixLoop(PaperLoop):
    """Write the first tokens and judge them.

    Above θ they are thrown away, and the answer is written with passages; else the model goes on after them.
    """

    def run(self) -> Episode[None]:
        trigger, step = self.trigger, self.new_step()
        assert isinstance(trigger, PrefixMargin)
        draft = yield from self.write_draft(step, None, trigger.first)
        gap = self.judge(step, draft)
        if gap is None:
            assert step.decision is not None
            step.decision.certain = True  # no longer draft would be looked at
            self.keep(step, draft, len(draft.text))
        else:
            step.discarded = draft.text
            yield from self.fetch(step, formulate(self.method.formulator, gap))
        while self.running:
            turn = self.new_step() if gap is None else step
            continuation = yield from self.write_on(turn, None)
            self.keep(turn, continuation, len(continuation.text))
