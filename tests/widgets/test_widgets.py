"""The controls without a browser: what they answer, what they keep, what they say when something
goes wrong.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from answering import DRAGIN as ANSWERED
from answering import answer, embedded
from run_folders import write_run
from scripted import QUESTION, Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.catalog.by_name import method
from dragin_lab.errors import SettingError
from dragin_lab.lab import Lab
from dragin_lab.study.whatif import Replay
from dragin_lab.trace.trace import Question, Trace
from dragin_lab.views import theme
from dragin_lab.widgets.control import PLOTLY, Drawing, inner_widgets

pytest.importorskip("ipywidgets")
sys.path.insert(0, str(Path(__file__).parents[1] / "views"))

import view_samples as states

DRAGIN = method("dragin", variant="paper", what="question", threshold=0.5)
SCRIPT = Say(
    "Ada was born in Elm. So the answer is Elm.", entropy={"Elm": 3.0}, received={"Elm": 0.9}
)
AFTER = Say(" Elm. So the answer is Elm.")
LOUD = Say(" It is by Bo Ek, a man", entropy={"Bo": 9.0}, received={"Bo": 0.5})
LAST = Say(" Li. So the answer is Li.\nThen he")


def scripted(*script: Say | BaseException) -> Lab:
    return dl.Lab(ScriptedModel(list(script)), retriever=ScriptedRetriever())


def ran(found: Any = DRAGIN) -> Trace:
    return scripted(SCRIPT, *[AFTER] * 9).ask("Where was Ada born?", found)


def test_only_what_the_step_has_can_be_left_out_or_exchanged() -> None:
    control = explore()
    for step in control.trace.steps:
        for source in [name for name, _, _ in step.texts]:
            control.texts.value = (step.index + 1, source)
            retrieved = step.decision is not None and step.decision.retrieve
            assert control.without.disabled == (not retrieved)
            assert control.search.disabled == control.only.disabled == (step.query is None)
    assert any(step.query is None for step in control.trace.steps)


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


def drawn(drawing: Any) -> dict[str, Any]:
    """The figure that a front end draws."""
    (shown,) = drawing.outputs
    figure: dict[str, Any] = shown["data"]["application/vnd.plotly.v1+json"]
    return figure


def outputs(control: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a notebook displays of a control."""
    import IPython.display

    displayed: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", lambda *shown, **_: displayed.extend(shown))
    control._ipython_display_()
    return displayed


# -- all -------------------------------------------------------------------------------------------


