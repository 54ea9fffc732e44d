"""The fan: each decision the other way, kept with the trace, and drawn again without a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from answering import embedded
from view_samples import baseline_trace

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.errors import SettingError
from dragin_lab.trace.records import OtherWay

QUESTION = almanac.questions("2wikimultihopqa")[0]
PAPER = {"variant": "paper", "threshold": 0.25, "top_n": 5}


def test_every_decision_has_its_other_branch_which_the_trace_keeps(tmp_path: Path) -> None:
    lab = embedded()
    trace = lab.ask(QUESTION, "dragin", **PAPER)
    assert "lab.fan(trace)" in trace.fan().layout.annotations[0].text
    figure = lab.fan(trace)
    ways = trace.other_ways
    decided = [step for step in trace.steps if step.decision is not None]
    assert [way.step for way in ways] == [step.index for step in decided]
    assert [way.retrieves for way in ways] == [not step.decision.retrieve for step in decided]
    first = ways[0]
    other = lab.branch(trace, step=first.step + 1, retrieve=first.retrieves)
    assert (first.text, first.answer) == (other.text, other.answer)
    assert (first.scores, first.tokens) == (other.scores, other.counters["generated"])
    kept = dl.Trace.load(trace.save(tmp_path / "one.trace"))
    assert kept.other_ways == ways
    assert kept.fan() == figure
    says = [one.text for one in figure.layout.annotations]
    assert sum("without it" in text for text in says) == sum(not way.retrieves for way in ways) > 0
    assert sum("had it asked" in text for text in says) == sum(way.retrieves for way in ways)


def test_a_retrieval_is_worth_what_its_absence_loses() -> None:
    trace = baseline_trace("sr-rag")
    trace.scores = {"em": 1.0, "f1": 1.0}
    way = OtherWay(0, False, "It is 5.", "5", {"em": 0.0, "f1": 0.25}, 3)
    price = trace.counters["generated"] - 3
    for retrieves, worth, cost in ((False, "+0.75", price), (True, "-0.75", -price)):
        trace.other_ways = (replace(way, retrieves=retrieves),)
        says = [one.text for one in trace.fan().layout.annotations]
        assert any(f"worth F1 {worth}, price {cost:+} tokens" in text for text in says)
    trace.scores = {}
    assert any(f"· {-price:+} tokens" in one.text for one in trace.fan().layout.annotations)


def test_in_the_reference_variant_a_retrieval_finds_nothing() -> None:
    lab = embedded()
    trace = lab.ask(QUESTION, "dragin", variant="reference", max_new_tokens=48)
    lab.fan(trace)
    searched = [step.index for step in trace.steps if step.query is not None]
    assert [way.step for way in trace.other_ways] == searched
    alone = lab.ask(QUESTION, "wo-rag", max_new_tokens=16)
    with pytest.raises(SettingError, match="decided nothing"):
        lab.fan(alone)
