"""Words, by their characters."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import TOKENIZERS, cut

from dragin_lab.trace.draft import Word, character_words, contain_any

KINDS = tuple(TOKENIZERS)


def without_space(text: str) -> str:
    return "".join(text.split())


# -- character words -------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("text", "ends", "words"),
    [
        ("film \nby", [4, 5, 6, 8], [("film", 0, 1), ("by", 1, 4)]),
        ("film  ", [4, 5, 6], [("film", 0, 1), ("", 1, 3)]),
        # special tokens
        ("film by", [4, 4, 7, 7], [("film", 0, 1), ("", 1, 2), ("by", 2, 3), ("", 3, 4)]),
    ],
)
def test_space_belongs_to_the_word_after_it(
    text: str, ends: list[int], words: list[tuple[str, int, int]]
) -> None:
    assert character_words(text, list(pairwise([0, *ends]))) == [Word(*word) for word in words]


texts = st.text(st.characters(codec="utf-8", exclude_characters="▁\ufffd\x00"), max_size=25)


@given(st.sampled_from(KINDS), st.one_of(texts, st.text("film by 19.é電🎬\n", max_size=30)))
def test_words_partition_the_tokens_and_keep_the_text(kind: str, text: str) -> None:
    made = cut(kind, text)
    words = character_words(made.text, made.offsets)
    assert [w.start for w in words] == [0, *(w.stop for w in words)][: len(words)]
    assert all(w.start < w.stop for w in words)
    assert (words[-1].stop if words else 0) == len(made.tokens)
    assert without_space("".join(w.text for w in words)) == without_space(made.text)


def test_content_stands_in_a_word_as_a_substring() -> None:
    assert contain_any(["films,", "the", "I", "film"], ["film", "I"]).tolist() == [
        True,
        False,
        True,
        True,
    ]
    assert contain_any(["film"], []).tolist() == [False]
    assert contain_any([], ["film"]).tolist() == []
