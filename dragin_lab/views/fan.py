"""The fan: an answer as a trunk, and at each decision the branch that it did not take."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from dragin_lab.drawn import draws
from dragin_lab.trace.draft import count_common
from dragin_lab.trace.records import OtherWay
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import theme
from dragin_lab.views.facts import shorten, sign_of
from dragin_lab.views.rows import check_trace

FORK = 0.28  # of the width: where the last branch parts
END = 1.0  # and where all end
BEND = np.linspace(0, 1, 24)  # of a branch, from the trunk to its own lane
RISE = BEND**2 * (3 - 2 * BEND)
HEAD = 120  # pixels
LANE = 62  # pixels
MARKS = {"size": 20, "line": {"color": theme.INK, "width": 2}}


@draws(Trace, "fan")
def draw_fan(trace: Trace) -> go.Figure:
    """The answer with the other branch of each decision: above it without a retrieval that was
    made, below it with one that was not.

    Each branch says what the retrieval at its place gives and costs. ``lab.fan(trace)`` has the
    branches written; a trace without them says so.
    """
    ways = check_trace(trace).other_ways
    title = f"{trace.question.text} · what each retrieval is worth"
    if not ways:
        return theme.message(title, "No branch is written yet; lab.fan(trace) does it.")
    figure = theme.Figure()
    trunk = {"color": theme.INK, "width": 5}
    figure.add_scatter(x=[0, END], y=[0, 0], mode="lines", line=trunk, hoverinfo="skip")
    answer = theme.clip_label(trace.answer, 30)
    head = f"as it was: <b>{answer}</b> {sign_of(trace.scores)}"
    write_lane(figure, 0, head, trace.text)
    places = np.linspace(0.04, FORK, len(ways))
    above = sum(not way.retrieves for way in ways)
    below = len(ways) - above
    figure.update_xaxes(visible=False, range=[-0.01, END])
    figure.update_yaxes(visible=False, range=[-below - 0.5, above + 0.5])
    # the next lane of those that asked nothing, and of those that asked
    lanes = {
        False: iter(range(above, 0, -1)),
        True: iter(range(-below, 0)),
    }
    for way, place in zip(ways, places, strict=True):
        draw_branch(figure, trace, way, place, next(lanes[way.retrieves]))
    for way, place in zip(ways, places, strict=True):
        mark_decision(figure, trace.steps[way.step], way, place)
    height = HEAD + LANE * (len(ways) + 1)
    return theme.finish(figure, title, height, showlegend=False, margin={"l": 10, "r": 10, "b": 10})


def draw_branch(figure: go.Figure, trace: Trace, way: OtherWay, x: float, y: float) -> None:
    """A branch from its decision to its own end, with what it comes to."""
    sign = sign_of(way.scores)
    dash = "dash" if sign == "✗" else "solid"
    line = {"color": theme.SIGNS[sign], "width": 2.5, "dash": dash}
    across = np.append(x + 0.08 * BEND, END)
    up = np.append(y * RISE, y)
    about = [theme.label(way.text)] * len(up)
    shown = {"mode": "lines", "line": line, "customdata": about}
    figure.add_scatter(x=across, y=up, **shown)
    name = "had it asked" if way.retrieves else "without it"
    answer = theme.clip_label(way.answer, 30)
    price = weigh(trace, way)
    head = f"{way.step + 1} {name}: <b>{answer}</b> {sign} · {price}"
    parts = count_common(way.text, trace.text)
    start = way.text.rfind(" ", 0, parts) + 1
    write_lane(figure, y, head, way.text[start:])


def write_lane(figure: go.Figure, y: float, head: str, text: str) -> None:
    """A line above a branch, and its text below it."""
    theme.write(figure, head, END, y, xanchor="right", yanchor="bottom")
    words = theme.label(shorten(text, 60))
    theme.write(figure, words, END, y, xanchor="right", yanchor="top", font_size=11)


def mark_decision(figure: go.Figure, step: Step, way: OtherWay, x: float) -> None:
    """The number of a decision, on white where it retrieved nothing; on hover its reason."""
    lines = [f"step {way.step + 1}"]
    if step.decision is not None:
        lines.append(step.decision.reason)
    if step.query is not None:
        lines.append(f"asked: {step.query.text}")
    about = "<br>".join(map(theme.label, lines))
    fill = theme.INK
    ink = theme.PAPER
    if way.retrieves:
        fill, ink = ink, fill
    look = {"marker": MARKS | {"color": fill}, "textfont": {"color": ink, "size": 11}}
    number = {"mode": "markers+text", "text": [str(way.step + 1)]}
    figure.add_scatter(x=[x], y=[0], customdata=[about], **number, **look)


def weigh(trace: Trace, way: OtherWay) -> str:
    """What a retrieval at this place gives, and what it costs."""
    side = 1 if way.retrieves else -1
    tokens = side * (way.tokens - trace.counters["generated"])
    if "f1" not in trace.scores:
        return f"{tokens:+} tokens"
    worth = side * (way.scores["f1"] - trace.scores["f1"])
    return f"worth F1 {worth:+.2f}, price {tokens:+} tokens"
