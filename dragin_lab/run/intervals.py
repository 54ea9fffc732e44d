"""Intervals of a mean over questions: Wilson's (1927) of a proportion, percentile bootstrap (Efron
1979) of the rest.

A bootstrap of five wrong answers gives [0, 0], as if 0 were certain; Wilson's gives [0, 0.43]. The
seed is fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
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
    """A mean over ``n`` questions and the ends of its interval, which are NaN where the values
    do not give one.
    """

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


def bootstrap(
    columns: Sequence[Numbers], within: Sequence[tuple[float, float] | None]
) -> list[Interval]:
    """The mean of each column (n,) with its percentile bootstrap interval, questions drawn with
    replacement.

    Equal values would give an interval of no width. Given ``within``, the lowest and highest
    possible value, the interval allows instead for unseen values that differ, as large a share as
    Wilson's interval of 0 of n holds. Without ``within`` its ends are NaN. Columns of equal length
    share what is drawn, which takes most of the time.
    """
    arrays = [check_numbers("values", column) for column in columns]
    spread = [at for at, array in enumerate(arrays) if array.min() < array.max()]
    ends: dict[int, tuple[float, float]] = {}
    for n in {len(arrays[at]) for at in spread}:
        alike = [at for at in spread if len(arrays[at]) == n]
        means = _draw_means(np.stack([arrays[at] for at in alike], axis=1))  # (RESAMPLES, columns)
        # (columns,) each
        low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        ends |= dict(zip(alike, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    return [
        (
            Interval(float(array.mean()), *ends[at], len(array))
            if at in ends
            else _of_equal(array, within[at])
        )
        for at, array in enumerate(arrays)
    ]


def _draw_means(columns: np.ndarray) -> np.ndarray:
    """The means (RESAMPLES, c) of columns (n, c) over questions that are drawn with replacement."""
    n, rng = len(columns), np.random.default_rng(0)
    batch, means = max(1, 2**17 // n), []
    for start in range(0, RESAMPLES, batch):
        rows = rng.integers(0, n, (min(batch, RESAMPLES - start), n))  # (draws, n)
        rows += n * np.arange(len(rows))[:, None]
        # how often each question came
        times = np.bincount(rows.ravel(), minlength=rows.size).reshape(rows.shape)
        means.append(times @ columns / n)
    return np.concatenate(means)


def _of_equal(array: np.ndarray, within: tuple[float, float] | None) -> Interval:
    mean, n = float(array[0]), len(array)  # the mean could differ from it by rounding
    if within is None:
        return Interval(mean, float("nan"), float("nan"), n)
    unseen = _wilson(0, n)[1]
    return Interval(mean, mean - unseen * (mean - within[0]), mean + unseen * (within[1] - mean), n)


def _wilson(hits: int, n: int) -> tuple[float, float]:
    from scipy import stats

    interval = stats.binomtest(hits, n).proportion_ci(LEVEL, "wilson")
    return float(interval.low), float(interval.high)


def check_numbers(name: str, values: Numbers) -> np.ndarray:
    """``values`` as float64 (n,). Raises ``SettingError``, calling them ``name``, for none and
    for NaN or infinity.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array):
        raise SettingError(
            f"{name} has shape {array.shape}; an interval needs a list of at least one number"
        )
    if wrong := int((~np.isfinite(array)).sum()):
        raise SettingError(
            f"{wrong} of {len(array)} {name} are NaN or infinite; leave those questions out first"
        )
    return array


def intervals_of(columns: Sequence[tuple[str, Numbers]]) -> list[Interval]:
    """The means of measures over questions, given as (measure, values), with their 95 % intervals.

    Scores that are all 0 or 1 are a proportion (Wilson); other scores, and counts, are resampled.
    """
    shares = [measure not in COUNTS and {*scores} <= {0.0, 1.0} for measure, scores in columns]
    resampled = [column for column, share in zip(columns, shares, strict=True) if not share]
    bounds = [(0.0, 1.0) if measure in SCORES else None for measure, _ in resampled]
    intervals = iter(bootstrap([counts for _, counts in resampled], bounds))
    return [
        proportion(column[1]) if share else next(intervals)
        for column, share in zip(columns, shares, strict=True)
    ]


def summary(predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means of ``MEASURES`` with their 95 % intervals: ``n``, ``scored``, ``em``, ``em_low``,
    ``em_high`` and so on.

    ``n`` counts the episodes that did not fail; em and f1 are over those of them that have gold
    answers, ``scored``. NaN where there is nothing to take the mean of.
    """
    sound = [line for line in predictions if line["ended"] != "error"]
    means: dict[str, float] = {
        "n": len(sound),
        "scored": sum(line["em"] is not None for line in sound),
    }
    columns = {name: [line[name] for line in sound if line[name] is not None] for name in MEASURES}
    filled = [(name, column) for name, column in columns.items() if column]
    intervals = dict(zip(dict(filled), intervals_of(filled), strict=True))
    for name, (suffix, part) in product(
        MEASURES, (("", "mean"), ("_low", "low"), ("_high", "high"))
    ):
        means[name + suffix] = getattr(intervals.get(name), part, float("nan"))
    return means


def describe_failures(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """How many episodes failed, and with what error the most of them did, in a line; none where
    none failed.
    """
    every = [*lines]
    errors = Counter(
        str(line.get("error", "")).strip().partition("\n")[0]
        for line in every
        if line["ended"] == "error"
    )
    if not errors:
        return []
    (error, count), *others = errors.most_common()
    more = (
        f" ({count:,} of them; {len(others)} other error{'s' * (len(others) > 1)})"
        if others
        else ""
    )
    return [
        f"{errors.total():,} of {len(every):,} answers failed:"
        f" {error[:200] or 'with no message'}{more}"
    ]
