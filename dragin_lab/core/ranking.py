"""How well a score tells two kinds of things apart: pure functions on arrays.

``scores`` is (m,) float, larger meaning "more likely positive"; ``positive`` is (m,) bool. Ties count as ties.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragin_lab.errors import SettingError


def _sorted(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds (t,) from the highest score down, and how many of either kind reach each of them (t,), (t,)."""
    scores, positive = np.asarray(scores, np.float64), np.asarray(positive, bool)
    if scores.shape != positive.shape or scores.ndim != 1:
        raise SettingError(f"scores of shape {scores.shape} do not go with labels of shape {positive.shape}")
    if np.isnan(scores).any():
        raise SettingError(f"{int(np.isnan(scores).sum())} of {len(scores)} scores are NaN; leave those things out")
    order = np.argsort(-scores, kind="stable")
    scores, positive = scores[order], positive[order]
    last = np.flatnonzero(np.append(scores[1:] != scores[:-1], len(scores) > 0))  # (t,) last of each run of ties
    hits = np.cumsum(positive)[last]  # (t,)
    return scores[last], hits, last + 1 - hits


def roc_curve(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """False positive rate, true positive rate and threshold, each (t + 1,), from the point where nothing is taken.

    A rate is NaN where there is nothing of its kind.
    """
    thresholds, hits, false = _sorted(scores, positive)
    with np.errstate(invalid="ignore", divide="ignore"):
        true_rate = np.append(0, hits) / hits[-1:].sum()  # (t + 1,)
        false_rate = np.append(0, false) / false[-1:].sum()  # (t + 1,)
    return false_rate, true_rate, np.append(np.inf, thresholds)


def roc_area(scores: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive scores above a negative, a tie counting one half; NaN without either kind."""
    false_rate, true_rate, _ = roc_curve(scores, positive)
    return float(np.sum(np.diff(false_rate) * (true_rate[1:] + true_rate[:-1]) / 2))


def average_precision(scores: np.ndarray, positive: np.ndarray) -> float:
    """Sum over thresholds of (recall gained) · (precision there); NaN without positives."""
    _, hits, false = _sorted(scores, positive)
    if not hits[-1:].sum():
        return float("nan")
    gained = np.diff(hits, prepend=0) / hits[-1]  # (t,)
    return float(np.sum(gained * hits / (hits + false)))


def precision_recall(scores: np.ndarray, positive: np.ndarray, threshold: float) -> tuple[float, float]:
    """Precision and recall of "score above threshold"; NaN where nothing is taken, or nothing is positive."""
    taken, positive = np.asarray(scores) > threshold, np.asarray(positive, bool)
    hits = int((taken & positive).sum())
    return _share(hits, int(taken.sum())), _share(hits, int(positive.sum()))


def best_threshold(scores: np.ndarray, positive: np.ndarray) -> float:
    """The threshold whose "score above it" has the highest F1: halfway between two scores; ties to the higher one.

    Below all scores where taking everything is best; NaN without positives.
    """
    values, hits, false = _sorted(scores, positive)
    if not hits[-1:].sum():
        return float("nan")
    f1 = 2 * hits / (hits + false + hits[-1])  # (t,)
    best = int(f1.argmax())
    return float((values[best] + values[best + 1]) / 2 if best + 1 < len(values) else values[best] - 1)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def recall_at(found: Sequence[str], wanted: str, k: int) -> float:
    """1.0 where the wanted id is among the first k found, else 0.0."""
    return float(wanted in list(found)[:k])


def reciprocal_rank(found: Sequence[str], wanted: str) -> float:
    """1 / rank of the wanted id (the first is rank 1), 0.0 where it was not found."""
    ids = list(found)
    return 1 / (1 + ids.index(wanted)) if wanted in ids else 0.0
