"""A branch to what was written, asked, found or decided is the trace itself."""

from __future__ import annotations

from typing import Any

from given import Case, any_method, some
from hypothesis import given
from hypothesis import strategies as st

import dragin_lab as dl
from dragin_lab.trace.kept import list_written


def unchanged(trace: dl.Trace, flips: bool) -> list[dict[str, Any]]:
    """Every change of a trace to what it has: tokens, queries, their passages, decisions."""
    changes: list[dict[str, Any]] = [
        {"step": step.index + 1, "source": source, "token": token + 1, "to": int(text.ids[token])}
        for step, source, text in list_written(trace.steps)
        for token in range(len(text))
    ]
    if trace.extraction is not None:
        changes.append({"source": "extraction", "token": 1, "to": int(trace.extraction.ids[0])})
    judged = [
        step
        for step in trace.steps
        if flips and step.draft is not None and step.decision is not None
    ]
    changes += [
        {"step": step.index + 1, "retrieve": True} for step in judged if step.decision.retrieve
    ]
    asked = [step for step in trace.steps if step.query is not None]
    changes += [
        {"step": step.index + 1, "query": step.query.text}
        for step in asked
        if step.query is not None
    ]
    return changes + [{"step": step.index + 1, "passages": step.passages} for step in asked]


@some(4)
@given(case=any_method(), draw=st.data())
def test_a_branch_to_what_was_is_the_trace(case: Case, draw: st.DataObject) -> None:
    trace = case.lab.ask(case.questions[0], case.method)
    flips = case.method.variant == "paper" and case.method.trigger.loop in (
        "look-ahead",
        "flare",
        "prefix",
    )
    changes = unchanged(trace, flips)
    for at in (
        draw.draw(st.sets(st.integers(0, len(changes) - 1), min_size=1, max_size=3))
        if changes
        else ()
    ):
        assert trace.diff(case.lab.branch(trace, nlp=case.nlp, **changes[at])) == "", changes[at]
