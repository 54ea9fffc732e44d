"""The papers' own triggers: the clock (DRAGIN Table 1), RIND (DRAGIN §3.1) and a token's probability (FLARE §3.2)."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Any

import numpy as np

from dragin_lab.core.scores import doubts, pool_words, scale_by_sentence
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.trace.draft import Draft


@dataclass(frozen=True)
class Clock(Trigger):
    """A trigger that does not read the draft."""

    loop = "clock"
    searches = "always"  # "never", "once", or "always": before each turn
    sentences = False  # whether a turn writes one sentence
    reason = ""

    @classmethod
    def serves(cls) -> frozenset[str]:
        return frozenset({"text"} if cls.searches == "always" else {"nothing"})

    @property
    def tokens(self) -> int | None:
        """How many tokens a turn writes; None: to the end of its sentence or of the answer."""
        return None

    @property
    def retrieves(self) -> bool:
        return self.searches != "never"


@TRIGGERS.add
@dataclass(frozen=True)
class Never(Clock):
    """No retrieval (wo-RAG)."""

    name, source, searches, reason = "never", "DRAGIN Table 1", "never", "this method never retrieves"


@TRIGGERS.add
@dataclass(frozen=True)
class Once(Clock):
    """Once, before anything is written (SR-RAG)."""

    name, source, searches, reason = "once", "DRAGIN Table 1", "once", "once, before anything is written"


@TRIGGERS.add
@dataclass(frozen=True)
class EveryN(Clock):
    """Every n tokens, and at the start (FL-RAG)."""

    name, source = "every-n", "DRAGIN Table 1"
    n: int = setting(16, label="tokens between searches", unit="tokens")

    @property
    def tokens(self) -> int:
        return self.n

    @property
    def reason(self) -> str:  # type: ignore[override]
        return f"every {self.n} tokens"


@TRIGGERS.add
@dataclass(frozen=True)
class EverySentence(Clock):
    """Every sentence, and at the start (FS-RAG)."""

    name, source, sentences, reason = "every-sentence", "DRAGIN Table 1", True, "every sentence"


# -- those that read the draft ----------------------------------------------------------------------------------------


@TRIGGERS.add
@dataclass(frozen=True)
class Rind(Trigger):
    """RIND: entropy x attention from later tokens x not a stop word (DRAGIN §3.1)."""

    name, source, skip_stop_words, needs = "rind", "DRAGIN Eq. 1-5", True, ("received", "entropy")
    #: Measured on development questions of Almanac and SmolLM2 (docs/results/thresholds.md). Table 9's values are
    #: on the released code's scale, which ``scale="sentence"`` gives.
    threshold: float = setting(0.25, label="RIND score")
    scale: str | None = setting(None, choices=("sentence",), label="scale of attention")

    def __init__(self, threshold: Any = MISSING, scale: str | None = None) -> None:
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "threshold", self._usual if threshold is MISSING else threshold)
        self.__post_init__()

    @property
    def _usual(self) -> float:
        """θ where nobody gave one: each scale has its own."""
        return type(self).threshold if self.scale is None else 1.2

    @property
    def changed(self) -> dict[str, Any]:
        theta = {"threshold": self.threshold} if self.threshold != self._usual else {}
        return theta | ({"scale": self.scale} if self.scale is not None else {})

    @property
    def judges_ended_sentences(self) -> bool:
        return self.scale is not None

    def score(self, draft: Draft) -> np.ndarray:
        return draft.entropy * self._attention(draft)  # (n,) Eq. 5; s_i is 0 for stop words by ``skip_stop_words``

    def _attention(self, draft: Draft) -> np.ndarray:
        if self.scale is None:
            return draft.received  # (n,) Eq. 3
        return scale_by_sentence(draft.received, draft.sentence_of_token)  # (n,)

    def measure_words(self, draft: Draft, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._attention(draft)[highest], draft.entropy[highest]


@TRIGGERS.add
@dataclass(frozen=True)
class Probability(Trigger):
    """A token of the sentence written ahead is improbable: 1 - p above θ (FLARE)."""

    name, source, loop, cut = "probability", "FLARE §3.2", "flare", "sentence"
    threshold: float = setting(0.2, label="1 − probability", top=1.0)

    def score(self, draft: Draft) -> np.ndarray:
        return doubts(draft.logprob)  # (n,)

    def measure_words(self, draft: Draft, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(highest), np.nan), pool_words(draft.entropy, draft.word_list, "max")

    def describe_score(self, score: str) -> str:
        return f"has 1 - p = {score}"

    def describe_silence(self, peak: float) -> str:
        return f"every token has 1 - p of at most θ {self.theta:g}"
