"""A trace as one self-contained piece of HTML: no script, no network, readable without colour and without a mouse."""

from __future__ import annotations

from dragin_lab.core.trace import Trace, Words
from dragin_lab.views import sections
from dragin_lab.views.frame import framed, head, prefix
from dragin_lab.views.heat import BELOW, Scale, scale_of
from dragin_lab.views.html import attempt, clip, clipped, count, esc, page, row, short, soft
from dragin_lab.views.pieces import GEM, Look, heat, share_out, stretch
from dragin_lab.views.plain import trace_text
from dragin_lab.views.step import Canvas, notes_list, prompt_html, step_html

__all__ = ["MAX_PIECES", "trace_html", "trace_text"]

MAX_PIECES = 2000
MAX_STEPS = 40
OPEN_STEPS = 6
TWICE = 1000  # pieces up to which the answer repeats the figures that its steps have


def trace_html(trace: Trace, *, max_pieces: int = MAX_PIECES, full_page: bool = False) -> str:
    """A trace as HTML; ``full_page=True`` gives a whole document to be opened from a file.

    At most ``max_pieces`` pieces are drawn one by one, shared fairly among the drafts; the others stand as plain
    text, and the view says how many. A part that cannot be drawn shows its error and its text instead.
    """
    out, _ = framed("The trace", lambda: _card(trace, max_pieces), lambda: trace_text(trace))
    if not full_page:
        return out
    return page(f"{clip(trace.question.text, 80)[0]} – trace", out)


