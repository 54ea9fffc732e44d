"""The widgets without a browser: what they send, what they answer, what they say when something goes wrong."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab import Lab, widgets
from dragin_lab.catalog.methods import method
from dragin_lab.errors import MissingPackageError, SettingError
from dragin_lab.trace.trace import Question, Trace

pytest.importorskip("anywidget")
sys.path.insert(0, str(Path(__file__).parents[1] / "views"))

import view_samples as samples
import view_states as states

FOLDER = Path(widgets.__file__).parent
DRAGIN = method("dragin", variant="paper", what="question", threshold=0.5)
SCRIPT = "Ada was born in Elm. So the answer is Elm."


def scripted(*texts: str) -> ScriptedModel:
    """A model that doubts "Elm" in the first text."""
    doubts = [{"entropy": {"Elm": 3.0}, "received": {"Elm": 0.9}}, *[{} for _ in texts]]
    return ScriptedModel([Say(text, **doubt) for text, doubt in zip(texts, doubts, strict=False)])


def ran(found: Any = DRAGIN, question: str = "Where was Ada born?") -> Trace:
    return dl.Lab(scripted(SCRIPT, *[" Elm. So the answer is Elm."] * 9), retriever=ScriptedRetriever()).ask(
        question, found
    )  # type: ignore[arg-type]


def from_front_end(widget: Any, **state: Any) -> None:
    """What a front end sends when it sets traits."""
    widget._handle_msg({"content": {"data": {"method": "update", "state": state, "buffer_paths": []}}, "buffers": []})


def message_to(widget: Any, **content: Any) -> None:
    """A custom message of a front end."""
    widget._handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})


# -- all --------------------------------------------------------------------------------------------------------------


def test_the_package_does_not_import_anywidget() -> None:
    code = "import sys, dragin_lab as dl; dl.explore; print(*{'anywidget', 'ipywidgets', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("name", widgets.__all__)
def test_without_anywidget_an_error_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "anywidget":
            raise ImportError("no anywidget")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[notebooks\]'"):
        getattr(dl, name)(ran(), ran()) if name == "compare" else getattr(dl, name)(ran())


def test_a_bundle_holds_the_static_view_for_where_no_front_end_is() -> None:
    trace = samples.almanac_trace()
    for widget in (dl.explore(trace), dl.compare(trace, samples.almanac_trace("paper")), dl.tuner(ran())):
        bundle, _ = widget._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in bundle
        states.Reader(bundle["text/html"])
        assert trace.question.text in bundle["text/html"] or "Ada" in bundle["text/html"]
        assert "<" not in bundle["text/plain"].splitlines()[0]
        json.dumps(widget.data)


def test_the_static_view_is_an_output_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython.display

    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(IPython.display, "display", lambda bundle, **_: shown.append(bundle))
    widget = dl.explore(samples.almanac_trace())
    widget._ipython_display_()
    static, live = shown
    assert "application/vnd.jupyter.widget-view+json" not in static
    assert f'data-widget="{widget.data["id"]}"' in static["text/html"]
    assert widget.static().html in static["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in live
    assert "dl-out" not in live["text/html"]


def test_almanac_offers_questions_that_it_can_answer() -> None:
    live = Lab(scripted(SCRIPT), retriever=ScriptedRetriever()).explore(others={"almanac": Lab()})
    assert len(set(live.data["examples"])) == 5
    assert asking(SCRIPT)[0].data["examples"] == []


def test_scripts_put_in_html_only_what_python_has_drawn() -> None:
    assets = [*FOLDER.glob("*.[jc]s*"), *(FOLDER.parent / "views" / "templates").glob("*.[jc]s")]
    used = {path.name: path.read_text(encoding="utf-8").count("innerHTML") for path in assets}
    assert {name: times for name, times in used.items() if times} == {"common.js": 1}
    for path in assets:
        assert "http" not in path.read_text(encoding="utf-8").replace("http://www.w3.org/", ""), (
            "nothing comes from a network"
        )


@pytest.mark.parametrize("text", ["cut", "version"])
def test_files_that_cannot_be_read_say_so_in_place(tmp_path: Path, text: str) -> None:
    path = samples.almanac_trace().save(tmp_path / "trace.safetensors")
    data = path.read_bytes()
    path.write_bytes(data[:200] if text == "cut" else data.replace(b'"version":"3"', b'"version":"9"'))
    for widget in (dl.explore(path), dl.compare(path, path), dl.tuner(path)):
        assert str(path) in widget.data["error"]
        assert str(path) in widget._repr_mimebundle_()[0]["text/html"]


# -- explore ----------------------------------------------------------------------------------------------------------


def test_explore_sends_everything_about_a_token() -> None:
    trace = samples.almanac_trace("paper")
    data = dl.explore(trace).data
    draft = next(t for t in data["texts"] if any(c["f"] for c in t["cells"]))
    fired = draft["cells"][draft["start"]]
    step = next(s for s in trace.steps if s.decision is not None and s.decision.token is not None)
    assert step.decision is not None
    assert step.decision.token is not None
    assert step.draft is not None
    made, token = step.draft, step.decision.token
    assert fired["n"] == token + 1
    assert fired["e"] == pytest.approx(float(made.entropy[token]), rel=1e-3)
    assert fired["h"]
    assert fired["w"]["s"] > data["theta"]
    assert len(fired["o"]) == made.alternative_ids.shape[1]
    assert "".join(c["b"] + c["t"] for c in draft["cells"]).replace("↵\n", "\n").startswith(made.text[:40])
    assert step.decision.reason.split()[0].strip("'\"") in draft["html"]


def test_explore_names_what_a_token_attends_to() -> None:
    trace = ran(method("dragin", variant="paper", threshold=0.5))
    draft = dl.explore(trace).data["texts"][0]
    assert draft["rows"]
    last = draft["cells"][-1]["k"]
    assert last
    assert {part for _, part, _, _ in last} <= {"question", "exemplars", "passages", "answer", "draft", ""}
    weights = [weight for _, _, weight, _ in last]
    assert weights == sorted(weights, reverse=True)
    assert dl.explore(samples.almanac_trace()).data["texts"][0]["cells"][0]["k"] == []


def test_explore_begins_where_it_is_told_and_refuses_other_places() -> None:
    trace = samples.almanac_trace()
    at = {"step": 2, "text": "continuation", "token": 3}
    assert dl.explore(trace, **at).data["at"] == at  # type: ignore[arg-type]
    assert dl.explore(trace).data["at"] == {}
    for wrong, says in (
        ({"step": 9}, "step=9: the trace has steps 1 to 3; give one of them"),
        ({"step": 0}, "step=0: the trace has steps 1 to 3; give one of them"),
        ({"step": 1, "text": "extraction"}, "text='extraction' does not exist"),
        ({"step": 1, "token": 999}, r"token=999: the draft of step 1 has tokens 1 to \d+; give one of them"),
        ({"step": 1, "token": 0}, r"token=0: the draft of step 1 has tokens 1 to \d+; give one of them"),
        ({"token": 1}, "text and token are those of a step"),
    ):
        with pytest.raises(SettingError, match=says):
            dl.explore(trace, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(states.STATES))
def test_explore_draws_a_trace_in_any_state(name: str) -> None:
    widget = dl.explore(states.STATES[name])
    text = json.dumps(widget.data, allow_nan=False)
    assert "\\ud800" not in text
    for html in (widget.data["head"], widget.data["legend"], *(t["html"] for t in widget.data["texts"])):
        states.Reader(html)
        assert "<script" not in html
        assert "<img" not in html


def test_explore_leaves_tokens_out_and_says_so() -> None:
    from dragin_lab.widgets.explorer import explorer_data

    data = explorer_data(samples.long_trace(600), most=100)
    assert sum(len(t["cells"]) for t in data["texts"]) == 100
    assert "left out" in data["legend"]


# -- tuner ------------------------------------------------------------------------------------------------------------


def test_a_tuner_answers_what_its_controls_ask() -> None:
    trace = ran()
    tuner = dl.tuner(trace)
    assert [c["name"] for c in tuner.data["controls"]] == ["threshold", "scale"]
    assert tuner.answer["id"] == 0
    assert tuner.outcomes[0].whole
    from_front_end(tuner, asked={"id": 7, "trace": 0, "settings": {"threshold": 50, "scale": ""}})
    assert tuner.answer["id"] == 7
    assert tuner.answer["error"] == ""
    assert tuner.outcomes[0].method.threshold == 50
    assert "θ 50 (was 0.5)" in tuner.answer["html"]
    states.Reader(tuner.answer["html"])
    assert tuner.tune(threshold=0.5)[0].whole
    assert tuner.asked["id"] == 8


@pytest.mark.parametrize("settings", [{"threshold": -1}, {"threshold": "much"}, {"top_k": 9}, {"scale": "word"}])
def test_what_a_tuner_cannot_answer_it_says_in_place(settings: dict[str, Any]) -> None:
    tuner = dl.tuner(ran())
    from_front_end(tuner, asked={"id": 1, "trace": 99, "settings": settings})
    assert tuner.answer["error"]
    assert tuner.answer["id"] == 1


def test_scores_below_zero_are_tuned_below_zero() -> None:
    dl.when("certainty", threshold=-1.0)(lambda draft: -1 / draft.entropy)
    trace = ran(method(when="certainty", what="question"))
    assert trace.retrievals_count
    tuner = dl.tuner(trace)
    (theta,) = tuner.data["controls"]
    assert (theta["min"], theta["value"], theta["max"]) == (-10.0, -1.0, 1.0)
    assert tuner.tune(threshold=-0.1)[0].turns[0].change
    assert tuner.tune(threshold=-1)[0].whole


def test_a_tuner_takes_answers_from_the_store() -> None:
    lab = Lab(cache=True)
    question = Question("q", "In which town was the director of The Ashen Rooftop born?", ("Hartfold",))
    often, never = (lab.ask(question, "dragin", variant="reference", threshold=theta) for theta in (0.5, 50.0))
    assert often.retrievals_count > never.retrievals_count == 0
    assert lab.cache is not None
    before = replace(lab.cache.counts)
    tuner = lab.tune([never])
    assert "exact match" in tuner.answer["html"]  # of the stored trace, which the settings do not change
    (outcome,) = tuner.tune(threshold=0.5)
    assert not outcome.whole
    assert outcome.known is not None
    assert (outcome.known.text, outcome.known.scores) == (often.text, often.scores)
    assert "over 1 of 1 whose answer is known" in tuner.answer["html"]
    assert not tuner.answer["more"]
    assert lab.cache.counts == before  # nothing was generated, and nothing counted
    assert dl.tuner([never]).tune(threshold=0.5)[0].known is None
    assert lab.replace(cache=True).tune([never]).tune(threshold=0.5)[0].known is None  # a store that is empty
    assert lab.replace(exemplars=()).tune([never]).tune(threshold=0.5)[0].known is None  # another prompt


def test_a_tuner_of_what_cannot_be_tuned() -> None:
    assert "no trace" in dl.tuner([]).data["error"]
    assert "dragin_lab did not make it" in dl.tuner(states.STATES["scored without a threshold"]).data["error"]
    assert "nothing to tune" in dl.tuner(ran(method("wo-rag", variant="paper"))).data["about"]
    other = ran()
    other.method = method("flare", variant="paper").settings
    with pytest.raises(SettingError, match="several methods"):
        dl.tuner([ran(), other])
    with pytest.raises(SettingError, match="no trace to tune"):
        dl.tuner([]).tune(threshold=1)


def test_a_tuner_runs_the_model_and_shows_its_errors() -> None:
    lm = scripted(SCRIPT, SCRIPT)
    tuner = Lab(lm, retriever=ScriptedRetriever()).tune(ran())
    tuner.tune(threshold=50)
    message_to(tuner, kind="run")
    tuner.wait(20)
    assert tuner.running["error"] == ""
    assert not tuner.running["busy"]
    assert tuner.ran[0].method["threshold"] == 50
    assert "Elm" in tuner.running["html"]
    lm.script = [RuntimeError("out of <memory>")]
    message_to(tuner, kind="run")
    tuner.wait(20)
    assert "out of <memory>" in tuner.running["error"]
    alone = dl.tuner(ran())
    message_to(alone, kind="run")
    assert "lab.tune" in alone.running["error"]


# -- ask live ---------------------------------------------------------------------------------------------------------


def asking(*texts: str | BaseException, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """A widget on a scripted model, and the list of the news that it sends."""
    lm = scripted(*[t for t in texts if isinstance(t, str)])
    lm.script += [t for t in texts if isinstance(t, BaseException)]
    given = {"question": "Where was Ada born?", "variant": "paper", "what": "question", "threshold": 0.5} | options
    live = Lab(lm, retriever=ScriptedRetriever()).explore(**given)
    news: list[dict[str, Any]] = []
    live.send = lambda content, buffers=None: news.extend(content["news"])
    return live, news


def test_tokens_come_as_they_are_made() -> None:
    live, news = asking(SCRIPT, " Elm. So the answer is Elm.")
    message_to(live, kind="ask", question="Where was Ada born?", method="dragin", variant="paper", threshold=0.5)
    trace = live.wait(20)
    assert trace is live.trace
    assert trace.ended == "answered"
    kinds = [one["is"] for one in news]
    assert kinds[-1] == "ended"
    assert kinds.index("token") < kinds.index("decided") < kinds.index("retrieved") < kinds.index("done")
    decided = next(one for one in news if one["is"] == "decided")
    assert decided["retrieve"]
    assert 'class="hit"' in decided["html"]
    assert live.state["error"] == ""
    assert not live.state["busy"]
    assert "Elm" in live.state["html"]
    states.Reader(live._repr_mimebundle_()[0]["text/html"])


def test_stop_really_stops() -> None:
    live, _ = asking("a " * 60)
    said = threading.Event()

    def stop(content: Any, buffers: Any = None) -> None:
        if not said.is_set():
            said.set()
            message_to(live, kind="stop")

    live.send = stop
    live.ask()
    trace = live.wait(20)
    assert said.is_set()
    assert trace.ended == "cancelled"
    assert trace.steps[0].draft is None
    assert "Stopped" in live.state["status"]
    assert not live.state["busy"]


def test_an_interrupted_wait_stops_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    live, _ = asking("a " * 60)
    live.send = lambda content, buffers=None: gate.wait(20)
    live.ask()
    worker = live._worker
    real = worker.join
    calls: Iterator[Any] = iter([KeyboardInterrupt()])

    def join(timeout: float | None = None) -> None:
        for interrupt in calls:
            raise interrupt
        gate.set()
        real(timeout)

    monkeypatch.setattr(worker, "join", join)
    with pytest.raises(KeyboardInterrupt):
        live.wait()
    assert live.trace.ended == "cancelled"
    assert "Stopped" in live.state["status"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"question": "   "}, "the question is empty"),
        ({"question": "Who?", "method": "dragon"}, "did you mean 'dragin'"),
        ({"question": "Who?", "threshold": -3}, "must be at least 0"),
        ({"question": "Who?", "lab": "gpt"}, "lab 'gpt' does not exist"),
    ],
)
def test_what_cannot_be_asked_is_said_in_place(content: dict[str, Any], said: str) -> None:
    live, _ = asking(SCRIPT)
    message_to(live, kind="ask", **content)
    assert said in live.state["error"]
    assert not live.state["busy"]


def test_what_fails_under_way_is_said_in_place() -> None:
    live, _ = asking(RuntimeError("the graphics card is gone"))
    live.ask()
    trace = live.wait(20)
    assert "the graphics card is gone" in live.state["error"]
    assert trace.ended == "error"
    assert not live.state["busy"]


def test_one_question_at_a_time_and_choices_by_name() -> None:
    gate = threading.Event()
    models = {"small": scripted(SCRIPT), "large": scripted(SCRIPT)}
    small, large = (Lab(model, retriever=ScriptedRetriever()) for model in models.values())
    live = small.explore("Who?", "wo-rag", others={"large": large})
    live.send = lambda content, buffers=None: gate.wait(20)
    live.ask(lab="large")
    with pytest.raises(SettingError, match="stop it first"):
        live.ask()
    gate.set()
    live.wait(20)
    assert [len(m.drafts) for m in models.values()] == [0, len(models["large"].drafts)]
    with pytest.raises(SettingError, match=r"lab 'huge' does not exist; .*one of .*, large"):
        live.ask(lab="huge")


# -- compare ----------------------------------------------------------------------------------------------------------


def test_compare_lists_what_differs() -> None:
    a, b = samples.almanac_trace(), samples.almanac_trace("paper")
    found = dl.compare(a, b)
    assert found.diff == a.diff(b)
    assert ["method.variant", "'reference'", "'paper'"] in found.data["lines"]
    assert dl.compare(a, a).data["lines"] == []
    assert found.data["a"] != found.data["b"]
    with pytest.raises(SettingError, match="different questions"):
        dl.compare(a, Trace(Question("q", "Another?"), {}))


# -- browse -----------------------------------------------------------------------------------------------------------


def test_browse_saves_a_page_and_has_a_stand_in(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "mine", [1.0, 0.0])
    shown = dl.browse(tmp_path)
    assert '"methods":["dragin"]' in shown.save(tmp_path / "r.html").read_text()
    bundle, _ = shown._repr_mimebundle_()
    assert "means per question" in bundle["text/plain"]
    assert "<script" not in bundle["text/html"]
