"""FLARE: a sentence written ahead is written again with passages where a token of it is
improbable (§3.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragin_lab.core.episode import Episode
from dragin_lab.core.loop import Loop
from dragin_lab.core.scores import doubts, pool_words
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.trace.draft import Draft


@dataclass
class SentenceLoop(Loop):
    """Write a sentence ahead; where the trigger fires, retrieve and write it again with the
    passages in view.
    """

    by_sentence = True

    def run(self) -> Episode[None]:
        while not self.ended:
            written = yield from self.write(self.sentence_end)
            verdict = self.judge(written)
            if verdict.fires:
                yield from self.search(verdict.gap)
                written = yield from self.write(self.sentence_end)
            self.keep_sentence(written)


@dataclass
class FlareLoop(SentenceLoop):
    """The same, after a first search for the question (FLARE)."""

    def run(self) -> Episode[None]:
        yield from self.search(self.question, "once, before anything is written")
        self.step = None
        yield from super().run()


@TRIGGERS.add
@dataclass(frozen=True)
class Probability(Trigger):
    """A token of the sentence written ahead is improbable: 1 - p above θ (FLARE)."""

    name = "probability"
    source = "FLARE §3.2"
    loop = FlareLoop
    cut = "sentence"
    threshold: float = setting(0.2, label="1 − probability", top=1.0)

    def score(self, draft: Draft) -> np.ndarray:
        return doubts(draft.logprob)  # (n,)

    def measure_words(self, draft: Draft, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(highest), np.nan), pool_words(draft.entropy, draft.word_list, "max")

    def describe_score(self, score: str) -> str:
        return f"has 1 - p = {score}"

    def describe_silence(self, peak: float) -> str:
        return f"every token has 1 - p of at most θ {self.theta:g}"
