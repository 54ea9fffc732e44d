"""A trace as one self-contained token of HTML, readable without script, network, colour and mouse."""

from __future__ import annotations

from functools import partial

from dragin_lab.checks import flag
from dragin_lab.trace.kept import written
from dragin_lab.trace.trace import Trace, Words
from dragin_lab.views import sections
from dragin_lab.views.canvas import MAX_STEPS, MAX_TOKENS, Canvas
from dragin_lab.views.frame import View, opened, view
from dragin_lab.views.plain import trace_text
from dragin_lab.views.rendering import render
from dragin_lab.views.tokens import Look

__all__ = ["trace_html", "trace_text", "trace_view"]

OPEN_STEPS = 6
TWICE = 1000  # tokens up to which the answer repeats the figures that its steps have


def trace_html(trace: Trace, *, max_tokens: int = MAX_TOKENS, full_page: bool = False) -> str:
    """A trace as HTML; ``full_page=True`` gives a whole document to be opened from a file. See ``trace_view``."""
    out = trace_view(trace, max_tokens=max_tokens)
    return out.page() if flag("full_page", full_page) else out.html


def trace_view(trace: Trace, *, max_tokens: int = MAX_TOKENS) -> View:
    """A trace, step by step.

    At most ``max_tokens`` tokens are drawn one by one, shared fairly among the drafts; the others stand as plain
    text, and the view says how many. A part that cannot be drawn shows its error and its text instead.
    """
    trace = opened(trace)
    return view(
        "The trace", "trace", trace.question.text, partial(_card, trace, max_tokens), partial(trace_text, trace)
    )


def _card(trace: Trace, max_tokens: int) -> str:
    canvas = Canvas.of(trace, "", max_tokens)
    steps = trace.steps[:MAX_STEPS]
    canvas.rows, canvas.twice = max(0, max_tokens), sum(len(c) for _, _, c in written(steps)) <= TWICE
    retrieving = [s for s in steps if s.query is not None]
    opened = steps if len(steps) <= OPEN_STEPS else (retrieving or steps)[: OPEN_STEPS // 2]
    settings = [(name.replace("_", " "), sections.plain(value)) for name, value in trace.method.items()]
    provenance = ("Provenance: model, versions, retriever, seed", sections.provenance_rows(trace))
    return render(
        "trace.html",
        canvas=canvas,
        most=MAX_STEPS,
        opened={step.index for step in opened},
        extraction=None if trace.extraction is None else Look.of(trace.extraction, Words(), canvas.scale),
        folded=[("All settings of the method", settings), provenance],
    )
