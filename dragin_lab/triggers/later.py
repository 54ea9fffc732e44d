"""When to retrieve, after DRAGIN: later papers' triggers, plain baselines and two bounds, with the public API.

The default thresholds of ``entropy``, ``margin`` and ``attention`` lie between those that give one budget of retrievals
on two models (docs/explanation/thresholds.md); the others are round numbers in the middle of each score's range. None
holds for another model: ask for a budget instead (``catalog.budget``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dragin_lab.checks import choice, count
from dragin_lab.core.draft import Draft
from dragin_lab.core.scores import doubts
from dragin_lab.core.trigger import TRIGGERS, Trigger, when
from dragin_lab.errors import SettingError

_TARG = "TARG (arXiv 2511.09803)"
_DRAD = "DRAD (github.com/oneal2000/sigir25-tutorial-dynamic, EntityRAG)"

# -- one number per token ---------------------------------------------------------------------------------------------


@when("entropy", threshold=3.0, source="DRAGIN Eq. 1, by itself")
def entropy(draft: Draft) -> np.ndarray:
    """A token is drawn from a distribution of high entropy (nats)."""
    return draft.entropy


@when("margin", threshold=0.95, source=f"{_TARG}, for each token")
def margin(draft: Draft, beta: float = 1.0) -> np.ndarray:
    """The second-likeliest token is nearly as likely as the likeliest: exp(-(l1 - l2) / β)."""
    if draft.alternative_probs.shape[1] < 2:
        raise SettingError("the margin takes two alternatives; load the model with alternatives=2 or more")
    first, second = draft.alternative_probs[:, :2].T  # (n,), (n,)
    return (second / first) ** (1 / beta)  # (n,), as l1 - l2 = log p1 - log p2


@when("attention", threshold=0.2, skip_stop_words=True, source="DRAGIN Eq. 2-4, without the entropy")
def attention(draft: Draft) -> np.ndarray:
    """A later token attends strongly to a word that is not a stop word."""
    return draft.received


@when("random", threshold=0.9, source="a bound: what a rate of retrievals gives without looking")
def random(draft: Draft, seed: int = 0) -> np.ndarray:
    """Words drawn at random: θ = 0.9 fires at a tenth of them, the same ones whenever the text is the same."""
    before = f"{seed}\n{draft.question}\n{draft.answer_so_far}"
    texts = [before + draft.text[: draft.offsets[word.start, 0]].rstrip() for word in draft.word_list]
    drawn = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64 for text in texts]
    return np.array(drawn, dtype=float)[draft.word_of_token]


# -- one decision on the first tokens (TARG) --------------------------------------------------------------------------


@dataclass(frozen=True)
class Prefix(Trigger):
    """One decision before the answer, on its first tokens: their mean score above θ fetches passages for all of it."""

    looks, unit, pool, cut, gives = "prefix", "draft", "mean", "draft", frozenset({"nothing", "text"})
    threshold: float | None = None
    first: int = 20  # tokens

    def resolved(self, variant: str) -> Trigger:
        return replace(super().resolved(variant), first=count("first", self.first))  # type: ignore[call-arg]


@TRIGGERS.add
@dataclass(frozen=True)
class PrefixEntropy(Prefix):
    """The first tokens have a high mean entropy (TARG)."""

    name, source, measure = "prefix-entropy", _TARG, "entropy"
    thresholds: ClassVar = {"reference": 1.0, "paper": 1.0}

    def score(self, draft: Draft) -> np.ndarray:
        return draft.entropy


@TRIGGERS.add
@dataclass(frozen=True)
class PrefixMargin(Prefix):
    """The first tokens have near rivals (TARG): the mean of exp(-(l1 - l2) / β)."""

    name, source, measure = "prefix-margin", _TARG, "margin"
    thresholds: ClassVar = {"reference": 0.3, "paper": 0.3}
    beta: float = 1.0

    def score(self, draft: Draft) -> np.ndarray:
        return margin.function(draft, self.beta)  # type: ignore[attr-defined]


# -- entities (DRAD) --------------------------------------------------------------------------------------------------

_SOLVERS: dict[str, Callable[[np.ndarray], float]] = {
    "avg": lambda values: float(values.mean()),
    "max": lambda values: float(values.max()),
    "min": lambda values: float(values.min()),
    "first": lambda values: float(values[0]),
}


@TRIGGERS.add
@dataclass(frozen=True)
class Entity(Trigger):
    """An entity is improbable (DRAD): 1 - exp of its tokens' pooled log-probabilities, by sentence above θ."""

    name, source, measure = "entity", _DRAD, "1 − entity probability"
    unit, cut, on_doubt, reads_entities = "sentence", "sentence", True, True
    thresholds: ClassVar = {"reference": 0.5, "paper": 0.5}
    threshold: float | None = None
    entity_solver: str = "avg"  # over an entity's log-probabilities: avg, max, min or first
    sentence_solver: str = "max"  # over a sentence's entities: avg, max or min

    def resolved(self, variant: str) -> Trigger:
        choice("entity_solver", self.entity_solver, _SOLVERS)
        choice("sentence_solver", self.sentence_solver, ("avg", "max", "min"))
        return super().resolved(variant)

    def spans(self, draft: Draft) -> Sequence[tuple[int, int]]:
        """Half-open characters of the draft's entities."""
        return draft.pipeline.entities(draft.text)

    def _entities(self, draft: Draft) -> list[tuple[np.ndarray, float]]:
        """The tokens (m,) of each entity, and how improbable it is."""
        starts, stops = draft.offsets.T  # (n,), (n,)
        found = [np.flatnonzero((starts < b) & (stops > a)) for a, b in self.spans(draft)]
        solve = _SOLVERS[self.entity_solver]
        return [(tokens, float(doubts(np.array([solve(draft.logprob[tokens])]))[0])) for tokens in found if len(tokens)]

    def score(self, draft: Draft) -> np.ndarray:
        scores = np.zeros(len(draft))  # (n,)
        for tokens, doubt in self._entities(draft):
            scores[tokens] = doubt
        return scores

    def peaks(self, draft: Draft, score: np.ndarray, ranges: Sequence[tuple[int, int]]) -> list[float]:
        found, spans = self._entities(draft), draft.spans
        solve = _SOLVERS[self.sentence_solver]
        peaks = []
        for a, b in ranges:
            first, stop = (spans[a, 0], spans[b - 1, 1]) if b > a else (0, 0)
            inside = np.array([doubt for tokens, doubt in found if first <= tokens[0] < stop])
            peaks.append(solve(inside) if len(inside) else -np.inf)
        return peaks


