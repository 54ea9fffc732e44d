"""Figures by matplotlib, shown as SVG on light and dark pages, with their numbers as a table under them.

Panels and labels beside the data tell series apart, colour only stresses. matplotlib writes literal colours; on a page
each becomes a CSS variable with that colour as its fallback.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2s
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from dragin_lab.checks import number
from dragin_lab.errors import MissingPackageError, SettingError, ViewError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.views.frame import View, frame_card
from dragin_lab.views.html import num, printable
from dragin_lab.views.rendering import render_template

if TYPE_CHECKING:
    import pandas as pd

#: The colours of the light theme, in which pictures are drawn, and the variables of style.css that replace them.
INK, SOFT, LINE, BLUE, AMBER = "#1f1d1a", "#625d56", "#e2ded7", "#0062bf", "#9a4d00"
VARIABLES = {INK: "--fg", SOFT: "--soft", LINE: "--line", BLUE: "--blue", AMBER: "--amber"}
#: Endings of the pictures that matplotlib writes.
KINDS = ("png", "svg", "pdf", "jpg", "jpeg", "webp")
#: The two widths in CSS pixels at which a page holds a figure; the width of its card decides which one shows.
WIDE, NARROW = 920, 340
DPI = 72  # a point of matplotlib is then a CSS pixel
MAX_ROWS = 40  # rows of a table in text

STYLE: Any = {
    "figure.dpi": DPI, "savefig.dpi": DPI, "svg.fonttype": "none", "text.parse_math": False, "font.size": 12,
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": INK, "axes.labelcolor": SOFT, "axes.edgecolor": LINE, "axes.facecolor": "none",
    "xtick.color": LINE, "ytick.color": LINE, "xtick.labelcolor": SOFT, "ytick.labelcolor": SOFT,
    "xtick.labelsize": 11, "ytick.labelsize": 11, "axes.titlesize": 12, "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": LINE, "lines.linewidth": 2, "lines.markersize": 6, "hatch.linewidth": 0.8,
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Figure(View):
    """A figure by matplotlib.

    A notebook shows it, ``print`` gives its numbers, and ``save`` writes a page or, by the name's ending, a picture.
    """

    about: str
    draw_with_style: Callable[[int], Any]

    def draw(self, width: int = WIDE) -> Any:
        """A new ``matplotlib.figure.Figure`` without the title, ``width`` CSS pixels wide."""
        with use_style():
            return self.draw_with_style(width)

    def save(self, path: str | Path, *, width: int = WIDE, scale: float = 2) -> Path:
        """Write a page (.html) or a picture (.png, .svg, .pdf, .jpg, .webp), dark on white; return its path.

        ``width`` of a picture is in CSS pixels (200 to 10,000), ``scale`` is pixels of the file for each (0.1 to 6).
        Raises ``SettingError`` for another ending or a size out of range, ``ViewError`` where the file cannot be
        written.
        """
        target = as_path(path, ViewError)
        kind = target.suffix.removeprefix(".").lower()
        if kind == "html":
            return super().save(target)
        if kind not in KINDS:
            endings = ", ".join(f".{known}" for known in KINDS)
            raise SettingError(f"{target}: a picture's name ends in one of {endings}, a page's in .html")
        width, scale = round(number("width", width, 200, 10_000)), number("scale", scale, 0.1, 6)
        with use_style():
            drawing = self.draw(width)
            _write_title(drawing, self.title, self.about)
            data = _encode_drawing(drawing, kind, self.title, dpi=DPI * scale, facecolor="white")
        try:
            write_whole(target, data)
        except OSError as error:
            raise ViewError(not_saved(target, error)) from error
        return target


def make_figure(
    title: str,
    draw: Callable[[int], Any],
    *,
    about: str = "",
    alt: str,
    table: pd.DataFrame,
    numbers: str,
) -> Figure:
    """A figure with its numbers under it.

    ``alt`` says in a sentence what the picture shows, ``numbers`` names ``table``, whose numbers are shown with three
    decimals. Raises ``MissingPackageError`` without matplotlib.
    """
    with use_style():
        pictures = [_inline_svg(draw(width), width, title) for width in (WIDE, NARROW)]
    rows = table.map(lambda cell: num(cell) if isinstance(cell, float) else printable(str(cell)))
    text = "\n\n".join(filter(None, [title, about, alt, rows.to_string(index=False, max_rows=MAX_ROWS)]))
    context = {"title": title, "about": about, "alt": alt, "pictures": pictures, "table": rows, "numbers": numbers}
    card = partial(render_template, "figure.html", **context)
    html, plain = frame_card("The figure", card, lambda: text, ("figure",))
    return Figure(title, html, plain, about, draw)


@contextmanager
def use_style() -> Iterator[None]:
    """Our style while matplotlib draws, whatever style the caller has set.

    A character that its font lacks is drawn as a box, without a warning.

    Raises ``MissingPackageError`` where matplotlib is not installed.
    """
    try:
        from matplotlib import style
    except ImportError as error:
        raise MissingPackageError(
            "this figure needs matplotlib, which is not installed; run pip install 'dragin-lab[notebooks]', "
            "or matplotlib alone"
        ) from error
    with style.context(STYLE, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def draw_panels(
    titles: Sequence[str],
    width: int,
    *,
    height: int = 170,
    least: int = 150,
    most: int = 5,
    parent: Any = None,
    **options: Any,
) -> tuple[Any, list[Any]]:
    """A drawing (or ``parent``, a part of one) with a panel for each title, and the panels in reading order.

    A row holds as many panels as have ``least`` pixels each, at most ``most``; ``height`` is that of a row, in pixels;
    ``options`` are those of ``matplotlib.figure.Figure.subplots``.
    """
    across = max(1, min(width // least, most, len(titles)))
    rows = math.ceil(len(titles) / across)
    drawing = new_drawing(width, rows * height) if parent is None else parent
    panels = list(drawing.subplots(rows, across, squeeze=False, **options).flat)
    for panel in panels[len(titles) :]:
        panel.remove()
    for place, (panel, title) in enumerate(zip(panels, titles, strict=False)):
        panel.set_title(clip_label(title, width // across // 7))
        panel.tick_params(labelbottom=options.get("sharex") is None or place + across >= len(titles))
    return drawing, panels[: len(titles)]


def new_drawing(width: float, height: float) -> Any:
    """An empty ``matplotlib.figure.Figure`` of this size in CSS pixels that makes room for its own labels."""
    from matplotlib.figure import Figure as Drawing

    return Drawing(figsize=(width / DPI, height / DPI), layout="constrained", facecolor="none")


def clip_label(text: str, limit: int) -> str:
    """A text of at most ``limit`` characters for a label, on one line."""
    shown = printable(text).replace("\n", "↵")
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _write_title(drawing: Any, title: str, about: str) -> None:
    """Put the title and the smaller line under it above the plot; the drawing grows."""
    width, plot = (DPI * inches for inches in drawing.get_size_inches())
    large, small = textwrap.wrap(printable(title), int(width / 9)), textwrap.wrap(printable(about), int(width / 7))
    room = 22 * len(large) + 17 * len(small) + 16
    total = plot + room
    drawing.set_size_inches(width / DPI, total / DPI)
    drawing.get_layout_engine().set(rect=(0, 0, 1, 1 - room / total))
    for row, line in enumerate(large):
        drawing.text(8 / width, 1 - (8 + 22 * row) / total, line, size=16, va="top", in_layout=False)
    for row, line in enumerate(small):
        top = 10 + 22 * len(large) + 17 * row
        drawing.text(8 / width, 1 - top / total, line, color=SOFT, va="top", in_layout=False)


def _encode_drawing(drawing: Any, kind: str, salt: str, **options: Any) -> bytes:
    """The drawing as the bytes of a file; the same bytes for the same drawing. ``salt`` keeps ids of SVGs apart."""
    import matplotlib

    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": blake2s(salt.encode(errors="replace")).hexdigest()}):
        drawing.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None, **options)
    return out.getvalue()


def _inline_svg(drawing: Any, room: int, title: str) -> Markup:
    """The drawing as SVG within a page, in the page's font and colours, as wide as its box.

    A drawing that needs more than ``room`` pixels keeps its width, and its box scrolls.
    """
    svg = _encode_drawing(drawing, "svg", f"{title}{room}").decode()
    width, height = (DPI * inches for inches in drawing.get_size_inches())
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' id="\w+_\d+"', "", svg)  # nothing refers to these, and each picture has them
    svg = re.sub("'DejaVu Sans'[^;\"]*", "var(--sans)", svg)
    svg = re.sub("|".join(VARIABLES), lambda colour: f"var({VARIABLES[colour[0]]}, {colour[0]})", svg)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), svg)  # a tenth of a pixel will do
    least = f' style="min-width:{width:.0f}px"' if round(width) > room else ""
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return Markup(re.sub("<svg [^>]*>", f'<svg viewBox="0 0 {width:g} {height:g}"{least} {names}>', svg, count=1))


#: Where a label may stand beside its point, best first: the signs of its shift in x and y.
_SIDES = ((1, 1), (-1, 1), (1, -1), (-1, -1))


def label_points(panel: Any, x: np.ndarray, y: np.ndarray, labels: Sequence[str]) -> None:
    """Write each label beside its point, on a side where it covers no other label and no point; else leave it out."""
    panel.figure.draw_without_rendering()  # lays the panel out, so that pixels are known
    places = panel.transData.transform(np.column_stack([x, y]))  # (n, 2)
    area = panel.get_window_extent()
    boxes = [(px - 6, py - 6, px + 6, py + 6) for px, py in places]
    for (px, py), label in zip(places, labels, strict=True):
        size = 6.6 * len(label)
        for right, up in _SIDES:
            left, low = (px + 7 if right > 0 else px - 7 - size), (py + 4 if up > 0 else py - 17)
            box = (left, low, left + size, low + 13)
            free = not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in boxes)
            if free and left > area.x0 - 40 and left + size < area.x1 + 20:
                boxes.append(box)
                panel.annotate(
                    label, (px, py), xycoords="figure pixels", xytext=(left, low), textcoords="figure pixels",
                    size=11, color=SOFT, in_layout=False,
                )  # fmt: skip
                break
