"""Ranking metrics against the plainest way to compute them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.errors import SettingError
from dragin_lab.study import ranking

# Few distinct scores, so that ties are common.
CASES = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25)


def split(case: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s for s, _ in case], float), np.array([p for _, p in case])


@given(CASES)
def test_roc_area_is_the_share_of_pairs_in_order(case: list[tuple[int, bool]]) -> None:
    scores, positive = split(case)
    pairs = [(a > b) + (a == b) / 2 for a in scores[positive] for b in scores[~positive]]
    area = ranking.roc_area(scores, positive)
    if pairs:
        assert area == pytest.approx(np.mean(pairs))
    else:
        assert math.isnan(area)


@given(CASES, st.integers(-1, 6))
def test_precision_and_recall_count_what_is_strictly_above(case: list[tuple[int, bool]], threshold: int) -> None:
    scores, positive = split(case)
    precision, recall = ranking.precision_recall(scores, positive, threshold)
    above = [p for s, p in case if s > threshold]
    assert math.isnan(precision) if not above else precision == pytest.approx(sum(above) / len(above))
    assert math.isnan(recall) if not positive.any() else recall == pytest.approx(sum(above) / positive.sum())


@given(CASES)
def test_no_threshold_has_a_higher_f1_than_the_best(case: list[tuple[int, bool]]) -> None:
    scores, positive = split(case)

    def f1(threshold: float) -> float:
        taken = scores > threshold
        return 2 * (taken & positive).sum() / max(taken.sum() + positive.sum(), 1)

    best = ranking.best_threshold(scores, positive)
    if positive.any():
        assert f1(best) == pytest.approx(max(f1(t) for t in np.arange(-1.5, 6)))
    else:
        assert math.isnan(best)


def test_a_kind_that_is_missing_gives_nan_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    scores, none = np.array([1.0, 2.0]), np.array([False, False])
    assert math.isnan(ranking.average_precision(scores, none))
    assert np.isnan(ranking.roc_curve(scores, none)[1]).all()
    assert not recwarn.list


def test_scores_that_cannot_be_ranked_are_refused() -> None:
    with pytest.raises(SettingError, match="1 of 2 scores are NaN"):
        ranking.roc_area(np.array([np.nan, 1]), np.array([True, False]))
    with pytest.raises(SettingError, match="do not go with"):
        ranking.roc_area(np.zeros(3), np.zeros(2, bool))
