"""The fan: an answer as a trunk, and at each decision the branch that it did not take."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from dragin_lab.drawn import draws
from dragin_lab.trace.draft import count_common
from dragin_lab.trace.records import OtherWay
from dragin_lab.trace.trace import Trace
from dragin_lab.views import theme
from dragin_lab.views.facts import shorten
from dragin_lab.views.rows import check_trace

FORK, END = 0.28, 1.0  # of the width: where the last branch parts, and where all end
BEND = 0.08
HEAD, LANE = 120, 62  # pixels
LOOKS = {
    "✓": {"color": theme.TEAL, "width": 2.5},
    "✗": {"color": theme.AMBER, "width": 2.5, "dash": "dash"},
    "": {"color": theme.GREY, "width": 2.5},
}


@draws(Trace, "fan")
def draw_fan(trace: Trace) -> go.Figure:
    """The answer with the other branch of each decision: above it without a retrieval that was
    made, below it with one that was not.

    Each branch says what the retrieval at its place gives and costs. ``lab.fan(trace)`` has the
    branches written; a trace without them says so.
    """
    check_trace(trace)
    title = f"{trace.question.text} · what each retrieval is worth"
    if not trace.other_ways:
        return theme.message(title, "No branch is written yet; lab.fan(trace) does it.")
    figure = go.Figure()
    without = [way for way in trace.other_ways if not way.retrieves]
    asked = [way for way in trace.other_ways if way.retrieves]
    sign = sign_of(trace.scores)
    trunk = {"color": theme.INK, "width": 5}
    figure.add_scatter(x=[0, END], y=[0, 0], mode="lines", line=trunk, hoverinfo="skip")
    write_lane(
        figure, 0, f"as it was: <b>{theme.clip_label(trace.answer, 30)}</b> {sign}", trace.text
    )
    places = np.linspace(0.04, FORK, len(trace.other_ways)).tolist()
    at = dict(zip((way.step for way in trace.other_ways), places, strict=True))
    for side, ways in ((1, without), (-1, asked)):
        for lane, way in enumerate(reversed(ways), 1):
            draw_branch(figure, trace, way, at[way.step], side * lane)
    marks = {"size": 20, "line": {"color": theme.INK, "width": 2}}
    marks["color"] = [theme.PAPER if way.retrieves else theme.INK for way in trace.other_ways]
    inks = [theme.INK if way.retrieves else theme.PAPER for way in trace.other_ways]
    figure.add_scatter(
        x=places,
        y=[0] * len(places),
        mode="markers+text",
        marker=marks,
        text=[str(way.step + 1) for way in trace.other_ways],
        textfont={"color": inks, "size": 11},
        customdata=[describe_decision(trace, way) for way in trace.other_ways],
    )
    figure.update_xaxes(visible=False, range=[-0.01, END])
    figure.update_yaxes(visible=False, range=[-len(asked) - 0.5, len(without) + 0.5])
    height = HEAD + LANE * (len(trace.other_ways) + 1)
    return theme.finish(figure, title, height, showlegend=False, margin={"l": 10, "r": 10, "b": 10})


def draw_branch(figure: go.Figure, trace: Trace, way: OtherWay, x: float, y: float) -> None:
    """A branch from its decision to its own end, with what it comes to."""
    part = np.linspace(0, 1, 24)
    curve = y * part**2 * (3 - 2 * part)
    sign = sign_of(way.scores)
    figure.add_scatter(
        x=[*(x + BEND * part), END],
        y=[*curve, y],
        mode="lines",
        line=LOOKS[sign],
        customdata=[theme.label(way.text)] * 25,
    )
    name = "had it asked" if way.retrieves else "without it"
    head = f"{way.step + 1} {name}: <b>{theme.clip_label(way.answer, 30)}</b> {sign}"
    start = way.text.rfind(" ", 0, count_common(way.text, trace.text)) + 1
    write_lane(figure, y, f"{head} · {weigh(trace, way)}", way.text[start:])


def write_lane(figure: go.Figure, y: float, head: str, text: str) -> None:
    """A line above a branch, and its text below it."""
    for words, anchor in ((head, "bottom"), (theme.label(shorten(text, 60)), "top")):
        size = 13 if anchor == "bottom" else 11
        at = {"x": END, "y": y, "xanchor": "right", "yanchor": anchor, "showarrow": False}
        figure.add_annotation(at, text=words, font_size=size)


def weigh(trace: Trace, way: OtherWay) -> str:
    """What a retrieval at this place gives, and what it costs."""
    side = 1 if way.retrieves else -1
    tokens = side * (way.tokens - trace.counters["generated"])
    if "f1" not in trace.scores:
        return f"{tokens:+} tokens"
    worth = side * (way.scores["f1"] - trace.scores["f1"])
    return f"worth F1 {worth:+.2f}, price {tokens:+} tokens"


def describe_decision(trace: Trace, way: OtherWay) -> str:
    step = trace.steps[way.step]
    lines = [f"step {way.step + 1}", step.decision.reason if step.decision else ""]
    lines.append(f"asked: {step.query.text}" if step.query else "")
    return "<br>".join(theme.label(line) for line in lines if line)


def sign_of(scores: dict[str, float]) -> str:
    """✓ of a right answer, ✗ of a wrong one, "" where that is not known."""
    return {1.0: "✓", 0.0: "✗"}.get(scores.get("em", -1.0), "")
