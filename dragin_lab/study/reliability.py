"""How far calibrated probabilities of a missing fact are from what is missing: expected calibration error, by bins.

ECE is the mean over bins of |mean probability - share missing|, weighted by how much lies in the bin (Naeini et al.,
AAAI 2015). Equal-count bins hold equally many scores, equal-width bins span equally much of 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.catalog.budget import Calibration
from dragin_lab.catalog.need import Need
from dragin_lab.checks import choice, count, instance
from dragin_lab.errors import SettingError
from dragin_lab.run.intervals import proportion
from dragin_lab.study.comparisons import bootstrap_statistic

if TYPE_CHECKING:
    import pandas as pd

BINS = ("equal-count", "equal-width")
SAMPLES = 1_000  # of the questions, for the interval of the ECE


@dataclass(frozen=True, eq=False)
class Reliability:
    """The ECE of m probabilities with its 95 % interval over questions, and one row of ``table`` per bin that is used.

    Columns of ``table``: ``low`` and ``high`` (the bin's ends), ``n``, ``probability`` (their mean), ``missing`` (the
    share that is) with ``missing_low`` and ``missing_high`` (Wilson). Chance alone gives an ECE above 0, which
    resampling adds to: an interval may lie above a small ECE.
    """

    bins: str
    ece: float
    low: float
    high: float
    n: int
    questions: int
    table: pd.DataFrame


def measure_reliability(
    need: Need, scores: Calibration, *, bins: str = "equal-count", number: int = 10, samples: int = SAMPLES
) -> Reliability:
    """The reliability of ``need``, such as ``method.calibrated.need``, on labelled scores of other questions.

    ``scores`` is what ``dl.calibration(lab, questions, method, labels=…)`` gives; on the questions that ``need`` was
    fitted on, isotonic regression looks perfect. Raises ``SettingError`` for bins that do not exist, scores without
    labels, and where no label is known.
    """
    instance("need", need, Need, "give method.calibrated.need of a method with threshold='p:0.5'")
    instance("scores", scores, Calibration, "give dl.calibration(lab, questions, method, labels=…)")
    values, missing, questions = scores.labelled()  # (m,) each
    if not len(values):
        raise SettingError("no score has a label; give questions whose labels are known")
    return bin_probabilities(need.estimate(values), missing, questions, bins=bins, number=number, samples=samples)


def bin_probabilities(
    probabilities: Any, missing: Any, questions: Any, *, bins: str = "equal-count", number: int = 10,
    samples: int = SAMPLES,
) -> Reliability:  # fmt: skip
    """The reliability of probabilities (m,) against ``missing`` (m,) bool; ``questions`` (m,) names their groups."""
    import pandas as pd

    choice("bins", bins, BINS)
    p, y = np.asarray(probabilities, np.float64), np.asarray(missing, bool)  # (m,), (m,)
    if not len(p) or p.shape != y.shape or not ((p >= 0) & (p <= 1)).all():
        raise SettingError(
            f"{len(p)} probabilities do not go with {len(y)} labels; give one from 0 to 1 for each label"
        )
    steps = np.linspace(0, 1, count("number", number) + 1)
    edges = steps if bins == "equal-width" else np.quantile(p, steps)  # (k + 1,)
    edges = np.array([edges[0], *np.unique(edges[1:-1]), edges[-1]])  # equal probabilities stay in one bin
    place = np.searchsorted(edges[1:-1], p, side="right")  # (m,) the bin of each
    rows = []
    for k in np.unique(place):
        own = y[place == k].astype(float)
        share = proportion(own)
        low, high = float(edges[k]), float(edges[k + 1])
        rows.append((low, high, len(own), float(p[place == k].mean()), share.mean, share.low, share.high))
    names = ["low", "high", "n", "probability", "missing", "missing_low", "missing_high"]
    groups = np.asarray(questions).tolist()
    measure = partial(expected_error, p, y, place)
    low, high = bootstrap_statistic(measure, groups, samples=samples)
    ece = measure(np.arange(len(p)))
    return Reliability(bins, ece, low, high, len(p), len(set(groups)), pd.DataFrame(rows, columns=names))


def expected_error(p: np.ndarray, y: np.ndarray, place: np.ndarray, at: np.ndarray) -> float:
    """The ECE of the entries ``at`` of probabilities p (m,) and labels y (m,) in the bins ``place`` (m,)."""
    off = np.bincount(place[at], weights=p[at] - y[at])  # (k,) sums by bin: their size over n is the weighted distance
    return float(np.abs(off).sum() / len(at))
