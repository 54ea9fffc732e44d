"""Estimators of uncertainty as triggers, on the embedded model; tests/parity holds their scores to lm-polygraph's."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import dragin_lab as dl
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.data.datasets import demo_questions
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Trace

#: Each with a θ at which it fires within four questions, and one that no score is above.
TRIED = {
    "renyi": (6.0, 99.0),
    "renyi-2": (1.5, 99.0),
    "fisher-rao": (0.37, 1.0),
    "self-certainty": (-8.0, 0.0),
    "max-probability": (2.0, 999.0),
    "perplexity": (0.2, 99.0),
    "attention-score": (50.0, 9999.0),
    "rauq": (2.6, 99.0),
    "rauq(attends_to='previous')": (2.6, 99.0),
}
QUESTIONS = demo_questions()[:4]


@cache
def lab() -> dl.Lab:
    return dl.Lab(dl.LanguageModel.load(), retriever=dl.BM25(dl.Corpus.load()), cache=True)


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


@pytest.mark.parametrize("when", TRIED)
def test_a_batch_decides_as_one_question_alone(when: str) -> None:
    side_by_side = dl.Lab(lab().model, retriever=dl.BM25(dl.Corpus.load()))
    method = make_method(when, TRIED[when][0])
    place = {question.id: i for i, question in enumerate(QUESTIONS)}
    for trace in side_by_side.ask_many(QUESTIONS, method, batch_size=4):
        alone = answer(when)[place[trace.question.id]]
        assert (trace.text, trace.queries) == (alone.text, alone.queries)


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_a_weight_that_is_no_share_is_refused(alpha: float) -> None:
    with pytest.raises(SettingError, match=rf"alpha={alpha} is out of range"):
        TRIGGERS.make("rauq", alpha=alpha)
