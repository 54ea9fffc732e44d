"""DRAGIN: RIND says when to retrieve (§3.1), and the loop resumes what it cut (§3.3). QFS is in
``formulators``.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Any

import numpy as np

from dragin_lab.core.episode import Episode
from dragin_lab.core.loop import Loop
from dragin_lab.core.scores import scale_by_sentence
from dragin_lab.core.settings import Settings, setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.trace.draft import Draft


@TRIGGERS.add
@dataclass(frozen=True)
class Rind(Trigger):
    """RIND: entropy x attention from later tokens x not a stop word (DRAGIN §3.1)."""

    name = "rind"
    source = "DRAGIN Eq. 1-5"
    skip_stop_words = True
    needs = ("received", "entropy")
    #: Measured on development questions of Almanac and SmolLM2 (docs/results/thresholds.md). Table
    #: 9's values are on the released code's scale, which ``scale="sentence"`` gives.
    threshold: float = setting(0.25, label="RIND score")
    scale: str | None = setting(None, choices=("sentence",), label="scale of attention")

    def __init__(self, threshold: Any = MISSING, scale: str | None = None) -> None:
        object.__setattr__(self, "scale", scale)
        theta = self._usual_theta if threshold is MISSING else threshold
        object.__setattr__(self, "threshold", theta)
        self.__post_init__()

    @property
    def _usual_theta(self) -> float:
        """θ where nobody gave one: each scale has its own."""
        return type(self).threshold if self.scale is None else 1.2

    @property
    def changed(self) -> Settings:
        theta = {"threshold": self.threshold} if self.threshold != self._usual_theta else {}
        return theta | ({"scale": self.scale} if self.scale is not None else {})

    @property
    def judges_ended_sentences(self) -> bool:
        return self.scale is not None

    def score(self, draft: Draft) -> np.ndarray:
        # (n,) Eq. 5; s_i is 0 for stop words by ``skip_stop_words``
        return draft.entropy * self._attention(draft)

    def _attention(self, draft: Draft) -> np.ndarray:
        if self.scale is None:
            return draft.received  # (n,) Eq. 3
        return scale_by_sentence(draft.received, draft.sentence_of_token)  # (n,)

    def measure_words(self, draft: Draft, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._attention(draft)[highest], draft.entropy[highest]


@dataclass
class DraginLoop(Loop):
    """Write until the trigger fires, retrieve, and resume what was cut (DRAGIN §3.3).

    A trigger that judges the draft as a whole lets it be written to its end.
    """

    def run(self) -> Episode[None]:
        resumed = False
        while not self.ended:
            draft = yield from self.write(
                self.watch(resumed) if self.trigger.span == "word" else None
            )
            verdict = self.judge(draft, resumed)
            if resumed := verdict.fires:
                yield from self.search(verdict.gap)
            self.keep(draft, verdict.cut)  # Eq. 6
