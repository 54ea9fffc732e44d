"""What the static views share: the frame around a card, a trace's header, a message where there is nothing to show."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dragin_lab.core.trace import Trace
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.views import sections
from dragin_lab.views.html import attempt, clip, clipped, esc, page, stylesheet


@dataclass(frozen=True, repr=False)
class View:
    """A drawn view: a notebook shows ``html``, ``print`` gives ``text``, ``save`` writes a page that opens offline."""

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
        return page(self.title, self.html)

    def save(self, path: str | Path) -> Path:
        """Write the view as one page that opens offline; raises ``ViewError`` where the file cannot be written."""
        from dragin_lab.views.export import save_html

        return save_html(path, self)


def framed(what: str, card: Callable[[], str], text: Callable[[], str], css: tuple[str, ...] = ()) -> tuple[str, str]:
    """A card's HTML in its frame, and the text that stands in for it.

    The text comes first in the HTML: where a notebook is not trusted and its styles are dropped, it is what shows.
    What fails in ``card`` or ``text`` shows its error in place. ``css`` names style sheets beside the common one.
    """
    plain: list[str] = []

    def written() -> str:
        plain.append(text())
        return esc(plain[0])

    shown = attempt(f"The text of {what[0].lower()}{what[1:]}", written, lambda: "")
    inner = attempt(what, card, lambda: shown)
    style = attempt("The style", lambda: f"<style>{stylesheet(*css)}</style>", lambda: "")
    # Each sheet holds for cards of its name alone, as several views stand on one page.
    names = " ".join(["dl", *(f"v-{name}" for name in css)])
    html = f'<div class="dl-out"><pre class="alt">{shown}</pre>{style}<div class="{names}" hidden>{inner}</div></div>'
    return html, plain[0] if plain else ""


def opened(source: Trace | str | Path) -> Trace:
    """The trace itself, or the one in a file; raises ``TraceFileError`` for a file that holds none."""
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | Path):
        return Trace.load(source)
    raise SettingError(f"a view takes a Trace or the path of one, not {type(source).__name__}")


def draw(
    what: str,
    source: Trace | str | Path,
    card: Callable[[Trace], str],
    text: Callable[[Trace], str],
    css: tuple[str, ...] = (),
) -> View:
    """One view of a trace; a file that cannot be read (cut, or of another version) gives its message in place."""
    try:
        trace = opened(source)
    except TraceFileError as error:
        return message(f"{what} of {source}", str(error))
    html, plain = framed(f"The {what}", partial(card, trace), partial(text, trace), css)
    return View(f"{clip(trace.question.text, 80)[0]} – {what}", html, plain)


def message(title: str, said: str) -> View:
    """A view that holds a message alone."""
    html, _ = framed("The message", lambda: alert(said), lambda: said)
    return View(title, html, said)


def alert(said: str) -> str:
    """A message in the place of what cannot be shown."""
    return f'<div class="head"><p class="alert" role="alert">{clipped(said, 1500)}</p></div>'


def prefix(trace: Trace, view: str = "") -> str:
    """A prefix of element ids that another trace or view hardly has, and the same one always."""
    known = f"{trace.question}{trace.method}{trace.text}{len(trace.steps)}{view}"
    return "dl" + hashlib.blake2s(known.encode(errors="replace"), digest_size=5).hexdigest()


def head(trace: Trace) -> str:
    """Question, answer with its verdict, method, model, how it ended, and the error where there was one."""
    kind, line = sections.verdict(trace)
    golds = " or ".join(f"<bdi>{esc(g)}</bdi>" for g in trace.question.golds[:8])
    more = f' <span class="more">… {len(trace.question.golds) - 8} more</span>' if len(trace.question.golds) > 8 else ""
    answer = (
        f'<b dir="auto">{clipped(trace.answer, 600)}</b>'
        if trace.answer
        else f'<span class="soft">{sections.no_answer(trace)}</span>'
    )
    facts = [
        ("method", sections.method_line(trace)),
        ("model", sections.model_line(trace)),
        ("ended", sections.ended_line(trace)),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{esc(value)}</dd>" for name, value in facts if value)
    trouble = (
        f'<p class="alert" role="alert">{clipped(trace.error or "ended by an error that left no message", 1500)}</p>'
        if trace.ended == "error"
        else ""
    )
    return (
        f'{asked(trace)}<div class="ans"><span class="eye">Answer</span>{answer}'
        f'<span class="chip {kind}">{esc(sections.signed(kind, line))}</span>'
        + (f'<span class="soft">gold: {golds}{more}</span>' if golds else "")
        + f'</div><dl class="facts">{rows}</dl>{trouble}</header>'
    )


def asked(trace: Trace) -> str:
    """The question; opens the header, which the caller closes."""
    return (
        f'<header class="head" data-part="header"><div class="eye">Question</div>'
        f'<h3 class="q" dir="auto">{clipped(trace.question.text, 2000) or "(empty)"}</h3>'
    )
