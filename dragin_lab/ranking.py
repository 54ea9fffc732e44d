"""How well a score tells two kinds of things apart, and how sure one can be of that: pure functions on arrays.

``scores`` is (m,) float, larger meaning "more likely positive"; ``positive`` is (m,) bool. Ties count as ties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dragin_lab.errors import SettingError

DRAWS = 1000


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


def bootstrap(
    statistic: Callable[[np.ndarray], float],
    groups: Sequence[object] | int,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """A percentile interval of ``statistic(indexes)`` under resampling with replacement.

    ``groups`` names the group of each thing, such as its question: groups are drawn whole, as the facts of a question
    are not independent. A number n stands for n groups of one. Draws whose statistic is NaN are left out.
    """
    names = list(range(groups)) if isinstance(groups, int) else list(groups)
    if not names:
        return float("nan"), float("nan")
    members: dict[object, list[int]] = {}
    for place, name in enumerate(names):
        members.setdefault(name, []).append(place)
    parts = [np.array(of) for of in members.values()]
    rng = np.random.default_rng(seed)
    values = np.array(
        [statistic(np.concatenate([parts[g] for g in rng.integers(len(parts), size=len(parts))])) for _ in range(draws)]
    )
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(
    values: Sequence[float] | np.ndarray, *, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float, float]:
    """A mean with its 95 % bootstrap interval: (mean, low, high)."""
    array = np.asarray(values, np.float64)
    if not len(array):
        return float("nan"), float("nan"), float("nan")
    low, high = bootstrap(lambda at: float(array[at].mean()), len(array), draws=draws, seed=seed)
    return float(array.mean()), low, high


def paired_difference(
    ours: Sequence[float] | np.ndarray, theirs: Sequence[float] | np.ndarray, *, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float, float]:
    """Mean of ours - theirs on the same questions with its 95 % bootstrap interval: (mean, low, high)."""
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if a.shape != b.shape:
        raise SettingError(f"{len(a)} and {len(b)} results cannot be paired; give both for the same questions")
    return mean_interval(a - b, draws=draws, seed=seed)
