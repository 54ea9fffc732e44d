"""The templates of the views and their CSS: HTML with autoescape, ``.txt`` for what stands in a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dragin_lab.trace.kept import before_after, kept_of, resumed, with_passages
from dragin_lab.views import sections
from dragin_lab.views.heat import BELOW
from dragin_lab.views.html import (
    class_attribute,
    clip,
    clip_html,
    count,
    esc,
    num,
    percent,
    printable,
    short,
    show_or_explain,
)
from dragin_lab.views.tokens import Cell, Look, Unit, window_ranges

GEM = Markup('<span class="gem" aria-hidden="true">◆</span>')


def render_safely(what: str, fallback: str = "", *, caller: Callable[[], str]) -> Markup:
    """``show_or_explain`` for a template's ``{% call render_safely(…) %}``; ``fallback`` is text."""
    return show_or_explain(what, caller, lambda: esc(fallback))


@cache
def load_environment() -> Environment:
    """The templates: HTML with autoescape, and ``.txt`` for what stands in a terminal; unknown names are errors."""
    environment = Environment(
        loader=PackageLoader("dragin_lab.views"),
        autoescape=lambda name: not str(name).endswith(".txt"),
        finalize=lambda value: value if type(value) is Markup else printable(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    tools = (num, short, percent, count, clip, clip_html, class_attribute, render_safely, id, zip)
    shared = (*tools, window_ranges, kept_of, resumed, before_after, with_passages, render_tokens)
    environment.globals |= {tool.__name__: tool for tool in shared} | {"sections": sections, "BELOW": BELOW, "GEM": GEM}
    return environment


def render_template(template: str, **context: Any) -> str:
    """A template of the views' folder, filled in."""
    return load_environment().get_template(template).render(context)


def render_macro(template: str, name: str, *values: Any, **options: Any) -> str:
    """One macro of a template, for a part that is shown by itself, as in a widget."""
    return str(getattr(load_environment().get_template(template).module, name)(*values, **options))


def render_tokens(look: Look, inside: list[tuple[str, Cell]], tips: bool, brackets: bool = True) -> Markup:
    """Cells within a text with the text before each but the first: coloured, with figures on hover (``tips``).

    A sentence or a draft that was judged as a whole stands in brackets, with its score after it. The HTML of single
    tokens is built here, because loops of a template take twice as long.
    """
    out: list[str] = []
    for before, cell in inside:
        level = f"h{cell.level}" if cell.level else ""
        css = class_attribute(level, sp=cell.special, fired=cell.fired, unjudged=cell.unjudged and brackets)
        tip = f' data-i="{esc(look.about(cell))}"' if tips else ""
        body = esc(cell.text.replace("\n", "↵\n"))
        opens = _bracket(look.units[cell.unit]) if brackets and cell.begins else ""
        closes = _bracket(look.units[cell.unit], closing=True) if brackets and cell.ends else ""
        shown = f"<span{css}{tip}>{body}</span>" if css or tip else body
        out += [esc(before) if inside[0][1] is not cell else "", opens, shown, closes]
    return Markup("".join(out))


def _bracket(unit: Unit, *, closing: bool = False) -> str:
    """What stands before a judged unit, or after it: its bracket and its score against θ."""
    css = "bracket above" if unit.above else "bracket"
    after = f'<bdi class="{css} tag">{esc(unit)}</bdi>' if closing else ""
    return f'<bdi class="{css}">{"]" if closing else "["}</bdi>{after}'


@cache
def load_stylesheet(*more: str) -> str:
    """The views' CSS, as small as it is sent: without comments and needless white space.

    ``more`` names sheets beside ``style.css``, such as "strip".
    """
    css = "".join(read_asset(f"views/templates/{name}.css") for name in ("style", *more))
    css = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL))
    return re.sub(r" ?([{};,>]) ?", r"\1", css).strip()


def read_asset(path: str) -> str:
    """A style sheet or script of the package."""
    return resources.files("dragin_lab").joinpath(path).read_text(encoding="utf-8")


def wrap_page(title: str, body: str) -> str:
    """One complete document around a view, to be opened from a file."""
    return render_template("page.html", title=title, body=Markup(body)) + "\n"
