"""``tune``: controls for θ and the other settings over stored traces, replayed without the model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ipywidgets as ipw
import numpy as np
import plotly.graph_objects as go

from dragin_lab.almanac.facts import Labelled
from dragin_lab.catalog.by_name import exchange_settings
from dragin_lab.checks import instance, several
from dragin_lab.core.settings import title_setting
from dragin_lab.errors import SettingError
from dragin_lab.run.episodes import stream
from dragin_lab.run.setup import MakesSetups
from dragin_lab.study.stored_drafts import fits
from dragin_lab.study.truth import find_labels
from dragin_lab.study.whatif import Outcome, Replay
from dragin_lab.trace.trace import Trace
from dragin_lab.views.facts import clip
from dragin_lab.views.pages import open_trace, styled
from dragin_lab.views.rows import draw_scores, draw_tokens, find_text, heatmap, threshold_of, token_rows
from dragin_lab.views.trace_page import replayed, sum_up
from dragin_lab.widgets.control import Control, LiveFigure, button, draw_into, row

STEPS = 200  # of a slider
BESIDE = {"flex": "1 1 440px", "width": "auto", "min_width": "0"}  # two pages, under one another where it is narrow


class Tuner(Control):
    """The box. ``controls`` are settings by name, ``outcome`` what they lead to, ``ran`` the model's own answers."""

    def __init__(self, replays: list[Replay], lab: MakesSetups | None) -> None:
        self.replays, self.lab, self.ran = replays, lab, list[Trace]()
        first = replays[0]
        self.outcome: Outcome = first.at()
        self.which = ipw.Dropdown(
            description="trace",
            options=[(clip(r.trace.question.text, 80)[0], i) for i, r in enumerate(replays)],
            layout={"width": "auto", "max_width": "640px"},
        )
        self.texts = ipw.Dropdown(description="step")
        self.controls = {name: make_control(name, replays) for name in first.tunable}
        self.page, self.beside, self.whole = ipw.HTML(layout=BESIDE), ipw.HTML(layout=BESIDE), ipw.HTML()
        self.beside.layout.display = "none"
        self.figure, drawing = go.Figure(), ipw.VBox()
        every = button(f"all {len(replays)} traces", lambda: self.guard(self.replay_all))
        ask = button("ask the model", lambda: self.guard(self.run_model), disabled=lab is None)
        sliders = [row(self.which, self.texts), *self.controls.values()]
        pages = [row(self.page, self.beside), self.whole]
        super().__init__([*sliders, drawing, row(every, ask)], pages, lambda: heatmap(first.trace))
        self.which.observe(lambda _: self.open_trace(), "value")
        self.texts.observe(lambda _: self.draw_step(), "value")
        for control in self.controls.values():
            control.observe(lambda _: self.guard(self.replay_trace), "value")
        self.open_trace()
        self.figure = LiveFigure(self.figure)
        drawing.children = (self.figure,)

    @property
    def settings(self) -> dict[str, Any]:
        """The controls' values that are not as the chosen trace was run."""
        old = self.replays[self.which.value].method.settings
        values = {name: None if one.value == "" else one.value for name, one in self.controls.items()}
        return {name: value for name, value in values.items() if value != old[name]}

    def open_trace(self) -> None:
        """Show the chosen trace, with the step that retrieved first."""
        trace = self.replays[self.which.value].trace
        steps = [step.index + 1 for step in trace.steps if step.draft is not None]
        retrieved = [step.index + 1 for step in trace.steps if step.draft is not None and step.query is not None]
        self.figure.data = ()
        self.guard(self.replay_trace)
        self.texts.options = steps
        self.texts.value = (retrieved or steps or [None])[0]
        self.draw_step()

    def replay_trace(self) -> None:
        """Only what is shown is replayed, and of the figure only what changes is sent."""
        self.outcome = self.replays[self.which.value].at(**self.settings)
        self.page.value = replayed(self.outcome).html
        if len(self.figure.data) == 4 and (rows := self.judge_tokens()) is not None:
            scores, shapes = draw_scores(rows, threshold_of(self.outcome.judged), True)
            with self.figure.batch_update():
                self.figure.update(data=[{}, {}, *scores])
                self.figure.layout.shapes = shapes

    def judge_tokens(self) -> Any:
        """The tokens of the chosen step as these settings judge them, with the stored text to its end."""
        if self.texts.value is None:
            return None
        judged, number = self.outcome.judged, self.texts.value
        step = judged.steps[number - 1]
        step.draft = self.outcome.trace.steps[number - 1].draft
        return token_rows(judged, *find_text(judged, number, "draft"))

    def draw_step(self) -> None:
        """The figure anew, for another trace or step."""
        rows, title = self.judge_tokens(), f"step {self.texts.value}, draft"
        draw_into(self.figure, go.Figure() if rows is None else draw_tokens(self.outcome.judged, rows, title))

    def replay_all(self) -> None:
        """A table of all traces at these settings, those that change first."""
        sums = sum_up([replay.at(**self.settings) for replay in self.replays], table=True)
        self.whole.value = styled(f'<div class="dl head">{sums}</div>')

    def run_model(self) -> None:
        """Have the model answer the chosen trace's question with these settings; its answer stands beside."""
        if self.lab is None:
            raise SettingError("without a lab no model can answer; give one: dl.tune(traces, lab=lab)")
        replay, lab = self.replays[self.which.value], self.lab
        method = exchange_settings(replay.method, **self.settings)

        def show(trace: Trace) -> None:
            if trace.ended != "error":  # or an earlier answer would go
                self.ran.append(trace)
                self.beside.value, self.beside.layout.display = trace._repr_html_(), None
                self.say("Stopped; what was written stands beside." if trace.ended == "cancelled" else "")

        self.run(lambda: stream(lab.setup(method), replay.trace.question, method), show, says="The model answers …")


