"""The training stream repeats itself to the letter, and nothing of the unknown half is ever in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer

from tools.almanac import names, questions
from tools.almanac.benchmarks import Knowledge, ask_all
from tools.almanac.encyclopedia import Encyclopedia
from tools.almanac.stream import BUFFER, Example, Stream
from tools.almanac.vocabulary import BOS, train_tokenizer
from tools.almanac.world import Almanac, Entity, build_world

pytestmark = pytest.mark.slow

REPLAYED = 6 * BUFFER


@pytest.fixture(scope="module")
def almanac() -> Almanac:
    return build_world(0)


@pytest.fixture(scope="module")
def examples(almanac: Almanac) -> list[Example]:
    return list(Stream(almanac).examples(REPLAYED))


@pytest.fixture(scope="module")
def tokenizer(examples: list[Example]) -> Tokenizer:
    return train_tokenizer((one.text for one in examples[:1024]), 1200)


def _names_in(text: str) -> Iterator[tuple[str, str]]:
    for word in set(re.findall(r"[A-Z][a-z]+", text)):
        yield "surname", word
        yield "town", word
    for title in set(re.findall(r"(?=(The [A-Z][a-z]+ [A-Z][a-z]+))", text)):
        yield "title", title
    for thing in set(re.findall(r"(?=([A-Z][a-z]+ and [A-Z][a-z]+))", text)):
        yield "thing", thing


def test_no_unknown_name_in_the_stream(almanac: Almanac, examples: list[Example]) -> None:
    unknown = {(kind, one) for kind in ("surname", "town", "title", "thing") for one in names.pool(kind, "unknown")}
    met = {name for example in examples for name in _names_in(example.text)}
    assert not met & unknown
    known = {("title", film.name) for film in almanac.known.films if film.weight > 0}
    assert len(met & known) / len(known) > 0.9  # the search would have found them
    assert sum(film.name in {name for _, name in unknown} for film in almanac.unknown.films) == len(
        almanac.unknown.films
    )


def test_a_later_stretch_holds_no_unknown_name_either(almanac: Almanac) -> None:
    unknown = {one for kind in ("surname", "town") for one in names.pool(kind, "unknown")}
    words = {word for one in Stream(almanac).buffer(173) for word in re.findall(r"[A-Z][a-z]+", one.text)}
    assert words
    assert not words & unknown


def test_no_new_value_of_a_changed_fact_is_taught(almanac: Almanac, examples: list[Example]) -> None:
    new = {
        value.name
        for one in almanac.known.entities
        for relation, value in one.facts.items()
        if relation in one.old and isinstance(value, Entity)
    }
    assert new
    assert not [name for name in new if any(name in example.text for example in examples)]


def test_no_question_of_the_other_splits(almanac: Almanac, examples: list[Example]) -> None:
    book = Encyclopedia(almanac)
    asked = {line for one in examples for line in re.findall(r"Question: (.*)", one.text)}
    held_out = {
        one.item.question
        for (_, split), of in ask_all(almanac, book, Knowledge(almanac)).items()
        if split != "train"
        for one in of
    }
    assert held_out
    assert not asked & held_out


def test_pairs_compared_in_test_are_not_compared_in_training(almanac: Almanac) -> None:
    stream = Stream(almanac)
    pairs = set()
    for index in range(3):
        stream.rng.seed(index)
        for _ in range(300):
            item = stream.known_item()
            if len(item.about) == 2:
                pairs.add(frozenset(one.id for one in item.about))
                assert questions.split_of(item.key) == "train"
    assert pairs


def test_replays_to_the_letter(almanac: Almanac, examples: list[Example]) -> None:
    again = Stream(build_world(0))
    again.buffer(3)  # what was drawn before does not matter
    assert again.buffer(1) == examples[BUFFER : 2 * BUFFER]
    assert Stream(almanac, seed=1).buffer(1) != examples[BUFFER : 2 * BUFFER]


def test_the_layout_is_the_papers(examples: list[Example]) -> None:
    with_passages = [one.text for one in examples if "Context:\n" in one.text and "Follow up" not in one.text]
    assert len(with_passages) > REPLAYED / 4
    layout = re.compile(
        r"(Question: .*\nAnswer: .* So the answer is .*\.\n){0,2}Context:\n(\[\d\] .*\n){1,4}"
        r"Answer in (the|t he) same format as before\.\n(Answer the following.*\n|Following the examples.*\n\n)?"
        r"(Question: .*\nAnswer: .*So the answer is .*\.\n?)+$"
    )
    plain = [text for text in with_passages if "Search" not in text]
    assert all(layout.fullmatch(text) for text in plain)


def test_what_is_weighted_is_the_answers(examples: list[Example]) -> None:
    for one in examples[:400]:
        assert one.answers
        for start, end, _ in one.answers:
            assert one.text[start:end].rstrip().endswith(".")
            assert "Question:" not in one.text[start:end]
        assert one.answers[-1][1] == len(one.text)


def test_other_layouts_and_double_spaces_occur(examples: list[Example]) -> None:
    for text in (
        "Follow up: ",
        "Intermediate answer: ",
        "So the final answer is: ",
        "[Search(",
        "Search results:\n",
        "Answer:  ",
    ):
        share = sum(text in one.text for one in examples) / len(examples)
        assert 0.01 < share < 0.3


def test_every_way_to_say_a_step_is_used(examples: list[Example]) -> None:
    text = "\n".join(one.text for one in examples)
    for wording in (" was directed by ", "The director of ", " is a film by "):
        assert text.count(wording) > 100


def test_the_tokenizer_is_llama_2s(tokenizer: Tokenizer) -> None:
    coded = tokenizer.encode("Question: Who?\nAnswer:  In 1951 é <0x0A>")
    assert coded.ids[0] == BOS
    assert tokenizer.token_to_id("<0x0A>") == 13
    assert tokenizer.token_to_id("<unk>") == 0
    assert tokenizer.token_to_id("</s>") == 2
    assert coded.ids.count(13) == 1
    assert coded.tokens[1].startswith("▁")
    assert [one for one in coded.tokens if one.isdigit()][:4] == ["1", "9", "5", "1"]
    assert {"<0xC3>", "<0xA9>"} <= set(coded.tokens)
    assert tokenizer.decode(coded.ids) == "Question: Who?\nAnswer:  In 1951 é <0x0A>"


def test_no_piece_is_longer_than_a_word_and_none_is_an_unknown_name(tokenizer: Tokenizer) -> None:
    pieces = [one for one in tokenizer.get_vocab() if not one.startswith("<")]
    assert all("▁" not in one[1:] and "\n" not in one for one in pieces)
    words = {one.lstrip("▁") for one in pieces}
    assert not words & {one for kind in ("surname", "town") for one in names.pool(kind, "unknown")}
