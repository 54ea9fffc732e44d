"""What a trigger is, and what makes a custom one.

A trigger that looks at what is written gives each token of a draft a score, larger where the model is less sure, and
compares it with its threshold θ. In the paper variant a draft is judged while it is written, in the reference variant
sentence by sentence once it is whole, as the released code does (reference-behaviour §2, §5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from dragin_lab.checks import choice, number, several
from dragin_lab.core.draft import Draft
from dragin_lab.core.parts import Part, Registry, part_of_function
from dragin_lab.core.scores import over_words, pooled
from dragin_lab.core.sentences import Pipeline
from dragin_lab.errors import SettingError, TriggerError
from dragin_lab.trace.trace import Words

UNITS, POOLS = ("word", "sentence", "draft"), ("max", "mean", "min", "sum")
#: What a trigger may ask to have captured: attention, the last layer's hidden states, or those of a numbered one.
_NEED = re.compile(r"attention|hidden(:-?\d+)?")


@dataclass(frozen=True)
class Judgement:
    """A trigger's view of a draft: its words with their scores, and what fires, if anything does."""

    words: Words
    judged: np.ndarray  # (w,) bool, the words that were allowed to fire
    exact: np.ndarray  # (w,) float64, the words' scores before they are rounded for the record
    peak: float  # the highest score compared with θ; -inf where there is nothing to judge
    word: int | None = None  # the word that fired
    token: int | None = None  # t_i, its first token above θ


@dataclass(frozen=True)
class Released:
    """A trigger's view of a whole draft, sentence by sentence, in the reference variant. m words in a sentence."""

    scores: list[np.ndarray]  # per sentence (m,) float64
    peaks: list[float]  # per sentence, what is compared with θ
    attention: np.ndarray  # (w,) float64, NaN where it is not looked at
    entropy: np.ndarray  # (w,) float64, nats


