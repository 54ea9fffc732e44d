"""Sentences that no further text can change, stop words, content words."""

from __future__ import annotations

import pytest
import spacy
from hypothesis import example, given
from hypothesis import strategies as st

import dragin_lab as dl
from dragin_lab.catalog.exchanged import restore_method
from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.errors import SettingError

PIPELINE = load_pipeline()
# Whatever a sentence's end can hang on: abbreviations, initials, numbers, quotes, brackets, dots in
# a row, white space.
PARTS = (
    *(
        "St.",
        "Dr",
        "J.",
        "U.S.",
        "p.m.",
        "e.g.",
        "etc.",
        "No.",
        "1.5",
        "2",
        ".",
        "..",
        "...",
        "!",
        "?",
        "?!",
        ":",
        ",",
    ),
    *(
        '"',
        "'",
        "”",
        "(",
        ")",
        "[1]",
        " ",
        " ",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "\xa0",
        "Bo",
        "film",
        "it",
        "Żuławski",
    ),
    *(
        "🎬",
        "電影。",
        "。",
        "」",
        "（",
        "-",
        "—",
        "he's",
        "www.a.com",
        ":)",
        "</s>",
        "C++",
        "a.b",
        "end.Next",
    ),
    *("\u200b", "É.", "1.", "Sgt."),
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


def test_a_sentence_is_complete_with_the_first_whole_chunk_of_the_next() -> None:
    assert PIPELINE.complete("It is Bo.") == []
    assert PIPELINE.complete("It is Bo. Then") == []
    assert PIPELINE.complete("It is Bo. Then ") == [(0, 9)]
    assert PIPELINE.complete(" It is Bo. Then he. Now it ") == [(1, 10), (11, 19)]
    assert PIPELINE.complete("It is No. 2 ") == PIPELINE.complete("電影。") == []
    assert PIPELINE.complete("電影。他") == [(0, 3)]


@pytest.mark.parametrize(
    "text",
    [
        "Coolie No. 1 (1995 film) was directed by David Dhawan.|It is old.",
        "1. William Shakespeare wrote it.|Then he left.",
        (
            "Mr. Bo, J. R. R. Tolkien and É. Zola met in the U.S. film St. Louis vs. Ek.|He was in"
            " Rome."
        ),
        (
            "Sgt. Pepper and Brig. Gen. Li left at 5 a.m. and e. e. cummings et al. (1950) at 6.|It"
            " was late."
        ),
        'He said "No."|Then he left.|(It is Bo.)|“Who?” he asked.|‘Bo’ is it.',
        "Panic! at the Disco is... a band...|It was old…|Then it.",
        "It was in 1950.|Then it was 5.|But he left.",
        "It is Bo.\n|2. It is Li.\n|it is no.",
        "電影。|「是。」|他說！|She",
    ],
)
def test_a_point_ends_a_sentence_or_not(text: str) -> None:
    sentences = [sentence.strip() for sentence in text.split("|")]
    glue = "" if "電" in text else " "
    assert PIPELINE.split(glue.join(text.split("|"))) == sentences


def test_spans_are_stripped_and_blank_ones_dropped() -> None:
    text = "\n\n One. \n\n Two?  "
    assert [text[a:b] for a, b in PIPELINE.spans(text)] == PIPELINE.split(text) == ["One.", "Two?"]
    assert PIPELINE.spans("") == PIPELINE.spans(" \n ") == []


def test_a_pipeline_that_looks_ahead_settles_nothing() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("senter")
    assert Pipeline("senter", nlp).complete("One. Two. Three four. ") == []


def test_stop_words_and_words_that_say_something() -> None:
    said = ["film", "Wajda.", "1984", "(film)", "the-film", "電", "Ż"]
    words = ["the", "The", "is", "the,", "is.", ",", "—", "...", "", "don't", "'s", "🎬", *said]
    assert [word for word in words if not PIPELINE.is_stop(word)] == said


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


@pytest.mark.parametrize("nlp", [spacy.blank("en"), object()])
def test_a_pipeline_without_sentences_is_refused(nlp: object) -> None:
    with pytest.raises(SettingError, match="sentencizer"):
        load_pipeline(nlp)


def test_the_released_code_has_the_sentences_of_the_plain_rules() -> None:
    released = dl.method("dragin", variant="reference").pipeline
    assert released.split("It is No. 2.") == ["It is No.", "2."]
    paper = dl.method("dragin")
    assert paper.pipeline == PIPELINE != released
    assert restore_method(paper.settings | {"pipeline": released.name}).pipeline == released


def test_pipelines_are_equal_by_what_they_do() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    assert load_pipeline(nlp) == load_pipeline(load_pipeline(nlp))
    assert hash(load_pipeline(nlp)) == hash(load_pipeline(nlp))
