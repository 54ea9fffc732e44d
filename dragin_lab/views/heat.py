"""The colour of a token: which measure colours a trace, and which of the nine levels of style.css a value has.

With a threshold, five levels lie below it and four above: the jump in colour is the trigger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dragin_lab.trace.trace import Draft, Trace, Words

LEVELS = 9
BELOW = 5  # levels at or below the threshold


@dataclass(frozen=True)
class Scale:
    """What the colour means. ``kind`` is "score" (the trigger's, of judged drafts), "product", "entropy" or "none"."""

    kind: str
    name: str
    top: float  # the largest value of the trace
    threshold: float = math.nan  # NaN: the trigger has none
    note: str = ""  # which words are judged, for the legend
    unit: str = "word"  # what is compared with θ: each "word", each "sentence", or the "draft"
    second: bool = False  # whether words have the attention of a second reading, as in the reference variant
    base: float = 0.0  # where colours and bars begin: 0, or the lowest score or θ where that is below
    spared: bool = False  # whether some words may not fire, and are drawn as not judged

    @property
    def word_threshold(self) -> float:
        """θ where the score of a word is compared with it; NaN where that of a sentence or of a draft is."""
        return self.threshold if self.unit == "word" else math.nan

    def levels(self, values: np.ndarray) -> np.ndarray:
        """The level (0 to ``LEVELS``) of each value (n,); 0, the bare background, for the base and for not measured."""
        out = np.zeros(len(values), np.int64)
        good = np.isfinite(values) & (values > self.base)
        v = values[good].astype(np.float64)
        bounds = np.array(self.bounds()[:-1])
        out[good] = np.clip(1 + (v[:, None] > bounds[None, 1:]).sum(axis=1), 1, LEVELS)
        return out

    def bounds(self) -> list[float]:
        """Where the levels end: ascending numbers from the base to the top, or to θ where nothing lies above it."""
        top, theta = self.top if self.top > self.base else self.base + 1.0, self.word_threshold
        if not (math.isfinite(theta) and theta > self.base):
            return [float(b) for b in np.linspace(self.base, top, LEVELS + 1)]
        below = np.linspace(self.base, theta, BELOW + 1)
        above = np.linspace(theta, top, LEVELS - BELOW + 1)[1:] if top > theta else np.zeros(0)
        return [float(b) for b in (*below, *above)]

    def values(self, continuation: Draft, words: Words) -> np.ndarray:
        """The measure of each token (n,) float64 of a continuation whose words are ``words`` (none: not judged)."""
        if self.kind == "score":
            return np.append(np.asarray(words.score, np.float64), np.nan)[token_words(continuation, words)]
        if self.kind == "product":
            return np.asarray(continuation.entropy, np.float64) * np.asarray(continuation.received, np.float64)
        if self.kind == "entropy":
            return np.asarray(continuation.entropy, np.float64)
        return np.full(len(continuation), np.nan)


def token_words(continuation: Draft, words: Words) -> np.ndarray:
    """(n,) int: the word each token belongs to; -1 for none."""
    owner = np.full(len(continuation), -1, np.int64)
    for i, (start, stop) in enumerate(words.spans.tolist()):
        owner[start:stop] = i
    return owner


def threshold_of(trace: Trace) -> float:
    """θ of the trace's method; NaN where it has none."""
    value = trace.method.get("threshold")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def scale_of(trace: Trace) -> Scale:
    """The measure that colours a trace: the trigger's score where its words have one, else what was captured."""
    second = trace.method.get("variant") == "reference"
    scored = [s.words.score for s in trace.steps if s.draft is not None and np.isfinite(s.words.score).any()]
    if scored:
        unit, theta, note = str(trace.method.get("unit") or "word"), threshold_of(trace), ""
        if unit == "word" and any(_passed_over(s.words, theta) for s in trace.steps):
            first = "sentence" if second else "word"
            note = f"Judging ends with the first {first} that fires; a darker word after it is not a hit."
        spared = unit == "word" and any(s.words.unjudged.any() for s in trace.steps)
        name = trace.method.get("measure") or f"{trace.method.get('when') or 'trigger'} score"
        base = float(np.nanmin([0.0, -find_largest(-score for score in scored), theta if unit == "word" else 0.0]))
        return Scale("score", str(name), find_largest(scored), theta, note, unit, second, base, spared)
    continuations = trace.continuations
    products = [np.asarray(c.entropy, np.float64) * c.received for c in continuations]
    if find_largest(products) > 0:
        return Scale("product", "entropy × attention received", find_largest(products))
    entropies = [np.asarray(c.entropy, np.float64) for c in continuations]
    if find_largest(entropies) > 0:
        return Scale("entropy", "entropy in nats", find_largest(entropies))
    return Scale("none", "nothing", 0.0)


def _passed_over(words: Words, theta: float) -> bool:
    """Whether a judged word scores above θ that is neither a hit nor a stop word."""
    return bool((~words.hit & ~words.stop & ~words.unjudged & (words.score > theta)).any())


def find_largest(arrays: Iterable[np.ndarray], none: float = 0.0) -> float:
    """The largest finite value of all; ``none`` where there is none."""
    flat = np.concatenate([np.zeros(0), *(np.asarray(a, np.float64) for a in arrays)])
    flat = flat[np.isfinite(flat)]
    return float(flat.max()) if flat.size else none
