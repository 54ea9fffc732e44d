"""How sure one can be of a difference between two methods, and of anything else that is measured on questions.

Two methods on the same questions are compared by randomisation: if they were equal, the difference on each question
could as well have had the other sign. p values are scipy's; the intervals are drawn as in ``core.intervals``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dragin_lab.core.intervals import AT_ONCE, LEVEL, SAMPLES, Numbers, bootstrap, check_settings, checked, tails
from dragin_lab.errors import SettingError


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


def paired(a: Numbers, b: Numbers, *, level: float = LEVEL, samples: int = SAMPLES, seed: int = 0) -> PairedTest:
    """``a`` against ``b``, both (n,) over the same questions in the same order: two-sided randomisation test.

    The p value is exact where all questions on which they differ differ by as much, as 0 and 1 do (that is McNemar's
    exact test), or where there are fewer than ``samples`` ways to choose the signs; else it is counted over ``samples``
    random signs, the observed ones among them, so it is never 0. The interval is ``bootstrap``'s of a - b.
    Raises ``SettingError`` as ``bootstrap`` does, and for results that cannot be paired.
    """
    first, second = checked("a", a), checked("b", b)
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
    check_settings(level, samples)
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
    low, high = np.quantile(values, tails(level))
    return float(low), float(high)


def _p_value(difference: np.ndarray, samples: int, seed: int) -> float:
    """The chance of a sum as far from 0 if every sign were drawn by a fair coin."""
    from scipy import stats

    signed = difference[difference != 0]  # (m,)
    if not len(signed):
        return 1.0
    if np.allclose(np.abs(signed), np.abs(signed[0]), rtol=1e-9, atol=0):
        return float(stats.binomtest(int((signed > 0).sum()), len(signed)).pvalue)
    found = stats.permutation_test(
        (signed,),
        lambda drawn, axis: np.abs(drawn.sum(axis=axis)),
        permutation_type="samples",  # of one sample: signs are drawn, or all chosen where there are few enough
        alternative="greater",
        n_resamples=max(samples - 1, 1),  # beside the observed one
        batch=max(1, AT_ONCE // len(signed)),
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)
