"""Pages: HTML and CSS without a script, as an object that a notebook shows, and one file of
several parts.
"""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dragin_lab.checks import flag
from dragin_lab.errors import DataError, SettingError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.results.table import Table
from dragin_lab.text import printable
from dragin_lab.trace.trace import Trace
from dragin_lab.views import facts
from dragin_lab.views.facts import clip, clip_html, esc, num, plural, short
from dragin_lab.views.plain import page_text

#: What every page begins with.
OUTSIDE = '<div class="dl-out mathjax_ignore tex2jax_ignore">'


class Page:
    """A page about traces. A notebook shows ``html``, ``print`` gives ``text``, ``views.page``
    writes it to a file.
    """

    def __init__(self, title: str, inner: str) -> None:
        self.title = clip(printable(title), 80)[0]
        self.text = page_text(inner)
        # The text comes first: where a notebook is not trusted and drops styles, it is what shows.
        alternative = f'<pre class="alt">{esc(self.text)}</pre>'
        self.html = styled(f'<div class="dl" hidden>{inner}</div>', alternative)

    def _repr_html_(self) -> str:
        return self.html

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Page({self.title!r}, {self.text.count(chr(10))} lines)"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(self.text)  # what IPython shows on a terminal


def styled(inner: str, before: str = "") -> str:
    """HTML in the style of the pages, which stands in it; no formula in it is set."""
    style = f"<style>{load_stylesheet()}</style>"
    return f"{OUTSIDE}{before}{style}{inner}</div>"


@cache
def load_templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("dragin_lab.views"),
        autoescape=True,
        finalize=lambda value: value if type(value) is Markup else printable(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {
        tool.__name__: tool for tool in (clip, clip_html, num, plural, short, zip)
    }
    return templates


def render(template: str, **context: Any) -> str:
    """A template of the pages, filled in."""
    return load_templates().get_template(template).render(context, facts=facts)


@cache
def load_stylesheet() -> str:
    return (
        resources.files("dragin_lab.views")
        .joinpath("templates/style.css")
        .read_text(encoding="utf-8")
    )


def page(path: str | Path, *parts: Any, inline: bool = True) -> Path:
    """Write traces, pages, figures and tables, in this order, as one file that opens offline;
    return its path.

    Figures need plotly's script, which stands in the file (5 MB), so that it can be mailed; without
    ``inline`` it is written once beside it, as ``plotly.min.js``, for all pages of a folder. The
    file is replaced whole or not at all. Raises ``SettingError`` for nothing to write and for what
    is no part, ``DataError`` where a file cannot be written.
    """
    target = as_path(path, DataError)
    inline = flag("inline", inline)
    if not parts:
        raise SettingError(
            "there is nothing to write; give traces, pages, figures or tables after the path"
        )
    bodies = [show_part(part) for part in parts]
    names = (
        part.question.text if isinstance(part, Trace) else str(getattr(part, "title", ""))
        for part in parts
    )
    figures = any(hasattr(part, "to_plotly_json") for part in parts)
    code = ""
    if figures:
        from plotly.offline import get_plotlyjs

        code = get_plotlyjs()
    script = f"<script>{code}</script>" if inline else '<script src="plotly.min.js"></script>'
    shown = {
        "title": next(filter(None, names), "dragin_lab"),
        "bodies": bodies,
        "css": load_stylesheet(),
    }
    try:
        if figures and not inline:
            write_whole(target.parent / "plotly.min.js", code.encode())
        write_whole(
            target,
            render("page.html", script=Markup(script if figures else ""), **shown).encode(),
        )
    except OSError as error:
        raise DataError(not_saved(target, error), begun=True) from error
    return target


def show_part(part: Any) -> Markup:
    """The HTML of a part of a page; a table stands there as in a notebook, with its marks and
    notes.
    """
    if hasattr(part, "to_plotly_json"):
        html = part.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
        # plotly gives its drawing no name
        named = re.sub("<.*?>", " ", part.layout.title.text or "a figure")
        return Markup(f'<figure aria-label="{esc(unescape(named))}">{html}</figure>')
    frame = getattr(part, "frame", part)
    if hasattr(frame, "to_html"):
        options = {"float_format": "{:.3f}".format, "na_rep": "", "border": 0}
        table = part.to_html() if isinstance(part, Table) else frame.to_html(**options)
        return box_wide(table)
    if isinstance(part, type) or not hasattr(part, "_repr_html_"):
        raise SettingError(
            f"a {type(part).__name__} is no part of a page; give traces, pages, figures or tables"
        )
    shown = part._repr_html_()
    return Markup(shown) if shown.startswith(OUTSIDE) else box_wide(shown)


def box_wide(html: str) -> Markup:
    """A card in which what is too wide for the page is scrolled."""
    inner = f'<div class="dl"><div class="head wide" tabindex="0">{html}</div></div>'
    return Markup(styled(inner))


def open_trace(source: Trace | str | Path) -> Trace:
    """The trace itself, or the one in a file; raises ``TraceFileError`` for a file that holds
    none.
    """
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | Path):
        return Trace.load(source)
    raise SettingError(f"a page takes a Trace or the path of one, not {type(source).__name__}")
