"""Several views, traces and tables as one page that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dragin_lab.checks import text
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Trace
from dragin_lab.views.frame import View, save_page
from dragin_lab.views.rendering import render_macro
from dragin_lab.views.trace import trace_view


def save_html(path: str | Path, *views: View | Trace | Any, title: str = "") -> Path:
    """Write views, traces and tables, in this order, as one page that opens offline; return its path.

    A table is a DataFrame or one of ``Runs``. The file is replaced whole or not at all. Raises ``SettingError`` for
    nothing to write or for what is not a view, ``ViewError`` where the file cannot be written.
    """
    if not views:
        raise SettingError("there is nothing to write; give views, traces or tables after the path")
    parts, titles = [], [text("title", title)]
    for view in views:
        view = trace_view(view) if isinstance(view, Trace) else view
        if isinstance(view, View):
            parts.append(view.html)
        elif hasattr(frame := getattr(view, "frame", view), "to_html"):
            table = frame.to_html(float_format="{:.3f}".format, na_rep="", border=0)
            parts.append(
                render_macro("table.html", "framed", getattr(view, "title", ""), table, getattr(view, "about", ()))
            )
        else:
            raise SettingError(f"a {type(view).__name__} is not a view; give views, traces or tables")
        titles.append(getattr(view, "title", ""))
    return save_page(path, next(filter(None, titles), "dragin_lab"), "\n".join(parts))
