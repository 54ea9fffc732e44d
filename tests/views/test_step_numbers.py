"""A step has one number in calls, tables and pictures, from 1; a token of its text has one too."""

from __future__ import annotations

import re

import pytest
from scripted import QUESTION, Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab import views
from dragin_lab.catalog.methods import method
from dragin_lab.run.lab import Lab
from dragin_lab.trace.trace import Trace
from dragin_lab.views.browsing import _trace_data
from dragin_lab.widgets.explorer import explorer_data

LOUD = {"entropy": {"Bo": 9.0}, "received": {"Bo": 0.5}}


@pytest.fixture
def asked() -> tuple[Lab, Trace]:
    model = ScriptedModel((Say(" He left. It is by Bo Ek, a man", **LOUD), Say(" Li. So the answer is Li.")))
    lab = Lab(model, retriever=ScriptedRetriever())
    return lab, lab.ask(QUESTION, method("dragin", what="question"), gold="Li")


def test_a_step_has_one_number_in_tables_and_pictures(asked: tuple[Lab, Trace]) -> None:
    _, trace = asked
    tokens = trace.tokens.dropna(subset="step")
    listed = [
        f"{step} {source}" for step, source in tokens[["step", "source"]].drop_duplicates().itertuples(index=False)
    ]
    assert listed == ["1 draft", "2 draft"]
    titles = [trace.heatmap(step).layout.title.text for step in (1, 2)]
    assert [title.split("step ")[1] for title in titles] == ["1, draft", "2, draft"]
    assert listed == [f"{text['step']} {text['name']}" for text in explorer_data(trace)["texts"]]
    assert [text["title"] for text in explorer_data(trace)["texts"]] == ["Step 1 · draft", "Step 2 · draft"]
    (retrieved,) = trace.retrievals["step"].unique()
    for picture in (views.trace_view(trace), views.side_by_side([trace])):
        assert re.search(rf"◆ ?{retrieved}\b", picture.text)
    assert f"Step {retrieved} asks" in trace.selections().layout.title.text
    assert [step["n"] for step in _trace_data(trace, {})["steps"]] == [retrieved]
    for number, step in enumerate(trace.steps, 1):
        assert "".join(tokens[tokens["step"] == number]["text"]) == step.draft.text  # type: ignore[union-attr]
        assert f'data-step="{number}"' in views.replayed(trace).html


def test_a_call_takes_the_number_of_the_tables_and_pictures(asked: tuple[Lab, Trace]) -> None:
    lab, trace = asked
    for number in trace.tokens["step"].dropna().unique():
        opened = dl.explore(trace, step=number, text="draft", token=1).data
        assert opened["at"] == {"step": number, "text": "draft", "token": 1}
    for number in trace.retrievals["step"].unique():
        lab.model.script[:] = [Say(" Li. So the answer is Li.")]
        branch = lab.branch(trace, step=number, query="another thing")
        assert str(branch.parting).startswith(f"step {number}: query")
        assert branch.steps[number - 1].query.text == "another thing"  # type: ignore[union-attr]


def test_a_row_of_sensitivity_is_a_branch_of_the_same_step_and_token(asked: tuple[Lab, Trace]) -> None:
    lab, trace = asked
    lab.model.script[:] = [Say(" Ek. So the answer is Al.")] * 2
    row = lab.sensitivity(trace, margin=1, limit=1, progress=False).table.iloc[0]
    assert trace.steps[row["step"] - 1].draft.pieces[row["token"] - 1].strip("▁Ġ ") == row["text"].strip()  # type: ignore[union-attr]
    branch = lab.branch(trace, step=row["step"], token=row["token"], to=" Al")
    assert str(branch.parting).startswith(f"step {row['step']}, token {row['token']}: token")


def test_the_sign_of_a_retrieval_has_the_number_of_its_step() -> None:
    """The first step of this episode keeps its draft, so its first retrieval is in step 2."""
    quiet, loud = Say(" It is far. He"), Say(" It is by Bo.", doubt={"Bo": 0.9})
    script = (quiet, loud, Say(" It is by Li. He"), Say(" So the answer is Li."))
    lab = Lab(ScriptedModel(script), retriever=ScriptedRetriever())
    trace = lab.ask(QUESTION, method("flare", what="question", threshold=0.5))
    numbers = trace.retrievals["step"].unique().tolist()
    assert numbers[-1] > 1
    assert [step["n"] for step in _trace_data(trace, {})["steps"]] == numbers
    assert [int(n) for n in re.findall(r"◆(\d+)", views.trace_view(trace).text)] == numbers
