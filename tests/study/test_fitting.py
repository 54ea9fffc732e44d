"""A fitted trigger: what it learns, what it refuses, its file, and that every part of the workbench knows it."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.core.budget import NEVER
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.data import datasets
from dragin_lab.errors import SettingError
from dragin_lab.study.fitting import LEAST, trigger
from dragin_lab.trace.trace import Question
from dragin_lab.triggers.logistic import DEFAULT
from dragin_lab.views import contributions

Traces = tuple[list[dl.Trace], list[Labelled]]
TEXT, ENDING = "The film Ma was directed by Bo Li.", " So the answer is Bo Li.\nHe"


def labelled(number: int, *, missing: bool) -> Labelled:
    """A question about a director who was taught, or never was."""
    label = ("unknown", "never") if missing else ("known", "often")
    fact = Fact("f", "Ma", "director", "Bo Li", 28, 33, *label, None, "p")
    question = f"Who directed film {number}?"
    return Labelled(str(number), "b", "dev", "t", question, label[0], TEXT, "Bo Li", (fact,))


@pytest.fixture(scope="module")
def traces() -> Traces:
    """Half of the texts state a value that the model could not know, and there it is in doubt."""
    labels = [labelled(i, missing=i % 2 == 1) for i in range(LEAST)]
    method = dl.method(when="entropy", what="question", threshold=NEVER)
    found = []
    for one in labels:
        loud: dict[str, Any] = {"entropy": {"Bo": 5.0}, "doubt": {"Bo": 0.9}} if one.facts[0].missing else {}
        model = ScriptedModel([Say(f" {TEXT}{ENDING}", **loud)])
        lab = dl.Lab(model, retriever=ScriptedRetriever())
        found.append(lab.ask(Question(one.qid, one.question), method))
    return found, labels


def test_it_fires_where_a_fact_is_missing_and_nowhere_else(tmp_path: Path, traces: Traces) -> None:
    path = tmp_path / "mine.json"
    made = dl.fit_trigger(*traces, name="mine", output=path)
    weights = {feature: weight for feature, weight, _, _ in made.terms}
    assert tuple(weights) == DEFAULT
    assert max(weights, key=weights.__getitem__) == "word doubt"
    record = json.loads(path.read_text())
    assert record["fitted_on"]["traces"] == LEAST
    assert record["fitted_on"]["missing"] == LEAST // 2 * 2  # two tokens of each missing value
    assert record["fitted_on"]["area"] > 0.5
    del TRIGGERS._parts["mine"]
    again = trigger(path)
    assert again.settings == made.settings
    said = [
        Say(f" {TEXT}{ENDING}", doubt={"Bo": 0.9}),
        Say(" Bo Li."),
        Say(" So the answer is Bo Li.\nHe"),
    ]
    lab = dl.Lab(ScriptedModel(said), retriever=ScriptedRetriever())
    trace = lab.ask("Who directed film 1?", when="mine", what="question")
    decision = trace.steps[0].decision
    assert decision.reason.startswith("'Bo'")
    assert "probability of a missing fact" in trace.heatmap().to_json()
    trace.save(tmp_path / "a.trace")
    figure = contributions(dl.Trace.load(tmp_path / "a.trace"))
    (heat,) = figure.data
    at = next(i for i, label in enumerate(figure.layout.yaxis.ticktext) if "◆ Bo" in label)
    assert any(name.startswith("word doubt") for name in heat.x)
    added = dict(zip((name.rsplit(" ", 1)[0] for name in heat.x), heat.z[at], strict=True))
    assert max(added, key=added.__getitem__) == "word doubt"
    assert heat.customdata[at][0].startswith("◆ Bo: score ")


def test_contributions_add_up_to_the_score(traces: Traces) -> None:
    found, labels = traces
    made = dl.fit_trigger(found, labels, use=[*DEFAULT, "entropy", "received", "position"])
    from dragin_lab.core.sentences import load_pipeline

    draft = found[1].steps[0].draft.read_by(load_pipeline())  # type: ignore[arg-type]
    odds = made.bias + made.contributions(draft).sum(axis=1)  # (n,)
    np.testing.assert_allclose(made.score(draft), 1 / (1 + np.exp(-odds)))


def test_what_cannot_be_fitted_is_refused_by_name(traces: Traces) -> None:
    found, labels = traces
    with pytest.raises(SettingError, match="19 traces are labelled; a trigger is fitted on 20 or more"):
        dl.fit_trigger(found[1:], labels)
    with pytest.raises(SettingError, match="0 traces are labelled"):
        dl.fit_trigger(found, [])
    known = [replace(one, facts=(replace(one.facts[0], label="known", exposure="often"),)) for one in labels]
    with pytest.raises(SettingError, match="labelled tokens are known; a trigger is fitted on tokens of both kinds"):
        dl.fit_trigger(found, known)
    with pytest.raises(SettingError, match="feature 'entropi' does not exist; one of word doubt, "):
        dl.fit_trigger(found, labels, use=["entropi"])
    with pytest.raises(SettingError, match=r"hidden states have widths \['None'\]; ask with a trigger that needs"):
        dl.fit_trigger(found, labels, use=["hidden"])
    with pytest.raises(SettingError, match=r"draft\.attention was not captured"):
        dl.fit_trigger(found, labels, use=["paid"])
    damaged = deepcopy(found)
    damaged[3].steps[0].draft.entropy[2] = np.nan  # type: ignore[union-attr]
    with pytest.raises(SettingError, match=r"feature 'entropy' is nan at token 2 \(.*Ma'\) of"):
        dl.fit_trigger(damaged, labels, use=["entropy"])
    with pytest.raises(SettingError, match="none of 20 traces states a labelled fact"):
        dl.fit_trigger(found, [replace(one, facts=(replace(one.facts[0], subject="Xo"),)) for one in labels])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a fitted trigger .*truncated.*; give a file that dl.fit_trigger wrote"),
        pytest.param("[" * 100_000, "is not a fitted trigger", id="nested"),
        ("[]", "Expected `object`, got `array`"),
        ('{"format": 2}', r"Invalid enum value 2 - at `\$\.format`"),
        ('{"format": 1, "name": "x", "bias": 0, "threshold": 0.5, "terms": [{"feature": "y", "weight": 1, "mean": 0, '
         '"scale": 1}]}', "feature 'y' does not exist; one of word doubt"),
        ('{"format": 1, "name": "x", "bias": 0, "threshold": 0.5, "terms": [{"feature": "entropy", "weight": 1, '
         '"mean": 0, "scale": 0}]}', r"Expected `float` > 0.0 - at `\$\.terms\[0\]\.scale`"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_trigger_says_what_is_wrong(text: str, message: str, tmp_path: Path, command: Any) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(SettingError, match=message):
        trigger(path)
    assert command("run", "--with", str(path), "--help").code == 2


def test_the_command_line_reads_it(tmp_path: Path, command: Any, traces: Traces) -> None:
    dl.fit_trigger(*traces, name="mine", output=tmp_path / "mine.json")
    del TRIGGERS._parts["mine"]
    assert command("run", "--with", str(tmp_path / "mine.json"), "--help").code == 0
    assert "mine" in TRIGGERS


@pytest.mark.slow
def test_hidden_states_and_attention_paid_can_be_used() -> None:
    @dl.when("watchful", threshold=NEVER, needs=("attention", "hidden"))
    def watchful(draft: dl.Draft) -> np.ndarray:
        return draft.entropy

    questions, labels = almanac.questions("hotpotqa", "dev")[:24], almanac.labels("hotpotqa", "dev")
    lab = dl.Lab(exemplars=datasets.template("almanac/hotpotqa"))
    found = list(lab.ask_many(questions, when="watchful", max_new_tokens=64))
    made = dl.fit_trigger(found, labels, name="deep", use=["entropy", "paid", "hidden"])
    assert made.needs == ("attention", "hidden")
    assert [term[0] for term in made.terms][:4] == ["entropy", "paid", "hidden 0", "hidden 1"]
    trace = lab.ask(questions[0], when=made, threshold=0.01, max_new_tokens=64)
    assert trace.retrievals_count > 0
