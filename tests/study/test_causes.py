"""Causes of wrong answers, each on a small episode made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import make_continuation, make_prompt

from dragin_lab import almanac
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.study.causes import Cause, Judge
from dragin_lab.trace.trace import Decision, Passage, Query, Question, Step, Trace

Passages = tuple[Passage, ...] | None
ASKED = "Who is the mother of the director of film The Grey Mill?"
GOLD = "Ada Torwick"
FILM = Passage("1", "The Grey Mill", "The Grey Mill is a film by Otto Fenn.")
OTTO = Passage("2", "Otto Fenn", "Otto Fenn was born in 1901. The mother of Otto Fenn is Ada Torwick.")
OTHER = Passage("3", "Ida Sorrel", "The mother of Ida Sorrel is Maud Sorrel.")
RIGHT = " The film The Grey Mill was directed by Otto Fenn."


def fact(number: str, subject: str, relation: str, value: str, passage: str, reasoning: str) -> Fact:
    start = reasoning.find(value)
    return Fact(number, subject, relation, value, start, start + len(value), "unknown", "never", None, passage)


REASONING = f"{RIGHT.strip()} The mother of Otto Fenn is {GOLD}."
LABELS = Labelled(
    "q", "2wikimultihopqa", "test", "compositional", ASKED, "unknown", REASONING, GOLD,
    (
        fact("a", "The Grey Mill", "director", "Otto Fenn", "1", REASONING),
        fact("b", "Otto Fenn", "mother", GOLD, "2", REASONING),
    ),
)  # fmt: skip


def step(index: int, text: str, found: tuple[Passage, ...] | None = None) -> Step:
    """A step that writes ``text``: with ``found`` passages in its prompt, or with none and no search."""
    if found is None:
        return Step(
            index, make_prompt(), make_continuation(make_prompt(), text), decision=Decision(False, ""), kept=text
        )
    prompt = make_prompt("", found)
    made = make_continuation(prompt, text)
    return Step(
        index, decision=Decision(True, "fires"), query=Query("mother Otto", "mother Otto"), passages=found,
        passages_prompt=prompt, continuation=made, continuation_kept=len(text), kept=text,
    )  # fmt: skip


def episode(*written: tuple[str, tuple[Passage, ...] | None], answer: str, ended: str = "answered") -> Trace:
    steps = [step(index, text, found) for index, (text, found) in enumerate(written)]
    text = "".join(text for text, _ in written)
    return Trace(Question("q", ASKED, (GOLD,)), {"when": "rind"}, steps, text, answer, ended=ended)


def line(trace: Trace, **changes: Any) -> dict[str, Any]:
    return {
        "id": "q", "question": ASKED, "text": trace.text, "answer": trace.answer, "gold": list(trace.question.golds),
        "readable": True, "tokens": 64, "retrievals": trace.retrievals_count, "ended": trace.ended, "em": 0.0,
    } | changes  # fmt: skip


def judged(trace: Trace, judge: Judge | None = None, **changes: Any) -> Cause:
    return (judge or Judge({"q": LABELS})).cause(line(trace, **changes), trace)


def mother(value: str) -> str:
    return f" The mother of Otto Fenn is {value}. So the answer is {value}."


WRONG = mother("Maud Sorrel")


def test_a_value_that_was_never_looked_up() -> None:
    found = judged(episode((RIGHT, (FILM,)), (WRONG, None), answer="Maud Sorrel"))
    assert found == Cause("not looked up", f"mother of Otto Fenn: 'Maud Sorrel', not {GOLD!r}")
    assert judged(episode((RIGHT, None), (WRONG, None), answer="Maud Sorrel")).kind == "never retrieved"


def test_a_trace_of_another_answer_is_not_judged_by() -> None:
    trace = episode((RIGHT, (FILM,)), (WRONG, (OTHER,)), answer="Maud Sorrel")
    for change in ({"text": f"{trace.text} Or so."}, {"retrievals": 0}):
        found = judged(trace, **change)
        assert (found.kind, found.why) == ("unknown", "the trace that was kept is of another answer to this question")


def test_a_search_that_missed_the_passage_says_what_it_asked() -> None:
    found = judged(episode((RIGHT, (FILM,)), (WRONG, (OTHER,)), answer="Maud Sorrel"))
    assert found.kind == "not found"
    assert found.why.endswith("asked 'mother Otto'")


def test_a_passage_that_came_after_the_value() -> None:
    found = judged(episode((RIGHT, None), (WRONG, None), (" It is so.", (OTTO,)), answer="Maud Sorrel"))
    assert found.kind == "retrieved too late"
    assert "retrieval 1 found it afterwards" in found.why


def test_a_passage_in_view_that_was_not_copied_and_where_the_value_is_from() -> None:
    for passages, value, said in (
        ((OTTO, OTHER), "Maud Sorrel", "stands in another passage ('Ida Sorrel')"),
        ((OTTO,), "Otto Fenn", "stands in the same passage ('Otto Fenn')"),
        ((OTTO,), "Maud Sorrel", "stands in no passage in view"),
    ):
        found = judged(episode((RIGHT, None), (mother(value), passages), answer=value))
        assert found.kind == "value not copied"
        assert said in found.why


def test_a_misspelt_value_is_no_value_of_a_passage() -> None:
    trace = episode((RIGHT, None), (mother("Ada Torwisk"), (OTTO,)), answer="Ada Torwisk")
    assert judged(trace).kind == "misspelt"
    there = Passage("9", "Ada Torwisk", "Ada Torwisk was born in 1902.")
    trace = episode((RIGHT, None), (mother("Ada Torwisk"), (OTTO, there)), answer="Ada Torwisk")
    assert judged(trace).kind == "value not copied"
    half = episode((RIGHT, None), (mother("Ada Torwell"), (OTTO,)), answer="Ada Torwell")  # half a name is another
    assert judged(half).kind == "value not copied"


def test_a_value_that_is_stated_of_another_subject() -> None:
    text = " The mother of Otto Fell is Maud Sorrel. So the answer is Maud Sorrel."
    for passages, kind in (((OTTO, OTHER), "value not copied"), ((OTHER,), "not found")):
        found = judged(episode((RIGHT, None), (text, passages), answer="Maud Sorrel"))
        assert found.kind == kind
        assert found.why.startswith(f"mother of Otto Fenn: 'Maud Sorrel' (written of Otto Fell), not {GOLD!r}")
    assert judged(episode((RIGHT + " Otto knew her well.", (OTTO,)), answer="Otto")).kind == "unknown"


def test_right_facts_and_a_wrong_conclusion_or_none() -> None:
    text = f" The mother of Otto Fenn is {GOLD}. So the answer is Otto Fenn."
    trace = episode((RIGHT, None), (text, (OTTO,)), answer="Otto Fenn")
    assert judged(trace).kind == "wrong conclusion"
    assert judged(trace, ended="length").kind == "cut by length"


def test_what_the_line_alone_tells() -> None:
    trace = episode((RIGHT, None), answer="")
    judge = Judge({"q": LABELS})
    assert judge.cause(line(trace, ended="error", error="no\nmemory")) == Cause("failed", "no")
    assert judge.cause(line(trace, readable=False)).kind == "no readable answer"
    assert judge.cause(line(trace, readable=False, ended="length")).kind == "cut by length"
    assert judge.cause(line(trace)).kind == "unknown"


def test_passages_that_did_not_fit_the_window() -> None:
    trace = episode((RIGHT, None), (WRONG, (OTTO,)), answer="Maud Sorrel")
    trace.steps[1].notes.append("prompt and text have 600 tokens, more than the model's window of 512")
    assert judged(trace).kind == "window"


def test_search_calls_in_the_text_do_not_hide_its_facts() -> None:
    text = " The mother of Otto Fenn is [Search(mother of Otto Fenn)] Maud Sorrel."
    found = judged(episode((RIGHT, None), (text, (OTTO, OTHER)), answer="Maud Sorrel"))
    assert found.kind == "value not copied"


@pytest.mark.parametrize(
    ("found", "kind"), [((FILM,), "not found"), ((FILM, OTTO), "value not copied"), (None, "never retrieved")]
)
def test_gold_titles_where_no_facts_are_labelled(found: tuple[Passage, ...] | None, kind: str) -> None:
    judge = Judge(titles={"q": ("The Grey Mill", "Otto Fenn")})
    assert judged(episode((RIGHT + WRONG, found), answer="Maud Sorrel"), judge).kind == kind


def test_a_title_is_the_same_with_entities_and_quotation_marks() -> None:
    judge = Judge(titles={"q": ("A&amp;W &quot;Mill&quot;",)})
    found = (Passage("9", "A&W \u201cMill\u201d", "A mill."),)
    assert judged(episode((RIGHT + WRONG, found), answer="Maud Sorrel"), judge).kind == "value not copied"


def test_labels_of_another_edition_are_not_taken() -> None:
    (known,) = almanac.labels("hotpotqa", limit=1)
    judge = Judge.of("almanac/hotpotqa", {"dataset": {}})
    assert judge.label(known.id, known.question) == known
    assert judge.label(known.id, "Who made it?") is None


def test_the_gold_answer_alone() -> None:
    plain = Judge()
    assert judged(episode((WRONG, (OTTO,)), answer="Maud Sorrel"), plain).kind == "value not copied"
    assert judged(episode((WRONG, (OTHER,)), answer="Maud Sorrel"), plain).kind == "not found"
    alone = episode((WRONG, None), answer="Maud Sorrel")
    for trace in (alone, replace(alone, provenance=alone.provenance | {"retriever": None})):  # that of wo-rag
        assert judged(trace, plain).kind == "never retrieved"
    assert judged(episode((f" It is {GOLD}.", (OTHER,)), answer="Otto Fenn"), plain).kind == "wrong conclusion"
    closed = episode((WRONG, (OTHER,)), answer="no")
    assert judged(closed, plain, gold=["yes"]).kind == "unknown"


@pytest.mark.parametrize("judge", [Judge({"q": LABELS}), Judge(titles={"q": ("Otto Fenn",)}), Judge()])
@pytest.mark.parametrize("last", [None, (), (OTHER,), (OTTO,)])
@pytest.mark.parametrize("middle", [None, (), (OTHER,), (OTTO,)])
@pytest.mark.parametrize("first", [None, (), (FILM,), (OTTO,)])
def test_no_cause_contradicts_the_count_of_retrievals(
    judge: Judge, first: Passages, middle: Passages, last: Passages
) -> None:
    trace = episode((RIGHT, first), (WRONG, middle), (" It is so.", last), answer="Maud Sorrel")
    kind = judged(trace, judge).kind
    assert kind != "never retrieved" or trace.retrievals_count == 0
    if kind in ("not looked up", "retrieved too late", "not found", "value not copied"):
        assert trace.retrievals_count > 0
