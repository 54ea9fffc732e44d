"""The timeline of an episode: what was written, where it was cut, when passages came in, what it kept and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dragin_lab.trace.kept import kept_of, written
from dragin_lab.trace.trace import Draft, Step, Trace
from dragin_lab.views.frame import View
from dragin_lab.views.rendering import render_template
from dragin_lab.views.trace import draw_trace

MAX_STEPS = 60
FATES = {"kept": "kept", "gone": "thrown away", "open": "not decided yet"}


@dataclass(frozen=True)
class Span:
    """A run of tokens that one call of the model wrote and that had one fate: "kept", "gone" or "open"."""

    step: int
    what: str  # "draft", "continuation" or "extraction"
    fate: str
    start: int  # half-open tokens, counted over the whole episode
    stop: int
    text: str

    def __len__(self) -> int:
        return self.stop - self.start


def timeline(trace: Trace | str | Path) -> View:
    """The steps of an episode under each other on one axis of tokens, with their texts and costs.

    A path that holds no readable trace gives its message in place.
    """
    return draw_trace("timeline", trace, _fill_template, "timeline")


def _fill_template(trace: Trace) -> str:
    spans = spans_of(trace)
    return render_template(
        "timeline.html", trace=trace, spans=spans, costs=step_costs(trace, spans), most=MAX_STEPS, FATES=FATES,
        whole=max((span.stop for span in spans), default=0), axis_signs=axis_signs,
    )  # fmt: skip


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


def _split_by_fate(step: int, what: str, continuation: Draft, end: int | None, place: int) -> list[Span]:
    """The spans of one text whose kept part ends at the character ``end``, from the token ``place`` of the axis on."""
    n, offsets = len(continuation), continuation.offsets
    cut = n if end is None or what == "extraction" else int((offsets[:, 1] <= end).sum())
    parts = [(0, cut, "open" if end is None else "kept"), (cut, n, "gone")]
    return [
        Span(step, what, fate, place + a, place + b, continuation.text[int(offsets[a, 0]) : int(offsets[b - 1, 1])])
        for a, b, fate in parts
        if a < b
    ]


def axis_signs(spans: Sequence[Span], retrieved: bool) -> list[tuple[int, str, str]]:
    """The signs on a step's bar: place, sign, name."""
    marks = []
    if retrieved:
        stops = [s.stop for s in spans if s.what == "draft"]
        marks.append((stops[-1] if stops else min((s.start for s in spans), default=0), "◆", "retrieval"))
    cuts = [a.stop for a, b in pairwise(spans) if a.what == b.what and a.fate == "kept"]
    cuts += [spans[0].start] if spans and spans[0].fate == "gone" else []
    return marks + [(place, "✂", "cut") for place in cuts]


Costs = dict[str, float]


def step_costs(trace: Trace, spans: Sequence[Span]) -> tuple[list[str], list[Costs], Costs]:
    """The table of costs: the names of its columns, the costs of each step by name, and their sums.

    They are calls, tokens of each fate, searches, tokens of the prompts, and the seconds of each kind of request.
    """
    rows = [_step_cost(step, [span for span in spans if span.step == step.index]) for step in trace.steps]
    kinds = {f"{kind} s": 0.0 for step in trace.steps for kind in step.seconds}
    names = [*_step_cost(Step(0), ()), *kinds]
    if len(kinds) > 1:
        names.append("seconds")
        rows = [row | {"seconds": sum(row.get(kind, 0.0) for kind in kinds)} for row in rows]
    return names, rows, {name: sum(row.get(name, 0) for row in rows) for name in names}


def _step_cost(step: Step, spans: Sequence[Span]) -> Costs:
    texts = [c for c in (step.draft, step.continuation) if c is not None]
    tokens: Counter[str] = Counter()
    for span in spans:
        tokens[span.fate] += len(span)
    return {
        "calls": len(texts),
        "tokens kept": tokens["kept"] + tokens["open"],
        "thrown away": tokens["gone"],
        "searches": int(step.query is not None),
        "prompt tokens": sum(len(c.prompt_ids) for c in texts),
        "from cache": sum(c.reused for c in texts),
    } | {f"{kind} s": seconds for kind, seconds in step.seconds.items()}
