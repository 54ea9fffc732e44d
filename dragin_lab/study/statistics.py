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
from dragin_lab.run.intervals import Numbers, bootstrap, check_numbers

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
    differences = []
    for a, b, _ in pairs:
        first, second = check_numbers("a", a), check_numbers("b", b)
        if len(first) != len(second):
            remedy = "give both for the same questions"
            raise SettingError(f"{len(first)} and {len(second)} results cannot be paired; {remedy}")
        differences.append(first - second)  # (n,)
    intervals = bootstrap(differences, [(-1.0, 1.0) if scores else None for *_, scores in pairs])
    values = [_exact_p(difference, samples) for difference in differences]
    drawn = [at for at, p in enumerate(values) if p is None]
    for n in {len(differences[at]) for at in drawn}:
        own = [at for at in drawn if len(differences[at]) == n]
        counted = _drawn_p(np.stack([differences[at] for at in own], axis=1), samples)
        values = [dict(zip(own, counted, strict=True)).get(at, p) for at, p in enumerate(values)]
    floors = [1 / samples if at in drawn else PairedTest.floor for at in range(len(pairs))]
    return [
        PairedTest(
            mean.mean,
            mean.low,
            mean.high,
            float(p),  # type: ignore[arg-type]
            mean.n,
            int((d > 0).sum()),
            int((d < 0).sum()),
            floor,
        )
        for mean, d, p, floor in zip(intervals, differences, values, floors, strict=True)
    ]


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
    # (2^m, m) which signs are +
    plus = np.arange(2 ** len(signed))[:, None] >> np.arange(len(signed)) & 1
    return float(_reach(plus, signed[:, None]).mean())


def _drawn_p(differences: np.ndarray, samples: int) -> np.ndarray:
    """p (c,) of differences (n, c) by random signs, one product for all columns; the observed
    signs are among them.
    """
    n, rng, hits = len(differences), np.random.default_rng(0), 1
    for some in np.array_split(np.arange(samples - 1), max(1, n * samples // 2**22)):
        plus = np.unpackbits(
            rng.integers(0, 256, (len(some), -(-n // 8)), np.uint8), axis=1, count=n
        )
        hits = hits + _reach(plus, differences).sum(axis=0)  # (c,)
    return np.asarray(hits / samples)


def _reach(plus: np.ndarray, differences: np.ndarray) -> np.ndarray:
    """Whether sums (ways, c) of differences (n, c) are as far from 0 as their own, + where
    ``plus`` (ways, n) is 1.
    """
    # (c,) and what rounding may take
    total, least = differences.sum(axis=0), 1e-12 * np.abs(differences).sum(axis=0)
    return np.abs(2 * (plus.astype(np.float64) @ differences) - total) >= np.abs(total) - least
