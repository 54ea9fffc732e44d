"""The templates of the views and their CSS: HTML with autoescape, ``.txt`` for what stands in a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dragin_lab.trace.kept import before_after, kept_of, resumed, with_passages
from dragin_lab.views import sections, strip
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

SNIP = '<i class="snip" title="cut here"><b>✂</b></i>'
GEM = Markup('<span class="gem" aria-hidden="true">◆</span>')


def render_safely(what: str, fallback: str = "", *, caller: Callable[[], str]) -> Markup:
    """``attempt`` for a template's ``{% call safely(…) %}``; ``fallback`` is text."""
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
    shared = (*tools, window_ranges, kept_of, resumed, before_after, with_passages, render_tokens, render_columns)
    environment.globals |= {tool.__name__: tool for tool in shared} | {
        "sections": sections,
        "strips": strip,
        "BELOW": BELOW,
        "GEM": GEM,
    }
    return environment


def render_template(template: str, **context: Any) -> str:
    """A template of the views' folder, filled in."""
    return load_environment().get_template(template).render(context)


def render_macro(template: str, name: str, *values: Any, **options: Any) -> str:
    """One macro of a template, for a part that is shown by itself, as in a widget."""
    return str(getattr(load_environment().get_template(template).module, name)(*values, **options))


# HTML of single tokens is built here, because loops of a template take twice as long.


def _cell_class(cell: Cell, **flags: bool) -> str:
    names = ([f"h{cell.level}"] if cell.level else []) + [name for name, on in flags.items() if on]
    return f' class="{" ".join(names)}"' if names else ""


def render_tokens(look: Look, inside: list[tuple[str, Cell]], tips: bool, brackets: bool = True) -> Markup:
    """Cells within a text with the text before each but the first: coloured, with figures on hover (``tips``).

    A sentence or a draft that was judged as a whole stands in brackets, with its score after it.
    """
    out: list[str] = []
    for before, cell in inside:
        css = _cell_class(cell, sp=cell.special, fired=cell.fired)
        tip = f' data-i="{escape(printable(look.about(cell)))}"' if tips else ""
        body = escape(printable(cell.text.replace("\n", "↵\n")))
        opens = render_bracket(look.units[cell.unit]) if brackets and cell.begins else ""
        closes = render_bracket(look.units[cell.unit], closing=True) if brackets and cell.ends else ""
        shown = f"<span{css}{tip}>{body}</span>" if css or tip else body
        out += [escape(printable(before)) if inside[0][1] is not cell else "", opens, shown, closes]
    return Markup("".join(out))


def render_bracket(unit: Unit, *, closing: bool = False) -> Markup:
    """What stands before a judged unit, or after it: its bracket and its score against θ."""
    css = "bracket above" if unit.above else "bracket"
    if not closing:
        return Markup(f'<bdi class="{css}">[</bdi>')
    return Markup(f'<bdi class="{css}">]</bdi><bdi class="{css} tag">{esc(unit)}</bdi>')


def render_columns(look: Look, cols: Sequence[strip.Column], axes: strip.Axes) -> Markup:
    """Cells over their bars, word by word; a judged unit between its name and score and its last cell's edge."""
    out: list[str] = []
    judged = look.judged
    for col in cols:
        cell, bars, first = col.cell, strip.bar_heights(look, col, axes), col.cell.hit and col.opens
        unit = look.units[cell.unit] if cell.unit >= 0 else None
        flags = {"w": col.opens, "s": col.stop and judged, "gone": col.gone, "over": judged and col.over(axes)}
        if unit is not None:
            flags |= {"in": True, "end": cell.ends, "above": unit.above}
        names = " ".join(n for n, on in flags.items() if on)
        css, style = f' class="{names}"' if names else "", f' style="{bars}"' if bars else ""
        focus, sign = (' tabindex="0"', f'{GEM}<bdi class="vh">hit: </bdi>') if first else ("", "")
        inner = _cell_class(cell, hit=cell.hit, fired=cell.fired, sp=cell.special)
        snip = SNIP if col.snip else ""
        tip = escape(printable(look.about(cell)))
        if col.opens or cell.begins:
            out.append("</span>" if out else "")
            out.append(_unit_label(unit) if unit is not None and cell.begins else "")
            out.append("<span>")
        out.append(f'{snip}<i{css}{style} data-i="{tip}"{focus}><b{inner}>{sign}{escape(col.text)}</b></i>')
    return Markup("".join([*out, "</span>"]))


def _unit_label(unit: Unit) -> str:
    value, _, limit = unit.verdict.partition(" ")
    css = "unit above" if unit.above else "unit"
    return f'<b class="{css}">{esc(unit.name)}<small>{esc(value)}</small><small>{esc(limit)}</small></b>'


@cache
def load_stylesheet(*more: str) -> str:
    """The views' CSS, as small as it is sent: without comments and needless white space.

    ``more`` names sheets beside ``style.css``, such as "strip".
    """
    folder = resources.files("dragin_lab.views") / "templates"
    css = "".join((folder / f"{name}.css").read_text(encoding="utf-8") for name in ("style", *more))
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    css = re.sub(r"\s+", " ", css)
    return re.sub(r" ?([{};,>]) ?", r"\1", css).strip()


@cache
def load_export_script() -> Markup:
    """The script that gives each view on a page its export button, without comments and indents."""
    text = resources.files("dragin_lab.views").joinpath("templates", "export.js").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    return Markup("\n".join(line for line in lines if line and not line.startswith("//")))


def wrap_page(title: str, body: str) -> str:
    """One complete document around a view, to be opened from a file."""
    return render_template("page.html", title=title, body=Markup(body), exporter=load_export_script()) + "\n"
