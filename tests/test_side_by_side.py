"""Every method on the embedded model: side by side each question gets the text that it gets alone.

``benchmarks/batch.py`` makes the same comparison on as many questions as it is given.
"""

from __future__ import annotations

import functools

import pytest

from dragin_lab.almanac import demo_questions
from dragin_lab.corpus import Corpus
from dragin_lab.drivers import run_many
from dragin_lab.lm.load import LanguageModel
from dragin_lab.methods import METHODS, VARIANTS, method
from dragin_lab.parting import parting
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.trace import Trace

CLOSE = 1e-4  # nats between the two likeliest pieces where a batch may choose the other one


@functools.cache
def world() -> tuple[LanguageModel, BM25]:
    return LanguageModel.load(dtype="float32"), BM25(Corpus.load())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", METHODS)
def test_same_text_as_alone(name: str, variant: str) -> None:
    lm, retriever = world()
    questions = demo_questions()[:3]
    chosen = method(name, variant=variant, max_new_tokens=40)
    side = {t.question.id: t for t in run_many(chosen, lm, retriever, questions, batch_size=2)}
    for alone in run_many(chosen, lm, retriever, questions):
        other = side[alone.question.id]
        difference = parting(alone, other)
        if difference is not None:
            assert difference.gap is not None, difference.what
            assert difference.gap <= CLOSE, difference.what
            continue
        assert outcome(other) == outcome(alone)


def outcome(trace: Trace) -> tuple[object, ...]:
    found = [[p.id for p in step.passages] for step in trace.steps]
    return trace.ended, trace.text, trace.answer, trace.scores, trace.queries, found, len(trace.steps)
