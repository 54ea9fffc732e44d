"""Causes of wrong answers, each on a small episode made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from factories import make_episode

from dragin_lab import almanac
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.results.causes import CAUSES, Cause, CauseFinder
from dragin_lab.trace.records import Attributed, AttributedText
from dragin_lab.trace.trace import Passage, Trace

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


def episode(*written: tuple[str, Passages], answer: str, ended: str = "answered") -> Trace:
    return make_episode(ASKED, *written, golds=(GOLD,), answer=answer, ended=ended)


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
        "passages": [[hit.id for hit in step.passages] for step in trace.steps if step.query],
        "ended": trace.ended,
        "em": 0.0,
    } | changes


def judged(trace: Trace, finder: CauseFinder | None = None, **changes: Any) -> Cause:
    cause = (finder or CauseFinder({"q": LABELS})).cause(line(trace, **changes), trace)
    assert cause is not None
    return cause


WRONG = " The mother of Otto Fenn is Maud Sorrel. So the answer is Maud Sorrel."
FIRST = (RIGHT, None)  # the fact before, written without a search
ABOUT = f"'Maud Sorrel', not {GOLD!r}"


@pytest.mark.parametrize(
    ("written", "kind", "says"),
    [
        ([FIRST, (WRONG, None)], "never retrieved", ABOUT),
        ([(RIGHT, (FILM,)), (WRONG, (OTHER,))], "not found", "'Ada Torwick', mother of Otto Fenn"),
        ([(RIGHT, (OTTO,)), (WRONG, (OTHER,))], "not found", "director of The Grey"),
        ([(RIGHT, ()), (WRONG, ())], "not found", ABOUT),
        ([(RIGHT, (FILM,)), (WRONG, (OTTO, OTHER))], "found", ABOUT),
        ([(RIGHT, (FILM,)), (WRONG, None), (" It is so.", (OTTO,))], "found", ABOUT),
    ],
)
def test_what_labels_say_was_needed_is_looked_for_among_what_was_found(
    written: list[tuple[str, Passages]], kind: str, says: str
) -> None:
    trace = episode(*written, answer="Maud Sorrel")
    assert judged(trace).kind == kind
    assert says in judged(trace).why
    assert CauseFinder({"q": LABELS}).cause(line(trace)) == judged(trace), "a line has the ids"


def test_a_passage_of_what_the_model_was_taught_is_not_needed() -> None:
    film, mother = LABELS.facts
    known = replace(LABELS, facts=(replace(film, label="known"), mother))
    trace = episode(FIRST, (WRONG, (OTTO,)), answer="Maud Sorrel")
    assert judged(trace, CauseFinder({"q": known})).kind == "found"
    assert judged(trace).kind == "not found"
    taught = replace(LABELS, facts=(replace(film, label="known"),))
    assert judged(trace, CauseFinder({"q": taught})).why == f"{ABOUT}; needed and found: 0 passages"


def test_what_the_line_alone_tells() -> None:
    trace = episode((RIGHT, (FILM, OTTO)), answer="")
    for changes, cause in (
        ({"ended": "error", "error": "no\nmemory"}, "failed: no"),
        ({"readable": False}, "unreadable: the text ends with "),
        ({"readable": False, "ended": "length"}, "unreadable: "),
        ({"window": {"passages": 2}}, "window: 2 passages did not fit"),
        ({"window": {"beyond": 1}}, "window: 0 passages did not fit, 1 prompts outgrew it"),
        ({"window": {"exemplars": 1}}, "found: "),
        ({"retrievals": 0}, "never retrieved: "),
        ({}, "found: "),
    ):
        assert str(judged(trace, **changes)).startswith(cause)
        assert str(CauseFinder({"q": LABELS}).cause(line(trace, **changes))).startswith(cause)
    assert judged(trace, readable=False, ended="length").why.endswith("after 64 tokens")
    titles = CauseFinder(titles={"q": ("Otto Fenn",)})
    assert titles.cause(line(trace)) is None, "a line has no titles"
    another = line(trace, text=f"{trace.text} Or so.")
    assert titles.cause(another, trace) is None, "the trace is of another answer"


MILL = Passage("9", "A&W \u201cMill\u201d", "A mill.")


@pytest.mark.parametrize(
    ("titles", "text", "found", "kind"),
    [
        (("The Grey Mill", "Otto Fenn"), WRONG, (FILM,), "not found"),
        (("The Grey Mill", "Otto Fenn"), WRONG, (FILM, OTTO), "found"),
        (("The Grey Mill", "Otto Fenn"), WRONG, None, "never retrieved"),
        (("A&amp;W &quot;Mill&quot;",), WRONG, (MILL,), "found"),  # the same title
        ((), WRONG, (OTTO,), "found"),
        ((), WRONG, (OTHER,), "not found"),
        ((), WRONG, None, "never retrieved"),
    ],
)
def test_gold_titles_or_the_gold_answer_alone_where_no_facts_are_labelled(
    titles: tuple[str, ...], text: str, found: Passages, kind: str
) -> None:
    finder = CauseFinder(titles={"q": titles} if titles else {})
    trace = episode((text, found), answer="Maud Sorrel")
    for one in (trace, replace(trace, provenance={"retriever": None})):  # that of wo-rag
        assert judged(one, finder).kind == kind
    closed = CauseFinder().cause(line(trace, gold=["yes"]), trace)
    assert closed is None if found else str(closed).startswith("never retrieved")


def test_labels_of_another_edition_are_not_taken() -> None:
    (known,) = almanac.labels("hotpotqa", limit=1)
    finder = CauseFinder.of("almanac/hotpotqa", {"dataset": {}})
    assert finder.label(known.id, known.question) == known
    assert finder.label(known.id, "Who made it?") is None


@pytest.mark.parametrize(
    "finder", [CauseFinder({"q": LABELS}), CauseFinder(titles={"q": ("Otto Fenn",)}), CauseFinder()]
)
@pytest.mark.parametrize("last", [None, (), (OTHER,), (OTTO,)])
@pytest.mark.parametrize("middle", [None, (), (OTHER,), (OTTO,)])
@pytest.mark.parametrize("first", [None, (), (FILM,), (OTTO,)])
def test_no_cause_contradicts_the_count_of_retrievals(
    finder: CauseFinder, first: Passages, middle: Passages, last: Passages
) -> None:
    trace = episode((RIGHT, first), (WRONG, middle), (" It is so.", last), answer="Maud Sorrel")
    kind = judged(trace, finder).kind
    assert (kind == "never retrieved") == (trace.retrievals_count == 0)
    assert kind in CAUSES


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


@pytest.mark.parametrize(
    "finder", [CauseFinder({"q": LABELS}), CauseFinder(titles={"q": ("Otto Fenn",)}), CauseFinder()]
)
def test_an_attributed_trace_says_whether_what_was_needed_was_used(finder: CauseFinder) -> None:
    says = []
    for passage in (0, 1, 2):
        trace = episode((RIGHT, (FILM,)), (WRONG, (OTTO, OTHER)), answer="Maud Sorrel")
        assert "used" not in judged(trace, finder).why
        why = judged(attributed(trace, passage), finder).why
        says.append(why.rpartition(", ")[2])
    assert says == ["not used", "used", "not used"]
