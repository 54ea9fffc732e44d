"""The timeline of an episode: what was written, where it was cut, when passages came in, what it kept and cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from dragin_lab.core.trace import Continuation, Step, Trace
from dragin_lab.views import sections
from dragin_lab.views.frame import View, draw, head
from dragin_lab.views.html import attempt, clip, clipped, count, esc, row, soft

MAX_STEPS = 60
TEXT_CHARS = 600


@dataclass(frozen=True)
class Span:
    """A run of pieces that one call of the model wrote and that had one fate: "kept", "gone", "extra" or "open"."""

    step: int
    what: str  # "draft", "continuation" or "extraction"
    fate: str
    start: int  # half-open pieces, counted over the whole episode
    stop: int
    text: str

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Cost:
    """What a step took: pieces of each fate, pieces read and served from cache, calls, searches, seconds."""

    kept: int = 0
    gone: int = 0
    prompt: int = 0  # pieces of the prompts
    reused: int = 0  # of them, served from the cache
    calls: int = 0
    searches: int = 0
    seconds: tuple[tuple[str, float], ...] = ()

    @property
    def total(self) -> float:
        """Seconds of all kinds together."""
        return sum(s for _, s in self.seconds)


def spans_of(trace: Trace) -> list[Span]:
    """Everything that was written, in order and on one axis of pieces.

    A piece that ends behind the character where its text was cut is gone; "extra" was written behind a decision, for
    the record (``full_drafts``); "open" is not decided yet.
    """
    out: list[Span] = []
    place = 0
    for step, what, made in _written(trace):
        kept = sections.kept_of(step)
        held = {"draft": kept.draft, "continuation": kept.continuation}.get(what, (0, len(made.text)))
        n, decided = len(made), made.decided if made.decided is not None else len(made)
        cut = n if held is None or made is trace.extraction else int((made.offsets[:, 1] <= held[1]).sum())
        parts = [(0, cut, "open" if held is None else "kept"), (cut, max(cut, decided), "gone")]
        parts.append((max(cut, decided), n, "extra"))
        for a, b, fate in parts:
            if a < b:
                text = made.text[int(made.offsets[a, 0]) : int(made.offsets[b - 1, 1])]
                out.append(Span(step.index, what, fate, place + a, place + b, text))
        place += n
    return out


def _written(trace: Trace) -> Iterator[tuple[Step, str, Continuation]]:
    for step in trace.steps:
        for what, made in (("draft", step.draft), ("continuation", step.continuation)):
            if made is not None:
                yield step, what, made
    if trace.extraction is not None:
        yield Step(len(trace.steps)), "extraction", trace.extraction


def cost_of(trace: Trace, step: Step) -> Cost:
    """What one step took."""
    made = [c for c in (step.draft, step.continuation) if c is not None]
    spans = [s for s in spans_of(Trace(trace.question, trace.method, [step])) if s.step == step.index]
    return Cost(
        kept=sum(len(s) for s in spans if s.fate in ("kept", "open")),
        gone=sum(len(s) for s in spans if s.fate in ("gone", "extra")),
        prompt=sum(len(c.prompt_ids) for c in made),
        reused=sum(c.reused for c in made),
        calls=len(made),
        searches=int(step.query is not None),
        seconds=tuple(step.seconds.items()),
    )


def timeline(trace: Trace | str | Path) -> View:
    """The steps of an episode under each other on one axis of pieces, with their texts and costs.

    A path that holds no readable trace gives its message in place.
    """
    return draw("timeline", trace, _card, _text, ("timeline",))


def _card(trace: Trace) -> str:
    spans = spans_of(trace)
    whole = max((s.stop for s in spans), default=0)
    parts = [head(trace), _legend(whole, spans)]
    for step in trace.steps[:MAX_STEPS]:
        title = f"Step {step.index + 1}"
        own = [s for s in spans if s.step == step.index]
        inner = attempt(title, partial(_step, trace, step, own, whole), partial(esc, step.answer))
        parts.append(row("step", title, sections.outcome(trace, step)[1], inner))
    if len(trace.steps) > MAX_STEPS:
        parts.append(_rest(trace, [s for s in spans if s.step >= MAX_STEPS]))
    if trace.extraction is not None:
        own = [s for s in spans if s.what == "extraction"]
        inner = _bar(own, whole, None) + _texts(own)
        parts.append(row("step", "Extraction", "“So the answer is” was put behind the text", inner))
    if not trace.steps:
        parts.append(row("step", "Steps", "", soft("None yet.")))
    parts.append(row("costs", "Costs", "per step", attempt("The costs", partial(_costs, trace), lambda: "")))
    return "".join(parts)


_FATES = {"kept": "kept", "gone": "thrown away", "extra": "written on for the record", "open": "not decided yet"}


def _legend(whole: int, spans: list[Span]) -> str:
    there = [f for f in _FATES if any(s.fate == f for s in spans)]
    keys = "".join(f'<span><i class="key {fate}"></i> {_FATES[fate]}</span>' for fate in there)
    marks = "<span><b>✂</b> cut</span><span><b>◆</b> retrieval</span>"
    return (
        f'<div class="legend" data-part="legend"><span>Axis: {count(whole, "piece")} written</span>{keys}{marks}</div>'
    )


def _step(trace: Trace, step: Step, spans: list[Span], whole: int) -> str:
    out = [_bar(spans, whole, step)]
    if step.decision is not None:
        out.append(f'<p class="soft" dir="auto">{clipped(step.decision.reason, 300)}</p>')
    draft = [s for s in spans if s.what == "draft"]
    out.append(_texts(draft))
    if step.query is not None:
        found = ", ".join(p.title or p.id for p in step.passages[:5]) or "nothing"
        more = len(step.passages) - 5
        tail = f" and {more} more" if more > 0 else ""
        out.append(
            f'<div class="line"><span class="sign">◆</span><span class="what">asked</span>'
            f'<span dir="auto"><b>{clipped(step.query.sent or "(empty query)", 300)}</b>'
            f'<small dir="ltr">found: <bdi>{clipped(found, 300)}</bdi>{tail}</small></span></div>'
        )
    out.append(_texts([s for s in spans if s.what == "continuation"]))
    return "".join(out)


def _bar(spans: list[Span], whole: int, step: Step | None) -> str:
    """The step's spans on the axis of the whole episode; ✂ at cuts and ◆ at the retrieval."""
    if not whole:
        return ""
    out = []
    for span in spans:
        place = f"left:{100 * span.start / whole:.2f}%;width:{100 * len(span) / whole:.2f}%"
        said = f"{span.what}, {count(len(span), 'piece')} {_FATES[span.fate]}"
        out.append(f'<i class="{span.fate}" style="{place}" title="{esc(said)}"></i>')
    marks = []
    if step is not None and step.query is not None:
        stops = [s.stop for s in spans if s.what == "draft"]
        at = stops[-1] if stops else min((s.start for s in spans), default=0)
        marks.append((at, "◆", "retrieval"))
    for before, after in pairwise(spans):
        if before.what == after.what and before.fate == "kept":
            marks.append((before.stop, "✂", "cut"))
    if spans and spans[0].fate == "gone":
        marks.append((spans[0].start, "✂", "cut"))
    out += [f'<b style="left:{100 * at / whole:.2f}%" title="{name}">{sign}</b>' for at, sign, name in marks]
    numbers = f"<small>{spans[0].start + 1:,} to {spans[-1].stop:,}</small>" if spans else ""
    return f'<div class="gauge" aria-hidden="true"><div class="axis">{"".join(out)}</div>{numbers}</div>'


