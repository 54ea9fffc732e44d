"""A plotly figure drawn again by matplotlib: a still picture, dark on white, where no browser is there to draw it.

It knows what the figures of this package are made of: lines, markers, error bars, bars, heatmaps, lines across a panel.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html import unescape
from itertools import pairwise
from typing import Any

import numpy as np

from dragin_lab.errors import MissingPackageError, SettingError

#: Endings that matplotlib writes.
KINDS = ("png", "svg", "pdf", "jpg", "jpeg", "webp")
DPI = 100
INK, GRID, RATIO = "#33302c", "#dddddd", 0.72  # RATIO: points of matplotlib for a CSS pixel
_DASHES = {"dash": (6, 3), "dot": (1.5, 2), "dashdot": (6, 3, 1.5, 3), "longdash": (10, 4)}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "X", "cross": "P", "star": "*"}
_RGBA = re.compile(r"rgba?\((\d+), ?(\d+), ?(\d+)(?:, ?([\d.e-]+))?\)")


def picture(figure: Any, kind: str, width: int, height: int, scale: float) -> bytes:
    """The figure as a file of this kind; ``width`` and ``height`` in CSS pixels, ``scale`` pixels for each.

    Raises ``MissingPackageError`` without matplotlib, ``SettingError`` for a kind of series that it does not know.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError(
            "pictures without Chrome need matplotlib, which is not installed; run pip install 'dragin-lab[export]'"
        ) from error
    unknown = next((series.type for series in figure.data if series.type not in _DRAW), None)
    if unknown is not None:
        raise SettingError(
            f"a series of the kind {unknown!r} can only be drawn by plotly; install Chrome or Chromium for kaleido, or "
            "write a page with save_html"
        )
    layout = figure.layout
    drawn: Any = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    lines, small = titles(str(layout.title.text or ""))
    top = 24 + 22 * len(lines) + 17 * len(small)
    for number, line in enumerate(lines + small):
        size = 16 if number < len(lines) else 12
        place = 1 - (18 + 22 * min(number, len(lines)) + 17 * max(number - len(lines), 0)) / height
        drawn.text(14 / width, place, line, size=size * RATIO, color=INK, va="center")
    axes: dict[tuple[str, str], Any] = {}
    heatmap = any(series.type == "heatmap" for series in figure.data)
    room = (64 if not heatmap else 130, top + 24, 24, 110 if not heatmap else 140)  # left, top, right, bottom
    with matplotlib.rc_context({"font.size": 12 * RATIO, "hatch.linewidth": 0.6, "svg.hashsalt": "dragin_lab"}):
        for series in figure.data:
            if series.visible is not False:
                names = (series.xaxis or "x", series.yaxis or "y")
                if names not in axes:
                    axes[names] = _panel(drawn, layout, names, room, (width, height))
                _DRAW[series.type](axes[names], series)
        for (_, name), panel in axes.items():
            if layout["yaxis" + name[1:]].rangemode == "tozero":
                panel.set_ylim(bottom=0)
        for shape in layout.shapes:
            names = (shape.xref, str(shape.yref).removesuffix(" domain"))
            if names in axes:
                axes[names].axvline(shape.x0, color=INK, dashes=_DASHES["dash"], linewidth=1.5 * RATIO)
        _annotate(drawn, layout, axes)
        _legend(drawn, figure, width)
        out = io.BytesIO()
        drawn.savefig(out, format=kind, dpi=DPI * scale, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def plain(text: object) -> str:
    """A text of plotly without its tags."""
    return unescape(re.sub(r"<[^>]*>", "", str(text).replace("<br>", "\n")))


def titles(text: str) -> tuple[list[str], list[str]]:
    """The lines of a title, and the smaller ones under it."""
    parts = [part for part in text.split("<br>") if part]
    small = [part for part in parts if part.startswith("<sup>")]
    return [plain(part) for part in parts if part not in small], [plain(part) for part in small]


def _panel(drawn: Any, layout: Any, names: tuple[str, str], room: tuple[int, ...], size: tuple[int, int]) -> Any:
    x, y = (layout[name[0] + "axis" + name[1:]] for name in names)
    (width, height), (left, top, right, bottom) = size, room
    (x0, x1), (y0, y1) = x.domain or (0, 1), y.domain or (0, 1)
    across, up = width - left - right, height - top - bottom
    place = ((left + x0 * across) / width, (bottom + y0 * up) / height)
    panel = drawn.add_axes((*place, (x1 - x0) * across / width, (y1 - y0) * up / height))
    panel.grid(color=GRID, linewidth=0.8 * RATIO)
    panel.set_axisbelow(True)
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0, labelcolor=INK)
    panel.set_xlabel(plain(x.title.text or ""), color=INK)
    panel.set_ylabel(plain(y.title.text or ""), color=INK)
    if x.range:
        panel.set_xlim(*x.range)
    if y.range:
        panel.set_ylim(*y.range)
    if str(y.tickformat or "").endswith("%"):
        panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    return panel


def _colour(text: Any) -> Any:
    found = _RGBA.match(str(text))
    if found is None:
        return text
    r, g, b, a = found.groups(default="1")
    return (int(r) / 255, int(g) / 255, int(b) / 255, float(a))


