"""Tests of a difference between two methods, intervals over groups, and the area of a score.

Two methods on the same questions are compared by randomisation: if they were equal, the difference on each question
could as well have had the other sign. p values are scipy's; the intervals are drawn as in ``run.intervals``.
"""

from __future__ import annotations

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
    """The mean of a - b over ``n`` questions, its interval, and how often chance alone makes one as large.

    ``floor`` is the smallest p value that the test can give: 1 / ``samples`` where signs were drawn at random.
    """

    difference: float
    low: float
    high: float
    p_value: float
    n: int
    floor: float = sys.float_info.min

    @property
    def p(self) -> str:
        """The p value as text: "= 0.023", or "< 0.0001" where no random draw was as uneven as the data."""
        return f"< {self.floor:.2g}" if self.p_value <= self.floor else f"= {self.p_value:.2g}"


def paired(a: Numbers, b: Numbers, *, scores: bool = False, samples: int = SAMPLES) -> PairedTest:
    """``a`` against ``b``, both (n,) over the same questions in the same order: two-sided randomisation test.

    The p value is exact where all questions on which they differ differ by as much, as 0 and 1 do (that is McNemar's
    exact test), or where there are fewer than ``samples`` ways to choose the signs; else it is counted over ``samples``
    random signs, the observed ones among them, so it is never 0. The interval is ``bootstrap``'s of a - b; ``scores``
    says that a and b lie between 0 and 1, so that equal differences have an interval too.
    Raises ``SettingError`` as ``bootstrap`` does, and for results that cannot be paired.
    """
    first, second = check_numbers("a", a), check_numbers("b", b)
    if len(first) != len(second):
        raise SettingError(f"{len(first)} and {len(second)} results cannot be paired; give both for the same questions")
    difference = first - second  # (n,)
    interval = bootstrap(difference, within=(-1.0, 1.0) if scores else None)
    p_value, floor = _p_value(difference, samples)
    return PairedTest(interval.mean, interval.low, interval.high, p_value, interval.n, floor)


def _p_value(difference: np.ndarray, samples: int) -> tuple[float, float]:
    """The chance of a sum as far from 0 with random signs, and the smallest p value that the test can give."""
    from scipy import stats

    exact = PairedTest.floor
    signed = difference[difference != 0]  # (m,)
    if not len(signed):
        return 1.0, exact
    if np.allclose(np.abs(signed), np.abs(signed[0]), rtol=1e-9, atol=0):
        return float(stats.binomtest(int((signed > 0).sum()), len(signed)).pvalue), exact
    resamples = samples - 1  # beside the observed signs
    test = stats.permutation_test(
        (signed,),
        lambda sample, axis: np.abs(sample.sum(axis=axis)),
        permutation_type="samples",  # of one sample: signs are drawn, or all chosen where there are few enough
        alternative="greater",
        n_resamples=resamples,
        batch=max(1, 2**20 // len(signed)),
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue), exact if 2 ** len(signed) <= resamples else 1 / (resamples + 1)


def roc_interval(scores: np.ndarray, positive: np.ndarray, groups: Sequence[object]) -> tuple[float, float]:
    """The percentile interval of ``roc_area`` with whole ``groups`` drawn again, one name an item: (low, high).

    Groups are such as questions: the facts of one are not independent. An item counts as often as its group is drawn,
    so that scores are sorted once. Draws without either kind are left out; both ends are NaN where none is left,
    and where every draw gives the same value.
    """
    from scipy.sparse import csr_array

    names = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    if not names or np.isnan(scores).any():
        return float("nan"), float("nan")
    group = np.array([names[name] for name in groups])  # (m,)
    kinds, place = np.unique(scores[positive], return_inverse=True)  # (v,) distinct scores of positives, (p,)
    above = [np.searchsorted(kinds, scores[~positive], side) for side in ("left", "right")]  # (n,) each; a tie is half
    shape = len(kinds) + 1, len(names)
    own = csr_array((np.ones(len(place)), (place, group[positive])), shape)  # positives of each score and group
    under = csr_array((np.full(2 * len(above[0]), 0.5), (np.concatenate(above), np.tile(group[~positive], 2))), shape)
    draws, areas = np.random.default_rng(0).integers(len(names), size=(DRAWS, len(names))), []
    for some in np.split(draws, range(DRAWS_AT_ONCE, DRAWS, DRAWS_AT_ONCE)):
        times = np.stack([np.bincount(one, minlength=len(names)) for one in some], axis=1)  # (groups, draws)
        up, down = own @ times, under @ times  # (v + 1, draws) as often as their groups are drawn
        pairs = up.sum(axis=0) * down.sum(axis=0)  # (draws,)
        ordered = np.einsum("vd,vd->d", up, down.cumsum(axis=0))  # (draws,) pairs whose positive scores higher
        areas += (ordered[pairs > 0] / pairs[pairs > 0]).tolist()
    if not areas or min(areas) == max(areas):
        return float("nan"), float("nan")
    low, high = np.quantile(areas, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def roc_area(scores: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive scores above a negative, a tie counting one half; NaN without either kind.

    By the ranks of the positives (Mann and Whitney): scikit-learn's ``roc_auc_score`` gives the same number and takes
    twenty times as long over a few hundred scores.
    """
    from scipy.stats import rankdata

    n = int(positive.sum())
    if n in (0, len(positive)):
        return float("nan")
    ranks = rankdata(scores)[positive].sum()
    return float((ranks - n * (n + 1) / 2) / (n * (len(positive) - n)))