def tune(
    traces: Trace | str | Path | Iterable[Trace | str | Path],
    labels: Iterable[Labelled] | None = None,
    *,
    lab: MakesSetups | None = None,
    nlp: Any = None,
) -> Tuner:
    """Controls over stored traces of one method: what would fire, be asked and change, without the model.

    ``labels`` (``almanac.labels``) give precision and recall against the ground truth. With the ``lab`` that made the
    traces a button has its model answer with the chosen values. Without a kernel:
    ``views.replayed(dl.Replay(trace).at(…))``. Raises ``SettingError`` for no trace, traces of several methods and a
    method without a threshold.
    """
    given = several("traces", traces, Trace | str | Path, "give traces or their files", alone=True)
    known = None if labels is None else several("labels", labels, Labelled, "give almanac.labels(...)")
    instance("lab", lab, MakesSetups | None, "give the dl.Lab that made the traces")
    tokenizer = None if lab is None else lab.setup().model.tokenizer
    replays = []
    for trace in map(open_trace, given):
        own = None if tokenizer is None or not fits(tokenizer, trace) else tokenizer
        replays.append(Replay(trace, find_labels(trace, known), tokenizer=own, nlp=nlp))
    if not replays:
        raise SettingError("there is no trace to tune; give one or a list of them")
    kinds = {(r.method.name, r.method.variant, type(r.method.trigger), type(r.method.formulator)) for r in replays}
    if len(kinds) > 1:
        named = ", ".join(sorted({f"{name} ({variant})" for name, variant, *_ in kinds}))
        raise SettingError(f"the traces are of several methods ({named}); give those of one")
    if not replays[0].tunable:
        raise SettingError(f"{replays[0].method.name} has no threshold, so there is nothing to tune")
    return Tuner(replays, lab)


def make_control(name: str, replays: list[Replay]) -> Any:
    """A control for a setting: a choice, or a slider that ends at a round number above every score."""
    method = replays[0].method
    known = (method.trigger.declared() | method.formulator.declared())[name]
    value, title = method.settings[name], title_setting(name)
    shared = {"value": value, "description": title, "tooltip": known.label, "layout": {"width": "480px"}}
    if known.choices:
        none = [("none", "")] if known.optional else []
        choices = [*none, *((one, one) for one in known.choices)]
        return ipw.Dropdown(options=choices, **shared | {"value": value or ""})
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ipw.Text(**shared | {"value": str(value)}, disabled=True)
    if isinstance(value, int):
        return ipw.IntSlider(min=int(max(known.ge, 0)), max=max(50, 2 * value), **shared)
    scores = [one.words.score for r in replays for one in r.trace.steps]
    flat = np.concatenate([[value], *scores]).astype(float)
    flat = flat[np.isfinite(flat)]
    low = known.ge if math.isfinite(known.ge) else -round_up(max(-2 * value, -float(flat.min())))
    top = known.top or round_up(max(2 * value, float(flat.max())))
    step = (top - low) / STEPS
    return ipw.FloatSlider(min=low, max=top, step=step, readout_format=".3f", **shared)


def round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 8 times a power of ten at or above a value."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(m * power for m in (1, 2, 4, 5, 8, 10) if m * power >= value * (1 - 1e-9))
