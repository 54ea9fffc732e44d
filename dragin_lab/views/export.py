"""Views as files: pages that open offline, figures as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dragin_lab.checks import text
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Trace
from dragin_lab.views.figures import WIDE, Figure
from dragin_lab.views.frame import View, save_page
from dragin_lab.views.html import esc
from dragin_lab.views.trace import trace_view

TABLE_STYLE = (
    "<style>.dl-table{max-width:1180px;margin:0 auto 22px;color-scheme:light dark;box-sizing:border-box;"
    "padding:10px 20px;border:1px solid light-dark(#e2ded7,#34322f);border-radius:10px;overflow-x:auto;"
    "background:light-dark(#fff,#15161a);color:light-dark(#1f1d1a,#e9e6e1);font:14px system-ui,sans-serif;"
    "font-variant-numeric:tabular-nums}.dl-table table{border-collapse:collapse}.dl-table th,.dl-table td"
    "{padding:3px 12px 3px 0;text-align:start;border-bottom:1px solid light-dark(#e2ded7,#34322f);vertical-align:top}"
    ".dl-table p{font-size:12px;margin:6px 0 0}@media print{.dl-table{color-scheme:light}}</style>"
)


def save_html(path: str | Path, *views: View | Trace | Any, title: str = "") -> Path:
    """Write views, traces and tables, in this order, as one page that opens offline; return its path.

    A table is a DataFrame or one of ``Runs``. The file is replaced whole or not at all. Raises ``SettingError`` for
    nothing to write or for what is not a view, ``ViewError`` where the file cannot be written.
    """
    if not views:
        raise SettingError("there is nothing to write; give views, traces or tables after the path")
    parts, titles = [], [text("title", title)]
    for view in views:
        if isinstance(view, Trace):
            view = trace_view(view)
        if isinstance(view, View):
            parts.append(view.html)
            titles.append(view.title)
        elif hasattr(frame := getattr(view, "frame", view), "to_html"):
            about = "".join(f"<p>{esc(line)}</p>" for line in getattr(view, "about", ()))
            table = frame.to_html(float_format="{:.3f}".format, na_rep="", border=0)
            style = "" if any(TABLE_STYLE in part for part in parts) else TABLE_STYLE
            parts.append(f'{style}<div class="dl-table"><h3>{esc(getattr(view, "title", ""))}</h3>{table}{about}</div>')
            titles.append(getattr(view, "title", ""))
        else:
            raise SettingError(f"a {type(view).__name__} is not a view; give views, traces or tables")
    return save_page(path, next(filter(None, titles), "dragin_lab"), "\n".join(parts))


def save_image(
    figure: Figure, path: str | Path, *, width: int = WIDE, height: int | None = None, scale: float = 2
) -> Path:
    """``figure.save(path)``: a picture (PNG, SVG, PDF, …, by the name's ending); return its path.

    Raises ``SettingError`` for a view that is not a figure, else as ``Figure.save``.
    """
    if not isinstance(figure, Figure):
        raise SettingError(
            f"a {type(figure).__name__} cannot be written as a picture, only a figure can; "
            "save the view as a page (.save) and print that from a browser"
        )
    return figure.save(path, width=width, height=height, scale=scale)
