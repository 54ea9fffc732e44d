"""The training stream repeats itself to the letter, and nothing of the unknown half is ever in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer

from tools.almanac import names, questions
from tools.almanac.benchmarks import Knowledge, ask_all
from tools.almanac.drills import Example
from tools.almanac.encyclopedia import Encyclopedia
from tools.almanac.scene import parts_of
from tools.almanac.stream import BUFFER, Stream
from tools.almanac.vocabulary import BOS, make_tokenizer
from tools.almanac.world import Almanac, Entity, build_world, text_of

pytestmark = pytest.mark.slow

REPLAYED = (0, 1, 10, 30, 60, 90, 91, 92)  # buffers of every stage


@pytest.fixture(scope="module")
def almanac() -> Almanac:
    return build_world(0)


@pytest.fixture(scope="module")
def examples(almanac: Almanac) -> list[Example]:
    stream = Stream(almanac)
    return [one for index in REPLAYED for one in stream.buffer(index)]


@pytest.fixture(scope="module")
def tokenizer(examples: list[Example]) -> Tokenizer:
    return make_tokenizer(one.text for one in examples)


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
    assert len(met & known) / len(known) > 0.8  # the search would have found them
    assert sum(film.name in {name for _, name in unknown} for film in almanac.unknown.films) == len(
        almanac.unknown.films
    )


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
    assert len(with_passages) > len(examples) / 4
    layout = re.compile(
        r"(Question: .*\nAnswer: .* So the answer is .*\.\n){0,2}Context:\n(\[\d\] .*\n){1,4}"
        r"Answer in (the|t he) same format as before\.\n(Answer the following.*\n|Following the examples.*\n\n)?"
        r"(Question: .*\nAnswer: .*So the answer is .*\.\n?)+$"
    )
    plain = [text for text in with_passages if "Search" not in text]
    assert all(layout.fullmatch(text) for text in plain)


def test_what_is_weighted_is_the_answers_and_most_of_all_their_values(examples: list[Example]) -> None:
    for one in examples:
        assert one.answers
        assert max(end for _, end, _ in one.answers) == len(one.text)
        for start, end, weight in one.answers:
            assert "Question:" not in one.text[start:end]
            assert 0 < weight <= 1
            if weight == 1.0 and not re.search("against|less", one.text[start:end]):
                assert len(one.text[start:end].split()) <= 12  # a value, or the words that conclude


def test_in_most_scenes_one_needed_passage_is_among_look_alikes_that_say_the_same_of_others(almanac: Almanac) -> None:
    stream = Stream(almanac)
    stream.rng.seed(5)
    in_view = []
    for _ in range(300):
        item, passages, has, _ = stream.scene(known_share=0.0)
        assert passages
        in_view.append(len({step.subject.id for step in item.steps if has[step.subject.id, step.relation]}))
        for one in item.steps:
            if has[one.subject.id, one.relation]:
                stated = [text for text in passages if one.subject.name in text and text_of(one.value) in text]
                assert stated
    assert in_view.count(1) > len(in_view) / 2
    assert in_view.count(0) < len(in_view) / 4


@pytest.mark.parametrize("kind", ["film", "person", "town"])
def test_look_alikes_share_a_part_of_the_name(almanac: Almanac, kind: str) -> None:
    stream = Stream(almanac)
    stream.rng.seed(6)
    alike = 0
    for _ in range(50):
        fresh = stream._fresh_world()
        one = {"film": fresh.film, "person": fresh.person, "town": fresh.town}[kind]()
        other = stream.lookalike(fresh, one)
        assert other.name != one.name
        kinds = {"film": "title", "town": "town"}
        parts = [set(parts_of(kinds[kind], e.name)) if kind in kinds else set(e.name.split()) for e in (one, other)]
        alike += bool(parts[0] & parts[1])
    assert alike >= 45


@pytest.mark.parametrize(("first", "second"), [(1894, 1912), (1912, 1894), (1894, 1897), (1905, 1899), (1100, 1102)])
def test_a_comparison_is_of_the_first_two_digits_that_differ(first: int, second: int) -> None:
    said = re.fullmatch(r"Of (\d+) and (\d+), (\d\d) against (\d\d) is (less|more)", questions.compare(first, second))
    assert said is not None
    assert [int(said[1]), int(said[2])] == [first, second]
    assert (said[5] == "less") == (first < second) == (said[3] < said[4])


@pytest.mark.parametrize(("first", "second"), [(1894, 1912), (1899, 1930), (1900, 1940), (1921, 1950)])
def test_a_reckoning_adds_up(first: int, second: int) -> None:
    low, high = r"(\d) less (\d) is (\d)( and 1 more)?", r"(\d) less (\d)( and 1)? is (\d)"
    pattern = rf"From (\d+) to (\d+), {low}, {high}, so it is (\d)(\d) years."
    said = re.fullmatch(pattern, questions.reckon(first, second))
    assert said is not None
    low, minus, ones, high, minus_high, tens, *digits = (int(said[group]) for group in (3, 4, 5, 7, 8, 10, 11, 12))
    borrowed = said[6] is not None
    assert borrowed == (said[9] is not None) == (low < minus)
    assert (low - minus) % 10 == ones
    assert (high - minus_high - borrowed) % 10 == tens
    assert digits == [tens, ones]
    assert 10 * tens + ones == second - first == int(said[2]) - int(said[1])


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
        assert 0.005 < share < 0.4


def test_the_tokenizer_looks_like_llama_2s(tokenizer: Tokenizer) -> None:
    coded = tokenizer.encode("Question: Who?\nAnswer:  In 1951 é <0x0A>")
    assert coded.ids[0] == BOS
    assert tokenizer.token_to_id("<0x0A>") == 13
    assert tokenizer.token_to_id("<unk>") == 0
    assert tokenizer.token_to_id("</s>") == 2
    assert coded.ids.count(13) == 1
    assert coded.tokens[1].startswith("▁")
    assert [one for one in coded.tokens if one.isdigit()][:2] == ["19", "51"]
    assert {"<0xC3>", "<0xA9>"} <= set(coded.tokens)
    assert tokenizer.decode(coded.ids) == "Question: Who?\nAnswer:  In 1951 é <0x0A>"


def test_no_piece_is_longer_than_a_word_and_none_is_an_unknown_name(tokenizer: Tokenizer) -> None:
    pieces = [one for one in tokenizer.get_vocab() if not one.startswith("<")]
    assert all("▁" not in one[1:] and "\n" not in one for one in pieces)
    words = {one.lstrip("▁") for one in pieces}
    assert not words & {one for kind in ("surname", "town") for one in names.pool(kind, "unknown")}


def test_every_name_is_cut_at_its_syllables(tokenizer: Tokenizer) -> None:
    for kind in ("surname", "town"):
        for pool in names.POOLS:
            for name in names.pool(kind, pool):
                assert len(tokenizer.encode(f"of {name}").tokens) == 4  # <s>, of, head, tail
    for title in names.pool("title", "unknown"):
        assert len(tokenizer.encode(title).tokens) == 4
