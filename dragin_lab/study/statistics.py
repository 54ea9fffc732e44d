"""Tests of a difference between two methods, intervals over groups, and the area of a score.

Two methods on the same questions are compared by randomisation: if they were equal, the difference on each question
could as well have had the other sign. p values are scipy's; the intervals are drawn as in ``run.intervals``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dragin_lab.errors import SettingError
from dragin_lab.run.intervals import LEVEL, Numbers, bootstrap, check_numbers

SAMPLES = 10_000  # random signs of a test
DRAWS = 1_000  # of the groups, for an interval of a statistic


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


def bootstrap_groups(statistic: Callable[[np.ndarray], float], groups: Sequence[object]) -> tuple[float, float]:
    """The percentile interval of any ``statistic(indexes)``, indexes being an int array of items: (low, high).

    ``groups`` names the group of each item, such as its question: groups are resampled whole, as the facts of a
    question are not independent. Draws whose statistic is NaN are left out; both ends are NaN where none is left, and
    where every draw gives the same value.
    """
    parts = [np.array([at for at, own in enumerate(groups) if own == name]) for name in dict.fromkeys(groups)]
    if not parts:
        return float("nan"), float("nan")
    draws = np.random.default_rng(0).integers(len(parts), size=(DRAWS, len(parts)))  # which groups each draw has
    drawn = np.array([statistic(np.concatenate([parts[at] for at in one])) for one in draws])  # (DRAWS,)
    if np.isnan(drawn).all() or np.nanmin(drawn) == np.nanmax(drawn):
        return float("nan"), float("nan")
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def roc_area(scores: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive scores above a negative, a tie counting one half; NaN without either kind.

    By the ranks of the positives (Mann and Whitney), because a bootstrap asks for it thousands of times: scikit-learn's
    ``roc_auc_score`` gives the same number and takes twenty times as long over a few hundred scores.
    """
    from scipy.stats import rankdata

    n = int(positive.sum())
    if n in (0, len(positive)):
        return float("nan")
    ranks = rankdata(scores)[positive].sum()
    return float((ranks - n * (n + 1) / 2) / (n * (len(positive) - n)))
