"""Tests of a difference between two methods, intervals over groups, and the area of a score.

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
from dragin_lab.run.intervals import LEVEL, Numbers, bootstrap, check_numbers

SAMPLES = 10_000  # random signs of a test
DRAWS = 1_000  # of the groups, for an interval of a statistic
DRAWS_AT_ONCE = 50


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


def roc_interval(
    scores: np.ndarray, positive: np.ndarray, groups: Sequence[object]
) -> tuple[float, float]:
    """The percentile interval of ``roc_area`` with whole ``groups`` drawn again, one name an item:
    (low, high).

    Groups are such as questions: the facts of one are not independent. An item counts as often as
    its group is drawn, so that scores are sorted once. Draws without either kind are left out; both
    ends are NaN where none is left, and where every draw gives the same value.
    """
    from scipy.sparse import csr_array

    names = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    if not names or np.isnan(scores).any():
        return float("nan"), float("nan")
    group = np.array([names[name] for name in groups])  # (m,)
    # (v,) distinct scores of positives, (p,)
    kinds, place = np.unique(scores[positive], return_inverse=True)
    # (n,) each; a tie is half
    above = [np.searchsorted(kinds, scores[~positive], side) for side in ("left", "right")]
    shape = len(kinds) + 1, len(names)
    # positives of each score and group
    own = csr_array((np.ones(len(place)), (place, group[positive])), shape)
    under = csr_array(
        (np.full(2 * len(above[0]), 0.5), (np.concatenate(above), np.tile(group[~positive], 2))),
        shape,
    )
    draws, areas = np.random.default_rng(0).integers(len(names), size=(DRAWS, len(names))), []
    for some in np.split(draws, range(DRAWS_AT_ONCE, DRAWS, DRAWS_AT_ONCE)):
        # (groups, draws)
        times = np.stack([np.bincount(one, minlength=len(names)) for one in some], axis=1)
        up, down = own @ times, under @ times  # (v + 1, draws) as often as their groups are drawn
        pairs = up.sum(axis=0) * down.sum(axis=0)  # (draws,)
        # (draws,) pairs whose positive scores higher
        ordered = np.einsum("vd,vd->d", up, down.cumsum(axis=0))
        areas += (ordered[pairs > 0] / pairs[pairs > 0]).tolist()
    if not areas or min(areas) == max(areas):
        return float("nan"), float("nan")
    low, high = np.quantile(areas, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def roc_area(scores: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive scores above a negative, a tie counting one half; NaN without
    either kind.

    By the ranks of the positives (Mann and Whitney): scikit-learn's ``roc_auc_score`` gives the
    same number and takes twenty times as long over a few hundred scores.
    """
    from scipy.stats import rankdata

    n = int(positive.sum())
    if n in (0, len(positive)):
        return float("nan")
    ranks = rankdata(scores)[positive].sum()
    return float((ranks - n * (n + 1) / 2) / (n * (len(positive) - n)))
