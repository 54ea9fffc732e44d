"""The released code's pure functions, by hand and by a literal reading of reference-behaviour
§2, §3 and §5.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from factories import causal, words_of_tokens
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import cut

from dragin_lab.reference.measures import (
    assign_tokens,
    assign_words,
    drop_doubtful,
    merge_words,
    pay_words,
    receive_attention,
    score_words,
)
from dragin_lab.trace.draft import Word, character_words

# -- words -----------------------------------------------------------------------------------------


def test_reference_words_follow_the_marker() -> None:
    tokens = ["▁The", "▁fil", "m", ",", "<0x0A>", "▁b▁y", "</s>", "x", "▁", "▁"]
    ids = [100, 101, 102, 103, 13, 104, 2, 105, 106, 106]
    assert merge_words(tokens, ids, "▁") == [
        Word("The", 0, 1),
        Word("film,", 1, 4),
        Word("<0x0A>", 4, 5),
        Word("by</s>", 5, 7),
        Word("x", 7, 8),
        Word("", 8, 9),
        Word("", 9, 10),
    ]


def test_reference_words_of_a_query_know_no_end_of_sequence() -> None:
    tokens, ids = ["</s>", "x", "▁y"], [2, 105, 106]
    assert [w.text for w in merge_words(tokens, ids, "▁")] == ["</s>", "x", "y"]
    assert [w.text for w in merge_words(tokens, ids, "▁", eos=None)] == ["</s>x", "y"]


def test_id_13_opens_a_word_whatever_it_is() -> None:
    assert [w.text for w in merge_words(["ab", "c", "d"], [5, 13, 6], "▁")] == ["ab", "cd"]


def test_llama_3_answer_is_one_word_in_the_released_code_and_not_in_ours() -> None:
    answer = "The director is the film by wro."
    made = cut("byte-level", answer)
    # the marker it assumes for every model_type "llama"
    released = merge_words(made.tokens, made.ids, "▁")
    assert len(released) == 1
    ours = merge_words(made.tokens, made.ids, "Ġ")  # the tokenizer's own
    assert [w.text for w in ours] == answer.split()
    assert [w.text for w in character_words(made.text, made.offsets)] == answer.split()


# -- the words of sentences ------------------------------------------------------------------------


def laid_literally(sentences: list[str], words: list[str]) -> list[tuple[int, int]]:
    """reference-behaviour §2.4 read word by word."""
    owned, a = [], 0
    for k, sentence in enumerate(sentences):
        if k == len(sentences) - 1:
            owned.append((a, len(words)))
            continue
        candidates = []
        for i in range(len(words)):
            if a < i < len(words):
                joined = ""
                for word in words[a:i]:
                    joined = word if joined == "" and word is words[a] else joined + " " + word
                if joined.find(sentence) != -1:
                    candidates.append(i)
        if candidates:
            owned.append((a, min(candidates)))
            a = min(candidates)
        else:
            owned.append((a, a))
    return owned


letters = st.text("ab.", min_size=1, max_size=3)


@given(
    st.lists(st.lists(letters, min_size=1, max_size=3).map(" ".join), max_size=4),
    st.lists(letters, min_size=0, max_size=8),
)
def test_sentences_are_laid_over_words_as_the_page_says(
    sentences: list[str], words: list[str]
) -> None:
    assert assign_words(sentences, words) == laid_literally(sentences, words)


# -- scores: RIND ----------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 6), st.booleans())
def test_reference_attention_as_the_page_says(
    seed: int, heads: int, n: int, first_is_eos: bool
) -> None:
    attention = causal(seed, heads, n)
    expected = []
    for key in range(n):
        per_head = [
            max(float(attention[head, query, key]) for query in range(n)) for head in range(heads)
        ]
        expected.append(sum(per_head) / heads)
    assert expected[0] == pytest.approx(1.0, rel=1e-6)  # the first position pays all to itself
    if n > 1 and first_is_eos:
        total = sum(expected[1:])
        expected = [value / total for value in expected]
    np.testing.assert_allclose(
        receive_attention(attention, first_is_eos=first_is_eos), expected, rtol=1e-5
    )


def test_reference_score_of_nothing_attended_is_zero() -> None:
    (scores,) = score_words(np.zeros(2), np.ones(2), [(0, 2)])
    assert scores.tolist() == [0, 0]


# -- queries: QFS ----------------------------------------------------------------------------------


@given(words_of_tokens(), st.integers(0, 10**6), st.integers(1, 3))
def test_reference_word_attention_as_the_page_says(
    words: list[Word], seed: int, heads: int
) -> None:
    n = words[-1].stop
    maps = causal(seed, heads, n)
    made = pay_words(maps, words)
    assert made.shape == (len(words), len(words))
    for w, word in enumerate(words):
        columns = [0.0] * n
        for i in range(word.start, word.stop):
            if i == 0:
                continue  # adds nothing but is counted
            row = [
                sum(float(maps[h, i - 1, k]) for h in range(heads)) / heads
                for k in range(word.start)
            ]
            total = sum(row)
            for k, value in enumerate(row):
                columns[k] += value / total if word.start else 0.0
        columns = [value / (word.stop - word.start) for value in columns]
        expected = [math.fsum(columns[other.start : other.stop]) for other in words]
        assert made[w].tolist() == pytest.approx(expected, abs=1e-6)


# -- FLARE -----------------------------------------------------------------------------------------


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


short = st.text("ab ", min_size=1, max_size=3)


@given(st.lists(st.text("ab .", min_size=1, max_size=8), max_size=3), st.lists(short, max_size=8))
def test_tokens_are_laid_as_the_page_says(sentences: list[str], tokens: list[str]) -> None:
    assert assign_tokens(sentences, tokens) == ranges_literally(sentences, tokens)


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


@given(
    st.text("ab ", max_size=8), st.lists(st.tuples(short, st.sampled_from([0.0, 0.5])), max_size=6)
)
def test_doubtful_tokens_are_edited_out_as_the_page_says(
    sentence: str, pairs: list[tuple[str, float]]
) -> None:
    tokens, doubt = [p for p, _ in pairs], [d for _, d in pairs]
    expected = edited_literally(sentence, tokens, doubt, 0.1)
    assert drop_doubtful(sentence, tokens, np.array(doubt), 0.1) == expected