@dataclass(frozen=True)
class Trigger(Part):
    """When to retrieve. A subclass with a ``threshold`` and ``score`` is a trigger; ``@dl.when`` makes one.

    Override ``judge`` (paper variant) or ``released`` (reference variant) for anything more than a score.
    """

    unit = "word"  # what is compared with θ: each word, each sentence, or the draft as a whole
    pool = "max"  # how the tokens' scores make a unit's
    cut = "word"  # where a draft that fires is cut: before the word, its sentence, or all of it
    skip_stop_words = False  # whether stop words score 0 (Eq. 4)
    needs: ClassVar[tuple[str, ...]] = ()  # what is captured beyond the default: "attention", "hidden", "hidden:12"
    reads_entities = False  # whether the spaCy pipeline has to find entities
    gives: ClassVar[frozenset[str]] = frozenset({"text"})  # what a query may be made of
    looks = "draft"  # "clock": at nothing; "draft": at what was written; "prefix": at its start; "call": for calls
    form = "reasoning"  # how the model is to write its answer (``forms.FORMS``)
    length = 64  # tokens of a draft and of the answer, where nobody says
    thresholds: ClassVar[dict[str, float] | None] = None  # variant -> θ where none is given
    asks_first = False  # paper variant: whether the question is searched for before anything is written
    ahead = ""  # paper variant: "sentence" to judge one sentence at a time; "" as the unit says
    code = "dragin"  # whose released code the reference variant runs (``loops.RELEASED``)
    query_tokens: ClassVar[int | None] = 64  # reference variant: a query is cut to its last tokens
    rereads = False  # reference variant: whether it takes the attention of the generated ids by themselves
    rewrites_rest = False  # reference variant: write all that follows again, not one sentence
    paper_only: ClassVar[tuple[str, ...]] = ()  # settings without a meaning in the reference variant
    on_doubt = False  # whether 1 - p is compared with θ, which a formulator may then share
    measure = "score"  # what the scores are, for people

    @property
    def theta(self) -> float | None:
        """The threshold; None for a trigger without one."""
        found: float | None = getattr(self, "threshold", None)
        return found

    def unit_in(self, variant: str) -> str:
        """What a variant compares with θ: each "word", each "sentence", or the "draft" as a whole."""
        return self.unit

    @property
    def span(self) -> str:
        """How far the paper variant writes before it judges: "word" (while it writes), "sentence" or "draft"."""
        return self.ahead or self.unit

    @property
    def hidden(self) -> int | str | None:
        """The layer whose hidden states it needs, "last" or an index; None where it needs none."""
        need = next((need for need in self.needs if need.startswith("hidden")), "")
        return int(need.partition(":")[2]) if ":" in need else "last" if need else None

    @property
    def by_sentence(self) -> bool:
        """Whether a word can only be judged once its sentence has ended."""
        return False

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Setting -> default; θ by variant, where the variants differ."""
        found = super().defaults()
        if cls.thresholds is not None:
            same = len(set(cls.thresholds.values())) == 1
            found["threshold"] = next(iter(cls.thresholds.values())) if same else dict(cls.thresholds)
        return found

    @classmethod
    def default_threshold(cls, variant: str) -> float | None:
        """θ where none is set; None for a trigger that has no default, and for one without a threshold."""
        if cls.thresholds is not None:
            return cls.thresholds[variant]
        default = next((f.default for f in fields(cls) if f.name == "threshold"), None)
        return None if default is MISSING else default

    def resolved(self, variant: str) -> Trigger:
        if not hasattr(self, "threshold"):
            return self
        theta = self.default_threshold(variant) if self.theta is None else self.theta
        if theta is None:
            raise SettingError(f"when {self.name!r} needs a threshold, such as {self.name}@0.6")
        return replace(self, threshold=number("threshold", theta))  # type: ignore[call-arg]

    # -- scores -------------------------------------------------------------------------------------------------------

    def score(self, draft: Draft) -> np.ndarray:
        """(n,) one number for each token of the draft, larger where the model is less sure."""
        raise SettingError(f"when {self.name!r} defines no score; write one that gives (n,) numbers for a draft")

    def checked(self, draft: Draft) -> np.ndarray:
        """``score`` as (n,) float64. Raises ``TriggerError`` where it fails or is not one finite number per token."""
        try:
            found = np.asarray(self.score(draft))
        except (MemoryError, TriggerError):
            raise
        except Exception as error:
            raise TriggerError(_failed(self.name, draft, error)) from error
        if found.dtype.kind not in "biuf" or found.shape != (len(draft),):
            raise TriggerError(
                f"when {self.name!r} gave {_shape(found)} for a draft of {len(draft)} tokens; "
                f"give one number per token, shape ({len(draft)},)"
            )
        values = found.astype(np.float64)  # (n,)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            t = int(bad[0])
            raise TriggerError(
                f"when {self.name!r} gave {values[t]} for token {t} ({draft.tokens[t]!r}) of {draft.text[:60]!r}; "
                "give finite numbers"
            )
        return values

    def token_scores(self, draft: Draft) -> np.ndarray:
        """(n,) float64, the checked scores, 0 for stop words where they are skipped (Eq. 4)."""
        tokens = self.checked(draft)  # (n,)
        return np.where(draft.stop_word, 0.0, tokens) if self.skip_stop_words else tokens

    def word_scores(self, draft: Draft) -> tuple[np.ndarray, np.ndarray]:
        """(w,) float64 the words' scores, and (w,) the token of each that scores highest."""
        tokens = self.token_scores(draft)  # (n,)
        words = draft.word_list
        loudest = np.array([w.start + int(tokens[w.start : w.stop].argmax()) for w in words], dtype=int)  # (w,)
        score = tokens[loudest] if self.pool == "max" else over_words(tokens, words, self.pool)  # (w,)
        return score, loudest

    def peaks(self, draft: Draft, score: np.ndarray, ranges: Sequence[tuple[int, int]]) -> list[float]:
        """What is compared with θ in each range of words: the highest word, or all its tokens pooled."""
        if self.unit == "word":
            return [float(score[a:b].max(initial=-np.inf)) for a, b in ranges]
        tokens, spans = self.token_scores(draft), draft.spans
        inside = [tokens[spans[a, 0] : spans[b - 1, 1]] if b > a else tokens[:0] for a, b in ranges]
        return [pooled(part, self.pool) if len(part) else -np.inf for part in inside]

    def measured(self, draft: Draft, loudest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is recorded of each word beside its score: attention received (w,) and entropy (w,), nats."""
        return draft.received[loudest], draft.entropy[loudest]

    # -- the paper variant --------------------------------------------------------------------------------------------

    def peak(self, draft: Draft, resumed: bool = False) -> float:
        """The highest score of a judged word of a draft that is being written; -inf without one.

        It reads nothing but what the score reads: a look at attention in some places only could not be served from a
        cache to the bit.
        """
        score, _ = self.word_scores(draft)  # (w,)
        return self._peak(draft, score, self._judged(draft, resumed, None))

    def _peak(self, draft: Draft, score: np.ndarray, judged: np.ndarray) -> float:
        if self.unit == "word":
            return float(score[judged].max(initial=-np.inf))
        return self.peaks(draft, score, [(0, len(score))])[0] if judged.any() else -np.inf

    def quiet(self, draft: Draft) -> bool:
        """Whether it is plain, before words are looked at, that nothing can score above θ."""
        if self.pool == "sum" or self.by_sentence or self.theta is None:
            return False
        return bool(self.checked(draft).max(initial=-np.inf) <= self.theta)

    def judge(self, draft: Draft, *, resumed: bool = False, until: int | None = None) -> Judgement:
        """Score every word of a draft and find the first that fires.

        With ``resumed`` nothing fires before the draft's first sentence has ended, so that every retrieval is followed
        by a finished sentence. Words that begin at or after the character ``until`` are not judged.
        """
        theta = self.theta
        assert theta is not None
        score, loudest = self.word_scores(draft)  # (w,), (w,)
        judged = self._judged(draft, resumed, until)  # (w,)
        above = judged & (score > theta)  # (w,)
        peak = self._peak(draft, score, judged)
        if self.unit == "word":
            hit = above if self.span == "sentence" else above & (np.cumsum(above) == 1)
        else:
            loud = np.arange(len(score)) == (int(score.argmax()) if len(score) else -1)
            hit = (above if above.any() else loud) & (peak > theta)
        attention, entropy = self.measured(draft, loudest)
        table = Words(
            text=draft.words,
            spans=draft.spans,
            sentence=np.array(draft.sentence_of_word),
            attention=attention.astype(np.float32),
            entropy=entropy.astype(np.float32),
            stop=np.array(draft.stop_of_word) if self.skip_stop_words else np.zeros(len(score), dtype=bool),
            score=score.astype(np.float32),
            hit=hit,
        )
        if not hit.any():
            return Judgement(table, judged, score, peak)
        word = int(hit.argmax())
        start, stop = draft.spans[word]
        loud_tokens = np.flatnonzero(self.checked(draft)[start:stop] > theta)
        token = int(start + loud_tokens[0]) if len(loud_tokens) else int(loudest[word])
        return Judgement(table, judged, score, peak, word, token)

    def _judged(self, draft: Draft, resumed: bool, until: int | None) -> np.ndarray:
        """(w,) bool: a word is judged once it is complete, that is once the next one has begun or the draft ended."""
        words, offsets = draft.word_list, draft.offsets
        judged = np.ones(len(words), dtype=bool)  # (w,)
        if not draft.ended:
            # Tokens without characters may yet turn out to be bytes of the word before them.
            written = np.flatnonzero([offsets[w.stop - 1, 1] > offsets[w.start, 0] for w in words])
            judged[written[-1] if len(written) else 0 :] = False
        if self.by_sentence:
            judged &= draft.sentence_of_word < draft.settled
        if resumed:
            judged &= (draft.sentence_of_word >= 1) & (draft.settled >= 1)
        if until is not None:
            judged &= np.array([int(offsets[w.start, 0]) for w in words], dtype=int) < until
        return judged

    # -- the reference variant ----------------------------------------------------------------------------------------

    def released(self, draft: Draft, attention: np.ndarray | None = None) -> Released:
        """Every sentence of a whole draft. ``attention`` (w,) is there for a trigger that ``rereads``."""
        assert draft.laid is not None
        score, loudest = self.word_scores(draft)  # (w,), (w,)
        shown, entropy = self.measured(draft, loudest)
        ranges = draft.laid.ranges
        return Released([score[a:b] for a, b in ranges], self.peaks(draft, score, ranges), shown, entropy)

    def reread(self, attention: np.ndarray, draft: Draft) -> np.ndarray:
        """(w,) what each word receives in the attention (h, n, n) of the generated ids by themselves."""
        raise SettingError(f"when {self.name!r} takes no attention of the generated ids by themselves")

    def spared(self, words: Sequence[str], sentence: str, pipeline: Pipeline) -> np.ndarray | None:
        """(m,) bool, words of the sentence that fired that do not count as hits; None where all may."""
        return None

    # -- words for people ---------------------------------------------------------------------------------------------

    def says(self, value: float) -> str:
        """What a score is called in a reason: "scores 2.69"."""
        return f"scores {value:.3g}"

    def says_nothing(self, best: float) -> str:
        """Why nothing fires."""
        return f"no {self.unit} scores above θ {self.theta:g} (the highest: {max(best, 0.0):.3g})"

    def says_of_sentence(self, number: int, peak: float, word: str | None) -> str:
        """Why a sentence fires in the reference variant; sentences count from 0."""
        if self.unit != "word" or word is None:
            whole = "the draft" if self.unit == "draft" else f"sentence {number + 1}"
            return f"{whole} {self.says(peak)} ({self.pool}), above θ {self.theta:g}"
        return f"{word!r} in sentence {number + 1} {self.says(peak)}, above θ {self.theta:g}"


_SHIPPED = (
    "dragin_lab.core.triggers",
    "dragin_lab.triggers.call",
    "dragin_lab.reference.etc",
    "dragin_lab.triggers.later",
)
TRIGGERS: Registry[Trigger] = Registry("when", Trigger, "dragin_lab.whens", _SHIPPED)


def when(
    name: str,
    *,
    threshold: float | None = None,
    unit: str = "word",
    pool: str = "max",
    cut: str | None = None,
    skip_stop_words: bool = False,
    needs: Sequence[str] = (),
    source: str = "",
) -> Callable[[Callable[..., np.ndarray]], type[Trigger]]:
    """Make a trigger from a function that scores the tokens of a draft, and enter it under ``name``.

    The function takes a ``Draft`` of n tokens and returns (n,) finite numbers, larger where the model is less sure. Its
    further parameters, each with a default, become settings.

    Args:
        name: how it is called in ``when="margin"``, labels, tables and files.
        threshold: θ where none is given.
        unit: what is compared with θ: each "word", each "sentence", or the "draft".
        pool: how the tokens' scores make a unit's: "max", "mean", "min" or "sum".
        cut: where a draft that fires is cut, before its "word", its "sentence" or all of the "draft"; default the unit.
        skip_stop_words: stop words score 0.
        needs: "attention" to have ``draft.attention``; "hidden" or "hidden:12" to have ``draft.hidden``.
        source: where the idea is from.

    Raises ``SettingError`` for values that do not exist, a built-in name, and a parameter without default.
    """
    cut = unit if cut is None else cut
    for label, value, known in (("unit", unit, UNITS), ("pool", pool, POOLS), ("cut", cut, UNITS)):
        choice(f"when {name!r}: {label}", value, known)
    if UNITS.index(cut) < UNITS.index(unit):
        raise SettingError(f"when {name!r} judges a {unit} and so cannot cut before a {cut}; use cut={unit!r}")
    remedy = "give a tuple of 'attention', 'hidden' or 'hidden:12'"
    if wrong := [need for need in several(f"when {name!r}: needs", needs, str, remedy) if not _NEED.fullmatch(need)]:
        raise SettingError(f"needs={wrong!r} of when {name!r}: {remedy}")
    theta = None if threshold is None else number("threshold", threshold)

    def define(function: Callable[..., np.ndarray]) -> type[Trigger]:
        made = part_of_function(
            function,
            Scored,
            name,
            settings={"threshold": theta},
            unit=unit,
            pool=pool,
            cut=cut,
            skip_stop_words=skip_stop_words,
            needs=tuple(needs),
            source=source,
            rewrites_rest=unit == "draft",
            measure=f"{name} score",
        )
        return TRIGGERS.add(made)

    return define


@dataclass(frozen=True)
class Scored(Trigger):
    """A trigger around a function, as ``@dl.when`` makes it."""

    function = staticmethod(lambda draft: draft.entropy)
    parameters: ClassVar[tuple[str, ...]] = ()

    def score(self, draft: Draft) -> np.ndarray:
        found: np.ndarray = self.function(draft, **{key: getattr(self, key) for key in self.parameters})
        return found


def _failed(name: str, draft: Draft, error: Exception) -> str:
    said = f"when {name!r} failed on a draft of {len(draft)} tokens ({draft.text[:60]!r}): "
    if isinstance(error, ValueError) and "read-only" in str(error):
        return said + "it writes to an array of the draft, which is read-only; copy it first: draft.entropy.copy()"
    return f"{said}{type(error).__name__}: {error}"


def _shape(found: np.ndarray) -> str:
    return f"an array of shape {found.shape} and type {found.dtype}"
