"""RIND against readings of Eq. 1 to 5 that loop as the equations do, and QFS against the paper's
four steps.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from factories import causal, words_of_tokens
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dragin_lab.core import scores
from dragin_lab.core.dragin import Rind
from dragin_lab.core.formulators import choose_top, keep_confident
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.trace.draft import Draft, Word

finite = st.floats(-30, 30, width=32)


# -- the equations as written ----------------------------------------------------------------------


def eq_1(logits: np.ndarray) -> list[float]:
    found = []
    for row in logits.tolist():
        z = sum(math.exp(x) for x in row)
        h = 0.0
        for x in row:
            p = math.exp(x) / z
            if p > 0:
                h -= p * math.log(p)
        found.append(h)
    return found


def eq_3(attention: np.ndarray) -> list[float]:
    heads, n, _ = attention.shape
    a_max = []
    for i in range(n):
        largest = 0.0
        for j in range(i + 1, n):
            a = sum(float(attention[head, j, i]) for head in range(heads)) / heads
            largest = max(largest, a)
        a_max.append(largest)
    return a_max


def eq_5(entropy: list[float], a_max: list[float], stop: list[bool]) -> list[float]:
    return [h * a * (0 if s else 1) for h, a, s in zip(entropy, a_max, stop, strict=True)]


def distributions(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p and log p of logits."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return np.exp(log_p), log_p


@given(arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 8)), elements=finite))
def test_entropy_is_eq_1(logits: np.ndarray) -> None:
    np.testing.assert_allclose(scores.entropy(*distributions(logits)), eq_1(logits), atol=1e-9)


def test_entropy_of_extreme_logits() -> None:
    logits = np.array([[0.0, 0.0, 0.0, 0.0], [1e4, 0.0, -1e4, 0.0], [5.0, -np.inf, 5.0, -np.inf]])
    np.testing.assert_allclose(
        scores.entropy(*distributions(logits)), [math.log(4), 0.0, math.log(2)], atol=1e-12
    )


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 7))
def test_received_is_eq_3_and_the_last_token_receives_nothing(
    seed: int, heads: int, n: int
) -> None:
    attention = causal(seed, heads, n)
    made = scores.received(attention.mean(axis=0))
    np.testing.assert_allclose(made, eq_3(attention), rtol=1e-5)
    assert made[-1] == 0


WORDS = st.lists(
    st.sampled_from(["the", "is", "film", "Wajda", "of", "Bo", "war,", ","]), min_size=1, max_size=7
)


@given(WORDS, st.integers(0, 10**6), st.floats(0.05, 1.0), st.booleans())
def test_trigger_judges_by_eq_5_word_by_word(
    words: list[str], seed: int, theta: float, ended: bool
) -> None:
    """Every word is written in halves, so that a stop word is one by its word and not by its
    tokens.
    """
    text, offsets, of_word = " ".join(words), [], []
    place = 0
    for k, word in enumerate(words):
        begin = max(place - 1, 0)  # with the space before it
        middle = place + (len(word) + 1) // 2
        for a, b in ((begin, middle), (middle, place + len(word))):
            if a < b:
                offsets.append((a, b))
                of_word.append(k)
        place += len(word) + 1
    n = len(offsets)
    entropy = np.random.default_rng(seed).gamma(1.0, 1.0, n).astype(np.float32)
    attention = causal(seed, 2, n)
    pipeline = load_pipeline()
    stops = {"the", "is", "of", ","}
    expected = eq_5(entropy.tolist(), eq_3(attention), [words[k] in stops for k in of_word])

    received = scores.received(attention.mean(axis=0))
    made = Draft(
        np.arange(n),
        text,
        np.array(offsets),
        entropy=entropy,
        logprob=np.full(n, -0.1),
        received=received,
    )
    trigger, draft = Rind(threshold=theta), made.read_by(pipeline, ended=ended)
    verdict, by_token = trigger.judge(draft), trigger.score_tokens(draft)
    np.testing.assert_allclose(by_token, expected, rtol=1e-5)
    assert by_token[-1] == 0
    assert verdict.words.text == tuple(words)
    assert verdict.words.stop.tolist() == [word in stops for word in words]
    of_words = [
        max(s for s, k in zip(expected, of_word, strict=True) if k == w) for w in range(len(words))
    ]
    np.testing.assert_allclose(verdict.words.score, of_words, rtol=1e-5)
    complete = range(len(words) if ended else len(words) - 1)
    first = next((w for w in complete if of_words[w] > theta), None)
    assert (verdict.word if verdict.fires else None) == first
    assert np.flatnonzero(verdict.words.hit).tolist() == ([] if first is None else [first])
    if first is not None:
        assert verdict.token == next(
            i for i in range(n) if of_word[i] == first and expected[i] > theta
        )


def test_torch_and_numpy_give_the_same_entropy_and_attention_received() -> None:
    logits, attention = np.random.default_rng(0).normal(0, 3, (4, 9)), causal(0, 2, 6).mean(axis=0)
    p, log_p = distributions(logits)
    ours = scores.entropy(torch.tensor(p), torch.tensor(log_p)).numpy()
    np.testing.assert_allclose(ours, scores.entropy(p, log_p), rtol=1e-12)
    np.testing.assert_array_equal(
        scores.received(torch.tensor(attention), 0, torch).numpy(), scores.received(attention)
    )


# -- scales and pools ------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2)), max_size=8))
def test_scaling_gives_every_sentence_mean_one(pairs: list[tuple[float, int]]) -> None:
    received = np.array([a for a, _ in pairs])
    sentence = np.array([s for _, s in pairs], dtype=int)
    made = scores.scale_by_sentence(received, sentence)
    for i, (value, number) in enumerate(pairs):
        inside = [a for a, s in pairs if s == number]
        expected = value / sum(inside) * len(inside) if sum(inside) > 0 else 0.0
        assert made[i] == pytest.approx(expected)


def test_values_of_tokens_are_gathered_to_words() -> None:
    values = np.array([1.0, 2.0, 6.0, 5.0], np.float32)
    words = [Word("a", 0, 1), Word("b", 1, 4)]
    assert scores.pool_words(values, words, "sum").tolist() == [1, 13]
    assert scores.pool_words(values, words, "mean").tolist() == pytest.approx([1, 13 / 3])
    assert scores.pool_words(values, words, "max").tolist() == [1, 6]
    assert scores.pool_words(values[:0], [], "mean").tolist() == []


# -- queries ---------------------------------------------------------------------------------------


@given(words_of_tokens(), st.integers(1, 8), st.data())
def test_the_papers_four_steps(words: list[Word], top_n: int, data: st.DataObject) -> None:
    n = words[-1].stop
    # Distinct weights, so that "the top n" is one set.
    # (1) the scores of t_i
    a_i = [value / 100 for value in data.draw(st.permutations(range(1, n + 1)))]
    ranked = sorted(range(n), key=lambda j: a_i[j], reverse=True)  # (2) in descending order
    chosen: list[int] = []  # (3) the words of these tokens, each once
    for j in ranked:
        (word,) = [k for k, w in enumerate(words) if w.start <= j < w.stop]
        if word not in chosen and len(chosen) < top_n:
            chosen.append(word)
    query = " ".join(words[k].text for k in sorted(chosen))  # (4) in the order of the text

    mask = choose_top(scores.pool_words(np.array(a_i), words, "max"), top_n)
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
    assert choose_top(np.full(4, np.nan), 2, np.array([False, True, True, True])).tolist() == [
        False,
        True,
        True,
        False,
    ]


def test_doubt_is_one_minus_p_exact_near_certainty() -> None:
    assert scores.doubts(np.array([0.0, math.log(0.25), -1e-9])).tolist() == pytest.approx(
        [0.0, 0.75, 1e-9], rel=1e-6
    )


def test_confident_text_drops_what_is_below_beta() -> None:
    offsets = np.array([(0, 2), (2, 5), (5, 8), (8, 9)])
    kept = keep_confident("It is Bo.", offsets, np.array([0.9, 0.39, 0.4, 0.1]), 0.4)
    assert kept == "It Bo"
    assert keep_confident("", np.zeros((0, 2), int), np.zeros(0), 0.4) == ""
