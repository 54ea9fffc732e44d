"""Views as files: pages that open offline, with one copy of plotly.js for all figures; figures as pictures."""

from __future__ import annotations

import re
from base64 import b64encode
from html import unescape
from pathlib import Path
from typing import Any

from dragin_lab import checks
from dragin_lab.errors import SettingError, ViewError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.trace.trace import Trace
from dragin_lab.views import still
from dragin_lab.views.figures import graph_objects
from dragin_lab.views.frame import View, save_page
from dragin_lab.views.html import clip, esc
from dragin_lab.views.trace import trace_html

NO_SCRIPT = "<noscript><p>A script draws this figure; open the page in a browser that runs scripts.</p></noscript>"
#: The buttons of a figure in a page.
BUTTONS = [["toImage", "zoom2d", "pan2d", "resetScale2d"]]

# Plotly writes its colours into each text; a page knows whether it is light or dark, so here its own ink is better.
FIGURE_STYLE = (
    "<style class='dl-figures'>"
    ".dl-fig{max-width:1180px;margin:0 auto 22px;color-scheme:light dark;box-sizing:border-box;padding:10px;"
    "border:1px solid light-dark(#e2ded7,#34322f);border-radius:10px;background:light-dark(#fff,#15161a);"
    "color:light-dark(#1f1d1a,#e9e6e1);font:14px system-ui,sans-serif}.dl-fig+.dl-out,.dl-out+.dl-fig"
    "{margin-top:22px}.dl-fig text{fill:light-dark(#3d3a36,#cfcac2)!important}"
    ".dl-fig{overflow-x:auto}.dl-fig.wide .plotly-graph-div{min-width:560px}"
    ".dl-title{font-size:16px;padding:6px 12px 0}.dl-title p{margin:2px 0 0;font-size:15px}"
    ".dl-fig .hoverlayer text{fill:#fff!important}.dl-fig.still{background:#fff}.dl-fig img{width:100%;height:auto}"
    "@media print{.dl-fig{color-scheme:light;break-inside:avoid}}</style>"
)


TABLE_STYLE = (
    "<style>.dl-table{max-width:1180px;margin:0 auto 22px;color-scheme:light dark;box-sizing:border-box;"
    "padding:10px 20px;border:1px solid light-dark(#e2ded7,#34322f);border-radius:10px;overflow-x:auto;"
    "background:light-dark(#fff,#15161a);color:light-dark(#1f1d1a,#e9e6e1);font:14px system-ui,sans-serif;"
    "font-variant-numeric:tabular-nums}.dl-table table{border-collapse:collapse}.dl-table th,.dl-table td"
    "{padding:3px 12px 3px 0;text-align:start;border-bottom:1px solid light-dark(#e2ded7,#34322f);vertical-align:top}"
    ".dl-table p{font-size:12px;margin:6px 0 0}@media print{.dl-table{color-scheme:light}}</style>"
)


def save_html(path: str | Path, *views: View | Trace | Any, title: str = "", interactive: bool = True) -> Path:
    """Write views, traces, tables and plotly figures, in this order, as one page that opens offline; return its path.

    A table is a DataFrame or one of ``Runs``.

    Where a figure is among them, plotly.js (about 5 MB) is written once; ``interactive=False`` writes still pictures
    instead, which need no script (matplotlib draws them). A file that was there is replaced whole or not at all. Raises
    ``SettingError`` for nothing to write or for what is not a view, ``ViewError`` where the file cannot be written,
    ``MissingPackageError`` for still pictures without matplotlib.
    """
    checks.text("title", title)
    checks.flag("interactive", interactive)
    if not views:
        raise SettingError("there is nothing to write; give views, traces or figures after the path")
    parts, titles, figures, tables = [], [], 0, False
    for view in views:
        if isinstance(view, View):
            parts.append(view.html)
            titles.append(view.title)
        elif isinstance(view, Trace):
            parts.append(trace_html(view))
            titles.append(f"{clip(view.question.text, 80)[0]} – trace")
        elif is_figure(view):
            figures += 1
            parts.append(figure_html(view, figures) if interactive else _still_html(view))
            titles.append(_unmarked(str(view.layout.title.text or "")))
        elif hasattr(frame := getattr(view, "frame", view), "to_html"):
            tables = True
            about = "".join(f"<p>{esc(line)}</p>" for line in getattr(view, "about", ()))
            shown = frame.to_html(float_format="{:.3f}".format, na_rep="", border=0)
            parts.append(f'<div class="dl-table"><h3>{esc(getattr(view, "title", ""))}</h3>{shown}{about}</div>')
            titles.append(getattr(view, "title", ""))
        else:
            raise SettingError(f"a {type(view).__name__} is not a view; give views, traces, tables or plotly figures")
    if tables:
        parts.insert(0, TABLE_STYLE)
    if figures:
        parts.insert(0, FIGURE_STYLE)
    if figures and interactive:
        from plotly.offline import get_plotlyjs

        parts.insert(0, f"<script>{get_plotlyjs()}</script>")
    named = title or next((t for t in titles if t), "dragin_lab")
    return save_page(path, named, "\n".join(parts))


