"""What stands where a question, a passage or gold answers belong is taken as meant, or refused
by name.
"""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_trace

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Passage, Question


def test_a_text_is_one_gold_answer_and_a_number_an_id() -> None:
    assert Question("1", "Who?", "World's Best").golds == ("World's Best",)
    assert Question("1", "Who?", ["a", "b"]).golds == ("a", "b")
    assert Question(7, "Who?").id == Passage(7, "", "").id == "7"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("id", ("1\ud800", "Who?")),
        ("text", ("1", "W\ud800?")),
        ("gold", ("1", "Who?", ("Bo", "B\ud800"))),
    ],
)
def test_half_a_character_is_refused_with_its_value(name: str, parts: Any) -> None:
    with pytest.raises(SettingError, match=rf"{name}='.\\ud800\??' holds half a character at 1"):
        Question(*parts)


def test_a_question_that_cannot_be_asked_is_said_and_the_rest_is_answered() -> None:
    lab = dl.Lab(retriever=lambda query, k: [])
    first, second = lab.ask_many(iter(["Who \ud800?", "Who?"]), "wo-rag", max_new_tokens=2)
    assert "holds half a character at 4" in first.error
    assert second.error == ""


def test_records_are_shown_in_a_line() -> None:
    step = next(one for one in make_trace().steps if one.query is not None and len(one.words))
    for record in (step, step.words, step.query, step.draft):
        assert "\n" not in repr(record)
        assert len(repr(record)) < 300
    assert f"{step.query.chosen.sum()} of {len(step.query.words)}" in repr(step.query)
    assert step.draft.text.split()[0] in step.draft._repr_html_()
