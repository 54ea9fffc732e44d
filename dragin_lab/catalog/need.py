"""A trigger's scores as probabilities that information is missing ("Know before you fetch", arXiv 2606.29959).

Fitted on labelled drafts by isotonic regression, or by Platt's logistic one (Platt 1999), of scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dragin_lab.checks import choice
from dragin_lab.errors import SettingError

REGRESSIONS = ("isotonic", "platt")
LEAST = 20  # labelled sentences or drafts
POINTS = 65  # of Platt's curve


@dataclass(frozen=True)
class Need:
    """The probability that information is missing at each of ``scores``, ascending; linear between them.

    Below the first and above the last score it stays as it is there, because nothing is known of such scores.
    """

    regression: str
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]

    @staticmethod
    def fit(scores: Any, missing: Any, regression: str = "isotonic") -> Need:
        """Fit ``scores`` (m,) float to ``missing`` (m,) bool.

        "isotonic" takes the rising curve that is nearest to the labels, "platt" a logistic curve, which needs fewer
        labels and has one slope everywhere. Raises ``SettingError`` for another regression, fewer than 20 labels,
        labels of one kind, and scores that do not rise with what is missing.
        """
        choice("regression", regression, REGRESSIONS)
        x, y = np.asarray(scores, np.float64), np.asarray(missing, bool)  # (m,), (m,)
        if len(x) < LEAST or y.all() or not y.any():
            raise SettingError(
                f"{int(y.sum())} of {len(x)} labelled scores are of missing facts; a probability is fitted on {LEAST} "
                "or more, of both kinds: give more questions with labels"
            )
        at, probabilities = (_fit_isotonic if regression == "isotonic" else _fit_platt)(x, y)  # (k,), (k,)
        if not probabilities[-1] > probabilities[0]:
            raise SettingError(
                f"the scores do not rise with what is missing ({regression} regression, {len(x)} labels), so that none "
                "stands for a higher probability; use another trigger, or a budget: 'budget:1.5'"
            )
        return Need(regression, tuple(at.tolist()), tuple(probabilities.tolist()))

    def estimate(self, scores: Any) -> np.ndarray:
        """The probability that information is missing at each of ``scores`` (m,); (m,) float64."""
        return np.interp(np.asarray(scores, np.float64), self.scores, self.probabilities)

    def score_at(self, p: float) -> float:
        """The lowest score at which the probability is ``p``. Raises ``SettingError`` for one that it never has."""
        low, high = self.probabilities[0], self.probabilities[-1]
        if not low <= p <= high:
            raise SettingError(
                f"p:{p:g} is not reached: the probability runs from {low:.3g}, at a score of {self.scores[0]:.3g}, to "
                f"{high:.3g}, at {self.scores[-1]:.3g}; ask for one between these"
            )
        first = next(i for i, value in enumerate(self.probabilities) if value >= p)
        if first == 0:
            return self.scores[0]
        return float(np.interp(p, self.probabilities[first - 1 : first + 1], self.scores[first - 1 : first + 1]))


def _fit_isotonic(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=0, y_max=1).fit(x, y)
    return model.X_thresholds_, model.y_thresholds_


def _fit_platt(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Platt's targets are a little off 0 and 1, so that labels that a score divides perfectly have a finite slope."""
    from sklearn.linear_model import LogisticRegression

    ones, zeros = y.sum(), (~y).sum()
    target = np.where(y, (ones + 1) / (ones + 2), 1 / (zeros + 2))  # (m,)
    center, scale = x.mean(), x.std() or 1.0
    z = ((x - center) / scale)[:, None]  # (m, 1)
    model = LogisticRegression(C=np.inf, max_iter=1000)
    model.fit(np.vstack([z, z]), np.repeat([True, False], len(z)), sample_weight=np.concatenate([target, 1 - target]))
    at = np.linspace(x.min(), x.max(), POINTS)  # (k,)
    return at, model.predict_proba(((at - center) / scale)[:, None])[:, 1]
