"""The look of all figures: one template, on white paper where nothing else is known and on the
page's own ground where that is dark, and never by colour alone.
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
from plotly.colors import hex_to_rgb
from plotly.subplots import make_subplots

from dragin_lab.text import printable
from dragin_lab.views.facts import shorten

#: No ink has a contrast of 4.5 both to white and to JupyterLab's dark, so the paper is white, and
#: a page that is dark turns light and dark around (``DARK``). Each colour has a contrast of 4.5 or
#: more to its ground, so that a mark or a text can have it. After Okabe and Ito.
PAPER = "#ffffff"
INK = "#3b3833"
GRID = "rgba(128, 128, 128, .28)"
BLUE, AMBER, TEAL, PURPLE, GREY = "#0072b2", "#b84a00", "#00796b", "#a04a82", "#736d64"
COLOURS = (BLUE, AMBER, TEAL, PURPLE, "#7a6500", "#4a5fc7", GREY)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
DASHES = ("solid", "dash", "dot", "dashdot")
SIGNS = {"✓": TEAL, "✗": AMBER, "": GREY}  # the colours of answers
LOOKS = len(COLOURS) * len(SYMBOLS)  # pairs, each of which a number below it has
HATCH = {"fillmode": "overlay", "size": 7, "solidity": 0.3, "fgcolor": "#ffffff", "fgopacity": 0.85}
# where a long legend stands
BELOW = {"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom"}
PASSED = {"color": INK, "width": 2}  # the edge of a bar above θ that does not fire
THETA = {"color": INK, "dash": "dash", "width": 1.5}  # the line of a threshold
#: Of a bar, in places of its axis. Plotly's own goes by the gaps between a trace's bars, so that
#: one over every third token would cover its neighbours.
BAR = 0.92
#: Letters in a line of a title; a figure that is 600 pixels wide holds them.
WIDTH = 76

#: No font: by this name a page knows our figures from others.
NAME = "dragin-lab"
#: Before a figure in a notebook: where JupyterLab or VS Code is dark, light and dark are turned
#: around and hues kept, as ``page.html`` does it.
DARK = f"""<style>
:is([data-jp-theme-light="false"], .vscode-dark, [data-theme="dark"])
.js-plotly-plot:has(text[style*="{NAME}"]) {{
  filter: invert(.9) hue-rotate(180deg);
  .main-svg {{ background: transparent !important }} }}
</style>"""

#: Plotly's buttons cover titles and are printed, and one sends the chart to its makers; dragging
#: zooms without them, a double click goes back.
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
    "sendcharttocloud",
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
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "modebar": {"remove": [*MODEBAR]},
        "font": {
            "color": INK,
            "size": 13,
            "family": f"{NAME}, system-ui, Segoe UI, Roboto, Helvetica Neue, sans-serif",
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


class Figure(go.Figure):
    """A figure that a notebook shows on its own ground, be it light or dark."""

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": DARK, "text/plain": ""}, raw=True)
        super()._ipython_display_()


def label(text: object) -> str:
    """Any value as plotly shows it as text: printable, without markup or formulas, lines broken."""
    return escape(printable(text), quote=False).replace("$", "&#36;").replace("\n", "<br>")


def clip_label(text: object, limit: int) -> str:
    """A text of at most ``limit`` characters on one line, as a label."""
    return label(shorten(str(text), limit))


def tint(colour: str, share: float = 0.18) -> str:
    """A colour of the palette that what lies below shows through."""
    return f"rgba{(*hex_to_rgb(colour), share)}"


def write(figure: go.Figure, text: str, x: float, y: float, **look: Any) -> None:
    """Put a label (``label``) at a place, which ``look`` says the axes of."""
    figure.add_annotation(text=text, x=x, y=y, showarrow=False, **look)


def name_thetas(figure: go.Figure, row: int) -> None:
    """θ under the axis of a row, below the place where a control writes one of them."""
    figure.update_xaxes(title={"text": "θ", "standoff": 24}, row=row, col=1)


def break_lines(text: object, width: int) -> list[str]:
    """A text in at most three lines of so many characters, "…" where there are more."""
    return textwrap.wrap(" ".join(printable(text).split()), width, max_lines=3, placeholder=" …")


def add_lines(figure: go.Figure, text: str) -> go.Figure:
    """Small print between title and panels."""
    at = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    lines = break_lines(text, 90)
    if lines:
        small = "<br>".join(map(label, lines))
        write(figure, small, 0, 1, font_size=12, align="left", yshift=26, **at)
    return figure.update_layout(margin_t=figure.layout.margin.t + 16 * len(lines))


def add_parts(figure: dict[str, Any], **parts: dict[str, Any]) -> dict[str, Any]:
    """A figure's JSON with one more of "shapes" or "annotations"."""
    layout = dict(figure["layout"])
    for name, part in parts.items():
        layout[name] = [*layout.get(name, []), part]
    return figure | {"layout": layout}


