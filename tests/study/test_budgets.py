"""Thresholds by budget: θ at which a method retrieves so often a question."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from answering import embedded
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.core.budget import shortest_between
from dragin_lab.errors import SettingError
from dragin_lab.results.headroom import best_of, nearest_cost

LOUD: dict[str, Any] = {"entropy": {"Bo": 9.0, "far": 4.0}, "doubt": {"Bo": 0.9, "far": 0.5}}
TEXT = " It was far. It is by Bo. So the answer is Li.\nHe"


@pytest.mark.parametrize(
    ("start", "stop", "theta"),
    [(0.3, 0.8, 0.6), (0.5, 0.54, 0.52), (2.0, np.inf, 2.05), (0.0, 0.1, 0.05), (-3.0, -1.0, -2.0)],
)
def test_the_number_of_fewest_digits_between(start: float, stop: float, theta: float) -> None:
    assert shortest_between(start, stop) == pytest.approx(theta)
    assert start < shortest_between(start, stop) < stop


def test_the_nearest_cost_and_of_equals_the_highest_theta() -> None:
    assert [nearest_cost(np.array([2.0, 1.0, 1.0, 0.0]), wanted) for wanted in (1.6, 1.2, 0)] == [
        0,
        2,
        3,
    ]


def test_the_best_of_equals_is_the_cheapest_and_then_the_highest_theta() -> None:
    assert best_of(np.array([1.0, 1.0, 1.0, 0.0]), np.array([2.0, 1.0, 1.0, 0.0])) == 2


def test_what_cannot_be_reached_says_what_can() -> None:
    def lab() -> dl.Lab:
        said = [Say(TEXT, **LOUD), Say(" So the answer is Li.\nHe")] * 40
        return dl.Lab(ScriptedModel(said), retriever=ScriptedRetriever())

    how: dict[str, Any] = {"when": "entropy", "what": "question"}
    with pytest.raises(
        SettingError, match=r"9 retrievals .* on these 1 .*at threshold=.* a lower lowest="
    ):
        lab().budget(["Who?"], 9, **how)
    with pytest.raises(SettingError, match="retrievals=-1 is out of range"):
        lab().budget(["Who?"], -1, **how)
    silent = dl.Lab(ScriptedModel([]), retriever=ScriptedRetriever())
    with pytest.raises(SettingError, match="no threshold can be found; 1 of 1 answers failed: "):
        silent.budget(["Who?"], 1)
    with pytest.raises(SettingError, match=r"method 'fl-rag' has no threshold on what is written"):
        lab().budget(["Who?"], 1, "fl-rag")


def test_a_budget_is_what_these_questions_cost_and_says_what_others_do() -> None:
    lab, asked = embedded().replace(cache=True), almanac.questions("2wikimultihopqa")
    few, others = list(asked[:3]), list(asked[3:5])
    how: dict[str, Any] = {"top_n": 5, "max_new_tokens": 24}
    theta = lab.budget(few, 1, held_out=others, **how)
    for row, questions in zip(theta.table.itertuples(), (few, others), strict=True):
        asked_again = lab.ask_many(questions, threshold=float(theta), **how)
        costs = [trace.retrievals_count for trace in asked_again]
        assert row.retrievals == pytest.approx(np.mean(costs))
    assert (theta.reached, theta.questions) == (theta.table["retrievals"].iloc[0], 3)
    assert pickle.loads(pickle.dumps(theta)).reached == theta.reached
    assert dl.method(threshold=theta).settings["threshold"] == float(theta)


def test_one_theta_for_all_and_the_best_for_each() -> None:
    lab, asked = embedded().replace(cache=True), almanac.questions("hotpotqa")[:4]
    curve = lab.curve(list(asked), top_n=5, progress=False)
    headroom, every = curve.headroom, curve.values("em")  # (q, t)
    one, each = headroom.table["em"]
    assert (one, each) == (every.mean(axis=0).max(), every.max(axis=1).mean())
    assert curve.at(headroom.theta).outcomes["em"].mean() == one
    for row in headroom.questions.itertuples():
        here = curve.piece(row.question, headroom.theta).line
        there = curve.piece(row.question, row.θ).line
        better = (there["em"], -there["retrievals"]) > (here["em"], -here["retrievals"])
        assert better
    assert "at most this" in headroom._repr_html_()


def test_flare_searches_once_whatever_is_asked_for() -> None:
    def lab() -> dl.Lab:
        said = [Say(" It was far."), Say(" So the answer is Li.\nHe")]
        return dl.Lab(ScriptedModel(said), retriever=ScriptedRetriever())

    assert lab().budget(["Who?"], 1, "flare").reached == 1
    with pytest.raises(SettingError, match="nearest is 1, at threshold"):
        lab().budget(["Who?"], 0, "flare")
