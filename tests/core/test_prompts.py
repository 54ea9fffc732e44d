"""Prompts to the character (reference-behaviour §1; FLARE paper, Prompt D.1), and fitting them
into a window.
"""

from __future__ import annotations

import pytest

from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Passage

SKY = Exemplar("Is the sky blue?", "It is.", "yes")
SEA = Exemplar("Is the sea red?", "It is blue.", "no")
SKY_TEXT = "Question: Is the sky blue?\nAnswer: It is. So the answer is yes.\n"
SEA_TEXT = "Question: Is the sea red?\nAnswer: It is blue. So the answer is no.\n"
FOUND = (Passage("1", "Film", "A film."), Passage("2", "Book", "A book."))


def test_direct_prompt() -> None:
    prompt = PromptTemplate([SKY, SEA], instruction="Reason.\n").render("Who?", " It")  # type: ignore[arg-type]
    assert prompt.text == SKY_TEXT + SEA_TEXT + "Reason.\nQuestion: Who?\nAnswer: It"
    assert prompt.part("exemplars") == SKY_TEXT + SEA_TEXT
    assert prompt.part("question") == "Who?"
    assert prompt.part("answer") == " It"
    assert "passages" not in prompt.spans


def test_prompt_with_passages() -> None:
    prompt = PromptTemplate((SKY,), instruction="Reason.\n").render("Who?", " It", FOUND)
    assert prompt.text == (
        SKY_TEXT
        + "Context:\n[1] A film.\n[2] A book.\nAnswer in the same format as before.\n"
        + "Reason.\nQuestion: Who?\nAnswer: It"
    )
    assert prompt.part("passages") == "[1] A film.\n[2] A book.\n"


def test_missing_passages_are_written_as_empty_lines_where_slots_are_asked_for() -> None:
    prompt = PromptTemplate().render("Who?", "", FOUND, slots=3, closing="Go.")
    assert prompt.text == "Context:\n[1] A film.\n[2] A book.\n[3] \nGo.\nQuestion: Who?\nAnswer:"
    assert (
        PromptTemplate()
        .render("Who?", "", (), slots=1, closing="Go.")
        .text.startswith("Context:\n[1] \nGo.\n")
    )


def test_flare_layout() -> None:
    prompt = PromptTemplate((SKY,), layout="flare").render("Who?", " It", FOUND)
    assert (
        prompt.text
        == SKY_TEXT + "Search results:\n[1] A film.\n[2] A book.\nQuestion: Who?\nAnswer: It"
    )


@pytest.mark.parametrize(
    ("drop", "notes"),
    [
        ((), ()),
        (("A book.",), ("dropped 1 of 2 passages to fit the window",)),
        (("A book.", "A film.", "Context:"), ("dropped 2 of 2 passages to fit the window",)),
        (
            ("A book.", "A film.", "Context:", "sky"),
            (
                "dropped 2 of 2 passages to fit the window",
                "dropped 1 of 2 exemplars to fit the window",
            ),
        ),
        (
            ("A book.", "A film.", "Context:", "sky", "sea"),
            (
                "dropped 2 of 2 passages to fit the window",
                "dropped 2 of 2 exemplars to fit the window",
            ),
        ),
    ],
)
def test_what_cannot_fit_is_dropped_from_the_far_end(
    drop: tuple[str, ...], notes: tuple[str, ...]
) -> None:
    parts = ("A film.", "A book.", "Context:", "sky", "sea")
    prompt = PromptTemplate((SKY, SEA)).fit(
        "Who?", "", FOUND, lambda p: not any(part in p.text for part in drop)
    )
    assert prompt.notes == notes
    assert [part in prompt.text for part in parts] == [part not in drop for part in parts]


def test_a_question_that_never_fits_is_refused() -> None:
    with pytest.raises(SettingError, match="does not fit"):
        PromptTemplate((SKY,)).fit("Who?", "", FOUND, lambda _: False)
