"""The RIND heatmap: everything the model wrote, piece by piece, with what the trigger measured on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dragin_lab.core.trace import Continuation, Step, Trace
from dragin_lab.views import sections
from dragin_lab.views.frame import View, draw, head, prefix
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import attempt, clipped, count, esc, num, row, soft, tag
from dragin_lab.views.pieces import share_out, unpieced, windowed
from dragin_lab.views.step import Canvas
from dragin_lab.views.strip import Axes, axes_of, columns, strip, strip_text
from dragin_lab.views.trace import MAX_PIECES, MAX_STEPS, answer_row, left_out, legend


def heatmap(trace: Trace | str | Path, *, max_pieces: int = MAX_PIECES) -> View:
    """Each draft and continuation as coloured text over bars: entropy, attention received, stop flag, score, θ.

    The figures of a piece, its likeliest alternatives among them, appear on hover; no script is needed. At most
    ``max_pieces`` pieces are drawn one by one, around what fired; the view says how many it left out. A path that
    holds no readable trace gives its message in place.
    """
    return draw("RIND heatmap", trace, partial(_card, most=max_pieces), partial(_text, most=max_pieces), ("strip",))


def _canvas(trace: Trace, most: int) -> Canvas:
    made = [made for _, _, made in _written(trace)]
    room = share_out(made, max(0, most))
    return Canvas(trace, scale_of(trace), prefix(trace, "heatmap"), room, rows=0, twice=False)


def _written(trace: Trace) -> Iterator[tuple[Step, str, Continuation]]:
    for step in trace.steps[:MAX_STEPS]:
        for name, made in (("draft", step.draft), ("continuation", step.continuation)):
            if made is not None:
                yield step, name, made


def _card(trace: Trace, most: int) -> str:
    canvas = _canvas(trace, most)
    axes = _axes(canvas)
    parts = [head(trace), answer_row(canvas)]
    parts.append(legend(canvas.scale, left_out(canvas, trace), "Hover a piece for its figures."))
    seen = set()
    for step, name, made in _written(trace):
        anchor = "" if step.index in seen else f' id="{canvas.prefix}-s{step.index + 1}"'
        seen.add(step.index)
        title = f"Step {step.index + 1}: {name}"
        shown = attempt(title, partial(_strips, canvas, step, made, axes), partial(esc, made.text))
        parts.append(f"<div{anchor}>{row('strip', title, _about(trace, step, name), shown)}</div>")
    if not seen:
        parts.append(row("strip", "Pieces", "", soft("Nothing is written yet.")))
    if len(trace.steps) > MAX_STEPS:
        more = count(len(trace.steps) - MAX_STEPS, "more step")
        parts.append(f'<p class="head more">… {more}; trace.tokens has every piece</p>')
    return "".join(parts)


def _axes(canvas: Canvas) -> Axes:
    return axes_of([canvas.look(made, step) for step, _, made in _written(canvas.trace)])


def _about(trace: Trace, step: Step, name: str) -> str:
    if name == "continuation":
        return "written with passages in view" if step.passages else "written on"
    return sections.outcome(trace, step)[1]


def _cut(step: Step, made: Continuation) -> int | None:
    """The character behind which a text was thrown away; None where nobody has decided, or all was kept."""
    kept = sections.kept_of(step)
    span = kept.draft if made is step.draft else kept.continuation
    return None if span is None or span[1] >= len(made.text) else span[1]


def _strips(canvas: Canvas, step: Step, made: Continuation, axes: Axes) -> str:
    look, cut, out = canvas.look(made, step), _cut(step, made), []
    if made is step.draft and step.decision is not None:
        sign = tag("◆ retrieve" if step.decision.retrieve else "✓ go on", "ok")
        out.append(f'<p class="why-now" dir="auto">{sign}{clipped(step.decision.reason, 300)}</p>')
    for start, stop, how in windowed(look, canvas.room.get(id(made), 0), 0, len(made.text)):
        drawn = how == "heat"
        out.append(strip(look, columns(look, start, stop, cut), axes) if drawn else unpieced(look, start, stop))
    if not len(made):
        out.append(soft("Nothing was written."))
    elif not (made.received > 0).any():
        out.append(soft("No attention was recorded for this text, so its row is empty."))
    return "".join(out)


def _text(trace: Trace, most: int) -> str:
    canvas = _canvas(trace, most)
    axes = _axes(canvas)
    attention = axes.received if axes.read != axes.read else axes.read
    tops = f"entropy {num(axes.entropy)} nats, attention {num(attention)}, {axes.score_name} {num(axes.score)}"
    out = [f"Question      {trace.question.text}", f"Answer        {trace.answer or sections.no_answer(trace)}"]
    out += [f"Full bars     {tops}; θ {num(axes.threshold)}", ""]
    for step, name, made in _written(trace):
        look = canvas.look(made, step)
        cut = _cut(step, made)
        out.append(f"Step {step.index + 1}: {name}, {_about(trace, step, name)}")
        for start, stop, how in windowed(look, canvas.room.get(id(made), 0), 0, len(made.text)):
            if how == "heat":
                out += strip_text(look, columns(look, start, stop, cut), axes, 100)
            else:
                out += [f"… {count(stop - start, 'more character')}", ""]
    return "\n".join(out) + "\n"
