"""What a trigger is: a score for each token of a draft, a threshold θ, and one place that compares them; and RIND.

A draft is judged while it is written, token by token (``stops.Watch``), once it has ended, and again in a replay. All
three call ``Trigger.judge``.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dragin_lab.core.answers import thoughts
from dragin_lab.core.needs import hidden_in, read_needs
from dragin_lab.core.registry import Registry
from dragin_lab.core.scores import doubts, pool_values, pool_words, scale_by_sentence
from dragin_lab.core.settings import Part, setting
from dragin_lab.errors import SettingError, TriggerError
from dragin_lab.text import write_compared
from dragin_lab.trace.draft import Draft
from dragin_lab.trace.trace import Words

UNITS, POOLS = ("word", "sentence", "step", "draft"), ("max", "mean", "min", "sum")


@dataclass(frozen=True)
class Verdict:
    """A trigger's judgement of a draft of w words. It fires where some judged unit scores above θ."""

    trigger: Trigger
    draft: Draft
    score: np.ndarray  # (w,) float64, the words' scores
    highest: np.ndarray  # (w,) the token of each word that scores highest
    judged: np.ndarray  # (w,) bool, the words that were allowed to fire
    hit: np.ndarray  # (w,) bool, the words that lack information
    peak: float  # the highest score compared with θ; -inf where there is nothing to judge

    @property
    def fires(self) -> bool:
        """Whether the model lacks information here."""
        return bool(self.hit.any())

    @property
    def word(self) -> int:
        """The first word that lacks information, of a verdict that fires."""
        return int(self.hit.argmax())

    @cached_property
    def token(self) -> int:
        """t_i (§3.2), of a verdict that fires: the first token above θ of the word that fired."""
        start, stop = self.draft.spans[self.word]
        above = np.flatnonzero(self.trigger.check_score(self.draft)[start:stop] > self.trigger.theta)
        return int(start + above[0]) if len(above) else int(self.highest[self.word])

    @cached_property
    def words(self) -> Words:
        """The record of the draft's words."""
        draft, trigger = self.draft, self.trigger
        attention, entropy = trigger.measure_words(draft, self.highest)
        return Words(
            text=draft.words,
            spans=draft.spans,
            sentence=np.array(draft.sentence_of_word),
            attention=attention.astype(np.float32),
            entropy=entropy.astype(np.float32),
            stop=np.array(draft.stop_of_word) if trigger.skip_stop_words else np.zeros(len(self.score), dtype=bool),
            score=self.score.astype(np.float32),
            hit=self.hit,
            judged=self.judged,
        )


