"""FLARE-instruct and self-ask on the embedded model: it asks, is given passages, and answers from them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import dragin_lab as dl
from dragin_lab.core.episode import Bias, Write
from dragin_lab.core.forms import CALL_OPENS
from dragin_lab.data.datasets import demo_questions
from dragin_lab.data.templates import default_template
from dragin_lab.trace.trace import Trace
from dragin_lab.views.trace import trace_html, trace_text


@cache
def parts() -> tuple[Any, Any]:
    return dl.LanguageModel.load(), dl.BM25(dl.Corpus.load())


@cache
def answered(name: str) -> list[Trace]:
    lm, retriever = parts()
    return list(dl.Lab(lm, retriever=retriever).ask_many(demo_questions()[:8], dl.method(name), batch_size=8))


@pytest.mark.parametrize("name", ["flare-instruct", "self-ask"])
def test_it_retrieves_and_answers(name: str) -> None:
    traces = answered(name)
    assert [trace.ended for trace in traces] == ["answered"] * len(traces)
    assert sum(trace.counters["retrievals"] for trace in traces) >= len(traces) // 2
    assert sum(trace.scores["em"] for trace in traces) >= 2
    used = 0
    for trace in traces:
        assert "[Search(" not in trace.text
        assert all(not any("other ids" in note for note in step.notes) for step in trace.steps)
        for before, after in zip(trace.steps, trace.steps[1:], strict=False):
            assert after.prompt is not None
            assert all(passage.text in after.prompt.part("passages") for passage in before.passages)
            assert after.prompt.part("answer") == before.answer
            found = " ".join(passage.text for passage in before.passages)
            used += any(word in found for word in after.kept.replace(".", " ").split() if word[0].isupper())
    assert used >= len(traces) // 4  # what is written next takes a name from the passages


def test_the_queries_are_what_the_model_wrote() -> None:
    for name, mark in (("flare-instruct", "[Search({})]"), ("self-ask", "Follow up: {}\n")):
        for trace in answered(name):
            for step in trace.steps:
                if step.query is not None and step.draft is not None:
                    assert mark.format(step.query.text) in step.draft.text
                    assert step.decision is not None
                    assert repr(step.query.text) in step.decision.reason


@pytest.mark.parametrize("name", ["flare-instruct", "self-ask"])
def test_views_and_files_tell_the_story(name: str, tmp_path: Any) -> None:
    trace = next(t for t in answered(name) if t.counters["retrievals"] > 1)
    query = trace.queries[0]
    for shown in (trace_text(trace, width=2000), trace_html(trace)):
        assert (
            "the model calls for a search of" if name == "flare-instruct" else "asks the follow-up question"
        ) in shown
    assert query in trace_text(trace, width=2000)
    assert ("on the logit of a call" in trace_text(trace, width=2000)) == (name == "flare-instruct")
    assert "<dt>before</dt>" not in trace_html(trace)  # a call taken out is no text that another replaced
    assert trace.diff(Trace.load(trace.save(tmp_path / "t.trace"))) == ""
    kept = trace.tokens[trace.tokens["kept"]]
    assert "".join("".join(kept["text"]).split()) == "".join(trace.text.split())
    assert trace.retrievals["query"].unique().tolist() == list(dict.fromkeys(trace.queries))


def test_a_forbidden_call_is_not_opened_and_a_bonus_opens_one() -> None:
    lm, _ = parts()
    method = dl.method("flare-instruct")
    step = next(s for t in answered("flare-instruct") for s in t.steps if s.query is not None)
    assert step.prompt is not None
    assert step.draft is not None
    at = step.draft.text.index(" [Search(")
    first = int(np.flatnonzero(step.draft.offsets[:, 0] >= at)[0])
    forbidden = lm.generate(Write(step.prompt, first + 6, bias=(Bias(CALL_OPENS, float("-inf")),)))
    assert forbidden.ids[:first].tolist() == step.draft.ids[:first].tolist()
    assert "[" not in forbidden.text
    opened = lm.generate(Write(default_template(lm, method).render("Who?"), 2, bias=(Bias(CALL_OPENS, 100.0),)))
    assert opened.text.startswith("[")
