"""Episodes of the reference variant: what a query is made of, a window overrun, how episodes end."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import Say, drive

from dragin_lab.catalog.methods import method
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS

QUESTION = "Who directed Ma?"
LOUD = {"Bo": 9.0}
DRAFT = Say(" It was far. It is by Bo Ek. He left", entropy=LOUD, doubt={"Bo": 0.9})
LAST = Say(" So the answer is Li. He")


def reference(name: str = "dragin", **settings: Any) -> Method:
    return method(name, variant="reference", **settings)


def test_qfs_asks_what_the_position_before_the_word_looked_at() -> None:
    looks = {"Bo>far": 9.0, "by>directed": 9.0}
    driven = drive(reference("dragin", top_n=1), DRAFT, LAST, question=QUESTION, looks=looks)
    assert driven.queries == ["directed"]


def test_a_context_of_no_more_than_n_tokens_is_the_query_itself() -> None:
    driven = drive(reference("dragin", what="last-n", top_n=50), DRAFT, LAST, question=QUESTION)
    assert driven.queries == [f"{QUESTION} It was far."]


def test_nothing_is_dropped_for_the_window_and_the_overrun_is_noted() -> None:
    template = PromptTemplate((Exemplar("Is the sky blue?", "It is.", "yes"),))
    driven = drive(reference("sr-rag"), Say(" It is Bo."), Say(" Bo."), template=template, window=30)
    (step,) = driven.trace.steps
    assert "[3] Third passage." in driven.lm.prompts[0]
    assert "sky" in driven.lm.prompts[0]
    assert len(step.notes) == 1
    assert step.notes[0].endswith("more than the model's window of 30")
    assert len(driven.trace.notes) == 1  # of the prompt that asks for the answer
    wide = drive(reference("sr-rag"), Say(" It is Bo."), Say(" Bo."), template=template, window=300)
    assert wide.trace.steps[0].notes == wide.trace.notes == []


@pytest.mark.parametrize("name", REFERENCE_METHODS)
def test_a_model_that_says_nothing(name: str) -> None:
    driven = drive(reference(name, max_new_tokens=2), Say(""), Say(" Li"))
    looping = name not in ("wo-rag", "sr-rag")
    # With the space that joins it and the BOS, a text of one closing token is longer than the limit.
    assert driven.trace.text == (" </s>" if looping else "</s>")
    assert driven.trace.ended == ("length" if looping else "answered")
    assert driven.trace.answer == "Li"


def test_endings() -> None:
    answered = drive(reference("dragin"), Say(" So the answer is Bo."))
    assert (answered.trace.ended, answered.trace.answer) == ("answered", "Bo")
    # The text may have as many tokens as the limit, with the special tokens that the tokenizer adds.
    long = drive(reference("fs-rag", max_new_tokens=4), Say(" It is Bo."), Say(" Bo."))
    assert (long.trace.ended, long.trace.text) == ("length", " It is Bo.")
    single = drive(reference("wo-rag", max_new_tokens=2), Say(" It is Bo."), Say(" Bo."))
    assert (single.trace.ended, single.trace.text) == ("length", "It is")


def test_extraction_stands_after_the_stripped_and_cut_text() -> None:
    driven = drive(reference("wo-rag"), Say(" It is Bo. Question: Who"), Say(" Bo Ek. Note: x"), golds=("Bo Ek", "Li"))
    assert driven.lm.prompts[1] == "Question: Who made it?\nAnswer: It is Bo.  So the answer is "
    assert driven.lm.drafts[1].max_new_tokens == 20
    assert driven.trace.answer == "Bo Ek"
    assert driven.trace.scores == {"em": 1, "f1": 1, "precision": 1, "recall": 1}
    assert driven.trace.text == "It is Bo. Question: Who</s>"


def test_without_golds_nothing_is_scored() -> None:
    assert drive(reference("wo-rag"), Say(" So the answer is Bo.")).trace.scores == {}