@dataclass(frozen=True)
class Trigger(Part):
    """When to retrieve. A subclass with a ``threshold`` and ``score`` is a trigger; ``@dl.when`` makes one.

    Override ``judge`` for anything more than a score.
    """

    unit = "word"  # what is compared with θ: each word, sentence or step (a line), or the draft as a whole
    needs: ClassVar[tuple[str, ...]] = ()  # what it reads beside probabilities (``core.needs``)
    form = "reasoning"  # how the model is to write its answer (``forms.FORMS``)
    length = 64  # tokens of a draft and of the answer, by default
    pool = "max"  # how the tokens' scores make a unit's
    cut = "word"  # where a draft that fires is cut: before the word, its sentence, or all of it
    skip_stop_words = False  # whether stop words score 0 (Eq. 4)
    loop = "look-ahead"  # how an episode goes on (``catalog.methods``): "look-ahead", "flare", "clock", ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        read_needs(cls.__dict__.get("name", cls.__name__), cls.needs)

    @property
    def theta(self) -> float | None:
        """The threshold; None for a rule without one."""
        threshold: float | None = getattr(self, "threshold", None)
        return threshold

    @property
    def measure(self) -> str:
        """What the scores are called in views."""
        declared = self.declared().get("threshold")
        return (declared.label if declared is not None else "") or "score"

    @property
    def hidden(self) -> int | str | None:
        """The layer whose hidden states it needs, "last" or an index; None where it needs none."""
        return hidden_in(self.needs)

    @property
    def retrieves(self) -> bool:
        """Whether it ever retrieves."""
        return True

    @classmethod
    def serves(cls) -> frozenset[str]:
        """What a query formulator can be given: "text" that was written, and "nothing" where a search comes first."""
        return frozenset({"text"})

    @property
    def span(self) -> str:
        """How far a draft is written before it is judged: "word" (while it is written), "sentence" or "draft"."""
        return "sentence" if self.loop == "flare" or self.unit == "step" else self.unit

    @classmethod
    def judges_drafts(cls) -> bool:
        """Whether it reads what was written, and so can be asked about a stored draft."""
        return cls.loop in ("look-ahead", "flare")

    def score(self, draft: Draft) -> np.ndarray:
        """(n,) one number for each token of the draft, larger where the model is less sure."""
        raise SettingError(f"trigger {self.name!r} defines no score; write one that gives (n,) numbers for a draft")

    def check_score(self, draft: Draft) -> np.ndarray:
        """``score`` as (n,) float64. Raises ``TriggerError`` where it fails or is not one finite number per token."""
        try:
            values = np.asarray(self.score(draft))
        except (MemoryError, TriggerError):
            raise
        except Exception as error:
            raise TriggerError(_describe_failure(self.name, draft, error)) from error
        if values.dtype.kind not in "biuf" or values.shape != (len(draft),):
            raise TriggerError(
                f"trigger {self.name!r} gave an array of shape {values.shape} and type {values.dtype} for a draft of "
                f"{len(draft)} tokens; give one number per token, shape ({len(draft)},)"
            )
        values = values.astype(np.float64)  # (n,)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            t = int(bad[0])
            raise TriggerError(
                f"trigger {self.name!r} gave {values[t]} for token {t} ({draft.tokens[t]!r}) of {draft.text[:60]!r}; "
                "give finite numbers"
            )
        return values

    def score_tokens(self, draft: Draft) -> np.ndarray:
        """(n,) float64, the checked scores, 0 for stop words where they are skipped (Eq. 4)."""
        values = self.check_score(draft)  # (n,)
        return np.where(draft.stop_word, 0.0, values) if self.skip_stop_words else values

    def score_words(self, draft: Draft) -> tuple[np.ndarray, np.ndarray]:
        """(w,) float64 the words' scores, and (w,) the token of each that scores highest."""
        values, words = self.score_tokens(draft), draft.word_list  # (n,)
        highest = np.array([w.start + int(values[w.start : w.stop].argmax()) for w in words], dtype=int)  # (w,)
        return values[highest] if self.pool == "max" else pool_words(values, words, self.pool), highest

    def score_unit(self, draft: Draft) -> float:
        """What is compared with θ where the unit is a sentence or the draft: its tokens' scores, pooled."""
        values = self.score_tokens(draft)  # (n,)
        return pool_values(values, self.pool) if len(values) else -np.inf

    def measure_words(self, draft: Draft, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is recorded of each word beside its score: attention received (w,) and entropy (w,), nats."""
        return draft.received[highest], draft.entropy[highest]

    def is_silent(self, draft: Draft) -> bool:
        """Whether the tokens' scores show, before words are formed, that nothing can score above θ."""
        custom = type(self).judge is not Trigger.judge or type(self).score_words is not Trigger.score_words
        if custom or self.pool == "sum" or self.judges_ended_sentences or self.theta is None:
            return False
        return bool(self.check_score(draft).max(initial=-np.inf) <= self.theta)

    @property
    def judges_ended_sentences(self) -> bool:
        """Whether a word can only be judged once its sentence has ended."""
        return False

    def judge(self, draft: Draft, *, resumed: bool = False, until: int | None = None) -> Verdict:
        """Compare every word or unit of a draft with θ.

        With ``resumed`` nothing fires before the draft's first sentence has ended, so that every retrieval is followed
        by a finished sentence; a trigger that cuts the whole draft does not judge it again. Words that begin at or
        after the character ``until`` are not judged. It reads nothing of the draft but what the score reads: a draft
        from a cache has to give the same verdict to the bit.
        """
        theta = self.theta
        assert theta is not None
        score, highest = self.score_words(draft)  # (w,), (w,)
        judged = self._may_fire(draft, resumed, until)  # (w,)
        above = judged & (score > theta)  # (w,)
        if self.unit == "word":
            hit = above if self.span == "sentence" else above & (np.cumsum(above) == 1)
            return Verdict(self, draft, score, highest, judged, hit, float(score[judged].max(initial=-np.inf)))
        peak = self.score_unit(draft) if judged.any() else -np.inf
        best = np.arange(len(score)) == (int(score.argmax()) if len(score) else -1)  # (w,) the word that scores highest
        hit = (above if above.any() else best) & (peak > theta)
        return Verdict(self, draft, score, highest, judged, hit, peak)

    def _may_fire(self, draft: Draft, resumed: bool, until: int | None) -> np.ndarray:
        """(w,) bool: a word may fire once it is complete, that is once the next one has begun or the draft ended."""
        words, offsets = draft.word_list, draft.offsets
        judged = np.ones(len(words), dtype=bool)  # (w,)
        if not draft.ended:
            # Tokens without characters may yet turn out to be bytes of the word before them.
            visible = np.flatnonzero([offsets[w.stop - 1, 1] > offsets[w.start, 0] for w in words])
            judged[visible[-1] if len(visible) else 0 :] = False
        if self.judges_ended_sentences:
            judged &= draft.sentence_of_word < draft.settled
        if resumed and self.cut == "draft":
            judged[:] = False  # or a draft that always fires would be thrown away without end
        elif resumed:
            judged &= (draft.sentence_of_word >= 1) & (draft.settled >= 1)
        starts = np.array([int(offsets[w.start, 0]) for w in words], dtype=int)  # (w,)
        if until is not None:
            judged &= starts < until
        before = len(draft.answer_so_far)
        for begin, end in [] if "thoughts" in self.needs else thoughts(draft.answer_so_far + draft.text):
            judged &= (starts + before < begin) | (starts + before >= end)
        return judged

    # -- reasons, as views show them ----------------------------------------------------------------------------------

    def describe_score(self, score: str) -> str:
        """What a score is called in a reason: "scores 2.69"."""
        return f"scores {score}"

    def describe_silence(self, peak: float) -> str:
        """Why nothing fires."""
        highest, theta = write_compared(peak, float(self.theta or 0.0))
        return f"no {self.unit} scores above θ {theta}" + (f" (the highest: {highest})" if np.isfinite(peak) else "")

    def describe_hit(self, verdict: Verdict) -> str:
        """Why it fires."""
        value = float(verdict.score[verdict.word]) if self.unit == "word" else verdict.peak
        score, theta = write_compared(value, float(self.theta or 0.0))
        if self.unit != "word":
            return f"the {self.unit} {self.describe_score(score)} ({self.pool}), above θ {theta}"
        word = verdict.words.text[verdict.word] or verdict.draft.pieces[verdict.token]
        return f"{word!r} {self.describe_score(score)}, above θ {theta}"


def _describe_failure(name: str, draft: Draft, error: Exception) -> str:
    where = f"trigger {name!r} failed on a draft of {len(draft)} tokens ({draft.text[:60]!r}): "
    if isinstance(error, ValueError) and "read-only" in str(error):
        return where + "it writes to an array of the draft, which is read-only; copy it first: draft.entropy.copy()"
    return f"{where}{type(error).__name__}: {error}"


TRIGGERS: Registry[Trigger] = Registry("when", Trigger, group="dragin_lab.whens")

# -- the two of the paper ----------------------------------------------------------------------------------------------


@TRIGGERS.add
@dataclass(frozen=True)
class Rind(Trigger):
    """RIND: entropy x attention from later tokens x not a stop word (DRAGIN §3.1)."""

    name, source, skip_stop_words, needs = "rind", "DRAGIN Eq. 1-5", True, ("received",)
    #: Measured on development questions of Almanac and SmolLM2 (docs/results/thresholds.md). Table 9's values are
    #: on the released code's scale, which ``scale="sentence"`` gives.
    threshold: float = setting(0.25, label="RIND score")
    scale: str | None = setting(None, choices=("sentence",), label="scale of attention")

    def __init__(self, threshold: Any = MISSING, scale: str | None = None) -> None:
        usual = type(self).threshold if scale is None else 1.2
        object.__setattr__(self, "threshold", usual if threshold is MISSING else threshold)
        object.__setattr__(self, "scale", scale)
        self.__post_init__()

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
