"""How sure one can be of a mean over questions, and of a difference between two methods on the same questions.

Means get percentile bootstrap intervals (Efron 1979); two methods on the same questions are compared by randomisation:
if they were equal, every question's difference could as well have had the other sign. Everything is drawn from a seed,
so the same numbers give the same interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dragin_lab.errors import SettingError

LEVEL = 0.95
SAMPLES = 10_000

#: Most numbers held at once while resampling (8 bytes each).
_AT_ONCE = 1 << 20

Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` questions and the ends of its interval."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class PairedTest:
    """The mean of a - b over ``n`` questions, its interval, and how often chance alone makes one as large."""

    difference: float
    low: float
    high: float
    p_value: float
    n: int

    def __str__(self) -> str:
        return f"{self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}], p = {self.p_value:.3g}"


def bootstrap(values: Numbers, *, level: float = LEVEL, samples: int = SAMPLES, seed: int = 0) -> Interval:
    """The mean of ``values`` (n,) with its percentile bootstrap interval, questions drawn with replacement.

    One value, or values that are all equal, have an interval of no width: the data show no spread.
    Raises ``SettingError`` without values, for values that are not finite numbers, ``samples`` below 1 and a ``level``
    that is not between 0 and 1.
    """
    array = _checked("values", values)
    _check_settings(level, samples)
    mean = float(array.mean())
    if array.min() == array.max():  # means of draws would differ from it by rounding
        return Interval(mean, mean, mean, len(array))
    # How often each distinct value is drawn decides a draw's mean, and scores have few distinct values.
    distinct, counts = np.unique(array, return_counts=True)  # (d,), (d,)
    rng = np.random.default_rng(seed)
    sums = np.concatenate(
        [
            rng.multinomial(len(array), counts / len(array), size=rows) @ distinct
            for rows in _rows(samples, len(distinct))
        ]
    )  # (samples,)
    low, high = np.quantile(sums, _tails(level)) / len(array)
    return Interval(mean, float(low), float(high), len(array))


def paired(a: Numbers, b: Numbers, *, level: float = LEVEL, samples: int = SAMPLES, seed: int = 0) -> PairedTest:
    """``a`` against ``b``, both (n,) over the same questions in the same order: two-sided randomisation test.

    The p value is exact where all questions on which they differ differ by as much, as 0 and 1 do (that is McNemar's
    exact test), or where there are at most ``samples`` ways to choose the signs; else it is counted over ``samples``
    random signs, the observed ones among them, so it is never 0. The interval is ``bootstrap``'s of a - b.
    Raises ``SettingError`` as ``bootstrap`` does, and for results that cannot be paired.
    """
    first, second = _checked("a", a), _checked("b", b)
    if len(first) != len(second):
        raise SettingError(f"{len(first)} and {len(second)} results cannot be paired; give both for the same questions")
    difference = first - second  # (n,)
    found = bootstrap(difference, level=level, samples=samples, seed=seed)
    return PairedTest(found.mean, found.low, found.high, _p_value(difference, samples, seed), found.n)


def bootstrap_statistic(
    statistic: Callable[[np.ndarray], float],
    groups: Sequence[object] | int,
    *,
    level: float = LEVEL,
    samples: int = SAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile interval of any ``statistic(indexes)``, indexes being an int array of things drawn: (low, high).

    ``groups`` names the group of each thing, such as its question: groups are drawn whole, as the facts of a question
    are not independent. A number n stands for n groups of one. Draws whose statistic is NaN are left out; NaN where
    none is left, or without things.
    """
    _check_settings(level, samples)
    names = list(range(groups)) if isinstance(groups, int) else list(groups)
    if not names:
        return float("nan"), float("nan")
    members: dict[object, list[int]] = {}
    for place, name in enumerate(names):
        members.setdefault(name, []).append(place)
    parts = [np.array(of) for of in members.values()]
    rng = np.random.default_rng(seed)
    values = np.array(
        [
            statistic(np.concatenate([parts[g] for g in rng.integers(len(parts), size=len(parts))]))
            for _ in range(samples)
        ]
    )  # (samples,)
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, _tails(level))
    return float(low), float(high)


def _p_value(difference: np.ndarray, samples: int, seed: int) -> float:
    """Share of the choices of signs under which the sum is as far from 0 as it is."""
    sizes = np.abs(difference[difference != 0])  # (m,)
    m = len(sizes)
    if not m:
        return 1.0
    if np.allclose(sizes, sizes[0], rtol=1e-9, atol=0):
        fewer = min(int((difference > 0).sum()), int((difference < 0).sum()))
        ways, term = 0, 1  # term: m over k
        for k in range(fewer + 1):
            ways += term
            term = term * (m - k) // (k + 1)
        return min(1.0, 2 * ways / 2**m)
    observed = abs(difference.sum()) * (1 - 1e-9)  # sums of the same numbers in another order round otherwise
    if 2**m <= samples:
        choices = np.arange(2**m)[:, None] >> np.arange(m) & 1  # (2**m, m)
        return float((np.abs((2 * choices - 1) @ sizes) >= observed).mean())
    rng = np.random.default_rng(seed)
    extreme = 1 + sum(
        int((np.abs((2 * rng.integers(2, size=(rows, m)) - 1) @ sizes) >= observed).sum())
        for rows in _rows(samples - 1, m)
    )
    return extreme / samples


def _rows(samples: int, n: int) -> Iterator[int]:
    """``samples`` in blocks of so many that a block of n numbers each stays small."""
    block = max(1, _AT_ONCE // n)
    for done in range(0, samples, block):
        yield min(block, samples - done)


def _tails(level: float) -> list[float]:
    return [(1 - level) / 2, (1 + level) / 2]


def _checked(name: str, values: Numbers) -> np.ndarray:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array):
        raise SettingError(f"{name} has shape {array.shape}; an interval needs a list of at least one number")
    wrong = int((~np.isfinite(array)).sum())
    if wrong:
        raise SettingError(f"{wrong} of {len(array)} {name} are NaN or infinite; leave those questions out first")
    return array


def _check_settings(level: float, samples: int) -> None:
    if not 0 < level < 1:
        raise SettingError(f"level={level!r} is out of range; give a share between 0 and 1, such as 0.95")
    if samples < 1:
        raise SettingError(f"samples={samples!r} is out of range; give 1 or more, such as 10_000")
