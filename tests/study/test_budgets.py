"""Thresholds by budget."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.catalog.methods import exchange_settings, restore_method
from dragin_lab.core.budget import NEVER, Calibration, peaks, read_budget, threshold_for
from dragin_lab.errors import SettingError
from dragin_lab.study.fitting import calibration

ANSWER = " Li. So the answer is Li.\nHe"
DRAFTS = [[np.array([0.5, 3.0])], [np.array([2.0]), np.array([1.0, 0.2])]]  # two questions, three drafts


@pytest.mark.parametrize(
    ("written", "theta", "reached"),
    [
        ("budget:0.5", 2.5, 0.5),
        ("budget:1", 1.5, 1.0),
        ("budget:2.5", 0.0, 2.5),
        ("budget:0", 3.0, 0.0),
        ("share:0.34", 2.5, 1 / 3),
        ("share:1", 0.0, 1.0),
    ],
)
def test_a_threshold_by_hand(written: str, theta: float, reached: float) -> None:
    assert threshold_for(written, DRAFTS) == (pytest.approx(theta), pytest.approx(reached))


def test_budgets_that_cannot_be_say_what_can() -> None:
    with pytest.raises(SettingError, match=r"budget:3 cannot be reached; the nearest is budget:2\.5, at θ 0"):
        threshold_for("budget:3", DRAFTS)
    for wrong in ("budget", "budget:-1", "share:1.5", "share:x", "p:0.5", "1.5"):
        with pytest.raises(SettingError, match=r"is not a budget; write budget:1\.5 .* or share:0\.3"):
            read_budget(wrong)
    with pytest.raises(SettingError, match="no calibration question was answered"):
        Calibration.of([])
    with pytest.raises(
        SettingError, match=r"'budget:1' is found on a calibration set; give calibration=traces of lab\.ask_many"
    ):
        dl.method(threshold="budget:1")
    with pytest.raises(SettingError, match=r"calibration has no meaning for threshold=1\.5"):
        dl.method(threshold=1.5, calibration=[])
    with pytest.raises(SettingError, match="has no threshold to calibrate"):
        calibration(dl.Lab(ScriptedModel([]), retriever=ScriptedRetriever()), ["Who?"], "fl-rag")


def test_equal_scores_are_never_divided() -> None:
    theta, reached = threshold_for("budget:1", [[np.array([2.0, 2.0])], [np.array([2.0])]])
    assert (theta, reached) == (2.0, 0.0)


@pytest.mark.parametrize(
    ("when", "variant"), [("entropy", "paper"), ("rind", "reference"), ("probability", "reference")]
)
def test_calibrated_on_stored_scores_and_held_against_other_questions(when: str, variant: str) -> None:
    loud: dict[str, Any] = {"entropy": {"Bo": 9.0, "far": 4.0}, "doubt": {"Bo": 0.9, "far": 0.5}}
    text = " It was far. It is by Bo. So the answer is Li.\nHe"
    lab = dl.Lab(ScriptedModel([Say(text, **loud), Say(text)]), retriever=ScriptedRetriever())
    settings: dict[str, Any] = {"when": when, "what": "question", "variant": variant}
    scores = calibration(lab, ["Who?", "What?"], "dragin", **settings)
    found = dl.method("dragin", threshold="budget:0.5", calibration=scores, **settings)
    assert found.threshold is not None
    assert 0 < found.threshold < NEVER
    record = json.loads(json.dumps(found.settings))["calibrated"]
    assert (record["budget"], record["reached"], record["questions"]) == ("budget:0.5", 0.5, 2)
    assert restore_method(json.loads(json.dumps(found.settings))).calibrated == found.calibrated
    assert exchange_settings(found, top_k=1).calibrated == found.calibrated
    assert exchange_settings(found, threshold=found.threshold / 2).calibrated is None
    quiet = dl.method(threshold=NEVER, **settings)
    trace = dl.Lab(ScriptedModel([Say(text)]), retriever=ScriptedRetriever()).ask("Who?", quiet)
    assert [len(part) > 1 for part in peaks(trace)] == [True]
    # The same from traces, and for a when in its written form.
    alone = dl.method(when=f"{when}@budget:1", what="question", variant=variant, calibration=[trace])
    assert (alone.calibrated["budget"], alone.calibrated["questions"]) == ("budget:1", 1)
    # And where the θ that is found is the one that the method has already.
    same = exchange_settings(found, threshold=alone.threshold)
    assert exchange_settings(same, threshold="budget:1", calibration=[trace]).calibrated == alone.calibrated


def test_scores_of_something_else_are_refused() -> None:
    def asked(**settings: Any) -> dl.Trace:
        model = ScriptedModel([Say(" It is by Bo. So the answer is Li.\nHe", entropy={"Bo": 9.0}), Say(ANSWER)])
        method = dl.method(when="entropy", what="question", variant="paper", **settings)
        return dl.Lab(model, retriever=ScriptedRetriever()).ask("Who?", method)

    def made(*traces: dl.Trace, when: str = "entropy") -> Any:
        return dl.method(when=when, what="question", variant="paper", threshold="share:0.5", calibration=traces)

    with pytest.raises(SettingError, match=r"'Who\?' holds 1 retrievals, and scores are counted in texts without any"):
        made(asked(threshold=2.0))
    with pytest.raises(SettingError, match="is of another method than the first one"):
        made(asked(threshold=NEVER), asked(threshold=NEVER, top_k=1))
    with pytest.raises(SettingError, match="scores are of when='entropy', the method has when='margin'; calibrate it"):
        made(asked(threshold=NEVER), when="margin")
