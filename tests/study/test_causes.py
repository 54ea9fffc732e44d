"""Causes of wrong answers, each on a small episode made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from factories import make_continuation, make_prompt

from dragin_lab import almanac
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.study.causes import Cause, Judge
from dragin_lab.trace.records import Attributed, AttributedText
from dragin_lab.trace.trace import Decision, Passage, Query, Question, Step, Trace

Passages = tuple[Passage, ...] | None
ASKED = "Who is the mother of the director of film The Grey Mill?"
GOLD = "Ada Torwick"
FILM = Passage("1", "The Grey Mill", "The Grey Mill is a film by Otto Fenn.")
OTTO = Passage(
    "2", "Otto Fenn", "Otto Fenn was born in 1901. The mother of Otto Fenn is Ada Torwick."
)
OTHER = Passage("3", "Ida Sorrel", "The mother of Ida Sorrel is Maud Sorrel.")
RIGHT = " The film The Grey Mill was directed by Otto Fenn."


def fact(
    number: str, subject: str, relation: str, value: str, passage: str, reasoning: str
) -> Fact:
    start = reasoning.find(value)
    return Fact(
        number,
        subject,
        relation,
        value,
        start,
        start + len(value),
        "unknown",
        "never",
        None,
        passage,
    )


REASONING = f"{RIGHT.strip()} The mother of Otto Fenn is {GOLD}."
LABELS = Labelled(
    "q",
    "2wikimultihopqa",
    "test",
    "compositional",
    ASKED,
    "unknown",
    REASONING,
    GOLD,
    (
        fact("a", "The Grey Mill", "director", "Otto Fenn", "1", REASONING),
        fact("b", "Otto Fenn", "mother", GOLD, "2", REASONING),
    ),
)


def step(index: int, text: str, found: tuple[Passage, ...] | None = None) -> Step:
    """A step that writes ``text``: with ``found`` passages in its prompt, or with none and no
    search.
    """
    if found is None:
        return Step(
            index,
            make_prompt(),
            make_continuation(make_prompt(), text),
            decision=Decision(False, ""),
            kept=text,
        )
    prompt = make_prompt("", found)
    made = make_continuation(prompt, text)
    return Step(
        index,
        decision=Decision(True, "fires"),
        query=Query("mother Otto", "mother Otto"),
        passages=found,
        passages_prompt=prompt,
        continuation=made,
        continuation_kept=len(text),
        kept=text,
    )


def episode(
    *written: tuple[str, tuple[Passage, ...] | None], answer: str, ended: str = "answered"
) -> Trace:
    steps = [step(index, text, found) for index, (text, found) in enumerate(written)]
    text = "".join(text for text, _ in written)
    return Trace(Question("q", ASKED, (GOLD,)), {"when": "rind"}, steps, text, answer, ended=ended)


def line(trace: Trace, **changes: Any) -> dict[str, Any]:
    return {
        "id": "q",
        "question": ASKED,
        "text": trace.text,
        "answer": trace.answer,
        "gold": list(trace.question.golds),
        "readable": True,
        "tokens": 64,
        "retrievals": trace.retrievals_count,
        "ended": trace.ended,
        "em": 0.0,
    } | changes


def judged(trace: Trace, judge: Judge | None = None, **changes: Any) -> Cause:
    return (judge or Judge({"q": LABELS})).cause(line(trace, **changes), trace)


def mother(value: str) -> str:
    return f" The mother of Otto Fenn is {value}. So the answer is {value}."


WRONG = mother("Maud Sorrel")
ABOUT = f"mother of Otto Fenn: 'Maud Sorrel', not {GOLD!r}"
FIRST = (RIGHT, None)  # the fact before, written without a search
THERE = Passage("9", "Ada Torwisk", "Ada Torwisk was born in 1902.")
OF_ANOTHER = " The mother of Otto Fell is Maud Sorrel. So the answer is Maud Sorrel."
CALLS = " The mother of Otto Fenn is [Search(mother of Otto Fenn)] Maud Sorrel."
CONCLUDED = f" The mother of Otto Fenn is {GOLD}. So the answer is Otto Fenn."


@pytest.mark.parametrize(
    ("written", "kind", "says"),
    [
        ([(RIGHT, (FILM,)), (WRONG, None)], "not looked up", ABOUT),
        ([FIRST, (WRONG, None)], "never retrieved", ABOUT),
        ([(RIGHT, (FILM,)), (WRONG, (OTHER,))], "not found", "asked 'mother Otto'"),
        (
            [FIRST, (WRONG, None), (" It is so.", (OTTO,))],
            "retrieved too late",
            "retrieval 1 found it afterwards",
        ),
        (
            [FIRST, (WRONG, (OTTO, OTHER))],
            "value not copied",
            "stands in another passage ('Ida Sorrel')",
        ),
        (
            [FIRST, (mother("Otto Fenn"), (OTTO,))],
            "value not copied",
            "stands in the same passage ('Otto Fenn')",
        ),
        ([FIRST, (WRONG, (OTTO,))], "value not copied", "stands in no passage in view"),
        ([FIRST, (CALLS, (OTTO, OTHER))], "value not copied", "stands in another passage"),
        ([FIRST, (mother("Ada Torwisk"), (OTTO,))], "misspelt", "Ada Torwisk"),
        (
            [FIRST, (mother("Ada Torwisk"), (OTTO, THERE))],
            "value not copied",
            "stands in another passage",
        ),
        # half a name is another
        ([FIRST, (mother("Ada Torwell"), (OTTO,))], "value not copied", ""),
        (
            [FIRST, (OF_ANOTHER, (OTTO, OTHER))],
            "value not copied",
            "'Maud Sorrel' (written of Otto Fell), not",
        ),
        ([FIRST, (OF_ANOTHER, (OTHER,))], "not found", "'Maud Sorrel' (written of Otto Fell), not"),
        ([(RIGHT + " Otto knew her well.", (OTTO,))], "unknown", "known wording"),
        ([FIRST, (CONCLUDED, (OTTO,))], "wrong conclusion", "'Otto Fenn'"),
    ],
)
def test_where_the_first_wrong_value_of_a_labelled_question_comes_from(
    written: list[tuple[str, Passages]], kind: str, says: str
) -> None:
    found = judged(episode(*written, answer="Otto Fenn"))
    assert found.kind == kind
    assert says in found.why


def test_what_the_line_alone_tells() -> None:
    trace = episode((RIGHT, (FILM,)), answer="")
    for changes, cause in (
        ({"ended": "error", "error": "no\nmemory"}, "failed: no"),
        ({"readable": False}, "no readable answer: "),
        ({"readable": False, "ended": "length"}, "cut by length: "),
        ({"ended": "length"}, "cut by length: "),
        ({}, "unknown: "),
        ({"text": f"{trace.text} Or so."}, "unknown: the trace that was kept is of another answer"),
        ({"retrievals": 0}, "unknown: the trace that was kept is of another answer"),
    ):
        assert str(judged(trace, **changes)).startswith(cause)
    assert Judge({"q": LABELS}).cause(line(trace)).kind == "unknown"


def test_passages_that_did_not_fit_the_window() -> None:
    trace = episode((RIGHT, None), (WRONG, (OTTO,)), answer="Maud Sorrel")
    trace.steps[1].notes.append(
        "prompt and text have 600 tokens, more than the model's window of 512"
    )
    assert judged(trace).kind == "window"


MILL = Passage("9", "A&W \u201cMill\u201d", "A mill.")


@pytest.mark.parametrize(
    ("titles", "text", "found", "kind"),
    [
        (("The Grey Mill", "Otto Fenn"), WRONG, (FILM,), "not found"),
        (("The Grey Mill", "Otto Fenn"), WRONG, (FILM, OTTO), "value not copied"),
        (("The Grey Mill", "Otto Fenn"), WRONG, None, "never retrieved"),
        (("A&amp;W &quot;Mill&quot;",), WRONG, (MILL,), "value not copied"),  # the same title
        ((), WRONG, (OTTO,), "value not copied"),
        ((), WRONG, (OTHER,), "not found"),
        ((), WRONG, None, "never retrieved"),
        ((), f" It is {GOLD}.", (OTHER,), "wrong conclusion"),
    ],
)
def test_gold_titles_or_the_gold_answer_alone_where_no_facts_are_labelled(
    titles: tuple[str, ...], text: str, found: Passages, kind: str
) -> None:
    judge = Judge(titles={"q": titles} if titles else {})
    trace = episode((text, found), answer="Maud Sorrel")
    for one in (trace, replace(trace, provenance={"retriever": None})):  # that of wo-rag
        assert judged(one, judge).kind == kind
    closed = judged(trace, Judge(), gold=["yes"]).kind
    assert closed == ("never retrieved" if found is None else "unknown")


def test_labels_of_another_edition_are_not_taken() -> None:
    (known,) = almanac.labels("hotpotqa", limit=1)
    judge = Judge.of("almanac/hotpotqa", {"dataset": {}})
    assert judge.label(known.id, known.question) == known
    assert judge.label(known.id, "Who made it?") is None


@pytest.mark.parametrize(
    "judge", [Judge({"q": LABELS}), Judge(titles={"q": ("Otto Fenn",)}), Judge()]
)
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


# -- of an attributed trace ------------------------------------------------------------------------


def attributed(trace: Trace, passage: int) -> Trace:
    """The trace with all words of its second step from a passage, from 1; 0: from none."""
    text = trace.steps[1].continuation
    assert text is not None
    n, k = len(text), len(trace.steps[1].passages)
    nats = np.zeros((n, k))
    nats[:, passage - 1] = 5.0 * (passage > 0)
    none = np.full(n, np.log(0.01))
    one = AttributedText(
        1, "continuation", tuple((1, i) for i in range(k)), none + nats.sum(1), none, nats, nats
    )
    trace.attributed = Attributed(trace.fingerprint, 0.5, 1.0, (one,))
    return trace


def cause(passage: int, found: tuple[Passage, ...] = (OTTO, OTHER), thrown: str = "") -> str:
    written = " The mother of Otto Fenn is Maud Sorrel."
    trace = episode((RIGHT, None), (written, found), answer="Maud Sorrel")
    if thrown:
        step = trace.steps[1]
        draft = replace(trace.steps[0].draft, text=thrown, offsets=np.array([[0, len(thrown)]]))  # type: ignore[type-var]
        step.draft, step.decision = draft, replace(step.decision, cut=0)  # type: ignore[type-var]
    return Judge({"q": LABELS}).cause(line(trace), attributed(trace, passage)).kind


def test_an_attributed_trace_says_where_a_wrong_value_comes_from() -> None:
    assert cause(0) == "found and not used"
    assert cause(1) == "value not copied"
    assert cause(2) == "used, from another passage"
    assert cause(1, (OTHER,)) == "not found"
    assert (
        cause(1, (OTHER,), thrown="The mother of Otto Fenn is Ada Torwick.") == "talked out of it"
    )


def test_without_labels_it_goes_by_the_gold_answer() -> None:
    kinds = []
    for passage in (0, 1, 2):
        trace = episode(
            (RIGHT, None), (" She is Maud Sorrel.", (OTTO, OTHER)), answer="Maud Sorrel"
        )
        kinds.append(Judge({}).cause(line(trace), attributed(trace, passage)).kind)
    assert kinds == ["found and not used", "value not copied", "used, from another passage"]
