"""Calibrated need: scores as probabilities, thresholds by probability, and how far the probabilities are off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.catalog.budget import Budget, Calibration
from dragin_lab.catalog.methods import restore_method
from dragin_lab.catalog.need import LEAST, POINTS, Need
from dragin_lab.errors import SettingError
from dragin_lab.study.budgets import calibrate, transfer
from dragin_lab.study.reliability import bin_probabilities, measure_reliability
from dragin_lab.study.truth import label_units

MARK = "The film Ma was directed by Li."


def labelled(number: int, *, missing: bool) -> Labelled:
    label = ("unknown", "never") if missing else ("known", "often")
    fact = Fact("f", "Ma", "director", "Li", 28, 30, *label, None, "p")
    return Labelled(str(number), "b", "dev", "t", f"Who directed Ma {number}?", label[0], MARK, "Li", (fact,))


def entropy_at(number: int) -> float:
    return 0.5 + 0.1 * number


def lab_and_labels(n: int = 40) -> tuple[dl.Lab, list[Labelled]]:
    """Every second fact is missing up to the middle and all are above it; entropy rises from question to question."""
    labels = [labelled(i, missing=i >= n / 2 or i % 4 == 3) for i in range(n)]
    said = [Say(f" {MARK} So the answer is Li. He", entropy={"Li": entropy_at(i)}) for i in range(n)]
    return dl.Lab(ScriptedModel(said), retriever=ScriptedRetriever()), labels


def calibrated_scores(**settings: Any) -> Calibration:
    lab, labels = lab_and_labels()
    return dl.calibration(lab, [one.question for one in labels], dl.method(when="entropy"), labels=labels, **settings)


def test_isotonic_pools_what_falls_and_is_linear_between() -> None:
    scores = np.repeat([1.0, 2.0, 3.0, 4.0], 10)
    missing = np.concatenate([np.arange(10) < k for k in (1, 4, 2, 9)])
    need = Need.fit(scores, missing)
    assert need.estimate([0, 1, 2, 3, 4, 9]) == pytest.approx([0.1, 0.1, 0.3, 0.3, 0.9, 0.9])
    assert need.score_at(0.6) == pytest.approx(3.5)
    assert need.score_at(0.3) == pytest.approx(2.0), "the lowest score of a level"


def test_platt_is_the_logistic_curve_of_smoothed_labels() -> None:
    rng = np.random.default_rng(0)
    scores = rng.uniform(-4, 4, 4000)
    missing = rng.random(4000) < 1 / (1 + np.exp(-(1.5 * scores - 1)))
    need = Need.fit(scores, missing, "platt")
    assert len(need.scores) == POINTS
    assert need.score_at(0.5) == pytest.approx(2 / 3, abs=0.15)
    assert need.estimate([2.0])[0] == pytest.approx(1 / (1 + np.exp(-2)), abs=0.04)
    divided = Need.fit(np.arange(-10.0, 10), np.arange(-10, 10) >= 0, "platt")
    assert 0.01 < divided.probabilities[0] < 0.1, "labels that a score divides have a finite slope"


def test_what_cannot_be_fitted_or_reached_is_refused() -> None:
    rising = np.arange(40.0)
    with pytest.raises(SettingError, match=r"10 of 19 labelled scores are of missing facts; .* 20 or more, of both"):
        Need.fit(rising[:19], np.arange(19) < 10)
    with pytest.raises(SettingError, match="40 of 40"):
        Need.fit(rising, rising >= 0)
    for regression in ("isotonic", "platt"):
        with pytest.raises(SettingError, match="the scores do not rise with what is missing"):
            Need.fit(-rising, rising >= 20, regression)
    with pytest.raises(SettingError, match="regression"):
        Need.fit(rising, rising >= 20, "linear")
    need = Need("isotonic", (-1.0, 3.0), (0.25, 0.75))
    for p in (0.2, 0.8):
        message = rf"p:{p} is not reached: the probability runs from 0\.25, at a score of -1, to 0\.75, at 3; ask"
        with pytest.raises(SettingError, match=message):
            need.score_at(p)


@pytest.mark.parametrize("regression", ["isotonic", "platt"])
def test_a_probability_becomes_a_threshold_that_is_recorded(regression: str) -> None:
    scores = calibrated_scores(regression=regression)
    method = dl.method(when="entropy", threshold="p:0.5", calibration=scores)
    need = method.calibrated.need
    assert need.estimate([method.threshold])[0] == pytest.approx(0.5)
    known, *_ = scores.labelled()
    assert method.calibrated.reached == (known > method.threshold).mean()
    record = json.loads(json.dumps(method.settings))
    assert (record["calibrated"]["budget"], record["calibrated"]["need"]["regression"]) == ("p:0.5", regression)
    assert restore_method(record).calibrated == method.calibrated
    assert "need" not in dl.method(when="entropy", threshold="budget:0.5", calibration=scores).settings["calibrated"]
    with pytest.raises(SettingError, match=r"p:0\.5 is a probability and no budget; study\.reliability says"):
        transfer(method, [])


def test_a_trace_records_the_probabilities(tmp_path: Path) -> None:
    method = dl.method(when="entropy", what="question", threshold="p:0.5", calibration=calibrated_scores())
    lab = dl.Lab(ScriptedModel([Say(f" {MARK} So the answer is Li. He")]), retriever=ScriptedRetriever())
    lab.ask("Who directed Ma 1?", method).save(tmp_path / "a.trace")
    assert restore_method(dl.Trace.load(tmp_path / "a.trace").method).calibrated == method.calibrated


def test_labels_are_needed_and_asked_for_before_any_question() -> None:
    lab, labels = lab_and_labels(LEAST)
    questions = [one.question for one in labels]
    with pytest.raises(
        SettingError, match=r"threshold='p:0.5' is fitted on labelled drafts; give labels=almanac\.labels"
    ):
        calibrate(lab, questions, dl.method(when="entropy"), "p:0.5")
    with pytest.raises(SettingError, match="regression"):
        dl.calibration(lab, questions, dl.method(when="entropy"), labels=labels, regression="cubic")
    assert len(lab.model.script) == LEAST
    plain = dl.calibration(lab, questions, dl.method(when="entropy"))
    with pytest.raises(SettingError, match=r"fitted on labelled drafts; give calibration=dl\.calibration\(lab, ques"):
        dl.method(when="entropy", threshold="p:0.5", calibration=plain)
    assert str(Budget.read("p:0.5")) == "p:0.5"


def test_sentences_are_labelled_up_to_the_last_value_that_could_be_read() -> None:
    lab, labels = lab_and_labels(4)
    method = dl.method(when="entropy@1e9")
    traces = [lab.ask(one.question, method) for one in labels]
    units = [label_units(trace, one)[0].tolist() for trace, one in zip(traces, labels, strict=True)]
    assert [unit[0] for unit in units] == [float(one.facts[0].missing) for one in labels]
    assert all(np.isnan(unit[1:]).all() and len(unit) > 1 for unit in units)
    assert np.isnan(label_units(traces[0], None)[0]).all()


# -- reliability ------------------------------------------------------------------------------------------------------


def test_the_calibration_error_by_hand() -> None:
    p = [0.1, 0.1, 0.1, 0.1, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]
    missing = [0, 0, 1, 0, 1, 1, 1, 0, 0, 0]
    for bins in ("equal-count", "equal-width"):
        result = bin_probabilities(p, missing, range(10), bins=bins, number=2, samples=200)
        assert result.ece == pytest.approx(0.4 * 0.15 + 0.6 * 0.3)
        assert result.table["n"].tolist() == [4, 6]
        assert result.table["missing"].tolist() == pytest.approx([0.25, 0.5])
        assert 0 <= result.low < result.high <= 1
    assert bin_probabilities([0.5, 0.5], [0, 1], [0, 1]).ece == 0
    with pytest.raises(SettingError, match="1 probabilities do not go with 1 labels"):
        bin_probabilities([1.5], [1], [0])
    with pytest.raises(SettingError, match="bins"):
        bin_probabilities(p, missing, range(10), bins="equal")


def test_questions_are_resampled_whole() -> None:
    p, missing = np.full(40, 0.5), np.arange(40) % 2 == 0
    pairs = bin_probabilities(p, missing, np.arange(40) // 2)
    assert np.isnan(pairs.low), "each question holds one of both kinds, so every draw has an ECE of 0"
    assert bin_probabilities(p, missing, range(40)).high > 0


def test_probabilities_are_held_against_labels_of_other_questions() -> None:
    scores = calibrated_scores()
    need = dl.method(when="entropy", threshold="p:0.5", calibration=scores).calibrated.need
    result = measure_reliability(need, scores, samples=50)
    assert result.ece == pytest.approx(0, abs=0.15)
    assert (result.n, result.questions) == (40, 40)
    assert measure_reliability(Need("platt", (0.0, 9.0), (0.9, 1.0)), scores, samples=50).ece > result.ece
    lab, labels = lab_and_labels(4)
    unknown = dl.calibration(lab, ["Who?"], dl.method(when="entropy"), labels=labels)
    with pytest.raises(SettingError, match="no score has a label"):
        measure_reliability(need, unknown)
