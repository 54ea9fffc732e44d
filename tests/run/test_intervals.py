"""Intervals of means against closed forms, and data that hold their answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dragin_lab.errors import SettingError
from dragin_lab.run.intervals import bootstrap, proportion, write_interval


def test_an_interval_of_a_mean_is_the_normal_one() -> None:
    values = np.random.default_rng(1).normal(3, 2, 400)
    (found,) = bootstrap([values], [None])
    half = 1.96 * values.std() / math.sqrt(400)
    assert (found.mean, found.n) == (pytest.approx(values.mean()), 400)
    assert [found.low, found.high] == pytest.approx(
        [found.mean - half, found.mean + half], abs=0.02
    )
    assert [found] == bootstrap([values], [None])  # drawn from a fixed seed


@pytest.mark.parametrize(
    ("values", "value"), [([0.25], 0.25), ([0.1] * 7, 0.1), ([0, 0], 0.0), ([1] * 5, 1.0)]
)
def test_values_without_spread_have_no_interval_without_width(
    values: list[float], value: float
) -> None:
    unbounded, within = bootstrap([values, values], [None, (0.0, 1.0)])
    assert unbounded.mean == within.mean == value
    assert write_interval(unbounded.low, unbounded.high) == "–"
    assert math.isnan(unbounded.low)
    assert math.isnan(unbounded.high)
    assert 0 <= within.low <= value <= within.high <= 1
    assert within.high - within.low == pytest.approx(proportion([0] * len(values)).high)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([], r"shape \(0,\)"),
        ([[1.0], [2.0]], r"shape \(2, 1\)"),
        ([1.0, math.nan, math.inf], "2 of 3 values are NaN or infinite"),
    ],
)
def test_what_has_no_mean_is_refused(values: list[float], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        bootstrap([values], [None])
