"""FLARE-instruct and self-ask on scripted answers, to the character."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import QUESTION, Say, drive

from dragin_lab.catalog.by_name import method
from dragin_lab.core.episode import Bias
from dragin_lab.core.method import Method
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.triggers.call import Call

SEARCH_CASE = f"Question: {QUESTION}\nAnswer (with step-by-step & Search):"
ASK_CASE = f"Question: {QUESTION}\nAre follow up questions needed here:"
FOUND = (
    "Context:\n[1] First passage.\n[2] Second passage.\n[3] Third passage.\nAnswer in the same"
    " format as before.\n"
)
NONE = float("-inf")
MARKERS = pytest.mark.parametrize("marker", ["▁", "Ġ"])

CALLS = Say(" The film is by [Search(maker of it)] Bo Ek")
CALLS_AGAIN = Say(" Li Ek. Li Ek is from [Search(home of Li Ek)] Rome")
CONCLUDES = Say(" Oslo. So the answer is Oslo.\nThen he")
ASKS = Say(" Yes.\nFollow up: Who made it?\nIntermediate answer: Bo Ek")
ASKS_AGAIN = Say(" Li Ek made it.\nFollow up: Where is Li Ek from?\nIntermediate answer: Rome")
ENDS = Say(" Li Ek is from Oslo.\nSo the final answer is: Oslo.\nQuestion: Who")


def instruct(**settings: Any) -> Method:
    return method("flare-instruct", **settings)


def self_ask(**settings: Any) -> Method:
    return method("self-ask", **settings)


# -- FLARE-instruct --------------------------------------------------------------------------------


@MARKERS
def test_a_call_is_taken_out_searched_and_the_text_resumes_in_its_place(marker: str) -> None:
    driven = drive(instruct(), CALLS, CALLS_AGAIN, CONCLUDES, marker=marker)
    assert driven.lm.prompts == [
        SEARCH_CASE,
        FOUND + SEARCH_CASE + " The film is by",
        FOUND + SEARCH_CASE + " The film is by Li Ek. Li Ek is from",
    ]
    assert driven.queries == ["maker of it", "home of Li Ek"]
    first, second, third = driven.trace.steps
    # nothing is written after the call
    assert first.draft.text.strip() == "The film is by [Search(maker of it)]"
    assert first.draft.stopped == "search-call"
    assert (first.decision.retrieve, first.decision.certain) == (True, True)
    assert first.decision.reason == "the model calls for a search of 'maker of it'"
    assert first.decision.cut == first.draft.text.index(" [")
    assert (first.kept, first.discarded) == (" The film is by", " [Search(maker of it)]")
    assert second.kept == " Li Ek. Li Ek is from"
    assert (third.decision.retrieve, third.decision.reason) == (
        False,
        "the model asks for no search",
    )
    assert driven.trace.text == " The film is by Li Ek. Li Ek is from Oslo. So the answer is Oslo."
    assert (driven.trace.answer, driven.trace.ended) == ("Oslo", "answered")
    # the kept ids are those generated
    assert [note for step in driven.trace.steps for note in step.notes] == []
    assert driven.trace.counters["retrievals"] == 2
    assert driven.trace.counters["discarded"] > 8


def test_a_call_gets_a_bonus_and_right_after_a_search_it_is_forbidden() -> None:
    driven = drive(instruct(), CALLS, CONCLUDES)
    first, second = (draft.bias for draft in driven.lm.drafts)
    assert first == (Bias("[Search(", 2.0, 0),)
    assert second == (Bias("[Search(", NONE, 0, 5), Bias("[Search(", 2.0, 5))
    settings = driven.trace.method
    assert (settings["call_bonus"], settings["call_pause"]) == (2.0, 5)
    other = drive(instruct(call_bonus=0, call_pause=2), CALLS, CONCLUDES)
    assert other.lm.drafts[1].bias == (Bias("[Search(", NONE, 0, 2), Bias("[Search(", 0.0, 2))
    assert drive(self_ask(), ASKS, ENDS).lm.drafts[0].bias == ()


def test_a_call_right_at_the_start_keeps_nothing_of_its_draft() -> None:
    driven = drive(instruct(), Say(" [Search(maker)] Bo"), CONCLUDES)
    first, _ = driven.trace.steps
    assert (first.kept, first.answer) == ("", "")
    assert driven.lm.prompts[1] == FOUND + SEARCH_CASE
    assert driven.trace.ended == "answered"


def test_asking_on_and_on_without_writing_ends_the_episode() -> None:
    driven = drive(instruct(), CALLS, Say(" [Search(maker of it)] Bo"), Say(" Li."))
    assert driven.queries == ["maker of it"]
    assert driven.trace.ended == "stalled"
    assert (driven.trace.text, driven.trace.answer) == (" The film is by", "Li")
    assert (
        driven.trace.steps[1].decision.reason
        == "asks for 'maker of it' with nothing written since the last search"
    )


def test_a_call_that_names_no_term_asks_the_question() -> None:
    driven = drive(instruct(), Say(" It is by [Search( )] Bo"), CONCLUDES)
    query = driven.trace.steps[0].query
    assert (query.text, query.note) == (QUESTION, "the question: there is nothing else to ask for")


@pytest.mark.parametrize(("limit", "ended"), [(96, "stalled"), (8, "length")])
def test_a_call_that_is_never_closed_is_no_part_of_the_answer(limit: int, ended: str) -> None:
    driven = drive(
        instruct(max_new_tokens=limit), Say(" It is by [Search(maker of it"), Say(" Li.")
    )
    assert driven.trace.text == " It is by"
    assert driven.queries == []
    assert driven.trace.ended == ended
    assert driven.trace.steps[0].decision.reason == "the text ends in a call that is not closed"


# -- self-ask --------------------------------------------------------------------------------------


@MARKERS
def test_a_follow_up_is_searched_and_answered_with_the_passages_in_view(marker: str) -> None:
    driven = drive(self_ask(), ASKS, ASKS_AGAIN, ENDS, marker=marker)
    one = " Yes.\nFollow up: Who made it?\nIntermediate answer:"
    two = " Li Ek made it.\nFollow up: Where is Li Ek from?\nIntermediate answer:"
    assert driven.lm.prompts == [ASK_CASE, FOUND + ASK_CASE + one, FOUND + ASK_CASE + one + two]
    assert driven.queries == ["Who made it?", "Where is Li Ek from?"]
    first, _, third = driven.trace.steps
    assert first.decision.reason == "the model asks the follow-up question 'Who made it?'"
    # a question is part of the answer's text
    assert (first.decision.cut, first.discarded) == (None, "")
    assert first.kept == one
    assert third.decision.reason == "the model asks no further question"
    assert driven.trace.text == one + two + " Li Ek is from Oslo.\nSo the final answer is: Oslo."
    assert (driven.trace.answer, driven.trace.ended) == ("Oslo", "answered")
    assert [note for step in driven.trace.steps for note in step.notes] == []


def test_a_self_ask_text_without_an_answer_is_asked_for_one() -> None:
    driven = drive(
        self_ask(), ASKS, Say(" Li Ek made it. So the answer is Bo."), Say(" Li Ek.\nQuestion: Who")
    )
    assert driven.lm.prompts[2].endswith(
        "Li Ek made it. So the answer is Bo.\nSo the final answer is:"
    )
    assert driven.trace.extraction is not None
    assert driven.trace.answer == "Li Ek"


def test_a_follow_up_that_uses_up_the_limit_is_not_searched() -> None:
    tokens = len(drive(self_ask(), ASKS, ENDS).trace.steps[0].draft or ())
    driven = drive(self_ask(max_new_tokens=tokens), ASKS, Say(" Li."))
    assert (driven.queries, driven.trace.ended) == ([], "length")
    assert (
        driven.trace.steps[0].decision.reason
        == "asks for 'Who made it?', and no token is left to answer it with"
    )
    assert driven.trace.text.endswith("Intermediate answer:")


# -- what a call is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "text", "asks"),
    [
        ("search-call", "by [Search(a b)] and [Search(c)]", "a b"),
        ("search-call", "by [Search(  a\n b )]", "a b"),
        ("search-call", "by [Search(film (1999))]", "film (1999)"),
        ("search-call", "by [Search(a)", None),
        ("search-call", "a)] b", None),
        ("follow-up", "Yes.\nFollow up: Who?\nIntermediate answer:", "Who?"),
        ("follow-up", "Follow up: Who?\n\n Intermediate answer: Bo", "Who?"),
        ("follow-up", "Follow up: Who?\n", None),
        ("follow-up", "Follow up: Who?\nBo.\nIntermediate answer:", None),
        ("follow-up", "Intermediate answer: Bo", None),
    ],
)
def test_calls_are_found(when: str, text: str, asks: str | None) -> None:
    asking = TRIGGERS.named(when)()
    assert isinstance(asking, Call)
    call = asking.find(text)
    assert (None if call is None else " ".join(call[1].split())) == asks
    if call is not None:
        assert call[0].startswith("[Search(" if when == "search-call" else "Follow up:")
