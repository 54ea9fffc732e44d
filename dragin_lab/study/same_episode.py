"""At which θ every comparison of an episode comes out as it did, by the scores that were compared.

A score fires where it is above θ. So one that did not fire bounds θ from below, and θ may be equal
to it; one that fired bounds θ from above, and θ may not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dragin_lab.core.trigger import Verdict


class Thetas(NamedTuple):
    """Values of θ: from ``start`` up, below ``stop``."""

    start: float = -np.inf
    stop: float = np.inf

    def __contains__(self, theta: object) -> bool:
        return isinstance(theta, int | float) and self.start <= theta < self.stop

    def meet(self, other: Thetas) -> Thetas:
        """The values that are in both."""
        return Thetas(max(self.start, other.start), min(self.stop, other.stop))


EVERYWHERE = Thetas()


def where_alike(scores: np.ndarray, theta: float) -> Thetas:
    """Where those of some scores fire that fire at θ; NaN never does."""
    highest_silent = scores[scores <= theta].max(initial=-np.inf)
    lowest_firing = scores[scores > theta].min(initial=np.inf)
    return Thetas(float(highest_silent), float(lowest_firing))


def where_judged_alike(verdict: Verdict) -> Thetas:
    """Where a trigger judges a draft as it did: the same words are hits, at the same token."""
    trigger = verdict.trigger
    theta = verdict.trigger.theta
    assert theta is not None
    alike = where_alike(np.array([verdict.peak]), theta)
    # a stop word, whose score is 0, may fire only where θ is not below 0
    if trigger.skip_stop_words:
        alike = alike.meet(where_alike(np.array([np.nextafter(0.0, -1.0)]), theta))
    if not verdict.fires:
        return alike
    first_alone = trigger.unit == "word" and trigger.span == "word"
    upto = verdict.word + 1 if first_alone else len(verdict.score)
    scores = verdict.score[:upto][verdict.judged[:upto]]  # (j,)
    return alike.meet(where_alike(scores, theta)).meet(_where_same_token(verdict, theta))


def _where_same_token(verdict: Verdict, theta: float) -> Thetas:
    """Where the same token of the word that fired is the first above θ, or none is."""
    start, stop = verdict.draft.spans[verdict.word]
    scores = verdict.trigger.check_score(verdict.draft)[start:stop]  # (tokens of the word,)
    above = np.flatnonzero(scores > theta)
    upto = above[0] + 1 if len(above) else len(scores)
    return where_alike(scores[:upto], theta)
