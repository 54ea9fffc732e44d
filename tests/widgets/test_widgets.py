"""The controls without a browser: what they answer, what they keep, what they say when something goes wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from answering import DRAGIN as ANSWERED
from answering import answer
from scripted import QUESTION, Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.catalog.by_name import method
from dragin_lab.errors import SettingError
from dragin_lab.lab import Lab
from dragin_lab.study.whatif import Replay
from dragin_lab.trace.trace import Question, Trace

pytest.importorskip("ipywidgets")
sys.path.insert(0, str(Path(__file__).parents[1] / "views"))

import view_samples as states

DRAGIN = method("dragin", variant="paper", what="question", threshold=0.5)
SCRIPT = Say("Ada was born in Elm. So the answer is Elm.", entropy={"Elm": 3.0}, received={"Elm": 0.9})
AFTER = Say(" Elm. So the answer is Elm.")
LOUD = Say(" It is by Bo Ek, a man", entropy={"Bo": 9.0}, received={"Bo": 0.5})
LAST = Say(" Li. So the answer is Li.\nThen he")


def scripted(*script: Say | BaseException) -> Lab:
    return dl.Lab(ScriptedModel(list(script)), retriever=ScriptedRetriever())


def ran(found: Any = DRAGIN, question: str = "Where was Ada born?") -> Trace:
    return scripted(SCRIPT, *[AFTER] * 9).ask(question, found)


def explore(*script: Say | BaseException) -> Any:
    """The explorer of a scripted answer, whose model says ``script`` to what is asked after it."""
    lab = scripted(LOUD, LAST)
    trace = lab.ask(QUESTION, method("dragin", what="question"), gold="Li")
    for step in trace.steps:
        step.draft.alternative_ids[:, 1] = lab.model.tokenizer.encode(" Al", special=False)[0]
    lab.model.script[:] = script
    return dl.explore(trace, lab)


def press(control: Any, label: str) -> None:
    """Click the button with this label, and wait for the model."""

    def buttons(box: Any) -> Any:
        for one in getattr(box, "children", ()):
            yield from buttons(one)
        if getattr(box, "description", None) == label and hasattr(box, "click"):
            yield box

    (found,) = buttons(control)
    found.click()
    control.wait(20)


def outputs(control: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a notebook displays of a control."""
    import IPython.display

    displayed: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", lambda *shown, **_: displayed.extend(shown))
    control._ipython_display_()
    return displayed


# -- all --------------------------------------------------------------------------------------------------------------


def test_the_package_does_not_import_ipywidgets() -> None:
    code = "import sys, dragin_lab.views; print('ipywidgets' in sys.modules, 'plotly' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "False"]


def test_without_ipywidgets_an_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['ipywidgets'] = None; import importlib.util as u; old = u.find_spec\n"
    code += "u.find_spec = lambda name, *rest: None if name == 'ipywidgets' else old(name, *rest)\n"
    code += "import dragin_lab as dl; dl.explore"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "live controls need ipywidgets, which is not installed; run pip install 'dragin-lab[notebooks]'" in said


def test_a_still_picture_stands_first_so_that_it_remains_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = ran()
    for control in (dl.tune(trace), dl.explore(trace)):
        still, note, box = outputs(control, monkeypatch)
        assert still.to_plotly_json()["data"]
        assert "need a kernel" in note["text/plain"]
        assert control._name in note["text/html"]
        assert "application/vnd.jupyter.widget-view+json" in box
        assert control._name in control._dom_classes


# -- explore ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", states.STATES)
def test_explore_draws_a_trace_in_any_state(name: str) -> None:
    control = dl.explore(states.STATES[name])
    assert bool(control.about.value) == bool(control.texts.value and len(control.rows))
    assert "<script" not in control.about.value + control.step_page.value


