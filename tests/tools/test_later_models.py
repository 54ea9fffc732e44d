"""The audit's section on later models: readings of a byte-level vocabulary, what garbles a query, and the page."""

from __future__ import annotations

import json

import pytest

from dragin_lab.reference.measures import merge_words
from tools.pages import later_models_page as page
from tools.pages.base import text_between
from tools.pages.later_models import READINGS, ReadTokenizer, describe_query

TOKENS = ["In", "ĠÅļ", "iv", "Äģ", ".", "ĠThe", "Ċ", "end"]


class Vocabulary:
    def tokens(self, ids: list[int]) -> list[str]:
        return [TOKENS[i] for i in ids]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("released", ["InĠÅļivÄģ.ĠTheĊend"]),
        ("llama3", ["InĠÅļivÄģ", ".ĠTheĊend"]),
        ("right", ["In", "ÅļivÄģ.", "TheĊend"]),
        ("text", ["In", "Śivā.", "The\nend"]),
    ],
)
def test_a_reading_gives_the_words_that_the_released_code_sees(name: str, words: list[str]) -> None:
    tokenizer = ReadTokenizer(Vocabulary(), READINGS[name])
    ids = list(range(len(TOKENS)))
    merged = merge_words(tokenizer.tokens(ids), [100 + i for i in ids], tokenizer.marker)
    assert [word.text for word in merged] == words


def test_a_character_of_two_tokens_belongs_to_the_second() -> None:
    assert READINGS["text"].show(["Ã", "©t", "Ã©"]) == ["", "ét", "é"]


@pytest.mark.parametrize(
    ("query", "flags"),
    [
        ("Śivā film", {}),
        (" ", {"empty": True}),
        ("filmĠbyĠŚivā", {"glued": True}),
        ("ÅļivÄģ film", {"broken": ["ÅļivÄģ"]}),
        ("byĊÅļivÄģ", {"glued": True, "broken": ["ÅļivÄģ"]}),
        ("1999.<|im_end|>", {"mark": True}),
    ],
)
def test_a_query_is_described_by_what_the_text_does_not_hold(query: str, flags: dict[str, object]) -> None:
    assert describe_query(query, "", "A film by Śivā of 1999.<|im_end|>") == flags


def test_the_page_says_what_the_rows_say() -> None:
    rows = json.loads(page.ROWS.read_text(encoding="utf-8"))
    assert {row["benchmark"] for row in rows} == set(page.TITLES)
    assert text_between(page.PAGE, "later-models") == page.write_section(rows), "run tools.pages.later_models_page"


def test_released_thresholds_and_those_of_later_comparisons_stand_beside_one_another() -> None:
    assert page.thetas("hotpotqa")[1.3] == "QuCo-RAG; Table 9, llama2-7b-chat"
    assert page.thetas("2wikimultihopqa")[1.0].startswith("QuCo-RAG; toolbox; released, llama2-7b-chat")
