"""What stands where a question, a passage or gold answers belong is taken as meant, or refused by name."""

from __future__ import annotations

import random
from typing import Any

import pytest

import dragin_lab as dl
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.trace.trace import Passage, Question

ODD: list[Any] = [
    None, True, 0, -1, 10**400, 1.5, float("nan"), "", "\0", "\ud800", b"x", (), [], {}, [[]], {"a": 1}, [None], [1],
    ("Who?",), {"question": "Who?"}, object(), set(), lambda: None, Question, range(3), "x" * 10_000,
]  # fmt: skip


def test_a_text_is_one_gold_answer_and_a_number_an_id() -> None:
    assert Question("1", "Who?", "World's Best").golds == ("World's Best",)  # type: ignore[arg-type]
    assert Question("1", "Who?", ["a", "b"]).golds == ("a", "b")  # type: ignore[arg-type]
    assert Question(7, "Who?").id == Passage(7, "", "").id == "7"  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [None, 1.5, float("nan"), b"x", ["a"], {"question": "Who?"}])
def test_what_is_not_a_text_is_refused_by_name(bad: Any) -> None:
    for make in (lambda: Question("1", bad), lambda: Passage("1", "t", bad), lambda: Passage(bad, "t", "x")):
        with pytest.raises(SettingError, match="give a text"):
            make()
    with pytest.raises(SettingError, match=r"give a text|is not a text"):
        Question("1", "Who?", [bad])  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "parts"), [
    ("id", ("1\ud800", "Who?")), ("text", ("1", "W\ud800?")), ("gold", ("1", "Who?", ("Bo", "B\ud800"))),
])  # fmt: skip
def test_half_a_character_is_refused_with_its_value(name: str, parts: Any) -> None:
    with pytest.raises(SettingError, match=rf"{name}='.\\ud800\??' holds half a character at 1"):
        Question(*parts)


def test_a_question_that_cannot_be_asked_is_said_and_the_rest_is_answered() -> None:
    lab = dl.Lab(retriever=lambda query, k: [])
    first, second = lab.ask_many(iter(["Who \ud800?", "Who?"]), "wo-rag", max_new_tokens=2)
    assert "holds half a character at 4" in first.error
    assert second.error == ""


def bad_calls(count: int) -> None:
    """Calls with odd values in random places: each is taken, or a ``DraginLabError`` says what is wrong."""
    draw, lab = random.Random(20), dl.Lab(retriever=lambda query, k: [])

    def pick() -> Any:
        return draw.choice(ODD)

    calls = [
        lambda: Question(pick(), pick(), pick()),
        lambda: Passage(pick(), pick(), pick()),
        lambda: lab.stream(pick(), "wo-rag", gold=pick()).close(),
        lambda: lab.ask_many(pick(), "wo-rag", batch_size=pick()),
        lambda: dl.Lab(seed=pick(), cache=False),
        lambda: lab.stream("Who?", pick()).close(),
        lambda: dl.method("dragin", threshold=pick()),
        lambda: dl.method("dragin", top_k=pick(), max_new_tokens=pick()),
    ]
    for _ in range(count):
        try:
            draw.choice(calls)()
        except DraginLabError:
            continue


def test_some_bad_calls_give_no_traceback() -> None:
    bad_calls(60)


@pytest.mark.slow
def test_three_hundred_bad_calls_give_no_traceback() -> None:
    bad_calls(300)
