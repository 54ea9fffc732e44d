"""QFS against the paper's four steps and reference-behaviour §3.3 to 3.5, read literally."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.core.queries import reference_word_attention, top_words, word_weights
from dragin_lab.core.words import Word


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

    mask = top_words(word_weights(np.array(a_i), words), top_n)
    assert " ".join(w.text for w, c in zip(words, mask, strict=True) if c) == query


def test_equal_weights_go_to_the_earlier_word() -> None:
    weights = np.array([0.2, 0.5, 0.2, 0.2], np.float32)
    assert top_words(weights, 2).tolist() == [True, True, False, False]
    assert np.flatnonzero(top_words(np.tile([0.1, 0.2], 60), 5)).tolist() == [1, 3, 5, 7, 9]


def test_only_eligible_words_are_chosen_and_never_more_than_there_are() -> None:
    weights = np.array([0.9, 0.1, 0.5], np.float32)
    assert top_words(weights, 25, np.array([False, True, True])).tolist() == [False, True, True]
    assert top_words(weights, 1, np.array([False, True, True])).tolist() == [False, False, True]
    assert top_words(np.zeros(0), 3).tolist() == []


def test_unknown_weights_leave_text_order() -> None:
    assert top_words(np.full(4, np.nan), 2, np.array([False, True, True, True])).tolist() == [False, True, True, False]


def attention(seed: int, heads: int, n: int) -> np.ndarray:
    weights = np.random.default_rng(seed).random((heads, n, n)) * np.tril(np.ones((n, n)))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


@given(words_of_tokens(), st.integers(0, 10**6), st.integers(1, 3))
def test_reference_word_attention_as_the_page_says(words: list[Word], seed: int, heads: int) -> None:
    n = words[-1].stop
    maps = attention(seed, heads, n)
    made = reference_word_attention(maps, words)
    assert made.shape == (len(words), len(words))
    for w, word in enumerate(words):
        columns = [0.0] * n
        for i in range(word.start, word.stop):
            if i == 0:
                continue  # adds nothing but is counted
            row = [sum(float(maps[h, i - 1, k]) for h in range(heads)) / heads for k in range(word.start)]
            total = sum(row)
            for k, value in enumerate(row):
                columns[k] += value / total if word.start else 0.0
        columns = [value / (word.stop - word.start) for value in columns]
        expected = [math.fsum(columns[other.start : other.stop]) for other in words]
        assert made[w].tolist() == pytest.approx(expected, abs=1e-6)


def test_weight_of_a_word_is_its_best_token() -> None:
    row = np.array([0.1, 0.3, 0.2, 0.4])
    words = [Word("a", 0, 3), Word("b", 3, 4), Word("", 4, 4)]
    assert word_weights(row, words).tolist() == pytest.approx([0.3, 0.4, 0.0])
