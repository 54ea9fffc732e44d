"""Pages: HTML and CSS without a script, as an object that a notebook shows, and one file of several parts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dragin_lab.checks import flag, several
from dragin_lab.checks import text as as_text
from dragin_lab.errors import SettingError, ViewError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.text import printable
from dragin_lab.trace.trace import Trace
from dragin_lab.views.html import clip, clip_html, count, esc, num, percent, short


class Page:
    """A page about traces. A notebook shows ``html``, ``print`` gives ``text``, ``views.page`` writes it to a file."""

    def __init__(self, title: str, html: Callable[[], str], text: Callable[[], str]) -> None:
        """``html`` and ``text`` are made at once; what fails is shown in its place, and warned of."""
        self.title = clip(printable(title), 80)[0]
        self.text = show_or_explain(text, "the text")
        inner = show_or_explain(html, "the page", f'<pre class="plain">{esc(self.text)}</pre>')
        # The text comes first: where a notebook is not trusted and drops styles, it is what shows.
        self.html = (
            f'<div class="dl-out mathjax_ignore tex2jax_ignore"><pre class="alt">{esc(self.text)}</pre>'
            f'<style>{load_stylesheet()}</style><div class="dl" hidden>{inner}</div></div>'
        )

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def show_or_explain(make: Callable[[], str], what: str, instead: str = "") -> str:
    """What is made; where that fails a visible error, a warning, and ``instead``. A cell must neither fail nor hide."""
    try:
        return str(make())
    except Exception as error:  # noqa: BLE001 - any failure of a page degrades to text, see above
        reason = f"{what} could not be shown: {type(error).__name__}: {error}"
        warnings.warn(reason, RuntimeWarning, stacklevel=2)
        return f'<p class="alert" role="alert">{esc(reason)}</p>{instead}' if instead else reason


def render(template: str, **context: Any) -> str:
    """A template of the pages, filled in."""
    return load_environment().get_template(template).render(context)


@cache
def load_environment() -> Environment:
    """The templates, with autoescape; unknown names are errors."""
    environment = Environment(
        loader=PackageLoader("dragin_lab.views"),
        autoescape=True,
        finalize=lambda value: value if type(value) is Markup else printable(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {tool.__name__: tool for tool in (clip, clip_html, count, num, percent, short, zip)}
    return environment


@cache
def load_stylesheet() -> str:
    """The pages' one style sheet, without comments and needless white space."""
    css = resources.files("dragin_lab.views").joinpath("templates/style.css").read_text(encoding="utf-8")
    css = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL))
    return re.sub(r" ?([{};,>]) ?", r"\1", css).strip()


def page(path: str | Path, *parts: Any, title: str = "", inline: bool = False) -> Path:
    """Write traces, pages, figures and tables, in this order, as one file that opens offline; return its path.

    Figures need plotly's script: it is written once beside the file, as ``plotly.min.js``, or with ``inline`` into it
    (5 MB). The file is replaced whole or not at all. Raises ``SettingError`` for nothing to write and for what is no
    part, ``ViewError`` where a file cannot be written.
    """
    target, inline = as_path(path, ViewError), flag("inline", inline)
    if not parts:
        raise SettingError("there is nothing to write; give traces, pages, figures or tables after the path")
    bodies = [show_part(part) for part in parts]
    figures = any(hasattr(part, "to_plotly_json") for part in parts)
    titles = (part.question.text if isinstance(part, Trace) else str(getattr(part, "title", "")) for part in parts)
    names = [as_text("title", title), *titles, "dragin_lab"]
    script = Markup("")
    if figures:
        from plotly.offline import get_plotlyjs

        code = get_plotlyjs()
        script = Markup(f"<script>{code}</script>" if inline else '<script src="plotly.min.js"></script>')
    html = render("page.html", title=next(filter(None, names)), bodies=bodies, script=script, css=load_stylesheet())
    try:
        if figures and not inline:
            write_whole(target.parent / "plotly.min.js", code.encode())
        write_whole(target, html.encode())
    except OSError as error:
        raise ViewError(not_saved(target, error)) from error
    return target


def show_part(part: Any) -> Markup:
    """The HTML of a part of a page; tables are plain ones."""
    if hasattr(part, "to_plotly_json"):
        return Markup(part.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False}))
    frame = getattr(part, "frame", part)
    if hasattr(frame, "to_html"):
        about = "".join(f"<p><small>{esc(line)}</small></p>" for line in getattr(part, "about", ()))
        table = frame.to_html(float_format="{:.3f}".format, na_rep="", border=0)
        heading = f"<h3>{esc(getattr(part, 'title', ''))}</h3>"
        return Markup(
            f'<div class="dl-out"><div class="dl"><div class="head wide">{heading}{table}{about}</div></div></div>'
        )
    shown = getattr(part, "_repr_html_", None)
    if isinstance(part, type) or shown is None:
        raise SettingError(f"a {type(part).__name__} is no part of a page; give traces, pages, figures or tables")
    return Markup(shown())


def open_trace(source: Trace | str | Path) -> Trace:
    """The trace itself, or the one in a file; raises ``TraceFileError`` for a file that holds none."""
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | Path):
        return Trace.load(source)
    raise SettingError(f"a page takes a Trace or the path of one, not {type(source).__name__}")


def open_traces(sources: Iterable[Trace | str | Path]) -> list[Trace]:
    """Several traces, themselves or from files; errors as for ``open_trace``."""
    kind = Trace | str | Path
    return [open_trace(one) for one in several("traces", sources, kind, "give a list of traces or of paths")]