class Bands:
    """Nodes, known by their places, and bands between them (Sankey's diagram)."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[str]] = {"label": [], "color": []}
        self.links: list[tuple[int, int, float, str, str]] = []

    def add(self, name: str, colour: str) -> int:
        """A node; returns its place."""
        self.nodes["label"].append(clip_label(name, 27))
        self.nodes["color"].append(colour)
        return len(self.nodes["label"]) - 1

    def join(self, source: int, target: int, width: float, colour: str, about: str) -> None:
        """A band, and what it says on hover."""
        self.links.append((source, target, width, tint(colour, 0.4), about))

    def draw(self) -> Figure:
        node: dict[str, Any] = {"pad": 12, "thickness": 12, "align": "left"}
        node |= self.nodes | {"hovertemplate": "%{label}<extra></extra>"}
        names = ["source", "target", "value", "color", "customdata"]
        link: dict[str, Any] = pd.DataFrame(self.links, columns=names).to_dict("list")
        link["hovertemplate"] = "%{customdata}<extra></extra>"
        return Figure(go.Sankey(node=node, link=link))


def panels(titles: Sequence[str], rows: int = 1, cols: int = 1, **options: Any) -> go.Figure:
    """An empty figure with a panel for each title, in reading order; ``options`` are those of
    ``make_subplots``.
    """
    names = [label(title) for title in titles]
    figure = make_subplots(rows, cols, subplot_titles=names, figure=Figure(), **options)
    for number, annotation in enumerate(figure.layout.annotations):
        axis = "x" if number == 0 else f"x{number + 1}"
        annotation.update(font_size=13, yshift=10, x=0, xref=f"{axis} domain", xanchor="left")
    return figure


def finish(figure: go.Figure, title: str, height: int, **layout: Any) -> go.Figure:
    """The figure with its title, of at most three lines; ``customdata`` is what its traces say
    on hover.
    """
    for data in figure.data:
        if data.customdata is not None and data.hovertemplate is None:
            data.hovertemplate = "%{customdata}<extra></extra>"
    figure.update_traces(width=BAR, selector={"type": "bar"})
    lines = break_lines(title, WIDTH)
    return figure.update_layout(
        title={"text": "<br>".join(map(label, lines)), "pad_t": 10 * len(lines)},
        margin_t=64 + 18 * len(lines),
        height=height + 18 * (len(lines) - 1),
        template="dragin_lab",
        **layout,
    )


def message(title: str, text: str) -> go.Figure:
    """A figure that only says why there is nothing to draw."""
    figure = Figure()
    write(figure, label(text), 0.5, 0.5, xref="paper", yref="paper")
    return finish(figure, title, 160, xaxis_visible=False, yaxis_visible=False)


def styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The look of each series of a figure by its name, none of which has that of another.

    A name has a place of its own, a method by its order, another by its letters; it moves on to the
    next free one beside a name that has its colour or symbol. Up to seven names share neither.
    """
    from dragin_lab.core.method import METHODS

    ranks = {name: rank for rank, name in enumerate(METHODS)}
    ranked = sorted(set(names))
    ranked.sort(key=lambda name: ranks.get(name, LOOKS))
    places = dict[str, int]()
    for name in ranked:
        first = ranks.get(name, zlib.crc32(name.encode()))
        in_turn = [(first + step) % LOOKS for step in range(LOOKS)]
        count_alike = partial(_count_alike, places.values())
        places[name] = min(in_turn, key=count_alike)
    return {name: style(place) for name, place in places.items()}


def _count_alike(taken: Iterable[int], place: int) -> tuple[int, int, int]:
    """How many of the places taken are this one, have its line, and its colour or symbol."""
    look = style(place)
    others = [style(one) for one in taken]
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
