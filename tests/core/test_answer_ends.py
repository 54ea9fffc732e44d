"""Where a text and its answer end on models that nobody here made: their end marks, and the next
example.
"""

from __future__ import annotations

from typing import Any

import pytest
from scripted import QUESTION, Say, drive

from dragin_lab.catalog.by_name import method
from dragin_lab.core.method import METHODS, Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.errors import SettingError

END = "<|im_end|>"
BOTH = pytest.mark.parametrize("variant", ["paper", "reference"])
MARKERS = pytest.mark.parametrize("marker", ["▁", "Ġ"])
LOUD = {"entropy": {"Moon": 9.0}, "received": {"Moon": 0.9}}


def paper(name: str = "wo-rag", **settings: Any) -> Method:
    return method(name, variant="paper", **settings)


# -- end marks -------------------------------------------------------------------------------------


@BOTH
@MARKERS
def test_an_answer_asked_for_or_at_the_end_of_the_text_has_no_end_mark(
    variant: str, marker: str
) -> None:
    asked = drive(
        method("wo-rag", variant=variant),
        Say(" It is old."),
        Say(" Bo Ek."),
        marker=marker,
        eos=END,
    )
    trace = drive(
        method("wo-rag", variant=variant), Say(" So the answer is Bo."), marker=marker, eos=END
    ).trace
    assert (asked.trace.answer, trace.answer) == ("Bo Ek", "Bo")
    assert trace.text.endswith(END) == (variant == "reference")  # the released code keeps it
    assert [END in note for note in trace.notes] == [True] * (variant == "reference")


@pytest.mark.parametrize(
    "name", [n for n in METHODS if n not in ("entity-rag", "search-r1", "self-ask")]
)
def test_no_text_query_or_answer_of_the_paper_variant_holds_an_end_mark(name: str) -> None:
    settings = {} if method(name, variant="paper").threshold is None else {"threshold": 0.0}
    said = Say(" It is Bo Ek.", entropy={"Bo": 3.0}, doubt={"Bo": 0.9})
    driven = drive(
        paper(name, max_new_tokens=12, **settings), *[said] * 40, eos=END, all_asked=False
    )
    assert END not in " ".join([driven.trace.text, driven.trace.answer, *driven.queries])


# -- the next example ------------------------------------------------------------------------------


@MARKERS
def test_a_text_ends_where_the_model_begins_another_example(marker: str) -> None:
    driven = drive(
        paper(), Say(" It is Bo.\n\nQuestion: Is the Moon old"), Say(" Bo."), marker=marker
    )
    (step,) = driven.trace.steps
    assert driven.trace.text.strip() == "It is Bo."
    assert (driven.trace.answer, driven.trace.ended) == ("Bo", "answered")
    assert (step.draft.stopped, step.draft.cut.strip()) == ("example", "Question:")
    assert step.draft.cut_tokens == 4
    assert step.notes == ["draft: the model began another example, which was cut: 'Question:'"]
    assert driven.trace.counters["generated"] == len(step.draft) + 4 + len(
        driven.trace.extraction or ()
    )


def test_no_trigger_fires_on_an_invented_question() -> None:
    said = Say(" It is old.\nQuestion: Moon is it?\nAnswer: The Moon is", **LOUD)
    driven = drive(paper("dragin", threshold=0.5), said, Say(" Bo."))
    assert [step.decision and step.decision.retrieve for step in driven.trace.steps] == [False]
    assert "Moon" not in driven.trace.text


def test_a_trigger_still_fires_before_the_next_example() -> None:
    said = Say(" The Moon is.\nQuestion: Who?", **LOUD)
    driven = drive(paper("dragin", threshold=0.5), said, Say(" Sea is it. So the answer is Bo."))
    assert driven.queries
    assert driven.trace.answer == "Bo"


def test_a_reply_of_nothing_but_another_example_has_its_answer_asked_for() -> None:
    driven = drive(paper(), Say("\nQuestion: Who?"), Say(" Bo."))
    assert (driven.trace.text, driven.trace.answer, driven.trace.ended) == ("", "Bo", "stalled")
    assert driven.trace.notes == [
        "the model began another example before it wrote anything; the answer was asked for"
    ]


def test_a_layout_of_your_own_says_what_begins_an_example() -> None:
    def layout(question: str, passages: Any, tail: str) -> str:
        return f"Q: {question}\nA:{tail}"

    said = Say(" It is Bo.\nQ: Who? A: Li"), Say(" Bo.")
    marked = drive(paper(), *said, template=PromptTemplate(layout=layout, until=("\nQ:",)))
    unmarked = drive(paper(), *said, template=PromptTemplate(layout=layout))
    assert marked.trace.text.strip() == "It is Bo."
    assert "Li" in unmarked.trace.text


def test_until_is_checked_and_recorded() -> None:
    lines = (
        "\nQuestion:",
        "\nContext:",
        "\nSearch results:",
        "\nAnswer in the same format as before.",
    )
    assert PromptTemplate().example_marks == lines
    assert PromptTemplate(until=()).example_marks == ()
    assert PromptTemplate(until=["\nQ:"]).settings["until"] == ("\nQ:",)
    with pytest.raises(SettingError, match="empty text"):
        PromptTemplate(until=("",))
    with pytest.raises(SettingError, match="until"):
        PromptTemplate(until=("\nQ:", 3))


@MARKERS
def test_a_line_may_end_the_text_but_not_before_it_has_begun(marker: str) -> None:
    lines = PromptTemplate(until=("\n",))
    driven = drive(
        paper(), Say("\n\n It is Bo.\nHe was"), Say("\n Li.\nHe"), marker=marker, template=lines
    )
    assert (driven.trace.text.strip(), driven.trace.answer) == ("It is Bo.", "Li")
    script = [Say(" It is"), Say("\nHe was"), Say(" Li.")]
    driven = drive(paper("fl-rag", n=2), *script, marker=marker, template=lines)
    assert (driven.trace.text, driven.trace.ended) == (" It is", "answered")


# -- the answer that is asked for ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (" Bo Ek.\nQuestion: Who was it", "Bo Ek"),
        (" Bo Ek\nQuestion: Who was it", "Bo Ek"),
        (" Hungarian Rhapsody No. 2.", "Hungarian Rhapsody No. 2"),
        (" Mamma Mia! Here We Go Again\nIt is", "Mamma Mia! Here We Go Again"),
        (" Bo Ek. So the answer is Li", "Bo Ek"),
        (" Bo Ek\nHe was born in the", "Bo Ek"),
        ("\n\nBo Ek\nHe was born in the", "Bo Ek"),
        (" Bo", "Bo"),
    ],
)
@MARKERS
def test_an_answer_that_is_asked_for_ends_with_its_line(
    said: str, answer: str, marker: str
) -> None:
    template = PromptTemplate((Exemplar("Who?", "It is.", "Li"),))
    driven = drive(paper(), Say(" It is old."), Say(said), marker=marker, template=template)
    assert driven.trace.answer == answer
    assert driven.lm.prompts[-1].endswith(
        f"Question: {QUESTION}\nAnswer: It is old. So the answer is"
    )
