"""What a trigger is: a score for each token of a draft, a threshold θ, and one place that compares
them.

``Trigger.judge`` is that place: a draft is judged there after each token (``episode.Watch``), once
it has ended, and again in a replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dragin_lab.core.answers import thoughts
from dragin_lab.core.custom import read_needs
from dragin_lab.core.scores import find_highest, pool_values, pool_words
from dragin_lab.core.settings import MethodPart, Registry
from dragin_lab.errors import SettingError
from dragin_lab.text import write_compared
from dragin_lab.trace.draft import Draft
from dragin_lab.trace.trace import Words


@dataclass(frozen=True)
class Verdict:
    """A trigger's judgement of a draft of w words. It fires where some judged unit scores above
    θ.
    """

    trigger: Trigger
    draft: Draft
    score: np.ndarray  # (w,) float64, the words' scores
    highest: np.ndarray  # (w,) the token of each word that scores highest
    judged: np.ndarray  # (w,) bool, the words that were allowed to fire
    hit: np.ndarray  # (w,) bool, the words that lack information
    peak: float  # the highest score compared with θ; -inf where there is nothing to judge
    # character of what was written where the kept part ends; None: nothing fires (``Loop``)
    cut: int | None = None
    gap: Any = None  # the ``formulators.Gap``, where it fires (``Loop``)
    # character of the draft behind which nothing fires; None: its end (``Loop``)
    until: int | None = None

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
        above = self.trigger.check_score(self.draft)[start:stop] > self.trigger.theta
        return int(start + above.argmax() if above.any() else self.highest[self.word])

    def explain_spared(self, word: int) -> str:
        """Why a word was not allowed to fire."""
        draft = self.draft
        start = self.draft.word_starts[word]
        if self.until is not None and start >= self.until:
            return "the answer stands before it"
        if any(begin <= start < end for begin, end in thoughts(draft.text, draft.thought)):
            return "it is part of a thought"
        if self.trigger.skip_stop_words and draft.stop_of_word[word]:
            return "it is a stop word"
        if not draft.ended or draft.sentence_of_word[word] >= draft.settled:
            return "the text ended before it was complete"
        return "this trigger does not judge it"

    @cached_property
    def words(self) -> Words:
        """The record of the draft's words."""
        draft = self.draft
        trigger = self.trigger
        attention, entropy = trigger.measure_words(draft, self.highest)
        return Words(
            text=draft.words,
            spans=draft.spans,
            sentence=np.array(draft.sentence_of_word),
            attention=attention.astype(np.float32),
            entropy=entropy.astype(np.float32),
            stop=(
                np.array(draft.stop_of_word)
                if trigger.skip_stop_words
                else np.zeros(len(self.score), bool)
            ),
            score=self.score.astype(np.float32),
            hit=self.hit,
            judged=self.judged,
        )


