"""A question has one trace: streamed, asked, in a batch, cached, saved and loaded, or replayed at
the same settings.

Two traces are one where ``Trace.diff`` finds nothing: it leaves out how long things took and what a
cache served.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given import METHODS, Case, cases, some
from hypothesis import given
from hypothesis import strategies as st

import dragin_lab as dl
from dragin_lab.trace.file import save_trace

#: Examples a method, of some seconds each.
FEW = some(2)
each = pytest.mark.parametrize(("name", "variant"), METHODS)


def streamed(lab: dl.Lab, question: dl.Question, method: dl.Method) -> dl.Trace:
    events = list(lab.stream(question, method))
    tokens = "".join(event.text for event in events if hasattr(event, "logprob"))
    trace = events[-1].trace
    assert tokens == "".join(one.text + one.cut for one in trace.continuations)
    return trace


def side_by_side(lab: dl.Lab, questions: list[dl.Question], method: dl.Method) -> list[dl.Trace]:
    traces = {trace.question.id: trace for trace in lab.ask_many(questions, method, batch_size=2)}
    for trace in traces.values():
        trace.provenance.pop("batch", None)
    return [traces[question.id] for question in questions]


def saved(trace: dl.Trace, slim: bool = False) -> dl.Trace:
    with tempfile.TemporaryDirectory() as folder:
        return dl.Trace.load(save_trace(trace, Path(folder) / "one.trace", slim=slim))


def check_replay(trace: dl.Trace, **known: Any) -> None:
    """At its own settings a trace decides as it did, to rounding, and asks for the same."""
    outcome = dl.Replay(trace, **known).at()
    assert (outcome.whole, outcome.why) == (True, "")
    assert [turn.change for turn in outcome.turns] == [""] * len(trace.steps)
    assert outcome.retrievals == trace.counters["retrievals"]
    for turn, step in zip(outcome.turns, trace.steps, strict=True):
        assert (turn.decision is None) == (step.decision is None)
        if turn.decision is not None:
            told, made = turn.decision, step.decision
            assert (told.retrieve, told.token, told.sentence) == (
                made.retrieve,
                made.token,
                made.sentence,
            )
            np.testing.assert_allclose(told.peaks, made.peaks, rtol=1e-5, atol=1e-6)
        assert np.array_equal(turn.words.hit, step.words.hit)
        np.testing.assert_allclose(turn.words.score, step.words.score, rtol=1e-5, atol=1e-6)
        assert (turn.query and (turn.query.text, turn.query.sent)) == (
            step.query and (step.query.text, step.query.sent)
        )


@each
@FEW
@given(draw=st.data())
def test_a_question_has_one_trace(name: str, variant: str, draw: st.DataObject) -> None:
    case: Case = draw.draw(cases(name, variant))
    lab, caching = case.lab, case.lab.replace(cache=True)
    together = side_by_side(lab, case.questions, case.method)
    for question, beside in zip(case.questions, together, strict=True):
        asked = lab.ask(question, case.method)
        assert asked.diff(streamed(lab, question, case.method)) == ""
        assert asked.diff(beside) == ""
        for again in (caching.ask(question, case.method), caching.ask(question, case.method)):
            assert asked.diff(again) == ""
        assert again.stored["drafts"] == again.counters["drafts"]
        loaded = saved(asked)
        assert asked.diff(loaded) == ""
        assert loaded.seconds == asked.seconds
        check_replay(loaded, nlp=case.nlp)
        check_replay(asked, nlp=case.nlp, tokenizer=lab.model.tokenizer)
        check_replay(saved(asked, slim=True), nlp=case.nlp)
