"""The RIND heatmap: everything the model wrote, token by token, with what the trigger measured on it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dragin_lab.trace.kept import kept_of, written
from dragin_lab.trace.trace import Continuation, Step, Trace
from dragin_lab.views import sections, strip
from dragin_lab.views.canvas import MAX_STEPS, MAX_TOKENS, Canvas
from dragin_lab.views.frame import View, draw_trace
from dragin_lab.views.html import count, num
from dragin_lab.views.rendering import render_template
from dragin_lab.views.tokens import window_ranges


def heatmap(trace: Trace | str | Path, *, max_tokens: int = MAX_TOKENS) -> View:
    """Each draft and continuation as coloured text over bars: entropy, attention received, stop flag, score, θ.

    The figures of a token, its likeliest alternatives among them, appear on hover; no script is needed. At most
    ``max_tokens`` tokens are drawn one by one, around what fired; the view says how many it left out. A path that
    holds no readable trace gives its message in place.
    """
    return draw_trace(
        "RIND heatmap", trace, partial(_heatmap_card, most=max_tokens), partial(_heatmap_text, most=max_tokens), "strip"
    )


def _heatmap_card(trace: Trace, most: int) -> str:
    canvas = Canvas.of(trace, "heatmap", most)
    shown = list(written(trace.steps[:MAX_STEPS]))
    return render_template(
        "heatmap.html",
        canvas=canvas,
        written=shown,
        axes=strip.axes_of([canvas.look(continuation, step) for step, _, continuation in shown]),
        most=MAX_STEPS,
        cut_of=_find_cut,
    )


def _find_cut(step: Step, name: str, continuation: Continuation) -> int | None:
    """The character after which a text was thrown away; None where nobody has decided, or all was kept."""
    end = kept_of(step).of(name)
    return None if end is None or end >= len(continuation.text) else end


def _heatmap_text(trace: Trace, most: int) -> str:
    canvas = Canvas.of(trace, "heatmap", most)
    shown = list(written(trace.steps[:MAX_STEPS]))
    axes = strip.axes_of([canvas.look(continuation, step) for step, _, continuation in shown])
    attention = axes.received if axes.read != axes.read else axes.read
    tops = f"entropy {num(axes.entropy)} nats, attention {num(attention)}, {axes.score_name} {num(axes.score)}"
    out = [*sections.opening_lines(trace), f"Full bars     {tops}; θ {num(canvas.scale.threshold)}", ""]
    for step, name, continuation in shown:
        look = canvas.look(continuation, step)
        out.append(f"Step {step.index + 1}: {name}, {sections.describe_text(trace, step, name)}")
        out += [f"⟦{unit.name}⟧  {unit.verdict}" for unit in look.units]
        for start, stop, left_out in window_ranges(look, canvas.room_of(continuation), 0, len(continuation.text)):
            if left_out:
                out += [f"… {count(stop - start, 'more character')}", ""]
            else:
                out += strip.strip_text(
                    look, strip.strip_columns(look, start, stop, _find_cut(step, name, continuation)), axes, 100
                )
    return "\n".join(out) + "\n"
