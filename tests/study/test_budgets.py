"""Thresholds by budget: θ at which a method retrieves so often a question."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from answering import embedded
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.core import budget
from dragin_lab.core.budget import find_threshold
from dragin_lab.errors import SettingError

LOUD: dict[str, Any] = {"entropy": {"Bo": 9.0, "far": 4.0}, "doubt": {"Bo": 0.9, "far": 0.5}}
TEXT = " It was far. It is by Bo. So the answer is Li.\nHe"
TWO = [[0.5, 3.0, 2.0], [1.0, 0.2]]  # the highest score of each sentence, by question


def find(
    monkeypatch: pytest.MonkeyPatch,
    retrievals: float,
    scores: Any,
    when: str = "entropy",
    **more: Any,
) -> Any:
    """θ from the scores of each question."""
    monkeypatch.setattr(budget, "peaks", lambda trace: [np.array(trace.peaks)])
    traces = [
        SimpleNamespace(ended="length", retrievals_count=0, peaks=one, **more) for one in scores
    ]
    return find_threshold(retrievals, traces, dl.method(when=when).trigger)


@pytest.mark.parametrize(
    ("scores", "retrievals", "theta", "reached"),
    [
        (TWO, 0.5, 2.5, 0.5),
        (TWO, 1, 1.5, 1.0),
        (TWO, 2.5, 0.0, 2.5),
        (TWO, 0, 3.1, 0.0),
        ([[2.0, 2.0], [2.0]], 1, 2.1, 0.0),  # equal scores are never divided
    ],
)
def test_a_threshold_by_hand(
    monkeypatch: pytest.MonkeyPatch, scores: Any, retrievals: float, theta: float, reached: float
) -> None:
    found = find(monkeypatch, retrievals, scores)
    assert (found, found.reached, found.questions) == (pytest.approx(theta), reached, 2)
    assert pickle.loads(pickle.dumps(found)).reached == reached
    assert dl.method(threshold=found).settings["threshold"] == float(found)


def test_of_scores_below_zero_all_can_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    dl.when("certainty", threshold=-1.0)(lambda draft: draft.logprob)
    found = find(monkeypatch, 1, [[-0.5], [-2.0]], when="certainty")
    assert (found < -2.0, found.reached) == (True, 1.0)


def test_what_cannot_be_reached_says_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        SettingError, match=r"3 retrievals a .* on these 2 .*nearest is 2\.5, at threshold=0$"
    ):
        find(monkeypatch, 3, TWO)
    with pytest.raises(SettingError, match="retrievals=-1 is out of range"):
        find(monkeypatch, -1, TWO)
    lab = dl.Lab(ScriptedModel([]), retriever=ScriptedRetriever())
    with pytest.raises(
        SettingError, match="no threshold can be found: 1 of 1 questions failed, the first with: "
    ):
        lab.budget(["Who?"], 1)
    with pytest.raises(SettingError, match=r"threshold=.* has no meaning for when='every-n'"):
        lab.budget(["Who?"], 1, "fl-rag")


@pytest.mark.parametrize(
    ("when", "variant"), [("entropy", "paper"), ("rind", "reference"), ("probability", "reference")]
)
def test_it_is_found_in_texts_that_are_written_without_retrieving(when: str, variant: str) -> None:
    retriever = ScriptedRetriever()
    lab = dl.Lab(ScriptedModel([Say(TEXT, **LOUD), Say(TEXT)]), retriever=retriever)
    found = lab.budget(["Who?", "What?"], 0.5, when=when, what="question", variant=variant)
    assert 0 < found < budget.NEVER
    assert (found.reached, found.questions, retriever.queries) == (0.5, 2, [])


def test_flare_searches_once_whatever_is_asked_for() -> None:
    def lab() -> dl.Lab:
        said = [Say(" It was far."), Say(" So the answer is Li.\nHe")]
        return dl.Lab(ScriptedModel(said), retriever=ScriptedRetriever())

    assert lab().budget(["Who?"], 1, "flare").reached == 1
    with pytest.raises(SettingError, match="nearest is 1, at threshold"):
        lab().budget(["Who?"], 0, "flare")


@pytest.mark.parametrize(("when", "retrievals"), [("rind", 0), ("probability", 0.5)])
def test_on_the_same_questions_zero_is_zero(when: str, retrievals: float) -> None:
    lab, questions = embedded(), almanac.questions("2wikimultihopqa")[:2]
    always = 1 if when == "probability" else 0  # FLARE's first search
    how: dict[str, Any] = {"when": when, "what": "question", "max_new_tokens": 24, "batch_size": 2}
    theta = lab.budget(questions, always + retrievals, **how)
    asked = lab.ask_many(questions, threshold=theta, **how)
    got = sum(trace.retrievals_count for trace in asked) / len(questions) - always
    assert got == 0 if retrievals == 0 else got > 0
