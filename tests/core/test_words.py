"""Words of both variants: by the space marker (reference), by the characters (paper)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import TOKENIZERS, cut

from dragin_lab.core.words import Word, character_words, lay_sentences, reference_words, word_starts

KINDS = tuple(TOKENIZERS)
TEXT = "The film by Żuławski 🎬 is 1984."


def without_space(text: str) -> str:
    return "".join(text.split())


# -- character words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_both_kinds_of_vocabulary(kind: str) -> None:
    made = cut(kind, TEXT)
    assert made.text == TEXT
    assert len(made.tokens) > 2 * len(TEXT.split())  # letters, digits and bytes, so that words have to be put together
    assert [word.text for word in character_words(made.text, made.offsets) if word.text] == TEXT.split()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in 1984", ["in", "1984"]),
        ("the 電影 院", ["the", "電", "影", "院"]),
        ("film電影film", ["film", "電", "影", "film"]),
        ("🎬🎬 film", ["🎬🎬", "film"]),
        ("a🎬b", ["a🎬b"]),
        ("film\n\nThe", ["film", "The"]),
        ("film.\nThe", ["film.", "The"]),
        ("  film   by", ["film", "by"]),
        ('"film," he', ['"film,"', "he"]),
        ("👩‍👩‍👧 is", ["👩‍👩‍👧", "is"]),
        ("e\u0301te\u0301 is", ["e\u0301te\u0301", "is"]),
    ],
)
def test_words_of_difficult_texts(kind: str, text: str, expected: list[str]) -> None:
    made = cut(kind, text)
    assert [word.text for word in character_words(made.text, made.offsets) if word.text] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_one_character_are_of_one_word(kind: str) -> None:
    made = cut(kind, "is 🎬.")
    camera = [i for i, (a, b) in enumerate(made.offsets) if "🎬" in made.text[a:b]]
    assert len(camera) == 4
    last = character_words(made.text, made.offsets)[-1]
    assert last.text == "🎬."
    assert last.start <= camera[0]
    assert last.stop == len(made.tokens)


def test_space_before_a_word_belongs_to_it() -> None:
    # "film", " ", "\n", "by"
    words = character_words("film \nby", [(0, 4), (4, 5), (5, 6), (6, 8)])
    assert words == [Word("film", 0, 1), Word("by", 1, 4)]


def test_space_at_the_end_is_a_word_without_text() -> None:
    assert character_words("film  ", [(0, 4), (4, 5), (5, 6)]) == [Word("film", 0, 1), Word("", 1, 3)]


def test_special_token_is_a_word_without_text() -> None:
    assert character_words("film by", [(0, 4), (4, 4), (4, 7), (7, 7)]) == [
        Word("film", 0, 1),
        Word("", 1, 2),
        Word("by", 2, 3),
        Word("", 3, 4),
    ]


def test_no_tokens_have_no_words() -> None:
    assert character_words("", np.zeros((0, 2), np.int32)) == []
    assert word_starts(" \n") == set()


texts = st.text(st.characters(codec="utf-8", exclude_characters="▁\ufffd\x00"), max_size=25)


@given(st.sampled_from(KINDS), st.one_of(texts, st.text("film by 19.é電🎬\n", max_size=30)))
def test_words_partition_the_tokens_and_keep_the_text(kind: str, text: str) -> None:
    made = cut(kind, text)
    words = character_words(made.text, made.offsets)
    assert [w.start for w in words] == [0, *(w.stop for w in words)][: len(words)]
    assert all(w.start < w.stop for w in words)
    assert (words[-1].stop if words else 0) == len(made.tokens)
    assert without_space("".join(w.text for w in words)) == without_space(made.text)


@given(st.sampled_from(KINDS), st.text("fTilmby 0.,-\n\t", max_size=40))
def test_words_of_plain_text_are_those_between_spaces(kind: str, text: str) -> None:
    made = cut(kind, text)
    assert [w.text for w in character_words(made.text, made.offsets) if w.text] == made.text.split()


# -- reference words ------------------------------------------------------------------------------------------------


def test_reference_words_follow_the_marker() -> None:
    tokens = ["▁The", "▁fil", "m", ",", "<0x0A>", "▁b▁y", "</s>", "x", "▁", "▁"]
    ids = [100, 101, 102, 103, 13, 104, 2, 105, 106, 106]
    assert reference_words(tokens, ids, "▁") == [
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
    assert [w.text for w in reference_words(tokens, ids, "▁")] == ["</s>", "x", "y"]
    assert [w.text for w in reference_words(tokens, ids, "▁", eos=None)] == ["</s>x", "y"]


def test_id_13_opens_a_word_whatever_it_is() -> None:
    assert [w.text for w in reference_words(["ab", "c", "d"], [5, 13, 6], "▁")] == ["ab", "cd"]


def test_without_a_marker_everything_is_one_word() -> None:
    assert reference_words(["a", " b"], [5, 6], "") == [Word("a b", 0, 2)]


def test_no_tokens_have_no_reference_words() -> None:
    assert reference_words([], [], "▁") == []


def test_llama_3_answer_is_one_word_in_the_released_code_and_not_in_ours() -> None:
    answer = "The director is the film by wro."
    made = cut("byte-level", answer)
    released = reference_words(made.tokens, made.ids, "▁")  # the marker it assumes for every model_type "llama"
    assert len(released) == 1
    ours = reference_words(made.tokens, made.ids, "Ġ")  # the tokenizer's own
    assert [w.text for w in ours] == answer.split()
    assert [w.text for w in character_words(made.text, made.offsets)] == answer.split()


# -- sentences over words -------------------------------------------------------------------------------------------


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
def test_sentences_are_laid_over_words_as_the_page_says(sentences: list[str], words: list[str]) -> None:
    assert lay_sentences(sentences, words) == laid_literally(sentences, words)


def test_sentences_of_a_text_own_its_words() -> None:
    words = ["One", "two.", "Three.", "Four", "five."]
    assert lay_sentences(["One two.", "Three.", "Four five."], words) == [(0, 2), (2, 3), (3, 5)]


def test_last_word_closes_no_sentence_and_a_sentence_not_found_owns_nothing() -> None:
    words = ["One", "two.", "Three."]
    assert lay_sentences(["Never.", "One two.", "Three."], words) == [(0, 0), (0, 2), (2, 3)]
    assert lay_sentences(["One two. Three.", "x"], words) == [(0, 0), (0, 3)]
    assert lay_sentences([], words) == []
