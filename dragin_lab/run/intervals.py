"""Intervals of a mean over questions: Wilson's (1927) of a proportion, percentile bootstrap (Efron 1979) of the rest.

A bootstrap of five wrong answers gives [0, 0], as if 0 were certain; Wilson's gives [0, 0.43]. Bootstrap draws come
from a seed, so the same numbers give the same interval. The draws are ours: scipy's ``bootstrap`` draws as many numbers
as there are questions, which takes fifty times as long as counts of the few distinct values (0.2 s for 1,000 of them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dragin_lab.errors import SettingError

LEVEL = 0.95
SAMPLES = 10_000

#: Most numbers held at once while resampling (8 bytes each).
AT_ONCE = 1 << 20

Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` questions and the ends of its interval; both are NaN where the values say nothing about it."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} {bracket(self.low, self.high)}"


def bracket(low: float, high: float, *, places: int = 3, sign: bool = False) -> str:
    """The ends of an interval as text, "[0.120, 0.480]"; "–" where there is none."""
    form = f"{'+' if sign else ''}.{places}f"
    return f"[{low:{form}}, {high:{form}}]" if low <= high else "–"


def proportion(values: Numbers, *, level: float = LEVEL) -> Interval:
    """The share of 1 among ``values`` (n,), which are 0 or 1, with Wilson's interval.

    Raises ``SettingError`` for other values, and as ``bootstrap``.
    """
    array = checked("values", values)
    check_settings(level, 1)
    if other := array[(array != 0) & (array != 1)].tolist():
        raise SettingError(f"{other[0]:g} is neither 0 nor 1; a share is counted over values of 0 and 1")
    hits = int(array.sum())
    low, high = _wilson(hits, len(array), level)
    return Interval(hits / len(array), low, high, len(array))


def bootstrap(
    values: Numbers,
    *,
    within: tuple[float, float] | None = None,
    level: float = LEVEL,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean of ``values`` (n,) with its percentile bootstrap interval, questions drawn with replacement.

    Values that are all equal, or just one, show no spread, so draws from them would give an interval of no width. With
    ``within``, the lowest and the highest value that there can be, the interval then holds what a share of unseen
    other values, as large as Wilson's interval of 0 of n allows, could make of the mean. Without it there is none
    (NaN): nothing says how far another question could lie.

    Raises ``SettingError`` without values, for values that are not finite numbers, ``samples`` below 1 and a ``level``
    that is not between 0 and 1.
    """
    array = checked("values", values)
    check_settings(level, samples)
    mean = float(array.mean())
    if array.min() == array.max():
        mean = float(array[0])  # the mean could differ from it by rounding
        if within is None:
            return Interval(mean, float("nan"), float("nan"), len(array))
        unseen = _wilson(0, len(array), level)[1]
        return Interval(mean, mean - unseen * (mean - within[0]), mean + unseen * (within[1] - mean), len(array))
    # How often each distinct value is drawn decides a draw's mean, and scores have few distinct values.
    distinct, counts = np.unique(array, return_counts=True)  # (d,), (d,)
    rng, block = np.random.default_rng(seed), max(1, AT_ONCE // len(distinct))
    sizes = [min(block, samples - done) for done in range(0, samples, block)]
    drawn = [rng.multinomial(len(array), counts / len(array), size=size) @ distinct for size in sizes]
    low, high = np.quantile(np.concatenate(drawn), tails(level)) / len(array)
    return Interval(mean, float(low), float(high), len(array))


def _wilson(hits: int, n: int, level: float) -> tuple[float, float]:
    from scipy import stats

    interval = stats.binomtest(hits, n).proportion_ci(level, "wilson")
    return float(interval.low), float(interval.high)


def tails(level: float) -> list[float]:
    """The quantiles at the ends of an interval."""
    return [(1 - level) / 2, (1 + level) / 2]


def checked(name: str, values: Numbers) -> np.ndarray:
    """``values`` as float64 (n,). Raises ``SettingError`` as ``bootstrap`` does, calling them ``name``."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array):
        raise SettingError(f"{name} has shape {array.shape}; an interval needs a list of at least one number")
    wrong = int((~np.isfinite(array)).sum())
    if wrong:
        raise SettingError(f"{wrong} of {len(array)} {name} are NaN or infinite; leave those questions out first")
    return array


def check_settings(level: float, samples: int) -> None:
    """Raises ``SettingError`` as ``bootstrap`` does."""
    if not 0 < level < 1:
        raise SettingError(f"level={level!r} is out of range; give a share between 0 and 1, such as 0.95")
    if samples < 1:
        raise SettingError(f"samples={samples!r} is out of range; give 1 or more, such as 10_000")