def test_explore_says_all_that_is_known_of_the_chosen_token() -> None:
    control = explore()
    assert control.texts.value == (1, "draft")
    for said in ("Bo", "◆ HIT", "&gt; θ", "entropy 9.000", "likeliest"):
        assert said in control.about.value
    control.token.value = 1
    assert "◆ HIT" not in control.about.value
    assert [shape.x0 for shape in control.figure.layout.shapes if shape.name == "chosen"] == [0.5]
    control.figure.data[0]._dispatch_on_click(__import__("plotly").callbacks.Points([2], [3], [1.0], 0, "bars"), None)
    assert control.token.value == 3


def test_explore_begins_where_it_is_told_and_refuses_other_places() -> None:
    trace = explore().tree[0]
    control = dl.explore(trace, step=2, source="draft", token=2)
    assert (control.texts.value, control.token.value) == ((2, "draft"), 2)
    for place, says in (({"step": 9}, "step"), ({"source": "x"}, "source"), ({"token": 99}, "token")):
        with pytest.raises(SettingError, match=says):
            dl.explore(trace, **place)


def test_an_alternative_a_query_passages_and_a_decision_make_branches() -> None:
    other = Say(" Ek. So the answer is Al Ek.")
    control = explore(other, other, other, other)
    control.texts.value = (2, "draft")
    control.token.value = 1
    control.instead.value = control.lab.model.tokenizer.encode(" Al", special=False)[0]
    press(control, "write on with it")
    assert (len(control.tree), control.which.value) == (2, 1)
    assert "Al Ek" in control.trace.answer
    assert "step 2, token 1" in control.which.options[1][0]
    assert "before" in control.comparison.value
    for value, label, kind in (("a thing", "search for this", "query"), (None, "keep only these", "passages")):
        control.which.value = 0
        control.texts.value = (1, "draft")
        if value:
            control.query.value = value
        else:
            control.keep.value = []
        press(control, label)
        assert control.trace.parting.kind == kind, control.status.value
    control.which.value = 0
    press(control, "write on without")
    assert control.trace.parting.kind == "decision"
    assert len(control.tree) == 4 + 1


def test_a_mark_of_the_explorer_is_a_span_of_a_file(tmp_path: Path) -> None:
    trace = dl.Lab(cache=True).ask("Who directed The Silent Fukain?")
    control = dl.explore(trace, step=1, source="draft", token=2, marks=tmp_path / "mine.jsonl")
    control.last.value = 3
    control.mark("not supported")
    control.token.value = control.last.value = 1
    control.mark("supported")
    spans = dl.Spans.load(tmp_path / "mine.jsonl")
    ((one, marked),) = spans.texts.items()
    draft = trace.steps[0].draft
    (a, b), (c, d) = ((int(draft.offsets[i, 0]), int(draft.offsets[j, 1])) for i, j in ((1, 2), (0, 0)))
    lead = len(one.text) - len(draft.text)
    assert [(span.start - lead, span.end - lead, span.missing) for span in marked] == [(a, b, True), (c, d, False)]
    assert one.prompt == trace.steps[0].prompt.text
    assert "mine.jsonl has 2 spans" in control.status.value
    assert len(dl.Lab().judge(spans).frame) == 2


def test_a_busy_explorer_says_so_and_loses_nothing() -> None:
    control = explore(RuntimeError("the model broke"))
    control.query.value = "a thing"
    press(control, "search for this")
    assert "the model broke" in control.status.value
    assert len(control.tree) == 1
    control._worker = type("Alive", (), {"is_alive": lambda self: True})()
    with pytest.raises(SettingError, match="Nothing is lost"):
        control.branch(step=1, query="b")
    control._worker = None
    control.lab = None
    with pytest.raises(SettingError, match="without a lab nothing new can be written"):
        control.branch(step=1, query="b")


# -- tune -------------------------------------------------------------------------------------------------------------


def test_a_tuner_shows_what_its_controls_lead_to() -> None:
    control = dl.tune([ran(), ran()])
    assert control.outcome.whole
    diamonds = control.figure.data[3]
    assert len(diamonds.x) == 1
    control.controls["threshold"].value = control.controls["threshold"].max
    assert control.outcome.retrievals == 0
    assert not len(control.figure.data[3].x)
    assert "From here the stored text cannot say" in control.page.value
    assert control.figure.layout.shapes[0].y0 == control.controls["threshold"].value
    press(control, "all 2 traces")
    assert control.whole.value.count("<tr") == 3
    control.which.value = 1
    assert control.outcome.trace is control.replays[1].trace