def _scatter(panel: Any, series: Any) -> None:
    x, y = np.asarray(series.x, float), np.asarray(series.y, float)
    look = {"alpha": series.opacity or 1.0}
    for axis, bars in (("xerr", series.error_x), ("yerr", series.error_y)):
        if bars.array is not None:
            ends = {axis: [np.asarray(bars.arrayminus), np.asarray(bars.array)]}
            colour = _colour(bars.color or series.line.color)
            panel.errorbar(x, y, **ends, fmt="none", ecolor=colour, elinewidth=1.3 * RATIO, capsize=3 * RATIO)
    if "lines" in series.mode:
        steps = "steps-post" if series.line.shape == "hv" else "default"
        [line] = panel.plot(x, y, color=series.line.color, linewidth=series.line.width * RATIO, drawstyle=steps, **look)
        if series.line.dash in _DASHES:
            line.set_dashes(_DASHES[series.line.dash])
    if "markers" in series.mode:
        symbols = series.marker.symbol
        symbols = [symbols] * len(x) if isinstance(symbols, str) else list(symbols)
        for place, symbol in enumerate(symbols):
            panel.plot(x[place], y[place], **_marker(series, symbol), linestyle="none", **look)
    if "text" in series.mode:
        sides = series.textposition
        sides = [sides] * len(x) if isinstance(sides, str) else list(sides)
        for place, (said, side) in enumerate(zip(series.text, sides, strict=True)):
            over, beside = side.split()
            shift = ({"left": -7, "right": 7}.get(beside, 0), {"top": 6, "bottom": -6}.get(over, 0))
            align = {"left": "right", "right": "left"}.get(beside, "center")
            sits = {"top": "bottom", "bottom": "top"}.get(over, "center")
            spot = {"textcoords": "offset points", "xytext": shift, "ha": align, "va": sits}
            panel.annotate(plain(said), (x[place], y[place]), color=INK, size=11 * RATIO, **spot)


def _marker(series: Any, symbol: str) -> dict[str, Any]:
    colour = _colour(series.marker.color)
    filled = "none" if symbol.endswith("-open") else colour
    shape = _MARKERS.get(symbol.removesuffix("-open"), "o")
    return {"marker": shape, "color": colour, "markerfacecolor": filled, "markersize": series.marker.size * RATIO}


def _bar(panel: Any, series: Any) -> None:
    look = {"facecolor": _colour(series.marker.color), "edgecolor": _colour(series.marker.line.color), "linewidth": 0.6}
    hatch = "////" if series.marker.pattern.shape else None
    panel.bar(series.x, series.y, width=series.width, hatch=hatch, **look)


def _heatmap(panel: Any, series: Any) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    stops = [(float(place), _colour(colour)) for place, colour in series.colorscale]
    colours = LinearSegmentedColormap.from_list("attention", stops)
    values = np.asarray(series.z, float)
    image = panel.imshow(values, cmap=colours, vmin=series.zmin, vmax=series.zmax, aspect="auto")
    for axis, names in ((panel.xaxis, series.x), (panel.yaxis, series.y)):
        axis.set_ticks(range(len(names[1])), [plain(name).replace("\u200b", "") for name in names[1]])
        parts, across = list(names[0]), axis is panel.xaxis
        starts = [i for i in range(len(parts)) if i == 0 or parts[i] != parts[i - 1]]
        for start, stop in pairwise([*starts, len(parts)]):
            if start:
                (panel.axvline if across else panel.axhline)(start - 0.5, color=INK, linewidth=0.8)
            if across:
                over = panel.get_xaxis_transform()
                panel.text((start + stop - 1) / 2, 1.02, parts[start], transform=over, color=INK, ha="center")
    panel.tick_params(axis="x", rotation=60, labelsize=11 * RATIO)
    panel.grid(visible=False)
    panel.figure.colorbar(image, ax=panel, shrink=0.5, label=plain(series.colorbar.title.text or ""))


_DRAW = {"scatter": _scatter, "bar": _bar, "heatmap": _heatmap}


def _annotate(drawn: Any, layout: Any, axes: dict[tuple[str, str], Any]) -> None:
    """The titles of the panels, and what a figure without data says."""
    panels = iter(axes.values())
    for note in layout.annotations:
        panel = next(panels, None)
        if panel is not None:
            panel.set_title(plain(note.text), color=INK, size=13 * RATIO)
        else:
            drawn.text(0.5, 0.5, plain(note.text), color=INK, size=14 * RATIO, ha="center", va="center")


def _named(figure: Any) -> Iterator[Any]:
    seen = set()
    for series in sorted(figure.data, key=lambda series: getattr(series, "legendrank", None) or 1000):
        if series.name and series.showlegend is not False and series.type != "heatmap" and series.name not in seen:
            seen.add(series.name)
            yield series


def _legend(drawn: Any, figure: Any, width: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    keys: list[Any] = []
    for series in _named(figure):
        name = plain(series.name)
        if series.type == "bar":
            face, edge = _colour(series.marker.color), _colour(series.marker.line.color)
            hatch = "////" if series.marker.pattern.shape else None
            keys.append(Patch(facecolor=face, edgecolor=edge, hatch=hatch, label=name))
            continue
        symbol = series.marker.symbol if isinstance(series.marker.symbol, str) else series.marker.symbol[0]
        look = _marker(series, symbol) if "markers" in series.mode else {"color": series.line.color}
        style: Any = "-" if "lines" in series.mode else "none"
        keys.append(Line2D([], [], linestyle=style, linewidth=(series.line.width or 2) * RATIO, label=name, **look))
        if series.line.dash in _DASHES and style == "-":
            keys[-1].set_dashes(_DASHES[series.line.dash])
    if len(keys) > 1:
        longest = max(len(str(key.get_label())) for key in keys)
        columns = max(1, int(width / (60 + 7 * longest)))
        drawn.legend(handles=keys, loc="lower left", ncols=columns, frameon=False, labelcolor=INK, handlelength=3.2)
