"""FLARE's doubt and its confident sentence, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dragin_lab.core.queries import keep_confident
from dragin_lab.core.scores import doubts


def test_doubt_is_one_minus_p_exact_near_certainty() -> None:
    assert doubts(np.array([0.0, math.log(0.25), -1e-9])).tolist() == pytest.approx([0.0, 0.75, 1e-9], rel=1e-6)


def test_confident_text_drops_what_is_below_beta() -> None:
    offsets = np.array([(0, 2), (2, 5), (5, 8), (8, 9)])
    kept = keep_confident("It is Bo.", offsets, np.array([0.9, 0.39, 0.4, 0.1]), 0.4)
    assert kept == "It Bo"
    assert keep_confident("", np.zeros((0, 2), int), np.zeros(0), 0.4) == ""
