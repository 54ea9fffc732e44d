"""Paired tests and intervals against closed forms, enumeration, and data that hold their
answer.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragin_lab.errors import SettingError
from dragin_lab.results.statistics import PairedTest, paired
from dragin_lab.run.intervals import proportion


def test_what_cannot_be_paired_is_refused() -> None:
    with pytest.raises(SettingError, match="3 and 2 results cannot be paired"):
        paired([1, 2, 3], [1, 2])
    with pytest.raises(SettingError, match="1 of 1 b are NaN"):
        paired([1], [math.nan])


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_right_and_wrong_answers_get_mcnemars_exact_test(pairs: list[tuple[int, int]]) -> None:
    a, b = (list(of) for of in zip(*pairs, strict=True))
    found = paired(a, b, samples=50)
    wins, losses = sum(x > y for x, y in pairs), sum(x < y for x, y in pairs)
    m = wins + losses
    tail = sum(math.comb(m, k) for k in range(min(wins, losses) + 1)) / 2**m
    assert found.p_value == pytest.approx(min(1.0, 2 * tail))
    assert (found.difference, found.n) == (pytest.approx((wins - losses) / len(pairs)), len(pairs))


@given(st.lists(st.floats(-1, 1, width=16), min_size=1, max_size=9))
@settings(max_examples=60, deadline=None)
def test_few_differences_are_tested_by_all_their_signs(difference: list[float]) -> None:
    found = paired(difference, [0.0] * len(difference))
    total = abs(sum(difference)) - 1e-12
    extreme = [
        abs(sum(s * d for s, d in zip(signs, difference, strict=True))) >= total
        for signs in product((-1, 1), repeat=len(difference))
    ]
    assert found.p_value == pytest.approx(np.mean(extreme))


def test_many_differences_are_tested_by_drawn_signs() -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(size=200)
    z = noise.sum() / np.sqrt((noise**2).sum())
    normal = math.erfc(abs(z) / math.sqrt(2))
    assert paired(noise, np.zeros(200)).p_value == pytest.approx(normal, abs=0.02)
    least = paired(noise + 2, np.zeros(200), samples=1_000)
    assert least.p_value == 1 / 1_000  # the observed signs count
    assert least.p == "< 0.001"
    # all signs were tried: the smallest there is, and exact
    assert paired([1.0, 2.0, 3.0], [0, 0, 0]).p == "= 0.25"
    assert PairedTest(1, 1, 1, 0.0, 5_000, 0, 0).p.startswith("< ")
    assert paired(noise, np.zeros(200)) == paired(noise, np.zeros(200))


def test_pairs_show_what_separate_intervals_hide() -> None:
    hard = np.random.default_rng(3).normal(0, 5, 200)
    found = paired(hard + 1, hard)
    assert (found.difference, found.low, found.high) == (
        pytest.approx(1),
        pytest.approx(1),
        pytest.approx(1),
    )
    assert found.p_value < 1e-12
    same = paired(hard, hard)
    assert (same.difference, same.p_value) == (0, 1)
    assert math.isnan(same.low)  # equal differences say nothing about another question
    scores = paired([0.5] * 5, [0.5] * 5, scores=True)
    assert (scores.low, scores.high) == (-proportion([0] * 5).high, proportion([0] * 5).high)
    swapped = paired(hard, hard + 1)
    assert (swapped.difference, swapped.p_value) == (-found.difference, found.p_value)
