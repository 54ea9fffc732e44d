"""Triggers that compare a sentence or a draft with θ: the unit in brackets with its score, and no word as a hit."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import view_samples as samples
from view_states import Reader

import dragin_lab as dl
from dragin_lab import views
from dragin_lab.trace.kept import with_passages
from dragin_lab.trace.trace import Decision, Prompt, Step, Trace
from dragin_lab.views import sections
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import esc
from dragin_lab.views.tokens import Unit
from dragin_lab.widgets.asking import AskLive, _judged_draft
from dragin_lab.widgets.explorer import explorer_data


@pytest.mark.parametrize(
    ("name", "variant", "unit"),
    [
        ("dragin", "paper", "word"),
        ("flare", "paper", "word"),
        ("flare", "reference", "sentence"),
        ("targ", "paper", "draft"),
    ],
)
def test_a_method_records_what_is_compared_with_its_threshold(name, variant, unit):
    assert dl.method(name, variant=variant).settings["unit"] == unit


def judged(unit: str, *peaks: float) -> Trace:
    """The sample's first step, judged as a whole by sentence or by draft; θ is 1.2."""
    trace = samples.almanac_trace()
    trace.method |= {"when": "mine", "measure": "entropy", "unit": unit}
    step = trace.steps[0]
    assert step.words.hit.any()
    assert step.decision is not None
    step.decision = dataclasses.replace(step.decision, reason="a reason", peaks=peaks)
    trace.steps = [step]
    return trace


@pytest.mark.parametrize(
    ("unit", "peaks", "shown"),
    [
        ("sentence", (1.7, 0.25, 0.5), ("sentence 1: 1.7 > θ 1.2", "sentence 2: 0.25 ≤ θ 1.2")),
        ("sentence", (1.7,), ("sentence: 1.7 > θ 1.2",)),
        ("draft", (1.7,), ("draft: 1.7 > θ 1.2",)),
        ("draft", (float("nan"),), ("draft: not scored",)),
    ],
)
def test_the_unit_is_in_brackets_with_its_score_and_no_word_is_a_hit(unit, peaks, shown):
    trace = judged(unit, *peaks)
    for html in (views.trace_html(trace),):
        read = Reader(html).text
        rows = html[html.index('data-part="legend"') :].split('data-part="continuation"')[0]
        assert 'class="hit"' not in html
        assert "fired" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
        assert '"gem"' not in rows
        assert f"the {unit} that is judged" in read
        for said in shown:
            assert esc(said) in html
    text = " ".join(views.trace_view(trace).text.split())
    assert f"⟧ {shown[0].split(': ')[1]}" in text
    assert text.count("⟦") == text.count("⟧") == len(peaks) + 1  # and one in the line that explains the marks


def test_the_colour_of_words_has_no_jump_at_a_threshold_that_no_word_is_compared_with():
    scale = scale_of(judged("sentence", 1.7, 0.2))
    assert scale.threshold == 1.2
    steps = [b - a for a, b in zip(scale.bounds(), scale.bounds()[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * len(steps))


@pytest.mark.parametrize(
    ("score", "theta", "verdict"),
    [
        (0.446, 0.3, "0.446 > θ 0.3"),
        (0.2504, 0.25, "0.2504 > θ 0.25"),
        (-0.5004, -0.5, "−0.5004 ≤ θ −0.5"),
        (0.446, np.nan, "0.446"),
        (-np.inf, 0.3, "not judged"),
        (np.nan, 0.3, "not scored"),
    ],
)
def test_a_unit_has_as_many_digits_as_tell_its_score_from_the_threshold(score, theta, verdict):
    assert Unit("draft", 0, 1, score, theta).verdict == verdict


@pytest.mark.parametrize("unit", ["sentence", "draft"])
def test_the_explorer_and_the_live_widget_show_the_unit(unit):
    trace = judged(unit, 1.7, *((0.2,) if unit == "sentence" else ()))
    data = explorer_data(trace)
    cells = data["texts"][0]["cells"]
    assert not any(c["h"] or c["f"] for c in cells)
    assert data["theta"] is None
    assert data["next"] == f"next {unit} above θ"
    assert sum(c["u"][2] for c in cells if c["u"]) == sum(c["u"][3] for c in cells if c["u"]) > 0
    assert sum(c["j"] for c in cells) == 1
    live = _judged_draft(trace.steps[0], trace)
    assert 'class="bracket above tag"' in live
    assert 'class="hit"' not in live


def test_the_note_on_darker_words_stands_only_where_there_are_some():
    trace = samples.almanac_trace()
    assert scale_of(trace).note
    for step in trace.steps:
        step.words.hit[:] = step.words.score > 1.2
    assert not scale_of(trace).note


# -- which text was written with passages ----------------------------------------------------------------------------


def gate_trace() -> Trace:
    """TARG that goes on without a retrieval: a first draft, and what the model wrote after it."""
    first, rest = samples.make("The film was made by", seed=1), samples.make(" Ann. So the answer is Ann.", seed=2)
    trace = samples.almanac_trace()
    trace.method |= {"name": "targ", "unit": "draft"}
    go = Step(0, samples.prompt(""), first, decision=Decision(False, "go on", peaks=(0.2,)), kept=first.text)
    after = Step(1, passages_prompt=samples.prompt(first.text), continuation=rest, kept=rest.text)
    go.answer, after.answer, after.continuation_kept = first.text, first.text + rest.text, len(rest.text)
    trace.steps, trace.text = [go, after], first.text + rest.text
    return trace


def test_an_answer_without_a_retrieval_was_not_written_with_passages():
    trace = gate_trace()
    assert not any(with_passages(step, name) for step in trace.steps for name in ("draft", "continuation"))
    for drawn in (views.trace_view(trace),):
        assert "with passages" not in Reader(drawn.html).text.replace("without passages", "")
        assert "with passages" not in drawn.text
        assert "what that changed" not in Reader(drawn.html).text
    assert "Written without passages" in sections.about_continuation(trace.steps[1], "none")


def test_the_prompt_decides_whether_a_text_was_written_with_passages():
    step = samples.almanac_trace().steps[0]
    assert with_passages(step, "continuation")
    assert not with_passages(step, "draft")
    none_fitted = dataclasses.replace(step.passages_prompt, dropped={"passages": len(step.passages)})
    assert not with_passages(dataclasses.replace(step, passages_prompt=none_fitted), "continuation")
    # A custom layout marks no passages; a prompt of an earlier retrieval does.
    assert with_passages(dataclasses.replace(step, passages_prompt=Prompt("Context")), "continuation")
    later = dataclasses.replace(step, query=None, passages=())
    assert with_passages(later, "continuation")
    assert not with_passages(dataclasses.replace(later, passages_prompt=samples.prompt("")), "continuation")


def test_the_live_widget_names_what_is_written_by_its_prompt(live_news):
    labels = {(n["step"], n["of"]): n["fresh"] for n in live_news if n["is"] == "token"}
    assert labels
    assert not any(labels.values())


@pytest.fixture
def live_news(monkeypatch):
    """The news of an episode of TARG that does not retrieve."""
    from dragin_lab.run.drivers import TokenWritten

    trace = gate_trace()
    widget = AskLive.__new__(AskLive)
    events = [TokenWritten(0, "draft", 0, "The", 0.1, -0.1), TokenWritten(1, "continuation", 0, " Ann", 0.1, -0.1)]
    return [AskLive._describe_event(widget, event, trace) for event in events]