@dataclass(frozen=True)
class Trigger(MethodPart):
    """When to retrieve. A subclass with a ``threshold`` and ``score`` is a trigger; ``@dl.when``
    makes one.

    Override ``judge`` for anything more than a score.
    """

    # what is compared with θ: each word, sentence or step (a line), or the draft as a whole
    unit = "word"
    needs: ClassVar[tuple[str, ...]] = ()  # what it reads beside probabilities (``read_needs``)
    form = "reasoning"  # how the model is to write its answer (``answers.FORMS``)
    length = 64  # tokens of a draft and of the answer, by default
    pool = "max"  # how the tokens' scores make a unit's
    cut = "word"  # where a draft that fires is cut: before the word, its sentence, or all of it
    skip_stop_words = False  # whether stop words score 0 (Eq. 4)
    retrieves = True  # whether it ever does
    #: What a query formulator can be given: "text" that was written, a "call", and "nothing" where
    #: a search comes first.
    serves = frozenset({"text"})
    #: How an episode goes on, a ``Loop``; None: it writes until the trigger fires, retrieves and
    #: resumes (DRAGIN §3.3).
    loop: ClassVar[Any] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        read_needs(cls.__dict__.get("name", cls.__name__), cls.needs)

    @property
    def theta(self) -> float | None:
        """The threshold; None for a rule without one."""
        return getattr(self, "threshold", None)

    @property
    def measure(self) -> str:
        """What the scores are called in views."""
        return getattr(self.declared().get("threshold"), "label", "") or "score"

    @property
    def hidden(self) -> int | str | None:
        """The layer whose hidden states it needs, "last" or an index; None where it needs none."""
        for need in self.needs:
            name, _, layer = need.partition(":")
            if name == "hidden":
                return int(layer) if layer else "last"
        return None

    @property
    def span(self) -> str:
        """How far a draft is written before it is judged: "word" (while it is written),
        "sentence" or "draft".
        """
        if self.unit == "step" or getattr(self.loop, "by_sentence", False):
            return "sentence"
        return self.unit

    @classmethod
    def judges_drafts(cls) -> bool:
        """Whether it reads what was written, and so can be asked about a stored draft."""
        return cls.loop is None or cls.loop.judges

    def score(self, draft: Draft) -> np.ndarray:
        """(n,) one number for each token of the draft, larger where the model is less sure."""
        return np.asarray(self._call_function(draft))

    def check_score(self, draft: Draft) -> np.ndarray:
        """``score`` as (n,) float64. Raises ``SettingError`` where it fails or is not one finite
        number per token.
        """
        try:
            values = np.asarray(self.score(draft))
        except MemoryError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if isinstance(error, ValueError) and "read-only" in str(error):
                problem = (
                    "it writes to an array of the draft, which is read-only; copy it first:"
                    " draft.entropy.copy()"
                )
            raise SettingError(
                f"trigger {self.name!r} failed on a draft of {len(draft)} tokens"
                f" ({draft.text[:60]!r}): {problem}"
            ) from error
        if values.dtype.kind not in "biuf" or values.shape != (len(draft),):
            raise SettingError(
                f"trigger {self.name!r} gave an array of shape {values.shape} and type"
                f" {values.dtype} for a draft of {len(draft)} tokens; give one number per token,"
                f" shape ({len(draft)},)"
            )
        values = values.astype(np.float64)  # (n,)
        if not np.isfinite(values).all():
            bad = np.isfinite(values).argmin()
            raise SettingError(
                f"trigger {self.name!r} gave {values[bad]} for token {bad} ({draft.tokens[bad]!r})"
                f" of {draft.text[:60]!r}; give finite numbers"
            )
        return values

    def score_tokens(self, draft: Draft) -> np.ndarray:
        """(n,) float64, the checked scores, 0 for stop words where they are skipped (Eq. 4)."""
        values = self.check_score(draft)  # (n,)
        return np.where(draft.stop_word, 0.0, values) if self.skip_stop_words else values

    def score_words(self, draft: Draft) -> tuple[np.ndarray, np.ndarray]:
        """(w,) float64 the words' scores, and (w,) the token of each that scores highest."""
        values = self.score_tokens(draft)  # (n,)
        highest = find_highest(values, draft.word_of_token)  # (w,)
        if self.pool == "max":
            return values[highest], highest
        return pool_words(values, draft.word_list, self.pool), highest

    def score_unit(self, draft: Draft, counts: np.ndarray | None = None) -> float:
        """What is compared with θ where the unit is a sentence or the draft: the scores of its
        tokens, pooled.

        ``counts`` (n,) bool leaves out what may not fire, such as thoughts; None counts all.
        """
        values = self.score_tokens(draft)  # (n,)
        values = values if counts is None else values[counts]  # (m,)
        return pool_values(values, self.pool) if len(values) else -np.inf

    def measure_words(self, draft: Draft, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is recorded of each word beside its score: attention received (w,) and entropy
        (w,), nats.
        """
        return draft.received[highest], draft.entropy[highest]

    def is_silent(self, draft: Draft) -> bool:
        """Whether no token scores above θ, so that no word can; found before words are formed,
        which takes longer.
        """
        kind = type(self)
        custom = kind.judge is not Trigger.judge or kind.score_words is not Trigger.score_words
        if custom or self.pool == "sum" or self.judges_ended_sentences or self.theta is None:
            return False
        return bool(self.check_score(draft).max(initial=-np.inf) <= self.theta)

    @property
    def judges_ended_sentences(self) -> bool:
        """Whether a word can only be judged once its sentence has ended."""
        return False

    def judge(self, draft: Draft, *, resumed: bool = False, until: int | None = None) -> Verdict:
        """Compare every word of a draft, or its unit as a whole, with θ.

        A ``resumed`` draft goes on after a retrieval. No word of its first sentence fires, so that
        each retrieval is followed by a finished sentence; a trigger that cuts the whole draft
        judges nothing of it. Words that begin at the character ``until`` or later are not judged.

        A draft from a cache must give the very same verdict, so this reads only what ``score``
        reads.
        """
        theta: Any = self.theta
        score, highest = self.score_words(draft)  # (w,), (w,)
        judged = self._may_fire(draft, resumed, until)  # (w,)
        hit = judged & (score > theta)  # (w,)
        peak = float(score[judged].max(initial=-np.inf))
        if self.unit != "word" and judged.any():
            spared = self._spared(draft, until)  # (w,)
            peak = self.score_unit(draft, ~spared[draft.word_of_token])
            if not hit.any():
                hit[np.where(spared, -np.inf, score).argmax()] = True
            hit &= peak > theta
        elif self.span != "sentence":
            hit &= np.cumsum(hit) == 1
        return Verdict(self, draft, score, highest, judged, hit, peak)

    def _may_fire(self, draft: Draft, resumed: bool, until: int | None) -> np.ndarray:
        """(w,) bool: a word may fire once it is complete: the next one has begun, or the draft
        has ended.
        """
        judged = np.ones(len(draft.spans), bool)  # (w,)
        if not draft.ended:
            # Tokens without characters may yet turn out to be bytes of the word before them.
            visible = np.flatnonzero(draft.word_ends > draft.word_starts)
            judged[visible.max(initial=0) :] = False
        if self.judges_ended_sentences:
            judged &= draft.sentence_of_word < draft.settled
        if resumed and self.cut == "draft":
            judged[:] = False  # or a draft that always fires would be thrown away without end
        elif resumed:
            judged &= (draft.sentence_of_word >= 1) & (draft.settled >= 1)
        return judged & ~self._spared(draft, until)

    def _spared(self, draft: Draft, until: int | None) -> np.ndarray:
        """(w,) bool: a word that never fires: at ``until`` or later, in a thought, a stop word
        where θ is below 0.
        """
        starts = draft.word_starts  # (w,)
        spared = starts >= (np.inf if until is None else until)  # (w,)
        if "thoughts" not in self.needs:
            for begin, end in thoughts(draft.text, draft.thought):
                spared |= (starts >= begin) & (starts < end)
        # the 0 of a stop word would lie above it
        if self.skip_stop_words and (self.theta or 0.0) < 0:
            spared |= draft.stop_of_word
        return spared

    # -- reasons, as views show them ---------------------------------------------------------------

    def describe_score(self, score: str) -> str:
        """What a score is called in a reason: "scores 2.69"."""
        return f"scores {score}"

    def describe_silence(self, peak: float) -> str:
        """Why nothing fires."""
        highest, theta = write_compared(peak, float(self.theta or 0.0))
        reason = f"no {self.unit} scores above θ {theta}"
        return f"{reason} (the highest: {highest})" if np.isfinite(peak) else reason

    def describe_hit(self, verdict: Verdict) -> str:
        """Why it fires."""
        value = float(verdict.score[verdict.word]) if self.unit == "word" else verdict.peak
        score, theta = write_compared(value, float(self.theta or 0.0))
        if self.unit != "word":
            return f"the {self.unit} {self.describe_score(score)} ({self.pool}), above θ {theta}"
        word = verdict.words.text[verdict.word] or verdict.draft.pieces[verdict.token]
        return f"{word!r} {self.describe_score(score)}, above θ {theta}"


TRIGGERS: Registry[Trigger] = Registry("when", Trigger)
