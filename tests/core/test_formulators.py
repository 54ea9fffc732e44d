"""What queries are made of: QFS against the paper's four steps, FLARE's confident sentence by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.core.formulators import choose_top, keep_confident, weigh_words
from dragin_lab.core.scores import doubts
from dragin_lab.trace.draft import Word


@st.composite
def words_of_tokens(draw: st.DrawFn) -> list[Word]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    stops = np.cumsum(sizes).tolist()
    return [Word(f"w{k}", stop - size, stop) for k, (size, stop) in enumerate(zip(sizes, stops, strict=True))]


@given(words_of_tokens(), st.integers(1, 8), st.data())
def test_the_papers_four_steps(words: list[Word], top_n: int, data: st.DataObject) -> None:
    n = words[-1].stop
    # Distinct weights, so that "the top n" is one set.
    a_i = [value / 100 for value in data.draw(st.permutations(range(1, n + 1)))]  # (1) the scores of t_i
    ranked = sorted(range(n), key=lambda j: a_i[j], reverse=True)  # (2) in descending order
    chosen: list[int] = []  # (3) the words of these tokens, each once
    for j in ranked:
        (word,) = [k for k, w in enumerate(words) if w.start <= j < w.stop]
        if word not in chosen and len(chosen) < top_n:
            chosen.append(word)
    query = " ".join(words[k].text for k in sorted(chosen))  # (4) in the order of the text

    mask = choose_top(weigh_words(np.array(a_i), words), top_n)
    assert " ".join(w.text for w, c in zip(words, mask, strict=True) if c) == query


def test_equal_weights_go_to_the_earlier_word() -> None:
    weights = np.array([0.2, 0.5, 0.2, 0.2], np.float32)
    assert choose_top(weights, 2).tolist() == [True, True, False, False]
    assert np.flatnonzero(choose_top(np.tile([0.1, 0.2], 60), 5)).tolist() == [1, 3, 5, 7, 9]


def test_only_eligible_words_are_chosen_and_never_more_than_there_are() -> None:
    weights = np.array([0.9, 0.1, 0.5], np.float32)
    assert choose_top(weights, 25, np.array([False, True, True])).tolist() == [False, True, True]
    assert choose_top(weights, 1, np.array([False, True, True])).tolist() == [False, False, True]
    assert choose_top(np.zeros(0), 3).tolist() == []


def test_unknown_weights_leave_text_order() -> None:
    assert choose_top(np.full(4, np.nan), 2, np.array([False, True, True, True])).tolist() == [False, True, True, False]


def test_weight_of_a_word_is_its_best_token() -> None:
    row = np.array([0.1, 0.3, 0.2, 0.4])
    words = [Word("a", 0, 3), Word("b", 3, 4), Word("", 4, 4)]
    assert weigh_words(row, words).tolist() == pytest.approx([0.3, 0.4, 0.0])


def test_doubt_is_one_minus_p_exact_near_certainty() -> None:
    assert doubts(np.array([0.0, math.log(0.25), -1e-9])).tolist() == pytest.approx([0.0, 0.75, 1e-9], rel=1e-6)


def test_confident_text_drops_what_is_below_beta() -> None:
    offsets = np.array([(0, 2), (2, 5), (5, 8), (8, 9)])
    kept = keep_confident("It is Bo.", offsets, np.array([0.9, 0.39, 0.4, 0.1]), 0.4)
    assert kept == "It Bo"
    assert keep_confident("", np.zeros((0, 2), int), np.zeros(0), 0.4) == ""
