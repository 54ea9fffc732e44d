"""Bounds of entropy from the k likeliest tokens, against whole rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.engines.server_batch import entropy_bounds


def row(seed: int, size: int, scale: float) -> np.ndarray:
    """(V,) log-probabilities, likeliest first."""
    logits = np.random.default_rng(seed).normal(0, scale, size)
    return np.sort(logits - np.log(np.exp(logits).sum()))[::-1]


def entropy(logprobs: np.ndarray) -> float:
    return float(-(np.exp(logprobs) * logprobs).sum())


@given(st.integers(0, 2**32), st.integers(1, 60), st.floats(0, 12), st.data())
def test_the_bounds_hold_the_entropy_of_the_whole_row(seed: int, size: int, scale: float, data: st.DataObject) -> None:
    whole = row(seed, size, scale)
    k = data.draw(st.integers(1, size))
    low, high = entropy_bounds(whole[:k], size)
    assert low - 1e-9 <= entropy(whole) <= high + 1e-9
    if k == size:
        assert low == high == pytest.approx(entropy(whole), abs=1e-9)


@given(st.integers(0, 2**32), st.integers(2, 60), st.floats(0.1, 6), st.data())
def test_both_bounds_are_attained(seed: int, size: int, scale: float, data: st.DataObject) -> None:
    """By the row whose rest is even, and by the one whose rest is on as few tokens as can hold it."""
    k = data.draw(st.integers(1, size - 1))
    known = np.exp(row(seed, size, scale)[:k])
    rest = 1 - known.sum()
    even = np.concatenate([known, np.full(size - k, rest / (size - k))])
    full = int(rest // known[-1])
    steep = np.concatenate([known, np.full(full, known[-1]), [rest - full * known[-1]]])
    low, high = entropy_bounds(np.log(known), size)
    assert low == pytest.approx(-(steep[steep > 0] * np.log(steep[steep > 0])).sum(), abs=1e-7)
    assert high == pytest.approx(entropy(np.log(even)), abs=1e-7)


def test_rounding_leaves_no_bound_out_of_order() -> None:
    assert entropy_bounds(np.log([0.7, 0.3000003]), 50) == pytest.approx((0.610864, 0.610864), abs=1e-5)
    assert entropy_bounds(np.array([0.0, -np.inf]), 50)[0] == pytest.approx(0)