@TRIGGERS.add
@dataclass(frozen=True)
class Capitalised(Entity):
    """As ``entity``, for runs of capitalised words and numbers: where the spaCy pipeline finds no entities."""

    name, source = "capitalised", f"{_DRAD}, with a stand-in for named entities"
    reads_entities = False

    def spans(self, draft: Draft) -> Sequence[tuple[int, int]]:
        return draft.pipeline.names(draft.text)


# -- hidden states ----------------------------------------------------------------------------------------------------


@TRIGGERS.add
@dataclass(frozen=True)
class Probe(Trigger):
    """A linear probe w · h + b on the hidden state that each token is drawn from is above θ."""

    name, source, needs = "probe", "Probing-RAG (arXiv 2410.13339), linear, for each token", ("hidden",)
    measure = "probe"
    thresholds: ClassVar = {"reference": 0.0, "paper": 0.0}
    threshold: float | None = None
    weights: tuple[float, ...] = ()  # (d,)
    bias: float = 0.0

    def resolved(self, variant: str) -> Trigger:
        return replace(super().resolved(variant), weights=tuple(map(float, self.weights)))  # type: ignore[call-arg]

    def score(self, draft: Draft) -> np.ndarray:
        if not len(draft):
            return np.zeros(0)
        w, d = len(self.weights), draft.hidden.shape[1]
        if w != d:
            raise SettingError(f"the probe has {w} weights, and a hidden state of this model {d} numbers")
        return draft.hidden.astype(np.float64) @ np.array(self.weights) + self.bias
