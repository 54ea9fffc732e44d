"""Triggers that judge a sentence by its probability, and words by their entropy, on the embedded model."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import dragin_lab as dl
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.data.datasets import demo_questions
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Trace

#: Each with a θ at which it fires within four questions, and one that no score is above.
TRIED = {"max-probability": (2.0, 999.0), "entropy": (3.0, 99.0), "margin": (0.9, 1.0)}
QUESTIONS = demo_questions()[:4]


@cache
def lab() -> dl.Lab:
    return dl.Lab(LanguageModel.load(), retriever=dl.BM25(dl.Corpus.load()), cache=True)


def make_method(when: str, theta: float) -> dl.Method:
    return dl.method(when=when, what="question", threshold=theta)


@cache
def answer(when: str) -> list[Trace]:
    return [lab().ask(question, make_method(when, TRIED[when][0])) for question in QUESTIONS]


@pytest.mark.parametrize("when", TRIED)
def test_it_decides_when_to_retrieve(when: str) -> None:
    traces = answer(when)
    assert {trace.ended for trace in traces} <= {"answered", "length"}
    steps = [step for trace in traces for step in trace.steps if step.decision is not None and len(step.words)]
    fired = [step.decision for step in steps if step.decision is not None and step.decision.retrieve]
    assert 0 < len(fired) < len(steps)
    assert sum(trace.retrievals_count for trace in traces) == len(fired)
    assert all(np.isfinite(step.words.score).all() for step in steps)
    theta = make_method(when, TRIED[when][0]).threshold
    assert all(f"above θ {theta:g}" in decision.reason for decision in fired)
    silent = lab().ask(QUESTIONS[0], make_method(when, TRIED[when][1]))
    assert silent.retrievals_count == 0
    assert TRIGGERS.make(when).source
