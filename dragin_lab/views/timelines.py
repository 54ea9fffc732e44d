"""The timeline of an episode: what was written, where it was cut, when passages came in, what it kept and cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from pathlib import Path

from dragin_lab.trace.kept import kept_of, written
from dragin_lab.trace.trace import Continuation, Step, Trace
from dragin_lab.views.frame import View, draw_trace
from dragin_lab.views.rendering import render_template

MAX_STEPS = 60
FATES = {"kept": "kept", "gone": "thrown away", "extra": "written on for the record", "open": "not decided yet"}


@dataclass(frozen=True)
class Span:
    """A run of tokens that one call of the model wrote and that had one fate: "kept", "gone", "extra" or "open"."""

    step: int
    what: str  # "draft", "continuation" or "extraction"
    fate: str
    start: int  # half-open tokens, counted over the whole episode
    stop: int
    text: str

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Cost:
    """The cost of a step: tokens of each fate, tokens read and served from cache, calls, searches, seconds."""

    kept: int = 0
    gone: int = 0
    prompt: int = 0  # tokens of the prompts
    reused: int = 0  # of them, served from the cache
    calls: int = 0
    searches: int = 0
    seconds: tuple[tuple[str, float], ...] = ()  # of each kind of request

    @property
    def total(self) -> float:
        """Seconds of all kinds together."""
        return sum(s for _, s in self.seconds)

    def __add__(self, other: Cost) -> Cost:
        spent = Counter(dict(self.seconds))
        spent.update(dict(other.seconds))
        counted = [f.name for f in fields(self) if f.name != "seconds"]
        return Cost(**{n: getattr(self, n) + getattr(other, n) for n in counted}, seconds=tuple(spent.items()))


def spans_of(trace: Trace) -> list[Span]:
    """Everything that was written, in order and on one axis of tokens.

    A token that ends after the character where its text was cut is gone; "open" is not decided yet.
    """
    out: list[Span] = []
    place = 0
    for step, what, continuation in written(trace.steps):
        out += _split_by_fate(step.index, what, continuation, kept_of(step).of(what), place)
        place += len(continuation)
    if trace.extraction is not None:
        out += _split_by_fate(len(trace.steps), "extraction", trace.extraction, len(trace.extraction.text), place)
    return out


def _split_by_fate(step: int, what: str, continuation: Continuation, end: int | None, place: int) -> list[Span]:
    """The spans of one text whose kept part ends at the character ``end``, from the token ``place`` of the axis on."""
    n = len(continuation)
    cut = n if end is None or what == "extraction" else int((continuation.offsets[:, 1] <= end).sum())
    parts = [(0, cut, "open" if end is None else "kept"), (cut, n, "gone")]
    text = [
        continuation.text[int(continuation.offsets[a, 0]) : int(continuation.offsets[b - 1, 1])] if a < b else ""
        for a, b, _ in parts
    ]
    return [Span(step, what, f, place + a, place + b, t) for (a, b, f), t in zip(parts, text, strict=True) if a < b]


def cost_of(trace: Trace, step: Step) -> Cost:
    """The cost of one step."""
    texts = [c for c in (step.draft, step.continuation) if c is not None]
    spans = [s for s in spans_of(Trace(trace.question, trace.method, [step])) if s.step == step.index]
    return Cost(
        kept=sum(len(s) for s in spans if s.fate in ("kept", "open")),
        gone=sum(len(s) for s in spans if s.fate == "gone"),
        prompt=sum(len(c.prompt_ids) for c in texts),
        reused=sum(c.reused for c in texts),
        calls=len(texts),
        searches=int(step.query is not None),
        seconds=tuple(step.seconds.items()),
    )


def timeline(trace: Trace | str | Path) -> View:
    """The steps of an episode under each other on one axis of tokens, with their texts and costs.

    A path that holds no readable trace gives its message in place.
    """
    return draw_trace(
        "timeline", trace, partial(_fill_template, "timeline.html"), partial(_fill_template, "timeline.txt"), "timeline"
    )


def _fill_template(template: str, trace: Trace) -> str:
    spans = spans_of(trace)
    context = {"trace": trace, "spans": spans, "whole": max((s.stop for s in spans), default=0), "most": MAX_STEPS}
    tools = {
        "at": _axis_percent,
        "marks": _axis_signs,
        "costs": _cost_table,
        "cost_of": cost_of,
        "axis_line": _axis_line,
        "titles": _passage_titles,
    }
    return render_template(template, FATES=FATES, **context, **tools)


def _passage_titles(step: Step) -> str:
    """The titles of the first passages that a step retrieved."""
    return ", ".join(p.title or p.id for p in step.passages[:5]) or "nothing"


def _axis_percent(place: int, whole: int) -> str:
    """A place on the axis in per cent."""
    return f"{100 * place / whole:.2f}"


def _axis_signs(spans: list[Span], retrieved: bool) -> list[tuple[int, str, str]]:
    """The signs on a step's bar: place, sign, name."""
    marks = []
    if retrieved:
        stops = [s.stop for s in spans if s.what == "draft"]
        marks.append((stops[-1] if stops else min((s.start for s in spans), default=0), "◆", "retrieval"))
    cuts = [a.stop for a, b in pairwise(spans) if a.what == b.what and a.fate == "kept"]
    cuts += [spans[0].start] if spans and spans[0].fate == "gone" else []
    return marks + [(place, "✂", "cut") for place in cuts]


@dataclass(frozen=True)
class CostLine:
    """A line of the table of costs; ``total`` is "" where there is one kind of seconds alone."""

    name: str
    cells: list[str]
    total: str
    share: float  # of the dearest step


def _cost_table(trace: Trace) -> tuple[list[str], list[CostLine], CostLine]:
    """The table of costs: names of its columns, a line for each step, their sum."""
    steps = [cost_of(trace, step) for step in trace.steps]
    kinds = list(dict.fromkeys(kind for cost in steps for kind, _ in cost.seconds))
    names = ["step", "calls", "tokens kept", "thrown away", "searches", "prompt tokens", "from cache"]
    names += [f"{kind} s" for kind in kinds] + (["seconds"] if len(kinds) > 1 else [])
    most = max((cost.total for cost in steps), default=0.0)

    def line(name: str, cost: Cost, dearest: float) -> CostLine:
        spent = dict(cost.seconds)
        numbers = [cost.calls, cost.kept, cost.gone, cost.searches, cost.prompt, cost.reused]
        cells = [f"{n:,}" for n in numbers] + [f"{spent[k]:.3f}" if k in spent else "–" for k in kinds]
        share = cost.total / dearest if dearest else 0.0
        return CostLine(name, cells, f"{cost.total:.3f}" if len(kinds) > 1 else "", share)

    lines = [line(str(step.index + 1), cost, most) for step, cost in zip(trace.steps, steps, strict=True)]
    return names, lines, line("all", sum(steps, Cost()), 0.0)


def _axis_line(spans: list[Span], step: Step, whole: int, width: int = 76) -> str:
    """A step's spans on the axis as characters."""
    cells = [" "] * width
    for span in (s for s in spans if s.step == step.index):
        a, b = (round(width * place / whole) for place in (span.start, span.stop))
        cells[a : max(b, a + 1)] = ["█" if span.fate in ("kept", "open") else "░"] * max(b - a, 1)
    return "".join(cells[:width])
