"""The frame around a view's card, and a message where there is nothing to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dragin_lab.checks import several
from dragin_lab.errors import SettingError, ViewError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.trace.trace import Trace
from dragin_lab.views.html import clip, esc, printable, show_or_explain
from dragin_lab.views.rendering import load_stylesheet, render_macro, wrap_page


@dataclass(frozen=True, repr=False)
class View:
    """A view. A notebook shows ``html``, ``print`` gives ``text``.

    ``save`` writes a page that opens offline.
    """

    title: str
    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"View({self.title!r}, {len(self.html):,} characters of HTML; print() it for text, .save() it as a page)"

    def __str__(self) -> str:
        return self.text

    def page(self) -> str:
        """The view as a whole document."""
        return wrap_page(self.title, self.html)

    def save(self, path: str | Path) -> Path:
        """Write the view as one page that opens offline; raises ``ViewError`` where the file cannot be written."""
        return save_page(path, self.title, self.html)


def save_page(path: str | Path, title: str, body: str) -> Path:
    """Write one page, whole or not at all; raises ``ViewError`` where the file cannot be written."""
    target = as_path(path, ViewError)
    try:
        write_whole(target, wrap_page(title, body).encode())
    except OSError as error:
        raise ViewError(not_saved(target, error)) from error
    return target


def frame_card(
    what: str, card: Callable[[], str], text: Callable[[], str], css: tuple[str, ...] = ()
) -> tuple[str, str]:
    """A card's HTML in its frame, and the text that stands in for it.

    The text comes first in the HTML: where a notebook is not trusted and its styles are dropped, it is what shows.
    An error in ``card`` or ``text`` is shown in its place. ``css`` names style sheets beside the common one.
    """
    plain: list[str] = []

    def written() -> str:
        plain.append(printable(text()))
        return esc(plain[0])

    shown = show_or_explain(f"The text of {what[0].lower()}{what[1:]}", written, lambda: "")
    inner = show_or_explain(what, card, lambda: shown)
    style = show_or_explain("The style", lambda: f"<style>{load_stylesheet(*css)}</style>", lambda: "")
    # Each sheet holds for cards of its name alone, as several views stand on one page.
    names = " ".join(["dl", *(f"v-{name}" for name in css)])
    card_html = f'<pre class="alt">{shown}</pre>{style}<div class="{names}" hidden>{inner}</div>'
    return f'<div class="dl-out">{card_html}</div>', plain[0] if plain else ""


def make_view(what: str, name: str, asked: str, card: Callable[[], str], text: Callable[[], str], *css: str) -> View:
    """One view in its frame; ``asked`` is the question that it is about."""
    html, plain = frame_card(what, card, text, css)
    return View(f"{clip(asked, 80)[0]} – {name}", html, plain)


def open_trace(source: Trace | str | Path) -> Trace:
    """The trace itself, or the one in a file; raises ``TraceFileError`` for a file that holds none."""
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | Path):
        return Trace.load(source)
    raise SettingError(f"a view takes a Trace or the path of one, not {type(source).__name__}")


def open_traces(sources: Iterable[Trace | str | Path]) -> list[Trace]:
    """Several traces, themselves or from files; errors as for ``open_trace``."""
    return [
        open_trace(one) for one in several("traces", sources, Trace | str | Path, "give a list of traces or of paths")
    ]


def make_message(title: str, text: str) -> View:
    """A view that shows only a message."""
    html, _ = frame_card("The message", partial(render_macro, "parts.html", "message", text), lambda: text)
    return View(title, html, text)


def render_head(trace: Trace) -> str:
    """Question, answer with its verdict, method, model, how it ended, and the error where there was one."""
    return render_macro("parts.html", "head", trace)
