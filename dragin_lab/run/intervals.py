"""Intervals of a mean over questions: Wilson's (1927) of a proportion, percentile bootstrap (Efron 1979) of the rest.

A bootstrap of five wrong answers gives [0, 0], as if 0 were certain; Wilson's gives [0, 0.43]. The seed is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragin_lab.errors import SettingError
from dragin_lab.run.rundir import SCORES

LEVEL = 0.95
RESAMPLES = 2_000
#: What ``summary`` gives the mean of.
COUNTS = ("retrievals", "tokens")
MEASURES = ("em", "f1", *COUNTS)

Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` questions and the ends of its interval, which are NaN where the values do not give one."""

    mean: float
    low: float
    high: float
    n: int


def bracket(low: float, high: float, *, places: int = 3) -> str:
    """The ends of an interval as text, "[0.120, 0.480]"; "–" where there is none."""
    return f"[{low:.{places}f}, {high:.{places}f}]" if low <= high else "–"


def proportion(values: Numbers) -> Interval:
    """The share of 1 among ``values`` (n,), which are 0 or 1, with Wilson's interval."""
    n, hits = len(values), int(sum(values))
    return Interval(hits / n, *_wilson(hits, n), n)


def bootstrap(values: Numbers, *, within: tuple[float, float] | None = None) -> Interval:
    """The mean of ``values`` (n,) with its percentile bootstrap interval, questions drawn with replacement.

    Equal values would give an interval of no width. Given ``within``, the lowest and highest possible value, the
    interval allows instead for unseen values that differ, as large a share as Wilson's interval of 0 of n holds.
    Without ``within`` its ends are NaN.
    """
    from scipy import stats

    array = check_numbers("values", values)
    n = len(array)
    if array.min() == array.max():
        mean = float(array[0])  # the mean could differ from it by rounding
        if within is None:
            return Interval(mean, float("nan"), float("nan"), n)
        unseen = _wilson(0, n)[1]
        return Interval(mean, mean - unseen * (mean - within[0]), mean + unseen * (within[1] - mean), n)
    rng, batch = np.random.default_rng(0), max(1, 2**17 // n)
    drawn = stats.bootstrap(
        (array,), np.mean, n_resamples=RESAMPLES, batch=batch, confidence_level=LEVEL, method="percentile", rng=rng
    )
    low, high = drawn.confidence_interval
    return Interval(float(array.mean()), float(low), float(high), n)


def _wilson(hits: int, n: int) -> tuple[float, float]:
    from scipy import stats

    interval = stats.binomtest(hits, n).proportion_ci(LEVEL, "wilson")
    return float(interval.low), float(interval.high)


def check_numbers(name: str, values: Numbers) -> np.ndarray:
    """``values`` as float64 (n,). Raises ``SettingError``, calling them ``name``, for none and for NaN or infinity."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array):
        raise SettingError(f"{name} has shape {array.shape}; an interval needs a list of at least one number")
    if wrong := int((~np.isfinite(array)).sum()):
        raise SettingError(f"{wrong} of {len(array)} {name} are NaN or infinite; leave those questions out first")
    return array


def interval_of(measure: str, values: Numbers) -> Interval:
    """The mean of a measure over questions with its 95 % interval.

    Scores that are all 0 or 1 are a proportion (Wilson); other scores, and counts, are resampled.
    """
    if measure not in COUNTS and set(values) <= {0.0, 1.0}:
        return proportion(values)
    return bootstrap(values, within=(0.0, 1.0) if measure in SCORES else None)


def summary(predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means of ``MEASURES`` with their 95 % intervals: ``n``, ``scored``, ``em``, ``em_low``, ``em_high`` and so on.

    ``n`` counts the episodes that did not fail; em and f1 are over those of them that have gold answers, ``scored``.
    NaN where there is nothing to take the mean of.
    """
    sound = [line for line in predictions if line["ended"] != "error"]
    means: dict[str, float] = {"n": len(sound), "scored": sum(line["em"] is not None for line in sound)}
    for name in MEASURES:
        values = [line[name] for line in sound if line[name] is not None]
        mean = interval_of(name, values) if values else None
        for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high")):
            means[name + suffix] = float("nan") if mean is None else getattr(mean, part)
    return means