def _card(trace: Trace, max_pieces: int) -> str:
    steps = trace.steps[:MAX_STEPS]
    made = [c for s in steps for c in (s.draft, s.continuation) if c is not None]
    canvas = Canvas(
        trace,
        scale_of(trace),
        prefix(trace),
        share_out(made, max(0, max_pieces)),
        rows=max(0, max_pieces),
        twice=sum(map(len, made)) <= TWICE,
    )
    retrieving = [s for s in steps if s.query is not None]
    opened = {id(s) for s in (steps if len(steps) <= OPEN_STEPS else (retrieving or steps)[: OPEN_STEPS // 2])}
    parts = [head(trace), answer_row(canvas), legend(canvas.scale, left_out(canvas, trace))]
    parts += [step_html(canvas, s, opened=id(s) in opened) for s in steps]
    if len(trace.steps) > MAX_STEPS:
        parts.append(_other_steps(trace))
    if not trace.steps:
        parts.append(row("steps", "Steps", "", soft("None yet.")))
    parts += [_extraction(canvas), _foot(trace)]
    return "".join(parts)


def answer_row(canvas: Canvas) -> str:
    """The answer's text as a row of a card."""
    trace = canvas.trace
    body = attempt("The answer's text", lambda: _answer_text(canvas), lambda: esc(trace.text))
    note = "" if canvas.twice else soft("The figures on hover are in the steps.")
    inner = f'<div class="txt" dir="auto">{body}</div>{note}'
    return row("answer", "Answer text", "as it stands at the end; ◆ where passages came in", inner)


def _answer_text(canvas: Canvas) -> str:
    """The answer's text, coloured, with ◆ and a link to its step where passages came in."""
    trace = canvas.trace
    if not trace.text:
        return '<span class="soft">nothing written yet</span>'
    runs: dict[int, list[sections.Origin]] = {}
    for origin in sections.origins(trace):
        runs.setdefault(id(origin.step), []).append(origin)
    drawn = {id(s) for s in trace.steps[:MAX_STEPS]}
    out, place = [], 0
    for step in trace.steps:
        sign = ""
        if step.query is not None:
            number = step.index + 1
            sign = (
                f'<a class="tag ok" href="#{canvas.prefix}-s{number}" title="retrieved in step {number}">◆ {number}</a>'
            )
        for origin in runs.get(id(step), []):
            if origin.made is step.continuation and sign:
                out.append(sign)
                sign = ""
            out.append(esc(trace.text[place : origin.start]))
            look = canvas.look(origin.made, step)
            room = canvas.room.get(id(origin.made), 0) if id(step) in drawn else 0
            stop = origin.at + origin.stop - origin.start
            inner = stretch(look, room, origin.at, stop, tips=canvas.twice, special=False)
            out.append(f'<span class="new">{inner}</span>' if origin.with_passages else inner)
            place = origin.stop
        out.append(sign)
    out.append(clipped(trace.text[place:], 20000))
    return "".join(out)


def left_out(canvas: Canvas, trace: Trace) -> str:
    """What to say about pieces that are not drawn one by one; "" where all are."""
    whole = sum(len(c) for s in trace.steps for c in (s.draft, s.continuation) if c is not None)
    drawn = sum(canvas.room.values())
    if drawn == whole:
        return ""
    return f"{drawn:,} of {count(whole, 'piece')} are drawn one by one, the others stand as plain text or in short."


def legend(scale: Scale, rest: str, hint: str = "Hover a piece for its figures; the tables have them too.") -> str:
    """What the colours and marks mean, and what was left out."""
    if scale.kind == "none":
        key = "No colour: neither scores nor entropies were recorded."
    else:
        bounds = scale.bounds()
        swatches = [f'<span class="h{i}">{esc(short(bounds[i]))}</span>' for i in range(1, len(bounds))]
        if scale.threshold == scale.threshold:
            swatches.insert(BELOW, f'<span class="theta">θ {esc(short(scale.threshold))}</span>')
        said = {
            "score": f"Colour: <b>{esc(scale.name)}</b>, up to",
            "product": "No trigger scored these pieces. Colour: <b>entropy × attention received</b>, up to",
            "entropy": "No scores and no attention were recorded. Colour: <b>entropy</b> in nats, up to",
        }[scale.kind]
        key = f'{said}<span class="scale">{"".join(swatches)}</span>'
    said = f'<b class="left-out">{rest}</b>' if rest else ""
    hit = f'<span><mark class="hit">{GEM}hit</mark> lacks information</span>' if scale.kind == "score" else ""
    return (
        f'<div class="legend" data-part="legend"><span>{key}</span>'
        f"{hit}"
        '<span><del class="cut">thrown away</del></span><span><span class="new">written with passages</span></span>'
        f"<span>{esc(hint)}</span>{said}</div>"
    )


def _other_steps(trace: Trace) -> str:
    rest = trace.steps[MAX_STEPS:]
    lines = "".join(
        f"<li>Step {s.index + 1}: {esc(sections.outcome(trace, s)[1])}. <bdi>{clipped(s.kept.strip(), 300)}</bdi></li>"
        for s in rest[:400]
    )
    head = f'<summary><span class="more">… {count(len(rest), "more step")}, in short</span></summary>'
    return f'<details class="step">{head}<ul class="brief">{lines}</ul></details>'


def _extraction(canvas: Canvas) -> str:
    trace = canvas.trace
    made = trace.extraction
    if made is None:
        return ""
    inner = attempt(
        "The extraction", lambda: heat(Look.of(made, Words(), canvas.scale), 0, len(made.text)), lambda: esc(made.text)
    )
    prompt = (
        prompt_html(canvas, trace.extraction_prompt, "of the extraction", 0)
        if trace.extraction_prompt is not None
        else ""
    )
    text = f'<div class="txt" dir="auto">{inner}</div>{prompt}'
    return row("extraction", "Extraction", "“So the answer is” was put behind the text", text)


def _foot(trace: Trace) -> str:
    notes = row("trace-notes", "Notes", "on the whole episode", notes_list(trace.notes)) if trace.notes else ""
    settings = [(name.replace("_", " "), sections.plain(value)) for name, value in trace.method.items()]
    return (
        f'{notes}<footer class="foot" data-part="provenance">{_folded("All settings of the method", settings)}'
        f"{_folded('Provenance: model, versions, retriever, seed', sections.provenance_rows(trace))}</footer>"
    )


def _folded(title: str, rows: list[tuple[str, str]]) -> str:
    inner = "".join(f"<dt>{esc(name)}</dt><dd>{clipped(value, 2000)}</dd>" for name, value in rows)
    shown = f'<dl class="facts">{inner}</dl>' if rows else soft("none recorded")
    return f'<details class="part"><summary>{esc(title)}</summary>{shown}</details>'
