"""Sentences that no further text can change, stop words, content words."""

from __future__ import annotations

import pytest
import spacy
from hypothesis import example, given
from hypothesis import strategies as st

from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.errors import SettingError

PIPELINE = load_pipeline()
# Whatever a sentence's end can hang on: abbreviations, initials, numbers, quotes, brackets, dots in a row, white space.
PARTS = (
    *("St.", "Dr", "J.", "U.S.", "p.m.", "e.g.", "etc.", "No.", "1.5", "2", ".", "..", "...", "!", "?", "?!", ":", ","),
    *('"', "'", "”", "(", ")", "[1]", " ", " ", " ", "  ", "\n", "\n\n", "\t", "\xa0", "Bo", "film", "it", "Żuławski"),
    *("🎬", "電影。", "-", "—", "he's", "www.a.com", ":)", "</s>", "C++", "a.b", "end.Next", "\u200b"),
)
texts = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@given(texts, texts)
@example("One.\n", "\nTwo three")
@example('He said "No.', '" Then he left. Bo')
@example("at 5 p.m", ". He left")
@example("It is 1", ".5 m. Then")
def test_complete_sentences_are_those_of_every_continuation(text: str, more: str) -> None:
    settled = PIPELINE.complete(text)
    assert PIPELINE.spans(text + more)[: len(settled)] == settled


@given(texts)
def test_complete_sentences_only_grow(text: str) -> None:
    before: list[tuple[int, int]] = []
    for end in range(len(text) + 1):
        settled = PIPELINE.complete(text[:end])
        assert settled[: len(before)] == before
        before = settled


def test_a_sentence_is_complete_with_the_first_whole_chunk_of_the_next() -> None:
    assert PIPELINE.complete("It is Bo.") == []
    assert PIPELINE.complete("It is Bo. Then") == []
    assert PIPELINE.complete("It is Bo. Then ") == [(0, 9)]
    assert PIPELINE.complete(" It is Bo. Then he. Now it ") == [(1, 10), (11, 19)]


def test_spans_are_stripped_and_blank_ones_dropped() -> None:
    text = "\n\n One. \n\n Two?  "
    assert [text[a:b] for a, b in PIPELINE.spans(text)] == PIPELINE.split(text) == ["One.", "Two?"]
    assert PIPELINE.spans("") == PIPELINE.spans(" \n ") == []


def test_a_pipeline_that_looks_ahead_settles_nothing() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("senter")
    assert not Pipeline("senter", nlp).decided_by_prefix
    assert Pipeline("senter", nlp).complete("One. Two. Three four. ") == []


@pytest.mark.parametrize("word", ["the", "The", "is", "the,", "is.", ",", "—", "...", "", "don't", "'s", "🎬"])
def test_stop_words(word: str) -> None:
    assert PIPELINE.is_stop(word)


@pytest.mark.parametrize("word", ["film", "Wajda.", "1984", "(film)", "the-film", "電", "Ż"])
def test_words_that_say_something(word: str) -> None:
    assert not PIPELINE.is_stop(word)


def test_content_words_without_tags_are_the_non_stop_words() -> None:
    assert not PIPELINE.tags
    assert "non-stop-words" in PIPELINE.name
    assert PIPELINE.content_words("The film, it is by Bo.") == ["film", "Bo"]


def test_content_words_with_tags_are_by_part_of_speech() -> None:
    @spacy.Language.component("tests_say_noun")
    def say_noun(doc: spacy.tokens.Doc) -> spacy.tokens.Doc:
        for token in doc:
            token.pos_ = "PROPN" if token.text == "The" else "ADV"
        return doc

    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("tests_say_noun")
    pipeline = load_pipeline(nlp)
    assert pipeline.tags
    assert "part of speech" in pipeline.name
    assert pipeline.content_words("The film, it is by Bo.") == ["The"]


@pytest.mark.parametrize("nlp", [spacy.blank("en"), "en_core_web_sm", object()])
def test_a_pipeline_without_sentences_is_refused(nlp: object) -> None:
    with pytest.raises(SettingError, match="sentencizer"):
        load_pipeline(nlp)


def test_pipelines_are_equal_by_what_they_do() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    assert load_pipeline(nlp) == load_pipeline(load_pipeline(nlp))
    assert hash(load_pipeline(nlp)) == hash(load_pipeline(nlp))
