"""FLARE's trigger and query by hand and by a literal reading of reference-behaviour §5."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.core.queries import confident_text, reference_confident_sentence
from dragin_lab.core.scores import doubts, reference_token_ranges, sentence_doubt


def test_doubt_is_one_minus_p_exact_near_certainty() -> None:
    assert doubts(np.array([0.0, math.log(0.25), -1e-9])).tolist() == pytest.approx([0.0, 0.75, 1e-9], rel=1e-6)


def test_solvers() -> None:
    values = np.array([0.1, 0.5, 0.3])
    assert [sentence_doubt(values, s) for s in ("avg", "max", "min")] == pytest.approx([0.3, 0.5, 0.1])
    assert all(math.isnan(sentence_doubt(values[:0], s)) for s in ("avg", "max", "min"))
    assert not sentence_doubt(values[:0], "avg") > 0


def ranges_literally(sentences: list[str], tokens: list[str]) -> list[tuple[int, int]]:
    owned, first = [], 0
    for sentence in sentences:
        pos, i = 0, first
        for i in range(first, len(tokens) + 1):
            if i == len(tokens):
                break
            rest = sentence[pos:]
            a = rest.find(tokens[i])
            if a == -1:
                i += 1  # the token that was not found belongs to it too
                break
            pos = a + len(tokens[i])
        owned.append((first, i))
        first = i
    return owned


letters = st.text("ab ", min_size=1, max_size=3)


@given(st.lists(st.text("ab .", min_size=1, max_size=8), max_size=3), st.lists(letters, max_size=8))
def test_tokens_are_laid_as_the_page_says(sentences: list[str], tokens: list[str]) -> None:
    assert reference_token_ranges(sentences, tokens) == ranges_literally(sentences, tokens)


def test_a_sentence_owns_the_token_that_was_not_found() -> None:
    sentences = ["It is.", "Bo ran."]
    assert reference_token_ranges(sentences, ["It", "is", ".", "Bo", "ran", "."]) == [(0, 4), (4, 6)]


def test_place_is_relative_to_the_last_slice() -> None:
    # After "b" (offset 1 of the whole) the place is 2; "c" is found at offset 0 of the slice, so the place becomes 1,
    # and "b" is found again though the sentence has only one.
    assert reference_token_ranges(["abc"], ["b", "c", "b", "c"]) == [(0, 4)]


def edited_literally(sentence: str, tokens: list[str], doubt: list[float], theta: float) -> str:
    pos = 0
    for token, value in zip(tokens, doubt, strict=True):
        here = pos + sentence[pos:].find(token)
        if value > theta:
            sentence = sentence[:here] + "[xxx]" + sentence[here + len(token) :]
            pos = here + len("[xxx]")
        else:
            pos = here + len(token)
    return sentence.replace("[xxx]", "")


@given(st.text("ab ", max_size=8), st.lists(st.tuples(letters, st.sampled_from([0.0, 0.5])), max_size=6))
def test_doubtful_tokens_are_edited_out_as_the_page_says(sentence: str, pairs: list[tuple[str, float]]) -> None:
    tokens, doubt = [p for p, _ in pairs], [d for _, d in pairs]
    expected = edited_literally(sentence, tokens, doubt, 0.1)
    assert reference_confident_sentence(sentence, tokens, np.array(doubt), 0.1) == expected


def test_confident_sentence_keeps_its_spaces() -> None:
    tokens = ["It", "is", "Bo", "."]
    assert reference_confident_sentence("It is Bo.", tokens, np.array([0, 0, 0.9, 0]), 0.1) == "It is ."
    assert reference_confident_sentence("It is Bo.", tokens, np.array([0, 0, 0.1, 0]), 0.1) == "It is Bo."


def test_a_token_not_found_counts_as_one_before() -> None:
    # "x" is not in the slice after "It": its place is 2 - 1, so "[xxx]" replaces "t".
    assert reference_confident_sentence("It is", ["It", "x"], np.array([0, 0.9]), 0.1) == "I is"


def test_confident_text_drops_what_is_below_beta() -> None:
    offsets = np.array([(0, 2), (2, 5), (5, 8), (8, 9)])
    kept = confident_text("It is Bo.", offsets, np.array([0.9, 0.39, 0.4, 0.1]), 0.4)
    assert kept == "It Bo"
    assert confident_text("", np.zeros((0, 2), int), np.zeros(0), 0.4) == ""
