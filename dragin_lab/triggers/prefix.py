"""TARG: one decision before the answer, on its first tokens (arXiv 2511.09803)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragin_lab.core.episode import Episode
from dragin_lab.core.loop import Loop
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.trace.draft import Draft
from dragin_lab.triggers.plain import margin


@dataclass
class PrefixLoop(Loop):
    """Write the first tokens and judge them.

    Above θ they are thrown away, and the answer is written with passages; else the model goes on
    after them.
    """

    def run(self) -> Episode[None]:
        draft = yield from self.write(most=self.trigger.first)
        verdict = self.judge(draft)
        if verdict.fires:
            yield from self.search(verdict.gap)
        else:
            self.trace.steps[-1].decision.certain = True  # type: ignore[union-attr]  # no longer draft would be looked at
            self.keep(draft)
        while not self.ended:
            self.keep((yield from self.write(again=True)))


@TRIGGERS.add
@dataclass(frozen=True)
class PrefixMargin(Trigger):
    """The first tokens have near rivals (TARG): the mean of exp(-(l1 - l2) / β)."""

    name = "prefix-margin"
    source = "TARG (arXiv 2511.09803)"
    loop = PrefixLoop
    unit = "draft"
    pool = "mean"
    cut = "draft"
    serves = frozenset({"nothing", "text"})
    threshold: float = setting(0.3, label="margin", top=1.0)
    first: int = setting(20, label="tokens judged", unit="tokens")
    beta: float = setting(1.0)

    def score(self, draft: Draft) -> np.ndarray:
        return margin.function(draft, self.beta)  # type: ignore[attr-defined]
