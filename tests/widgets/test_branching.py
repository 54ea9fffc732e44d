"""The explorer of branches: what it sends, what its controls ask for, and what it says where that fails."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted import QUESTION, Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.catalog.methods import method
from dragin_lab.errors import SettingError
from dragin_lab.run.lab import Lab
from dragin_lab.widgets.branching import ExploreBranches
from dragin_lab.widgets.explorer import explorer_data

pytest.importorskip("anywidget")

LOUD = Say(" It is by Bo Ek, a man", entropy={"Bo": 9.0}, received={"Bo": 0.5})
LAST = Say(" Li. So the answer is Li.\nThen he")
OTHER = Say(" Ek. So the answer is Al Ek.")


def explore(*script: Say | BaseException) -> ExploreBranches:
    """The widget on a scripted answer, whose model says ``script`` to what is asked after it."""
    lab = Lab(ScriptedModel([LOUD, LAST]), retriever=ScriptedRetriever())
    trace = lab.ask(QUESTION, method("dragin", what="question"), gold="Li")
    for step in trace.steps:
        assert step.draft is not None
        step.draft.alternative_ids[:, 1] = lab.model.tokenizer.encode(" Al", special=False)[0]
    lab.model.script[:] = script
    widget = dl.explore(trace, lab)
    assert isinstance(widget, ExploreBranches)
    return widget


def press(widget: ExploreBranches, number: int, **change: Any) -> dict[str, Any]:
    """What the widget's state says after a control was used."""
    widget._heard(None, {"kind": "branch", "trace": number, "change": change}, None)
    widget.wait(20)
    state: dict[str, Any] = widget.state
    return state


def test_without_a_lab_a_trace_is_shown_as_ever_and_a_tree_is_walked() -> None:
    widget = explore(OTHER)
    press(widget, 0, step=2, source="draft", token=1, rank=1)
    assert not isinstance(dl.explore(widget.tree[0]), ExploreBranches)
    walked = dl.explore(widget.tree, branch=1, step=1)
    assert isinstance(walked, ExploreBranches)
    assert (walked.state["shown"], walked.data["live"]) == (1, False)
    assert walked.nodes[1]["at"] == {"step": 1, "text": "draft"}
    walked._heard(None, {"kind": "branch", "trace": 0, "change": {"step": 1, "query": "a"}}, None)
    assert "without a lab nothing new can be written; give one: dl.explore(trace, lab=lab)" in walked.state["error"]
    with pytest.raises(SettingError, match="branch=2: the tree has traces 0 to 1; give one of them"):
        dl.explore(widget.tree, branch=2)


def test_an_alternative_a_query_passages_and_a_decision_make_branches() -> None:
    widget = explore(OTHER, LAST, LAST, Say(" a man. So the answer is Bo Ek."))
    assert press(widget, 0, step=2, source="draft", token=1, rank=1) == {
        "busy": False, "status": "", "error": "", "shown": 1
    }  # fmt: skip
    assert press(widget, 0, step=1, query="another")["shown"] == 2
    assert press(widget, 0, step=1, keep=["1"], add="It was Al.")["shown"] == 3
    assert press(widget, 0, step=1, retrieve=False)["shown"] == 4
    assert [trace.answer for trace in widget.tree] == ["Li", "Al Ek", "Li", "Li", "Bo Ek"]
    assert [passage.text for passage in widget.tree[3].steps[0].passages] == ["Second passage.", "It was Al."]
    nodes = [node["node"] for node in widget.nodes]
    assert [node["level"] for node in nodes] == [1, 2, 2, 2, 2]
    assert nodes[1]["place"] == "step 2, token 1: token 'Li' → 'Al'"
    assert ("right" in nodes[0]["verdict"], "wrong" in nodes[1]["verdict"]) == (True, True)
    assert (nodes[0]["beside"], "branch" in nodes[1]["beside"]) == ("", True)
    json.dumps(widget._recorded(), allow_nan=False)


def test_the_parting_is_marked_and_a_branch_opens_there() -> None:
    widget = explore(OTHER)
    press(widget, 0, step=2, source="draft", token=1, rank=1)
    node = widget.nodes[1]
    marked = [(t["name"], t["step"], c["n"]) for t in node["texts"] for c in t["cells"] if "parted" in c["x"]]
    assert marked == [("draft", 2, 1)]
    assert node["at"] == {"step": 2, "text": "draft", "token": 1}
    plain = explorer_data(widget.tree[1])
    assert {key: value for key, value in node.items() if key not in ("node", "steps", "at", "texts")} == {
        key: value for key, value in plain.items() if key != "texts"
    }


def test_what_can_be_changed_is_sent_with_each_step() -> None:
    first, second = explore().nodes[0]["steps"]
    assert (first["query"], first["retrieve"], second["query"], second["retrieve"]) == (QUESTION, True, None, False)
    assert first["passages"][0] == ["0", "title", "First passage."]


def test_a_failure_is_said_and_what_was_there_stays() -> None:
    widget = explore(ValueError("out of words"), OTHER)
    state = press(widget, 0, step=2, source="draft", token=1, rank=1)
    assert (state["busy"], state["shown"], len(widget.tree)) == (False, 0, 1)
    assert "out of words" in state["error"]
    assert "steps 1 to 2" in press(widget, 0, step=10, query="a")["error"]
    assert press(widget, 0, step=2, source="draft", token=1, rank=1)["error"] == ""
    assert len(widget.tree) == 2


def test_the_same_branch_is_there_once() -> None:
    widget = explore(OTHER, LAST, OTHER)
    press(widget, 0, step=2, source="draft", token=1, rank=1)
    press(widget, 0, step=1, query="another")
    assert press(widget, 0, step=2, source="draft", token=1, rank=1)["shown"] == 1
    assert len(widget.tree) == len(widget.nodes) == 3


def test_the_static_view_compares_all_of_them() -> None:
    widget = explore(OTHER)
    assert widget.static().title.endswith("RIND heatmap")
    press(widget, 0, step=2, source="draft", token=1, rank=1)
    assert "step 2, token 1: token 'Li' → 'Al'" in widget.static().text