def _texts(spans: list[Span]) -> str:
    signs = {"kept": "✓", "gone": "✂", "extra": "…", "open": "…"}
    out = []
    for span in spans:
        text = clipped(span.text.strip(), TEXT_CHARS) or '<span class="soft">(nothing visible)</span>'
        shown = f'<del class="cut">{text}</del>' if span.fate in ("gone", "extra") else text
        out.append(
            f'<div class="line"><span class="sign {span.fate}">{signs[span.fate]}</span>'
            f'<span class="what">{span.what}, {_FATES[span.fate]}</span>'
            f'<span dir="auto">{shown} <small dir="ltr">{count(len(span), "piece")}</small></span></div>'
        )
    return "".join(out)


def _rest(trace: Trace, spans: list[Span]) -> str:
    more = len(trace.steps) - MAX_STEPS
    said = f"… {count(more, 'more step')} with {count(sum(map(len, spans)), 'piece')}, not drawn"
    kept = clipped("".join(s.text for s in spans if s.fate == "kept"), 2000)
    return row("step", "More steps", "", f'<details class="more"><summary>{said}</summary>{kept}</details>')


def _costs(trace: Trace) -> str:
    rows = [(f"{step.index + 1}", cost_of(trace, step)) for step in trace.steps[:MAX_STEPS]]
    everything = [cost_of(trace, step) for step in trace.steps]
    kinds = list(dict.fromkeys(kind for cost in everything for kind, _ in cost.seconds))
    names = ["step", "calls", "pieces kept", "thrown away", "searches", "prompt pieces", "from cache"]
    names += [f"{kind} s" for kind in kinds] + (["seconds"] if len(kinds) > 1 else [])
    head_cells = "".join(f'<th scope="col">{esc(n)}</th>' for n in names)
    most = max((cost.total for cost in everything), default=0.0)
    body = "".join(_cost_row(name, cost, kinds, most) for name, cost in rows)
    total = _sum(everything)
    foot = f"<tfoot>{_cost_row('all', total, kinds, 0.0)}</tfoot>" if len(rows) > 1 else ""
    note = ""
    if len(trace.steps) > MAX_STEPS:
        note = soft(f"The sum counts all {len(trace.steps):,} steps.")
    if trace.seconds:
        note += soft(f"The episode took {trace.seconds:.2f} s altogether.")
    table = f'<table class="costs"><thead><tr>{head_cells}</tr></thead><tbody>{body}</tbody>{foot}</table>'
    return f'<div class="wide">{table}</div>{note}'


