"""When to retrieve: the triggers of the DRAGIN paper's Table 1. ``@dl.when`` (``trigger``) makes a custom one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dragin_lab.checks import count
from dragin_lab.core.draft import Draft
from dragin_lab.core.scores import (
    contains_any,
    doubts,
    over_words,
    reference_attention,
    reference_scores,
    sentence_doubt,
    sentence_scaled,
)
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.trigger import TRIGGERS, Released, Trigger
from dragin_lab.errors import SettingError

# -- the clock: triggers that do not read the draft (Table 1) ---------------------------------------------------------


@dataclass(frozen=True)
class Clock(Trigger):
    """A trigger that does not read the draft."""

    looks = "clock"
    searches = "always"  # "never", "once", or "always": before each turn
    sentences = False  # whether a turn writes one sentence
    reason = ""

    @property
    def tokens(self) -> int | None:
        """How many tokens a turn writes; None: to the end of its sentence or of the answer."""
        return None


@TRIGGERS.add
@dataclass(frozen=True)
class Never(Clock):
    """No retrieval (wo-RAG)."""

    name, source = "never", "DRAGIN Table 1"
    searches, reason, gives = "never", "this method never retrieves", frozenset({"nothing"})


@TRIGGERS.add
@dataclass(frozen=True)
class Once(Clock):
    """Once, before anything is written (SR-RAG)."""

    name, source = "once", "DRAGIN Table 1"
    searches, reason, gives = "once", "once, before anything is written", frozenset({"nothing"})


@TRIGGERS.add
@dataclass(frozen=True)
class EveryN(Clock):
    """Every n tokens, and at the start (FL-RAG)."""

    name, source = "every-n", "DRAGIN Table 1"
    n: int = 16

    @property
    def tokens(self) -> int:
        return self.n

    @property
    def reason(self) -> str:  # type: ignore[override]
        return f"every {self.n} tokens"

    def resolved(self, variant: str) -> EveryN:
        return replace(self, n=count("n", self.n))


@TRIGGERS.add
@dataclass(frozen=True)
class EverySentence(Clock):
    """Every sentence, and at the start (FS-RAG)."""

    name, source = "every-sentence", "DRAGIN Table 1"
    sentences, reason = True, "every sentence"


# -- what looks at what is written ------------------------------------------------------------------------------------


@TRIGGERS.add
@dataclass(frozen=True)
class Probability(Trigger):
    """A token is improbable (FLARE): 1 - p above θ. Reference variant: its mean, max or min over a sentence."""

    name, source = "probability", "FLARE §3.2; reference-behaviour §5"
    thresholds: ClassVar = {"reference": 0.1, "paper": 0.2}
    ahead, cut, asks_first, rewrites_rest = "sentence", "sentence", True, True
    on_doubt, measure = True, "1 − probability"
    threshold: float | None = None
    sentence_solver: str = "avg"  # reference variant

    def unit_in(self, variant: str) -> str:
        return "sentence" if variant == "reference" else self.unit

    def resolved(self, variant: str) -> Trigger:
        if self.sentence_solver not in ("avg", "max", "min"):
            raise SettingError(f"sentence_solver {self.sentence_solver!r} does not exist; one of avg, max, min")
        return super().resolved(variant)

    def score(self, draft: Draft) -> np.ndarray:
        return doubts(draft.logprob)  # (n,)

    def measured(self, draft: Draft, loudest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(loudest), np.nan), over_words(draft.entropy, draft.word_list, "max")

    def released(self, draft: Draft, attention: np.ndarray | None = None) -> Released:
        assert draft.laid is not None
        doubt = self.score(draft)  # (n,)
        scores = [over_words(doubt, draft.word_list[a:b], "max") for a, b in draft.laid.ranges]  # per sentence (m,)
        peaks = [sentence_doubt(doubt[a:b], self.sentence_solver) for a, b in draft.laid.token_ranges]
        unseen = np.full(len(draft.word_list), np.nan)  # (w,)
        return Released(scores, peaks, unseen, over_words(draft.entropy, draft.word_list, "mean"))

    def says(self, value: float) -> str:
        return f"has 1 - p = {value:.3g}"

    def says_nothing(self, best: float) -> str:
        return f"every token has 1 - p of at most θ {self.theta:g}"

    def says_of_sentence(self, number: int, peak: float, word: str | None) -> str:
        return f"sentence {number + 1} has 1 - p of {peak:.3g} ({self.sentence_solver}), above θ {self.theta:g}"


@TRIGGERS.add
@dataclass(frozen=True)
class Rind(Trigger):
    """RIND: entropy x attention received x not a stop word (DRAGIN). Reference variant: as the released code has it."""

    name, source = "rind", "DRAGIN Eq. 1-5; reference-behaviour §2"
    #: Of the reference variant: Table 9, Llama2-7b-chat on 2WikiMultihopQA. Of the paper variant: measured, as Eq. 1-5
    #: give smaller scores than the released code's scaling (docs/explanation/thresholds.md).
    thresholds: ClassVar = {"reference": 1.2, "paper": 0.25}
    skip_stop_words, rereads, measure = True, True, "RIND score"
    paper_only = ("normalize",)
    threshold: float | None = None
    normalize: str | None = None  # paper variant: "sentence" scales attention as the released code does
    check_content_words: bool = True  # reference variant: hits need content, after the decision was taken

    def resolved(self, variant: str) -> Trigger:
        if self.normalize not in (None, "sentence"):
            raise SettingError(f"normalize {self.normalize!r} does not exist; one of sentence, or None")
        if variant == "reference" and self.normalize is not None:
            raise SettingError(
                "normalize='sentence' scales paper-variant RIND scores; the reference variant always does"
            )
        if self.threshold is None and self.normalize == "sentence":
            return replace(self, threshold=self.thresholds["reference"])  # the scale that Table 9 belongs to
        return super().resolved(variant)

    @property
    def by_sentence(self) -> bool:
        return self.normalize is not None

    def score(self, draft: Draft) -> np.ndarray:
        return draft.entropy * self._scaled(draft)  # (n,) Eq. 5; s_i is 0 for stop words by ``skip_stop_words``

    def _scaled(self, draft: Draft) -> np.ndarray:
        return draft.received if self.normalize is None else sentence_scaled(draft.received, draft.sentence_of_token)

    def measured(self, draft: Draft, loudest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._scaled(draft)[loudest], draft.entropy[loudest]

    def reread(self, attention: np.ndarray, draft: Draft) -> np.ndarray:
        first = draft.made.tokens[0] if len(draft) else ""  # type: ignore[union-attr]
        received = reference_attention(attention, first_is_eos=first == "</s>")  # (n,)
        return over_words(received, draft.word_list, "sum")  # (w,)

    def released(self, draft: Draft, attention: np.ndarray | None = None) -> Released:
        assert draft.laid is not None
        assert attention is not None
        processed = getattr(draft.made, "entropy_processed", None)
        entropy = over_words(draft.entropy if processed is None else processed, draft.word_list, "mean")  # (w,)
        scores = reference_scores(attention, entropy, draft.laid.ranges)  # per sentence (m,)
        return Released(scores, [float(values.max(initial=-np.inf)) for values in scores], attention, entropy)

    def spared(self, words: Sequence[str], sentence: str, pipeline: Pipeline) -> np.ndarray | None:
        return ~contains_any(words, pipeline.content_words(sentence)) if self.check_content_words else None
