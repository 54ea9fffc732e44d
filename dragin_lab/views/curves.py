"""A method at every θ as figures: what it gives and costs, quality against cost, the best θ for
each question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dragin_lab.checks import choice
from dragin_lab.drawn import draws
from dragin_lab.results.curve import Curve
from dragin_lab.results.headroom import MEANING, Headroom
from dragin_lab.run.intervals import MEASURES
from dragin_lab.views import theme
from dragin_lab.views.facts import num, plural, short
from dragin_lab.views.results import NAMES, best_at_cost, say_measure, title_measure

DRAWN = ("em", "f1", "retrievals")
#: How far behind the last change the line of the last episode goes, as a share.
BEHIND = 0.25


@draws(Curve, "plot")
def draw_curve(curve: Curve) -> go.Figure:
    """Quality and retrievals as steps over θ, with 95 % intervals; a dashed line is the method's
    own θ.
    """
    table = curve.table
    measures = [name for name in DRAWN if table[name].notna().all()]
    titles = [NAMES[name] for name in measures]
    figure = theme.panels(titles, len(measures), shared_xaxes=True, vertical_spacing=0.1)
    for row, name in enumerate(measures, 1):
        figure.add_traces(draw_steps(table, name), rows=row, cols=1)
        figure.update_yaxes(range=span_of(table, name), row=row, col=1)
    own = float(curve.config["method"]["threshold"])
    add_theta(figure, own, table)
    place_axis(figure, table, len(measures))
    asked = plural(len(curve.complete), "question")
    title = f"{curve.method} at every θ: {asked} of {curve.benchmark}; bands are 95 % intervals"
    height = 100 + 150 * len(measures)
    return add_notes(theme.finish(figure, title, height, showlegend=False), curve)


def span_of(table: pd.DataFrame, name: str) -> list[float]:
    """The axis of a measure: from 0 to what its interval reaches."""
    low = min(table[f"{name}_low"].min(), 0)
    high = table[f"{name}_high"].max()
    return [low * 1.05, high * 1.05]


def draw_steps(table: pd.DataFrame, name: str) -> list[go.Scatter]:
    """One measure as steps, from each θ up to the next, and the band of its interval."""
    low, high, steps = (
        go.Scatter(x=edges(table), y=level(table, column), mode="lines", line_shape="hv")
        for column in (f"{name}_low", f"{name}_high", name)
    )
    low.update(line_width=0, hoverinfo="skip")
    high.update(line_width=0, hoverinfo="skip")
    high.update(fill="tonexty", fillcolor=theme.tint(theme.BLUE))
    hover = [f"{say_range(row)}<br>{say_measure(row, name)}" for row in table.to_dict("records")]
    steps.update(customdata=[*hover, hover[-1]], line_color=theme.BLUE, line_width=2)
    return [low, high, steps]


def edges(table: pd.DataFrame) -> list[float]:
    """Where steps begin, and where the last one is broken off."""
    starts = table["value"].to_numpy(float)
    reach = starts[-1] * (1 + BEHIND) if starts[0] > 0 else starts[-1] + BEHIND
    return [*starts, reach]


def level(table: pd.DataFrame, name: str) -> list[float]:
    """A column, with its last value where the last step is broken off."""
    values = table[name].tolist()
    return [*values, values[-1]]


def say_range(row: dict[str, Any]) -> str:
    """From which θ to which a row of a curve holds."""
    until = f"up to {short(row['until'])}" if np.isfinite(row["until"]) else "up"
    return f"θ from {short(row['value'])} {until}"


def add_theta(figure: go.Figure, theta: float, table: pd.DataFrame) -> None:
    """The line of a method's own θ through all panels, where they show it."""
    if not table["value"].iloc[0] <= theta <= edges(table)[-1]:
        return
    figure.add_vline(theta, line=theme.THETA)
    place = np.log10(theta) if table["value"].iloc[0] > 0 else theta
    name = f"its own θ {short(theta)}"
    at = {"xref": "x", "yref": "paper", "yanchor": "bottom", "yshift": 2}
    theme.write(figure, name, place, 1, **at)


def mark_theta(figure: dict[str, Any], theta: float, *, log: bool) -> dict[str, Any]:
    """A curve's figure, as JSON, with a line at a θ, under which it is written."""
    line: dict[str, Any] = {"type": "line", "x0": theta, "x1": theta, "xref": "x"}
    line |= {"y0": 0, "y1": 1, "yref": "paper", "line": {"color": theme.AMBER, "width": 2}}
    name: dict[str, Any] = {"text": f"θ {short(theta)}", "font": {"color": theme.AMBER}}
    name |= {"x": float(np.log10(theta)) if log else theta, "xref": "x", "showarrow": False}
    name |= {"y": 0, "yref": "paper", "yanchor": "top", "yshift": -20}
    return theme.add_parts(figure, shapes=line, annotations=name)


