"""Branches by a model behind a server: what was there before gives the trace itself, id for id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import KINDS
from model_server import almanac

import dragin_lab as dl
from dragin_lab.almanac import questions
from dragin_lab.core.episode import Write
from dragin_lab.trace.kept import written
from dragin_lab.trace.trace import Prompt, Trace

QUESTION = questions("2wikimultihopqa", "test")[0]


def same(branch: Trace, trace: Trace) -> None:
    assert [c.ids.tolist() for c in branch.continuations] == [c.ids.tolist() for c in trace.continuations]
    assert [step.decision for step in branch.steps] == [step.decision for step in trace.steps]
    assert (branch.queries, branch.answer) == (trace.queries, trace.answer)


def branch_to_itself(lab: dl.Lab, trace: Trace) -> None:
    for step, source, text in list(written(trace.steps))[:2]:
        token = len(text) // 2
        change = {"step": step.index + 1, "source": source, "token": token + 1, "to": int(text.ids[token])}
        branch = lab.branch(trace, **change)  # type: ignore[arg-type]
        same(branch, trace)
    query = next(step for step in trace.steps if step.query is not None)
    assert query.query is not None
    same(lab.branch(trace, step=query.index + 1, query=query.query.text), trace)


@pytest.mark.parametrize("kind", KINDS)
def test_a_forced_beginning_has_the_numbers_of_the_model(asking: Callable[..., Any], kind: str) -> None:
    lm = asking(kind)[0].model
    prompt = Prompt("Question: Who directed The Silent Fukain?\nAnswer:")
    unlikely = tuple(almanac().tokenizer.encode("The river Zażółć", special=False))
    draft = Write(prompt, len(unlikely) + 3, prefix=unlikely)
    ours, theirs = lm.generate(draft), almanac().generate(draft)
    assert ours.ids[: len(unlikely)].tolist() == list(unlikely)
    assert (ours.ids.tolist(), ours.text) == (theirs.ids.tolist(), theirs.text)
    assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
    short = Write(prompt, 2, prefix=unlikely)
    assert lm.generate(short).ids.tolist() == list(unlikely[:2])
    batch = lm.batch(2)
    for key in ("short", "long"):
        batch.ask(key, short if key == "short" else draft)
    ended: dict[str, Any] = {}
    while len(batch):
        ended |= dict(batch.step())
    assert ended["long"].ids.tolist() == ours.ids.tolist()
    assert ended["short"].stopped == "length"


@pytest.mark.parametrize("kind", KINDS)
def test_branches_of_a_served_model(asking: Callable[..., Any], kind: str) -> None:
    lab, _ = asking(kind)
    trace = lab.ask(QUESTION, "flare")
    branch_to_itself(lab, trace)
    with pytest.raises(dl.DraginLabError, match="made otherwise than this lab asks"):
        dl.Lab(almanac()).branch(trace, step=2, token=1, to=5)
