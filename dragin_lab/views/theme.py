"""The look of all figures: one template on white paper, so that it reads on any page, and never
by colour alone.
"""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
from plotly.subplots import make_subplots

from dragin_lab.text import printable
from dragin_lab.views.facts import shorten

#: The paper is white wherever a figure stands: no ink has a contrast of 4.5 both to white and to
#: JupyterLab's dark. Each colour has one of at least 4.5 to it, so that a mark or a text can have
#: it. After Okabe and Ito.
PAPER, INK, GRID = "#ffffff", "#3b3833", "rgba(128, 128, 128, .28)"
BLUE, AMBER, TEAL, PURPLE, GREY = "#0072b2", "#b84a00", "#00796b", "#a04a82", "#736d64"
COLOURS = (BLUE, AMBER, TEAL, PURPLE, "#7a6500", "#4a5fc7", GREY)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot")
LOOKS = len(COLOURS) * len(SYMBOLS)  # pairs, each of which a number below it has
HATCH = {"fillmode": "overlay", "size": 7, "solidity": 0.3, "fgcolor": "#ffffff", "fgopacity": 0.85}
# where a long legend stands
BELOW = {"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom"}
PASSED = {"color": INK, "width": 2}  # the edge of a bar above θ that does not fire
THETA = {"color": INK, "dash": "dash", "width": 1.5}  # the line of a threshold
#: Of a bar, in places of its axis. Plotly's own goes by the gaps between a trace's bars, so that
#: one over every third token would cover its neighbours.
BAR = 0.92

#: Plotly's buttons cover titles and are printed; dragging zooms without them, a double click goes
#: back.
MODEBAR = (
    "zoom",
    "pan",
    "select",
    "lasso",
    "zoomin",
    "zoomout",
    "autoscale",
    "resetscale",
    "resetscale2d",
    "toimage",
    "togglespikelines",
    "hoverclosest",
    "hovercompare",
)

_AXIS = {
    "gridcolor": GRID,
    "linecolor": GRID,
    "zeroline": False,
    "automargin": True,
    "tickcolor": GRID,
}
pio.templates["dragin_lab"] = go.layout.Template(
    layout={
        "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER,
        "modebar": {"remove": [*MODEBAR]},
        "font": {
            "color": INK,
            "size": 13,
            "family": "system-ui, Segoe UI, Roboto, Helvetica Neue, sans-serif",
        },
        "title": {
            "x": 0.01,
            "xanchor": "left",
            "y": 0.99,
            "yanchor": "top",
            "yref": "container",
            "font": {"size": 14},
        },
        "colorway": COLOURS,
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "hoverlabel": {
            "bgcolor": "#24211d",
            "font": {"color": "#ffffff", "size": 13},
            "align": "left",
            "namelength": -1,
        },
        "legend": {"bgcolor": "rgba(0, 0, 0, 0)"},
        "margin": {"l": 50, "r": 20, "t": 80, "b": 40},
    }
)


def label(text: object) -> str:
    """Any value as plotly shows it as text: printable, without markup or formulas, lines broken."""
    return escape(printable(text), quote=False).replace("$", "&#36;").replace("\n", "<br>")


def clip_label(text: object, limit: int) -> str:
    """A text of at most ``limit`` characters on one line, as a label."""
    return label(shorten(str(text), limit))