def _cost_row(name: str, cost: Cost, kinds: list[str], most: float) -> str:
    spent = dict(cost.seconds)
    numbers = [cost.calls, cost.kept, cost.gone, cost.searches, cost.prompt, cost.reused]
    cells = "".join(f"<td>{n:,}</td>" for n in numbers)
    cells += "".join(f"<td>{spent[k]:.3f}</td>" if k in spent else "<td>–</td>" for k in kinds)
    if len(kinds) > 1:
        share = f' style="--w:{cost.total / most:.2f}"' if most else ""
        cells += f'<td class="meter"{share}>{cost.total:.3f}</td>'
    return f'<tr><th scope="row">{esc(name)}</th>{cells}</tr>'


def _sum(costs: list[Cost]) -> Cost:
    seconds: dict[str, float] = {}
    for cost in costs:
        for kind, spent in cost.seconds:
            seconds[kind] = seconds.get(kind, 0.0) + spent
    numbers = {n: sum(getattr(c, n) for c in costs) for n in ("kept", "gone", "prompt", "reused", "calls", "searches")}
    return Cost(**numbers, seconds=tuple(seconds.items()))


# -- text -------------------------------------------------------------------------------------------------------------


def _text(trace: Trace) -> str:
    spans = spans_of(trace)
    whole = max((s.stop for s in spans), default=0)
    out = [f"Question      {trace.question.text}", f"Answer        {trace.answer or sections.no_answer(trace)}"]
    out.append(f"Axis          {count(whole, 'piece')} written; █ kept, ░ thrown away, ◆ retrieval")
    for step in trace.steps[:MAX_STEPS]:
        own = [s for s in spans if s.step == step.index]
        out.append(f"\nStep {step.index + 1}: {sections.outcome(trace, step)[1]}")
        out.append(_line(own, whole, step.query is not None))
        for span in own:
            out.append(f"  {span.what}, {_FATES[span.fate]} ({len(span)}): {clip(span.text.strip(), TEXT_CHARS)[0]}")
        if step.query is not None:
            out.append(f"  ◆ asked: {step.query.sent}")
        cost = cost_of(trace, step)
        out.append(f"  {cost.kept} kept, {cost.gone} thrown away, {cost.searches} searches, {cost.total:.2f} s")
    if len(trace.steps) > MAX_STEPS:
        out.append(f"\n… {count(len(trace.steps) - MAX_STEPS, 'more step')}")
    if not trace.steps:
        out.append("\nNo steps yet")
    return "\n".join(out) + "\n"


def _line(spans: list[Span], whole: int, retrieved: bool, width: int = 76) -> str:
    cells = [" "] * width
    for span in spans:
        a, b = (round(width * place / whole) for place in (span.start, span.stop))
        cells[a : max(b, a + 1)] = ["█" if span.fate in ("kept", "open") else "░"] * max(b - a, 1)
    return f"  |{''.join(cells[:width])}|{' ◆' if retrieved else ''}"
