"""Intervals of a mean over questions: Wilson's (1927) of a proportion, percentile bootstrap (Efron
1979) of the rest.

A bootstrap of five wrong answers gives [0, 0], as if 0 were certain; Wilson's gives [0, 0.43]. The
seed is fixed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from dragin_lab.errors import SettingError
from dragin_lab.run.rundir import SCORES, Line

LEVEL = 0.95
RESAMPLES = 2_000
#: What ``summarize_lines`` gives the mean of.
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


NOTHING = Interval(math.nan, math.nan, math.nan, 0)


def write_interval(low: float, high: float, *, places: int = 3) -> str:
    """The ends of an interval as text, "[0.120, 0.480]"; "–" where there is none."""
    return f"[{low:.{places}f}, {high:.{places}f}]" if low <= high else "–"


def proportion(values: Numbers) -> Interval:
    """The share of 1 among ``values`` (n,), which are 0 or 1, with Wilson's interval."""
    n = len(values)
    hits = int(sum(values))
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
    spread = [array for array in arrays if array.min() < array.max()]
    ends = iter(in_columns(spread, _draw_ends))
    intervals = []
    for array, bounds in zip(arrays, within, strict=True):
        if array.min() < array.max():
            low, high = next(ends).tolist()
            intervals.append(Interval(float(array.mean()), low, high, len(array)))
        else:
            intervals.append(_of_equal(array, bounds))
    return intervals


def in_columns(
    arrays: Sequence[np.ndarray], compute: Callable[[np.ndarray], np.ndarray]
) -> list[np.ndarray]:
    """What ``compute`` gives for columns (n, c), one for each (c, ...); arrays (n,) of equal length
    are computed together.
    """
    results = {}
    for n in {*map(len, arrays)}:
        alike = [array for array in arrays if len(array) == n]
        results[n] = iter(compute(np.stack(alike, axis=1)))
    return [next(results[len(array)]) for array in arrays]


def _draw_ends(columns: np.ndarray) -> np.ndarray:
    """The ends (c, 2) of the intervals of the means of columns (n, c), over questions that are
    drawn with replacement.
    """
    n = len(columns)
    rng = np.random.default_rng(0)
    batch = max(1, 2**17 // n)
    means = []
    for start in range(0, RESAMPLES, batch):
        draws = min(batch, RESAMPLES - start)
        rows = rng.integers(0, n, (draws, n))
        rows += n * np.arange(draws)[:, None]
        times = np.bincount(rows.ravel(), minlength=rows.size)  # how often each question came
        means.append(times.reshape(rows.shape) @ columns / n)
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    return np.quantile(np.concatenate(means), ends, axis=0).T


def _of_equal(array: np.ndarray, within: tuple[float, float] | None) -> Interval:
    mean = float(array[0])  # the mean could differ from it by rounding
    n = len(array)
    if within is None:
        return Interval(mean, math.nan, math.nan, n)
    lowest, highest = within
    _, unseen = _wilson(0, n)
    return Interval(mean, mean - unseen * (mean - lowest), mean + unseen * (highest - mean), n)


@cache  # a curve asks for the same few counts at each of its θ
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
    wrong = np.count_nonzero(~np.isfinite(array))
    if wrong:
        raise SettingError(
            f"{wrong} of {len(array)} {name} are NaN or infinite; leave those questions out first"
        )
    return array


def intervals_of(columns: Sequence[tuple[str, Numbers]]) -> list[Interval]:
    """The means of measures over questions, given as (measure, values), with their 95 % intervals.

    Scores that are all 0 or 1 are a proportion (Wilson); other scores, and counts, are resampled.
    """
    resampled = [column for column in columns if not _is_share(*column)]
    bounds = [(0.0, 1.0) if measure in SCORES else None for measure, _ in resampled]
    bootstrapped = iter(bootstrap([values for _, values in resampled], bounds))
    intervals = []
    for measure, values in columns:
        share = _is_share(measure, values)
        intervals.append(proportion(values) if share else next(bootstrapped))
    return intervals


def _is_share(measure: str, values: Numbers) -> bool:
    return measure not in COUNTS and {*values} <= {0.0, 1.0}


def summarize_lines(predictions: Sequence[Line]) -> dict[str, float]:
    """Means of ``MEASURES`` with their 95 % intervals: ``n``, ``scored``, ``em``, ``em_low``,
    ``em_high`` and so on.

    ``n`` counts the episodes that did not fail; em and f1 are over those of them that have gold
    answers, ``scored``. NaN where there is nothing to take the mean of.
    """
    sound = [line for line in predictions if line["ended"] != "error"]
    scored = sum(line["em"] is not None for line in sound)
    means: dict[str, float] = {"n": len(sound), "scored": scored}
    columns = {}
    for name in MEASURES:
        values = [line[name] for line in sound if line[name] is not None]
        if values:
            columns[name] = values
    intervals = dict(zip(columns, intervals_of([*columns.items()]), strict=True))
    for name in MEASURES:
        interval = intervals.get(name, NOTHING)
        means |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return means


def describe_failures(lines: Iterable[Line]) -> list[str]:
    """How many episodes failed, and with what error the most of them did, in a line; none where
    none failed.
    """
    every = [*lines]
    errors = Counter[str]()
    for line in every:
        if line["ended"] == "error":
            errors[line.get("error", "").strip().partition("\n")[0]] += 1
    if not errors:
        return []
    (error, count), *others = errors.most_common()
    message = error[:200] or "with no message"
    if others:
        message += f" ({count:,} of them; {len(others)} other error{'s' * (len(others) > 1)})"
    return [f"{errors.total():,} of {len(every):,} answers failed: {message}"]