def tint(colour: str) -> str:
    """A colour of the palette that what lies below shows through."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.18)"


def panels(titles: Sequence[str], rows: int = 1, cols: int = 1, **options: Any) -> go.Figure:
    """An empty figure with a panel for each title, in reading order; ``options`` are those of
    ``make_subplots``.
    """
    figure = make_subplots(
        rows=rows, cols=cols, subplot_titles=[label(title) for title in titles], **options
    )
    for number, annotation in enumerate(figure.layout.annotations):
        axis = "x" if number == 0 else f"x{number + 1}"
        annotation.update(font_size=13, yshift=10, x=0, xref=f"{axis} domain", xanchor="left")
    return figure


def finish(figure: go.Figure, title: str, height: int, **layout: Any) -> go.Figure:
    """The figure with its title, of at most three lines; ``customdata`` is what its traces say
    on hover.
    """
    figure.for_each_trace(
        lambda data: data.update(
            hovertemplate=data.hovertemplate or "%{customdata}<extra></extra>"
        ),
        selector=lambda data: data.customdata is not None,
    )
    figure.update_traces(width=BAR, selector={"type": "bar"})
    lines = textwrap.wrap(" ".join(printable(title).split()), 72, max_lines=3, placeholder=" …")
    return figure.update_layout(
        title={"text": "<br>".join(map(label, lines)), "pad_t": 10 * len(lines)},
        margin_t=64 + 18 * len(lines),
        height=height + 18 * (len(lines) - 1),
        template="dragin_lab",
        **layout,
    )


def message(title: str, text: str) -> go.Figure:
    """A figure that only says why there is nothing to draw."""
    at = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}
    figure = go.Figure().add_annotation(text=label(text), **at)
    return finish(figure, title, 160, xaxis_visible=False, yaxis_visible=False)


def styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The look of each series of a figure by its name, none of which has that of another.

    A name has a place of its own, a method by its order, another by its letters; it moves on to the
    next free one beside a name that has its colour or symbol. Up to seven names share neither.
    """
    from dragin_lab.core.method import METHODS

    known = [*METHODS]
    given = set(names)
    own = [name for name in known if name in given]
    others = sorted(given.difference(own))
    places = dict[str, int]()
    for name in own + others:
        first = known.index(name) if name in known else zlib.crc32(name.encode())
        in_turn = [(first + step) % LOOKS for step in range(LOOKS)]
        count_alike = partial(_count_alike, places.values())
        places[name] = min(in_turn, key=count_alike)
    return {name: style(place) for name, place in places.items()}


def _count_alike(taken: Iterable[int], place: int) -> tuple[int, int, int]:
    """How many of the places taken are this one, have its line, and its colour or symbol."""
    look, others = style(place), [style(one) for one in taken]
    lines = [other["line"] == look["line"] for other in others]
    colours = [other["marker"]["color"] == look["marker"]["color"] for other in others]
    symbols = [other["marker"]["symbol"] == look["marker"]["symbol"] for other in others]
    return sum(one == place for one in taken), sum(lines), sum(colours) + sum(symbols)


def style(number: int) -> dict[str, Any]:
    """Colour, symbol and dash of the series with this number, so that none is told by its colour
    alone.
    """
    colour = COLOURS[number % len(COLOURS)]
    return {
        "line": {"color": colour, "dash": DASHES[number // len(COLOURS) % len(DASHES)]},
        "marker": {"color": colour, "symbol": SYMBOLS[number % len(SYMBOLS)], "size": 9},
    }


def place_names(x: pd.Series, y: pd.Series, names: pd.Series) -> dict[Any, str | None]:
    """For each point (shares of the figure's width and height) the corner where its name meets no
    other, off the bars of its intervals; None for none.

    A name is .012 of the width a letter and .06 of the height.
    """
    sides: dict[Any, str | None] = {}
    # centre, half the width, half the height
    taken = [(a, b, 0.015, 0.03) for a, b in zip(x, y, strict=True)]
    for place in x.index:
        sides[place] = None
        if not names[place]:
            continue
        half = 0.006 * min(len(names[place]), 24)
        for side, right, up in (
            ("top right", 1, 1),
            ("bottom right", 1, -1),
            ("top left", -1, 1),
            ("bottom left", -1, -1),
        ):
            box = (x[place] + right * (half + 0.016), y[place] + up * 0.05, half, 0.03)
            if box[0] + half < 1.1 and all(
                abs(box[0] - a) > half + wide or abs(box[1] - b) > 0.03 + high
                for a, b, wide, high in taken
            ):
                taken.append(box)
                sides[place] = side
                break
    return sides