def is_figure(view: object) -> bool:
    """Whether something is a plotly figure."""
    return hasattr(view, "to_plotly_json") and hasattr(view, "to_html") and hasattr(view, "layout")


def _unmarked(title: str) -> str:
    """A figure's title without plotly's tags."""
    return unescape(re.sub(r"<.*", "", title.replace("<br>", " "))).strip()


def figure_html(figure: Any, number: int) -> str:
    """A plotly figure as a part of a page that has loaded plotly.js and holds ``FIGURE_STYLE``.

    ``number`` tells the figures of one page apart.
    """
    layout = figure.layout
    title, top, height = layout.title.text or "", layout.margin.t or 64, layout.height or 460
    lines = title.split("<br>") if title else []
    room = 20 * len(lines) + 20  # what the title took: on a page it is HTML, which breaks at any width
    shown = graph_objects().Figure(figure).update_layout(
        title_text="", margin_t=max(top - room, 24), height=height - top + max(top - room, 24),
        meta={"title": title, "top": top},
    )  # fmt: skip
    inner = shown.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"dl-figure-{number}",
        default_height=f"{shown.layout.height}px",
        config={"displaylogo": False, "responsive": True, "modeBarButtons": BUTTONS},
    )
    heading = "".join(f"<p>{line}</p>" if line.startswith("<sup>") else f"{line} " for line in lines)
    labelled = any("text" in (series.mode or "") for series in figure.select_traces({"type": "scatter"}))
    crowded = labelled or len({axis.domain for axis in figure.select_xaxes()}) > 1  # panels side by side
    css = "dl-fig wide" if crowded else "dl-fig"
    return (
        f'<div class="{css}" role="figure" aria-label="{esc(_described(figure))}"><div class="dl-title">{heading}</div>'
        f"{NO_SCRIPT}{inner}</div>"
    )


def _still_html(figure: Any) -> str:
    """A figure as a picture within a page."""
    drawn = b64encode(still.picture(figure, "svg", 980, figure.layout.height or 460, 1)).decode()
    return (
        f'<div class="dl-fig still"><img alt="{esc(_described(figure))}" src="data:image/svg+xml;base64,{drawn}"></div>'
    )


def _described(figure: Any) -> str:
    """A figure in a sentence, for those who do not see it: its title and what it shows."""
    titles = [still.plain(figure.layout[name].title.text or "") for name in ("xaxis", "yaxis")]
    series = dict.fromkeys(still.plain(s.name) for s in figure.data if s.name)
    notes = [still.plain(note.text) for note in figure.layout.annotations]
    title = str(figure.layout.title.text or "")
    shown = [_unmarked(title), " ".join(still.titles(title)[1]), " against ".join(filter(None, titles[::-1])), *notes]
    return ". ".join([*filter(None, shown), *([f"Series: {', '.join(series)}"] if series else [])]).replace("\n", " ")


def save_image(figure: Any, path: str | Path, *, width: int = 980, height: int | None = None, scale: float = 2) -> Path:
    """Write a plotly figure as a picture (PNG, SVG, PDF, …, by the name's ending); return its path.

    With kaleido and Chrome it is plotly's own drawing; without them matplotlib draws the same data. ``width`` and
    ``height`` are in CSS pixels (200 to 10,000), ``scale`` pixels of the picture for each (0.1 to 6).

    Raises ``MissingPackageError`` without plotly or without both kaleido and matplotlib, ``SettingError`` for another
    ending, a size out of range or what is not a figure, ``ViewError`` where the file cannot be written.
    """
    graph_objects()
    target = as_path(path, ViewError)
    kind = target.suffix.removeprefix(".").lower()
    if kind not in still.KINDS:
        raise SettingError(f"{target}: a picture's name ends in one of {', '.join(f'.{k}' for k in still.KINDS)}")
    if not is_figure(figure):
        raise SettingError(
            f"a {type(figure).__name__} cannot be written as a picture, only a plotly figure can; "
            "save the view as a page (.save) and print that from a browser"
        )
    wide = round(checks.number("width", width, 200, 10_000))
    tall = round(checks.number("height", figure.layout.height or 460 if height is None else height, 200, 10_000))
    scale = checks.number("scale", scale, 0.1, 6)
    try:
        data = figure.to_image(format=kind, width=wide, height=tall, scale=scale)
    except (ImportError, RuntimeError, ValueError, OSError):  # no kaleido, or no Chrome for it
        data = still.picture(figure, kind, wide, tall, scale)
    try:
        write_whole(target, data)
    except OSError as error:
        raise ViewError(not_saved(target, error)) from error
    return target
