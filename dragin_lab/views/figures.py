"""What the plotly figures share: colours told apart by all eyes, a dash and a marker for each series, readable texts.

Backgrounds are transparent and text is a grey between, so that a figure stands on a light and on a dark page.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from dragin_lab.checks import text
from dragin_lab.errors import MissingPackageError
from dragin_lab.views.html import printable

#: Chosen to lie as far apart as can be for normal, deuteranope and protanope eyes, each with a contrast of 3 or more on
#: white and on near black; a test measures both.
COLOURS = ("#0062bf", "#aa9117", "#865a00", "#3295f6", "#6e848f")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
INK = "#797979"  # 4.3 on white and on JupyterLab's dark #111: no grey has more on both
#: Letters of a line of a title, and of the smaller line below it.
TITLE, SUBTITLE = 72, 98
GRID = "rgba(128,128,128,0.22)"
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif'


@dataclass(frozen=True)
class Style:
    """How one series looks; two series differ in more than their colour."""

    colour: str
    dash: str
    marker: str

    @property
    def hollow(self) -> str:
        """Its marker, not filled."""
        return f"{self.marker}-open"

    def faded(self, alpha: float) -> str:
        """Its colour, see-through."""
        r, g, b = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({r},{g},{b},{alpha:g})"


#: What stands for no series of ours: chance, a frontier, the paper's points.
GREY = Style(INK, "dot", "diamond")


def style(number: int) -> Style:
    """The style of the series of this number; 30 numbers have different ones."""
    return Style(COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)])


def scatter(
    look: Style,
    x: Any,
    y: Any,
    name: str,
    *,
    mode: str = "lines+markers",
    width: float = 2,
    size: float = 9,
    symbol: Any = None,
    edge: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """A series in its style: ``width`` of its line, ``size``, ``symbol`` and ``edge`` of its markers."""
    line = {"color": look.colour, "dash": look.dash, "width": width}
    marker = {"symbol": symbol or look.marker, "size": size, "color": look.colour, "line": edge}
    return graph_objects().Scatter(x=x, y=y, name=name, mode=mode, line=line, marker=marker, **more)


def graph_objects() -> Any:
    """``plotly.graph_objects``; raises ``MissingPackageError`` where plotly is not installed."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise MissingPackageError(
            "this figure needs plotly, which is not installed; run pip install 'dragin-lab[notebooks]', or plotly alone"
        ) from error
    return go


def panels(rows: int, columns: int, **options: Any) -> Any:
    """A figure of several panels, in our look."""
    graph_objects()
    from plotly.subplots import make_subplots

    return dressed(make_subplots(rows=rows, cols=columns, **options))


def dressed(figure: Any, **layout: Any) -> Any:
    """The figure in our look: transparent, with grey text and quiet grids."""
    go = graph_objects()
    figure.update_layout(
        template=go.layout.Template(),
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 13, "color": INK},
        title={"x": 0, "xref": "container", "xanchor": "left", "pad": {"l": 12}, "font": {"size": 16}},
        margin={"l": 64, "r": 24, "t": 64, "b": 56},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        hoverlabel={"bgcolor": "#24211d", "bordercolor": "#24211d", "font": {"color": "#ffffff"}, "align": "left"},
        colorway=list(COLOURS),
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": INK, "activecolor": COLOURS[3]},
    )
    axis = {
        "gridcolor": GRID,
        "linecolor": INK,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": GRID,
        "automargin": True,
        "title": {"standoff": 8},
    }
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    figure.update_annotations(font={"color": INK, "size": 14})
    figure.update_layout(**layout)
    return figure


def label(text: object) -> str:
    """A text for plotly, which reads tags and entities in its labels: shown as it is."""
    return escape(printable(str(text)), quote=False).replace("\n", "↵")


def titled(figure: Any, title: str, says: str = "", top: int = 64) -> Any:
    """The figure with a title and a line below it, both broken so that a window of 700 px shows them whole.

    ``top`` is the room above the plot in pixels, for a title of one line without a line below it.
    """
    lines = [label(line) for line in textwrap.wrap(text("title", title), TITLE, break_on_hyphens=False)]
    small = [f"<sup>{label(line)}</sup>" for line in textwrap.wrap(says, SUBTITLE)]
    room = top + 20 * (max(len(lines), 1) + len(small) - 1)
    return figure.update_layout(title_text="<br>".join(lines + small), margin={"t": room})


def message_figure(said: str) -> Any:
    """An empty figure that says why there is nothing to show."""
    go = graph_objects()
    figure = dressed(go.Figure(), height=220, margin={"l": 24, "r": 24, "t": 24, "b": 24})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    lines = "<br>".join(map(label, textwrap.wrap(printable(said), TITLE)))
    figure.add_annotation(text=lines, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5, font={"size": 14})
    return figure


#: Where a label may stand, best first, as plotly names it, with the signs of its shift in x and y.
_SIDES = {"top right": (1, 1), "top left": (-1, 1), "bottom right": (1, -1), "bottom left": (-1, -1)}


def sides(x: np.ndarray, y: np.ndarray, texts: Sequence[str], width: float = 540, height: float = 240) -> list[str]:
    """Where each point's label stands so that it covers no other label and no point; "" where no side is free.

    ``width`` and ``height`` are those of the smallest plot that the figure is shown in, in pixels.
    """
    finite = [values[np.isfinite(values)] for values in (x, y)]
    spread = [max(float(np.ptp(values)), 1e-9) if len(values) else 1.0 for values in finite]
    places = np.column_stack([x / spread[0] * width, y / spread[1] * height])  # (n, 2)
    boxes = [(px - 6, py - 6, px + 6, py + 6) for px, py in places]
    out = []
    for (px, py), words in zip(places, texts, strict=True):
        size = 6.5 * len(words)
        for side, (right, up) in _SIDES.items():
            left, low = (px + 7 if right > 0 else px - 7 - size), (py + 7 if up > 0 else py - 20)
            box = (left, low, left + size, low + 13)
            if not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in boxes):
                boxes.append(box)
                out.append(side)
                break
        else:
            out.append("")
    return out