def place_axis(figure: go.Figure, table: pd.DataFrame, rows: int) -> None:
    """θ on a scale of ratios, where it is above 0."""
    starts = edges(table)
    if starts[0] > 0:
        figure.update_xaxes(type="log", range=np.log10([starts[0], starts[-1]]).tolist())
        ticks = ticks_within(starts[0], starts[-1])
        figure.update_xaxes(tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_xaxes(ticklabelstandoff=6)
    theme.name_thetas(figure, rows)


def ticks_within(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two numbers above 0."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [times * 10.0**power for power in powers for times in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def add_notes(figure: go.Figure, *curves: Curve) -> go.Figure:
    """What is not known of curves, below the figure's title."""
    notes = [note for curve in curves for note in curve.notes]
    return theme.add_lines(figure, "; ".join(dict.fromkeys(notes)))


# -- quality against cost --------------------------------------------------------------------------


@draws(Curve, "frontier")
def draw_frontier(
    first: Curve, *others: Curve, cost: str = "retrievals", quality: str = "em"
) -> go.Figure:
    """The best quality that each method gives at a cost or less, as steps; small points are all
    that it gives.
    """
    curves = [first, *others]
    choice("cost", cost, MEASURES)
    choice("quality", quality, MEASURES)
    figure = theme.Figure()
    names = name_curves(curves)
    looks = theme.styles(names)
    for name, curve in zip(names, curves, strict=True):
        look = looks[name]
        best = best_at_cost(curve.table, cost, quality)
        points = {"mode": "markers", "marker": look["marker"] | {"size": 5}, "opacity": 0.35}
        points["showlegend"] = False
        line = {"mode": "lines+markers", "marker": look["marker"], "line": look["line"]}
        line |= {"line_shape": "hv", "name": theme.clip_label(name, 40)}
        for rows, shown in ((curve.table, points), (best, line)):
            says = [describe_point(row, cost, quality) for row in rows.to_dict("records")]
            shown |= {"legendgroup": name, "customdata": says}
            figure.add_scatter(x=rows[cost], y=rows[quality], **shown)
    figure.update_xaxes(title_text=title_measure(cost), rangemode="tozero")
    figure.update_yaxes(title_text=title_measure(quality))
    title = f"Best {title_measure(quality)} at a cost or less, over every θ"
    finished = theme.finish(figure, title, 460, legend=theme.BELOW, showlegend=True)
    return add_notes(finished, *curves)


def name_curves(curves: Sequence[Curve]) -> list[str]:
    """The name of each curve: its method, and its questions where these are not the same."""
    names = [curve.method for curve in curves]
    if len({curve.benchmark for curve in curves}) > 1 or len(set(names)) < len(names):
        names = [f"{curve.method}, {curve.benchmark}" for curve in curves]
    return [f"{name} ({at})" if names.count(name) > 1 else name for at, name in enumerate(names, 1)]


def describe_point(row: dict[str, Any], cost: str, quality: str) -> str:
    """What a θ costs and gives."""
    parts = [f"{title_measure(name)} {num(row[name])}" for name in (quality, cost)]
    return "<br>".join([say_range(row), *parts])


# -- headroom --------------------------------------------------------------------------------------


@draws(Headroom, "plot")
def draw_headroom(headroom: Headroom) -> go.Figure:
    """One θ for all and the best θ for each, as two points joined by an arrow, over what every θ
    gives.
    """
    quality = "em"
    figure = theme.Figure()
    steps = best_at_cost(headroom.curve, "retrievals", quality)
    line = {"color": theme.GREY, "shape": "hv"}
    shared = {"mode": "lines", "name": "one θ for all", "hoverinfo": "skip"}
    figure.add_scatter(x=steps["retrievals"], y=steps[quality], line=line, **shared)
    start, end = headroom.table[["retrievals", quality]].to_numpy().tolist()
    one = f"one θ for all, from {short(headroom.theta)}"
    add_end(figure, one, start, quality, color=theme.BLUE, symbol="circle")
    each = "the best θ for each question"
    add_end(figure, each, end, quality, color=theme.AMBER, symbol="star")
    add_arrow(figure, start, end)
    figure.update_xaxes(title_text=NAMES["retrievals"], rangemode="tozero")
    figure.update_yaxes(title_text=NAMES[quality])
    title = f"What a better choice of θ could win: {plural(headroom.n, 'question')}"
    finished = theme.finish(figure, title, 440, legend=theme.BELOW)
    return theme.add_lines(finished, MEANING)


def add_end(
    figure: go.Figure, name: str, at: tuple[float, float], quality: str, **look: Any
) -> None:
    """A point of quality at a cost."""
    cost, value = at
    says = f"{name}<br>{NAMES[quality]} {num(value)}<br>{NAMES['retrievals']} {num(cost)}"
    point = {"x": [cost], "y": [value], "mode": "markers", "name": name}
    figure.add_scatter(**point, customdata=[says], marker={"size": 13} | look)


def add_arrow(figure: go.Figure, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow from one point to another, short of both."""
    arrow = {"showarrow": True, "arrowhead": 2, "standoff": 9, "startstandoff": 9, "text": ""}
    ax, ay = start
    x, y = end
    figure.add_annotation(x=x, y=y, ax=ax, ay=ay, axref="x", ayref="y", **arrow)
