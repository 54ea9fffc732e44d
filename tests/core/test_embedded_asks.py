"""FLARE-instruct and self-ask on the embedded model: it asks, is given passages, and answers from them."""

from __future__ import annotations

import numpy as np
import pytest

import dragin_lab as dl
from dragin_lab.core.answers import CALL_OPENS
from dragin_lab.core.episode import Bias, Write
from dragin_lab.data.datasets import demo_questions
from dragin_lab.data.exemplars import default_template
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Trace


@pytest.fixture(scope="module")
def lab() -> dl.Lab:
    return dl.Lab(LanguageModel.load(), retriever=dl.BM25(dl.Corpus.load()), cache=True)


def answer_demo(lab: dl.Lab, name: str) -> list[Trace]:
    return list(lab.ask_many(demo_questions()[:4], dl.method(name), batch_size=4))


@pytest.mark.parametrize("name", ["flare-instruct", "self-ask"])
def test_it_retrieves_and_answers_from_the_passages(lab: dl.Lab, name: str) -> None:
    traces = answer_demo(lab, name)
    assert [trace.ended for trace in traces] == ["answered"] * len(traces)
    assert sum(trace.counters["retrievals"] for trace in traces) >= len(traces)
    used = 0
    for trace in traces:
        assert "[Search(" not in trace.text
        for before, after in zip(trace.steps, trace.steps[1:], strict=False):
            passages = " ".join(passage.text for passage in before.passages)
            used += any(word in passages for word in after.kept.replace(".", " ").split() if word[0].isupper())
    assert used >= len(traces)  # what is written next takes a name from the passages


def test_a_forbidden_call_is_not_opened_and_a_bonus_opens_one(lab: dl.Lab) -> None:
    method, lm = dl.method("flare-instruct"), lab.model
    step = next(s for t in answer_demo(lab, "flare-instruct") for s in t.steps if s.query is not None)
    assert step.prompt is not None
    assert step.draft is not None
    at = step.draft.text.index(" [Search(")
    first = int(np.flatnonzero(step.draft.offsets[:, 0] >= at)[0])
    forbidden = lm.write(Write(step.prompt, first + 6, bias=(Bias(CALL_OPENS, float("-inf")),)))
    assert forbidden.ids[:first].tolist() == step.draft.ids[:first].tolist()
    assert "[" not in forbidden.text
    opened = lm.write(Write(default_template(lm, method).render("Who?"), 2, bias=(Bias(CALL_OPENS, 100.0),)))
    assert opened.text.startswith("[")
