"""Episodes of the paper variant: what a query is made of, and prompts that have to fit a window."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from scripted import QUESTION, Driven, Say, drive

from dragin_lab.catalog.methods import method
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate

CASE = f"Question: {QUESTION}\nAnswer:"
ANSWERED = Say(" Li. So the answer is Li.\nThen he went")
MARKERS = pytest.mark.parametrize("marker", ["▁", "Ġ"])


def paper(name: str = "dragin", **settings: Any) -> Method:
    return method(name, variant="paper", **settings)


# -- queries ----------------------------------------------------------------------------------------------------------

DRAFT = Say(" It was far. It is by Bo Ek, a man. Then he", entropy={"Bo": 9.0}, received={"Bo": 0.5}, doubt={"Bo": 0.9})


@MARKERS
def test_qfs_asks_what_the_word_itself_looks_at(marker: str) -> None:
    """Not what the position looked at that predicted it, as the released code has it."""
    looks = {"Bo>far": 9.0, "by>made": 9.0}
    driven = drive(paper(top_n=1), DRAFT, ANSWERED, marker=marker, looks=looks)
    assert driven.queries == ["far."]


@MARKERS
@pytest.mark.parametrize("what", ["current-without-hits", "confident-sentence"])
def test_a_hit_at_the_start_of_a_later_sentence_is_taken_out(what: str, marker: str) -> None:
    """Its first token brings the space before the sentence."""
    say = dataclasses.replace(DRAFT, text=" It was far. Bo Ek made it, then he")
    driven = drive(paper(what=what), say, ANSWERED, marker=marker)
    assert driven.queries == ["Ek made"]


# -- the window -------------------------------------------------------------------------------------------------------

TEMPLATE = PromptTemplate((Exemplar("Is the sky blue?", "It is.", "yes"), Exemplar("Is it?", "It is.", "no")))


def size(driven: Driven, text: str) -> int:
    return len(driven.lm.tokenizer.encode(text, special=True))


def test_a_long_prompt_drops_exemplars_then_passages_and_says_so() -> None:
    say = [Say(" It is Bo. Then he"), Say(" So the answer is Li.\nThen he")]
    free = drive(paper("fs-rag", max_new_tokens=20), *say, template=TEMPLATE)
    need = size(free, free.lm.prompts[0]) + 20
    tight = drive(paper("fs-rag", max_new_tokens=20), *say, template=TEMPLATE, window=need - 1)
    assert tight.trace.steps[0].notes == ["dropped 1 of 2 exemplars to fit the window"]
    assert "[3]" in tight.lm.prompts[0]
    exact = drive(paper("fs-rag", max_new_tokens=20), *say, template=TEMPLATE, window=need)
    assert exact.trace.steps[0].notes == []
    # The room for what is still to be written shrinks as it is written.
    assert size(exact, exact.lm.prompts[1]) + exact.lm.drafts[1].max_new_tokens <= need
    small = size(free, CASE) + 21
    bare = drive(paper("fs-rag", max_new_tokens=20), *say, template=TEMPLATE, window=small)
    assert bare.lm.prompts[0] == CASE
    assert bare.trace.steps[0].notes == [
        "dropped 3 of 3 passages to fit the window",
        "dropped 2 of 2 exemplars to fit the window",
    ]


def test_the_prompt_of_the_extraction_fits_the_window_too() -> None:
    say = [Say(" It is Bo"), Say(" Li")]
    window = 40
    driven = drive(paper("wo-rag", max_new_tokens=8), *say, template=TEMPLATE, window=window)
    for draft in driven.lm.drafts:
        assert size(driven, draft.prompt.text) + draft.max_new_tokens <= window
    assert driven.lm.prompts[1].endswith(CASE + " It is Bo So the answer is")
    assert any("dropped" in note for note in driven.trace.notes)


def test_other_ids_than_were_generated_are_noted() -> None:
    script = [Say(" It is Wro"), Say("cław. So"), Say(" the answer is")]
    driven = drive(paper("fl-rag", n=3, max_new_tokens=9), *script)
    noted = [any("gives other ids" in note for note in step.notes) for step in driven.trace.steps]
    assert noted == [False, False, True]  # "Wro" and "cław" are one token when they are read again


def test_fewer_passages_than_asked_are_noted() -> None:
    driven = drive(paper("sr-rag"), ANSWERED, passages=["Only."])
    assert driven.trace.steps[0].notes == ["asked for 3 passages, found 1"]
    assert driven.lm.prompts == ["Context:\n[1] Only.\nAnswer in the same format as before.\n" + CASE]


def test_kept_characters_are_within_the_text() -> None:
    """The answer ends in the chunk before, which only the next chunk shows."""
    script = [Say(" So the answer is Li."), Say("\nThen he went far away.")]
    driven = drive(paper("fl-rag", n=6, max_new_tokens=30), *script)
    assert driven.trace.text == " So the answer is Li."
    assert driven.trace.steps[1].continuation_kept == 0
    assert driven.trace.steps[1].kept == ""
    assert driven.trace.ended == "answered"
    assert driven.trace.counters["discarded"] == 1