def test_a_step_of_the_slider_replays_the_shown_trace_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    control = dl.tune([ran()] * 5)
    replayed: list[Any] = []
    at = Replay.at
    monkeypatch.setattr(Replay, "at", lambda self, **settings: replayed.append(self) or at(self, **settings))
    control.controls["threshold"].value = 0.7
    assert replayed == [control.replays[0]]


def test_the_model_answers_beside_the_replay_not_in_its_place() -> None:
    lab = scripted(SCRIPT, *[AFTER] * 9)
    trace = lab.ask("Where was Ada born?", DRAGIN)
    lab.model.script[:] = [Say("Ada was born in Oak. So the answer is Oak."), RuntimeError("the model broke")]
    control = lab.tune(trace)
    before = control.page.value
    press(control, "ask the model")
    assert [one.answer for one in control.ran] == ["Oak"]
    assert "Oak" in control.beside.value
    assert control.page.value == before
    press(control, "ask the model")
    assert "the model broke" in control.status.value
    assert "Oak" in control.beside.value


def test_a_tuner_of_what_cannot_be_tuned() -> None:
    other = method("dragin", what="question", threshold=0.5, variant="paper", when="entropy")
    for traces, says in (
        ([], "no trace to tune"),
        (scripted(SCRIPT).ask("Who?", "wo-rag"), "nothing to tune"),
        ([ran(), ran(other)], "several methods"),
    ):
        with pytest.raises(SettingError, match=says):
            dl.tune(traces)


# -- lab.explore ------------------------------------------------------------------------------------------------------


def test_an_answer_is_watched_and_kept() -> None:
    lab = scripted(SCRIPT, *[AFTER] * 9)
    control = lab.explore("Where was Ada born?", variant="paper", what="question", threshold=0.5)
    assert (control.theta.value, control.theta.disabled) == (0.5, False)
    press(control, "Ask")
    assert control.trace is not None
    assert control.trace.answer == "Elm"
    assert control.trace.method["threshold"] == 0.5
    assert "Answered" in control.status.value
    assert 'class="dl-out' in control.page.value
    control.method.value = "wo-rag"
    assert control.theta.disabled


def test_stop_really_stops_and_what_was_done_is_kept() -> None:
    lab = scripted(SCRIPT, *[AFTER] * 9)
    control = lab.explore(Question("q", "Where was Ada born?"), what="question")
    trace = control.run(lambda: lab.stream("Where was Ada born?", DRAGIN), control.end, lambda *_: control.stop())
    control.wait(20)
    assert trace.ended == "cancelled"
    assert "Cancelled; what was finished is here" in control.status.value


def test_what_cannot_be_asked_or_fails_is_said_in_place() -> None:
    lab = scripted(RuntimeError("the model broke"))
    control = lab.explore("Who?", what="question")
    press(control, "Ask")
    assert "the model broke" in control.status.value
    assert control.trace is not None
    assert "ended by an error" in control.page.value
    control.question.value = " "
    press(control, "Ask")
    assert 'role="alert"' in control.status.value
    with pytest.raises(SettingError):
        lab.explore("Who?", "dragin", nonsense=1)


# -- browse -----------------------------------------------------------------------------------------------


def test_a_row_shows_its_answer_beside_another_methods(tmp_path: Path) -> None:
    pytest.importorskip("itables")
    for name, how in (("dragin", ANSWERED), ("wo-rag", method("wo-rag", variant="paper"))):
        answer(tmp_path / name, 3, how=how)
    control = dl.browse(tmp_path)
    assert set(control.rows["method"]) == {"dragin", "wo-rag"}
    control.table.selected_rows = [0]
    row = control.rows.iloc[0]
    assert f"<b>{row['method']}</b>: {row['answer']}" in control.page.value
    control.beside.value = "(nothing)"
    assert control.page.value.count("<b>wo-rag</b>") == (row["method"] == "wo-rag")
