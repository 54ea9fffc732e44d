"""Tests of a difference between two methods.

Two methods on the same questions are compared by randomisation: if they were equal, the difference
on each question could as well have had the other sign. The intervals are drawn as in
``run.intervals``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dragin_lab.errors import SettingError
from dragin_lab.run.intervals import Numbers, bootstrap, check_numbers, in_columns

SAMPLES = 10_000  # random signs of a test


@dataclass(frozen=True)
class PairedTest:
    """The mean of a - b over ``n`` questions, its interval, and how often chance alone makes one as
    large.

    ``won`` and ``lost`` count the questions with a difference above and below 0. ``floor`` is the
    smallest p value that the test can give: 1 / ``samples`` where signs were drawn at random.
    """

    difference: float
    low: float
    high: float
    p_value: float
    n: int
    won: int
    lost: int
    floor: float = sys.float_info.min

    @property
    def p(self) -> str:
        """The p value as text: "= 0.023", or "< 0.0001" where no random draw was as uneven as
        the data.
        """
        return f"< {self.floor:.2g}" if self.p_value <= self.floor else f"= {self.p_value:.2g}"


def paired(a: Numbers, b: Numbers, *, scores: bool = False, samples: int = SAMPLES) -> PairedTest:
    """``a`` against ``b``, both (n,) over the same questions in the same order: two-sided
    randomisation test.

    The p value is exact where all questions on which they differ differ by as much, as 0 and 1 do
    (that is McNemar's exact test), or where there are fewer than ``samples`` ways to choose the
    signs; else it is counted over ``samples`` random signs, the observed ones among them, so it is
    never 0. The interval is ``bootstrap``'s of a - b; ``scores`` says that a and b lie between 0
    and 1, so that equal differences have an interval too. Raises ``SettingError`` as ``bootstrap``
    does, and for results that cannot be paired.
    """
    return paired_all([(a, b, scores)], samples=samples)[0]


def paired_all(
    pairs: Sequence[tuple[Numbers, Numbers, bool]], *, samples: int = SAMPLES
) -> list[PairedTest]:
    """``paired`` of each (a, b, scores); those of equal length share the signs and questions
    that are drawn.
    """
    differences = [_subtract(a, b) for a, b, _ in pairs]
    intervals = bootstrap(differences, [(-1.0, 1.0) if scores else None for *_, scores in pairs])
    exact = [_exact_p(difference, samples) for difference in differences]
    undecided = [d for d, p in zip(differences, exact, strict=True) if p is None]
    uneven = iter(in_columns(undecided, lambda columns: _count_uneven(columns, samples)))
    tests = []
    for mean, d, p in zip(intervals, differences, exact, strict=True):
        floor = PairedTest.floor
        if p is None:
            p = float(next(uneven) / samples)
            floor = 1 / samples
        won = int((d > 0).sum())
        lost = int((d < 0).sum())
        tests.append(PairedTest(mean.mean, mean.low, mean.high, p, mean.n, won, lost, floor))
    return tests


def _subtract(a: Numbers, b: Numbers) -> np.ndarray:
    """a - b, (n,). Raises ``SettingError`` for results that cannot be paired."""
    first = check_numbers("a", a)
    second = check_numbers("b", b)
    if len(first) != len(second):
        raise SettingError(
            f"{len(first)} and {len(second)} results cannot be paired; give both for the same"
            " questions"
        )
    return first - second


def _exact_p(difference: np.ndarray, samples: int) -> float | None:
    """The share of all ways to choose the signs whose sum is as far from 0; None where they are
    too many.
    """
    from scipy.stats import binomtest

    signed = difference[difference != 0]  # (m,)
    if not len(signed):
        return 1.0
    if np.allclose(np.abs(signed), np.abs(signed[0]), rtol=1e-9, atol=0):
        return float(binomtest(int((signed > 0).sum()), len(signed)).pvalue)
    if len(signed) >= math.log2(samples):
        return None
    m = len(signed)
    plus = np.arange(2**m)[:, None] >> np.arange(m) & 1  # (2^m, m) which signs are +
    return float(_reach(plus, signed[:, None]).mean())


def _count_uneven(differences: np.ndarray, samples: int) -> np.ndarray:
    """How often (c,) differences (n, c) with random signs are as uneven as their own, which are
    among the draws.
    """
    n, columns = differences.shape
    rng = np.random.default_rng(0)
    count = np.ones(columns)
    batches = max(1, n * samples // 2**22)
    for draws in np.array_split(np.arange(samples - 1), batches):
        size = len(draws), -(-n // 8)
        signs = rng.integers(0, 256, size, np.uint8)  # eight in a byte
        plus = np.unpackbits(signs, axis=1, count=n)  # (draws, n)
        count += _reach(plus, differences).sum(axis=0)
    return count


def _reach(plus: np.ndarray, differences: np.ndarray) -> np.ndarray:
    """Whether sums (ways, c) of differences (n, c) are as far from 0 as their own, + where
    ``plus`` (ways, n) is 1.
    """
    total = differences.sum(axis=0)  # (c,)
    rounding = 1e-12 * np.abs(differences).sum(axis=0)  # (c,) that it may take
    sums = 2 * (plus.astype(np.float64) @ differences) - total  # (ways, c)
    return np.abs(sums) >= np.abs(total) - rounding