def test_ipywidgets_is_imported_by_controls_alone_which_say_how_to_install_it() -> None:
    code = (
        "import sys, dragin_lab as dl, dragin_lab.views; print('ipywidgets' in sys.modules,"
        " 'plotly' in sys.modules)"
    )
    code += "\nimport importlib.util as u; old, sys.modules['ipywidgets'] = u.find_spec, None\n"
    code += (
        "u.find_spec = lambda name, *rest: None if name == 'ipywidgets' else old(name,"
        " *rest)\ndl.explore"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["False", "False"]
    assert "pip install 'dragin-lab[notebooks]'" in ran.stderr


def test_a_still_picture_stands_first_so_that_it_remains_without_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = ran()
    for control in (dl.tune(trace), dl.explore(trace)):
        still, note, box = outputs(control, monkeypatch)
        assert still["application/vnd.plotly.v1+json"]["data"]
        assert "need a kernel" in note["text/plain"]
        assert control._name in note["text/html"]
        assert "application/vnd.jupyter.widget-view+json" in box
        assert control._name in control._dom_classes


# -- explore ---------------------------------------------------------------------------------------


def test_an_output_holds_its_figure_and_loads_nothing() -> None:
    trace, lab = ran(), scripted()
    for control in (dl.tune([trace]), dl.explore(trace, lab)):
        shown = [one for one in inner_widgets(control) if isinstance(one, Drawing)]
        assert shown
        for drawing in shown:
            (output,) = drawing.outputs
            assert output["data"][PLOTLY]["data"]
            assert "http" not in str(output["data"])


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
    assert [
        shape["x0"] for shape in drawn(control.drawing)["layout"]["shapes"] if "name" in shape
    ] == [0.5]


def test_an_alternative_a_query_passages_and_a_decision_make_branches() -> None:
    other = Say(" Ek. So the answer is Al Ek.")
    control = explore(other, other, other, other)
    control.texts.value = (2, "draft")
    control.token.value = 1
    control.instead.value = control.lab.model.tokenizer.encode(" Al", special=False)[0]
    press(control, "write on with it")
    assert (len(control.tree), control.which.value) == (2, 1)
    assert "Al Ek" in control.trace.answer
    assert_shown(control)
    assert "step 2, token 1" in control.which.options[1][0]
    assert "before" in control.comparison.value
    for value, label, kind in (
        ("a thing", "search for this", "query"),
        (None, "keep only these", "passages"),
    ):
        control.which.value = 0
        control.texts.value = (1, "draft")
        if value:
            control.query.value = value
        else:
            control.keep.value = []
        press(control, label)
        assert control.trace.parting.kind == kind, control.status.value
        assert_shown(control)
    control.which.value = 0
    press(control, "write on without")
    assert control.trace.parting.kind == "decision"
    assert_shown(control)
    assert len(control.tree) == 4 + 1


def assert_shown(control: Any) -> None:
    """Figure, token, decision, query and passages are those of the branch that is chosen."""
    step, source = control.texts.value
    own = control.trace.steps[step - 1]
    text = getattr(own, source)
    names = [theme.label(name) for name in control.rows["name"]]
    assert drawn(control.drawing)["layout"]["xaxis"]["ticktext"] == names
    assert [piece.strip("▁ ") for piece in text.pieces] == control.rows["piece"].str.strip(
        "▁ "
    ).tolist()
    assert f"token {control.token.value} of {len(text)}" in control.about.value
    assert own.decision is None or own.decision.reason.split("'")[0] in control.step_page.value
    assert control.query.value == ("" if own.query is None else own.query.text)
    assert control.keep.value == own.passages
    assert control.figure.layout.title.text.startswith(theme.label(control.which.label)[:20])


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


def test_a_front_end_that_draws_no_figure_has_its_words() -> None:
    control = explore()
    (shown,) = control.drawing.outputs
    words = shown["data"]["text/html"]
    assert control.figure.layout.title.text in words
    for about in control.rows["about"]:
        assert str(theme.label(about)) in words
    assert "<script" not in words


# -- tune ------------------------------------------------------------------------------------------


def test_a_board_shows_what_theta_leads_to() -> None:
    control = dl.tune([ran(), ran()])
    assert [one.whole for one in control.outcomes] == [True, True]
    assert "2 of 2 traces stay as they are" in control.words.value
    assert control.code.value == "dl.method('dragin', threshold=0.5, what='question')"
    control.theta.value = control.thetas[-1]
    assert [one.retrievals for one in control.outcomes] == [0, 0]
    assert drawn(control.drawing)["layout"]["shapes"][0]["x0"] == control.theta.value
    assert "2 part here" in control.words.value
    assert "<del>◆Elm.</del>" in control.words.value
    assert "Elm → ?" in control.words.value
    control.which.value = 1
    assert control.outcome.trace is control.replays[1].trace
    assert "From here the stored text cannot say" in control.page.value
    assert (
        f"θ {control.theta.value:g}"
        in drawn(control.tokens)["layout"]["shapes"][0]["label"]["text"]
    )
    assert len(drawn(control.tokens)["layout"]["xaxis"]["ticktext"]) == len(
        control.outcome.trace.steps[0].draft
    )


def test_what_is_decided_alike_at_two_values_is_judged_once_between_them() -> None:
    several = {"Ada": 1.0, "Elm": 3.0, "Oak": 2.0}
    lab = scripted(
        Say("Ada was born in Elm, by Oak.", entropy=several, received=several), *[AFTER] * 9
    )
    for known in (dl.tune(lab.ask("Where was Ada born?", DRAGIN)).known, dl.tune([ran()]).known):
        for theta, (outcome,) in known.items():
            again = Replay(outcome.trace).at(threshold=theta)
            assert (outcome.since, outcome.queries) == (again.since, again.queries)
            assert outcome.method == again.method
            assert [t.words.hit.tolist() for t in outcome.turns] == [
                t.words.hit.tolist() for t in again.turns
            ]


def test_a_target_moves_theta_over_what_is_known_and_a_sweep_stands_as_points() -> None:
    sweep = pd.DataFrame(
        {"setting": "threshold", "value": [0.5, 0.9], "em": [1.0, 0.0], "retrievals": [1.0, 0.0]}
    )
    control = dl.tune([ran(), ran()], sweep=sweep)
    before = control.theta.value
    control.target.value = 0.0  # nobody knows what is written there
    assert control.theta.value == before
    assert "a cost of 0 is not known (known: 1.00 retrievals" in control.status.value
    control.theta.value = control.thetas[-1]
    control.target.value = 1.0
    assert all(one.whole for one in control.outcomes)
    points = [one for one in drawn(control.drawing)["data"] if one.get("mode") == "markers"]
    assert [one["name"] for one in points] == ["measured by a sweep"]
    with pytest.raises(SettingError, match="goes over top_n"):
        dl.tune([ran()], sweep=sweep.assign(setting="top_n")[:1])


def test_a_line_stands_only_where_all_texts_are_followed_to_their_end() -> None:
    control = dl.tune([ran(), ran()])
    lines = [one for one in control.figure.data if one.name == "known"]
    assert lines
    for line in lines:
        assert line.line.shape == "hv"
        for theta, value in zip(line.x, line.y, strict=True):
            whole = all(one.whole for one in control.known[theta])
            assert (value is not None) == whole


@functools.cache
def few_curves() -> dl.Curve:
    return embedded().curve(
        list(almanac.questions("hotpotqa")[:2]), top_n=5, max_new_tokens=24, progress=False
    )


def test_a_curve_is_tuned_from_change_to_change_and_every_theta_is_known() -> None:
    curve = few_curves()
    control = dl.tune(curve)
    assert control.thetas == curve.table["value"].tolist()
    for theta, row in zip(control.thetas, curve.table.itertuples(), strict=True):
        control.theta.value = theta
        assert f"em {row.em:.3f}".rstrip("0") in control.words.value
    control.which.value = id = curve.complete[0]
    control.theta.value = control.thetas[-1]
    seen = [curve.piece(id, control.theta.value).start]
    while control.theta.value > control.thetas[0]:
        before = control.theta.value
        press(control, "◀")
        assert control.theta.value < before
        start = curve.piece(id, control.theta.value).start
        seen += [start] * (start != seen[-1])
        assert control.trace.text == curve.piece(id, control.theta.value).line["text"]
        assert re.search(r"This answer: .+ fires in step \d", control.page.value)
    assert seen == [piece.start for piece in curve.collected.by_question[id]]
    assert len(seen) > 1
    control.target.value = 99.0
    assert "99 retrievals a question cannot be reached" in control.status.value
    control.target.value = curve.table["retrievals"].iloc[0]
    assert f"costs {control.target.value:.2f} retrievals" in control.status.value


def test_a_step_of_a_curve_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    control = dl.tune(few_curves())
    monkeypatch.setattr(Replay, "at", lambda *_, **__: pytest.fail("a step judges a trace"))
    for theta in control.thetas:
        control.theta.value = theta
        assert "threshold=" in control.code.value


def test_a_button_makes_the_curve_which_grows_on_screen() -> None:
    lab = embedded()
    questions = list(almanac.questions("hotpotqa")[:2])
    traces = list(lab.ask_many(questions, top_n=5, max_new_tokens=24))
    control = lab.tune(traces)
    press(control, "make the curve")
    control.wait(120)
    assert control.curve.complete == tuple(one.id for one in questions)
    assert "at every θ: 2 questions" in control.figure.layout.title.text.replace("<br>", " ")
    assert control.made.children[0].curve is control.curve
    without = dl.tune(traces)
    with pytest.raises(SettingError, match="without a lab no model can answer"):
        without.make_curve()


def test_a_step_of_the_slider_replays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    control = dl.tune([ran()] * 5)
    monkeypatch.setattr(Replay, "at", lambda *_, **__: pytest.fail("a step judges a trace"))
    for theta in control.thetas:
        control.theta.value = theta
        assert f"θ {theta:.3g}: " in control.words.value


def test_a_control_closes_what_it_made_and_what_an_earlier_run_of_its_cell_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import IPython
    from ipywidgets.widgets.widget import _instances as living

    trace = ran()
    before = len(living)
    for make in (dl.tune, dl.explore, lambda one: scripted(SCRIPT).explore("Who?")):
        make(trace).close()
        assert len(living) == before
    asked = {
        "header": {"msg_type": "execute_request", "msg_id": 0},
        "metadata": {"cellId": "one"},
        "content": {},
    }
    shell = type("Shell", (), {"get_parent": lambda self: asked})()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    counts = set()
    for run in range(3):
        asked["header"] = asked["header"] | {"msg_id": run}
        kept = dl.tune(trace), dl.explore(trace)
        counts.add(len(living))
    assert len(counts) == 1
    asked["metadata"] = {"cellId": "two"}
    assert dl.tune(trace).comm is not None
    assert all(one.comm is not None for one in kept), "another cell's are left alone"


def test_the_model_answers_beside_the_replay_not_in_its_place() -> None:
    lab = scripted(SCRIPT, *[AFTER] * 9)
    trace = lab.ask("Where was Ada born?", DRAGIN)
    lab.model.script[:] = [
        Say("Ada was born in Oak. So the answer is Oak."),
        RuntimeError("the model broke"),
    ]
    control = lab.tune(trace)
    control.which.value = 0
    before = control.page.value
    press(control, "ask the model")
    assert [one.answer for one in control.ran] == ["Oak"]
    assert "Oak" in control.beside.value
    assert "asked with dl.method(&#39;dragin&#39;, threshold=0.5" in control.beside.value, (
        "its θ stands with it"
    )
    assert control.page.value == before
    press(control, "ask the model")
    assert "the model broke" in control.status.value
    assert "Oak" in control.beside.value


def test_a_tuner_of_what_cannot_be_tuned() -> None:
    other = method("dragin", what="question", threshold=0.5, variant="paper", when="entropy")
    for traces, says in (
        ([], "no trace to tune"),
        (ran("wo-rag"), "nothing to tune"),
        ([ran(), ran(other)], "several"),
    ):
        with pytest.raises(SettingError, match=says):
            dl.tune(traces)


# -- lab.explore -----------------------------------------------------------------------------------


def test_an_answer_is_watched_and_kept_and_what_fails_is_said_in_place() -> None:
    lab = scripted(SCRIPT, AFTER, RuntimeError("the model broke"))
    control = lab.explore("Where was Ada born?", variant="paper", what="question", threshold=0.5)
    assert (control.theta.value, control.theta.disabled) == (0.5, False)
    press(control, "Ask")
    assert (control.trace.answer, control.trace.method["threshold"]) == ("Elm", 0.5)
    assert "Answered" in control.status.value
    assert 'class="dl-out' in control.page.value
    press(control, "Ask")
    assert "the model broke" in control.status.value
    assert "ended by an error" in control.page.value
    control.question.value = " "
    press(control, "Ask")
    assert 'role="alert"' in control.status.value
    control.method.value = "wo-rag"
    assert control.theta.disabled
    with pytest.raises(SettingError):
        lab.explore("Who?", "dragin", nonsense=1)


def test_stop_really_stops_and_what_was_done_is_kept() -> None:
    lab = scripted(SCRIPT, *[AFTER] * 9)
    control = lab.explore(Question("q", "Where was Ada born?"), what="question")
    usable = list[bool]()

    def stop(*_: Any) -> None:
        usable.append(not control.stop_button.disabled)
        control.stop_button.click()

    trace = control.run(lambda: lab.stream("Where was Ada born?", DRAGIN), control.end, stop)
    control.wait(20)
    assert usable == [True]
    assert control.stop_button.disabled
    assert trace.ended == "cancelled"
    assert "Cancelled; what was finished is here" in control.status.value


def test_a_row_shows_its_answer_beside_another_methods(tmp_path: Path) -> None:
    for name, how in (("dragin", ANSWERED), ("wo-rag", method("wo-rag", variant="paper"))):
        answer(tmp_path / name, 3, how=how)
    control = dl.browse(tmp_path)
    assert set(control.rows["method"]) == {"dragin", "wo-rag"}
    control.table.index = 0
    row = control.rows.iloc[0]
    assert f"<b>{row['method']}</b>: {row['answer']}" in control.page.value
    for label, method_shown in (
        ("explore this answer", row["method"]),
        ("explore the one beside it", "wo-rag"),
    ):
        press(control, label)
        (explorer,) = control.explored.children
        assert explorer.tree[0].method["name"] == method_shown
    control.beside.value = "(nothing)"
    assert control.page.value.count("<b>wo-rag</b>") == (row["method"] == "wo-rag")
    press(control, "explore the one beside it")
    assert "no answer is shown beside it" in control.status.value
    control.search.value = "WO-RAG"
    assert {shown for _, (_, _, shown) in control.table.options} == {"wo-rag"}
    assert control.found.value.startswith(
        f"{len(control.table.options)} of {len(control.rows)} answers"
    )
    control.search.value, control.order.value = "", "tokens"
    tokens = control.rows.set_index(["dataset", "id", "method"])["tokens"]
    assert [tokens[value] for _, value in control.table.options] == sorted(control.rows["tokens"])


def test_a_list_of_runs_fills_while_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragin_lab.widgets.browsing.EVERY", 0.01)

    def wait(reached: Callable[[], bool]) -> None:
        until = time.monotonic() + 20
        while not reached():
            assert time.monotonic() < until
            time.sleep(0.01)

    control = dl.browse(tmp_path / "shared", follow=True)
    wait(lambda: "no such folder" in control.found.value)
    write_run(tmp_path / "shared", "dragin", "mine", (1.0,), asked=3)
    wait(lambda: len(control.table.options) == 1)
    control.table.value = ("mine", "q0", "dragin")
    write_run(tmp_path / "shared", "flare", "mine", (1.0, None))
    wait(lambda: len(control.table.options) == 3)
    assert control.table.value == ("mine", "q0", "dragin")
    control.stop()
    assert control._worker is not None
    control._worker.join(5)
    write_run(tmp_path / "shared", "wo-rag", "mine")
    assert len(control.table.options) == 3
    with pytest.raises(SettingError, match="give their folder"):
        dl.browse(control.runs, follow=True)


def test_many_answers_are_a_small_state(tmp_path: Path) -> None:
    write_run(tmp_path, em=[1.0, 0.0] * 1000)
    control = dl.browse(tmp_path)
    widgets = [control, *inner_widgets(control)]
    assert sum(len(json.dumps(one.get_state(), default=str)) for one in widgets) < 150_000
    assert not control.runs._causes
