"""A stored trace under other settings: what would fire and be asked, what that changes, from where on nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab.core.labels import Labelled
from dragin_lab.core.trace import Step, Trace
from dragin_lab.errors import SettingError
from dragin_lab.study.truth import Count
from dragin_lab.study.whatif import Outcome, Replay, Turn, labelled_of
from dragin_lab.views import sections
from dragin_lab.views.frame import View, asked, framed, opened
from dragin_lab.views.heat import Scale, scale_of
from dragin_lab.views.html import attempt, clip, clipped, count, esc, num, row, short, soft, tag
from dragin_lab.views.pieces import Look, share_out, stretch
from dragin_lab.views.step import ask_box
from dragin_lab.views.trace import MAX_PIECES, MAX_STEPS, legend

MAX_ROWS = 60
_NAMES = {"threshold": "θ", "top_n": "top n", "normalize": "scaled by", "doubt_limit": "1 − β"}


def replayed(
    traces: Trace | str | Path | Iterable[Trace | str | Path],
    labels: Iterable[Labelled] | None = None,
    *,
    tokenizer: Any = None,
    nlp: Any = None,
    **settings: Any,
) -> View:
    """One or many stored traces under other settings, without the model: what ``widgets.tuner`` shows for one value.

    ``settings`` are ``threshold``, ``top_n``, ``normalize`` and ``doubt_limit``, those not named as they were; the rest
    as for ``replay.Replay``. The first trace is drawn in full, the others are lines of a table. Raises ``SettingError``
    for settings that cannot be replayed, ``TraceFileError`` for a path that holds no trace.
    """
    given = [traces] if isinstance(traces, Trace | str | Path) else list(traces)
    if not given:
        raise SettingError("there is no trace to replay; give one or a list of them")
    known = list(labels) if labels is not None else None
    found = [opened(one) for one in given]
    replays = [Replay(t, labelled_of(t, known), tokenizer=tokenizer, nlp=nlp) for t in found]
    outcomes = [r.at(**settings) for r in replays]
    html, text = framed("The replay", partial(card, outcomes), partial(plain, outcomes), ("replay",))
    return View(f"{clip(found[0].question.text, 80)[0]} – replay", html, text)


def card(outcomes: Sequence[Outcome], chosen: int = 0) -> str:
    """The inside of the view's card; ``chosen`` is the trace drawn in full."""
    one = outcomes[chosen]
    table = _table(outcomes, chosen) if len(outcomes) > 1 else ""
    return f"{asked(one.trace)}</header>{summary(outcomes)}{table}{detail(one)}"


# -- in short ---------------------------------------------------------------------------------------------------------


def changes_of(outcome: Outcome) -> str:
    """``θ 0.8 (was 1.2)``: the settings of an outcome that are not the trace's own."""
    old, new = outcome.trace.method, outcome.method.settings
    names = [name for name in _NAMES if new.get(name) != old.get(name)]
    said = [f"{_NAMES[n]} {sections.plain(new[n])} (was {sections.plain(old.get(n))})" for n in names]
    return ", ".join(said) or "as it was run"


def until(outcome: Outcome) -> str:
    """How far a stored trace tells, in words."""
    return "to its end" if outcome.since is None else f"to step {outcome.since + 1}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """The figures of all traces together."""
    whole = sum(o.whole for o in outcomes)
    least = "" if whole == len(outcomes) else "at least "
    total, before = sum(o.retrievals for o in outcomes), sum(o.trace.retrievals_count for o in outcomes)
    parts = [
        ("retrievals", f"{least}{total:,}", f"was {before:,}"),
        (
            "still the stored episode",
            f"{whole} of {count(len(outcomes), 'trace')}" if len(outcomes) > 1 else until(outcomes[0]),
            "",
        ),
    ]
    counted = sum((o.count for o in outcomes), Count())
    if counted != Count():
        fired, needed = counted.right + counted.wrong, counted.right + counted.missed
        parts.append(("precision: retrievals needed", _part(counted.right, fired), num(counted.precision, 2)))
        parts.append(("recall: missing facts looked up", _part(counted.right, needed), num(counted.recall, 2)))
    cells = "".join(
        f"<span>{esc(name)}<b>{esc(value)}{f' <small>{esc(more)}</small>' if more else ''}</b></span>"
        for name, value, more in parts
    )
    settings = f"<span>settings<b>{esc(changes_of(outcomes[0]))}</b></span>"
    return f'<div class="sum" data-part="summary" role="status">{settings}{cells}</div>'


def _part(some: int, whole: int) -> str:
    return f"{some} of {whole}" if whole else "none to judge"


def _table(outcomes: Sequence[Outcome], chosen: int) -> str:
    names = ("question", "retrievals", "was", "tells", "what changes", "precision", "recall")
    head = "".join(f'<th scope="col">{n}</th>' for n in names)
    rows = []
    for place, o in enumerate(outcomes[:MAX_ROWS]):
        on = ' class="on" aria-current="true"' if place == chosen else ""
        least = "" if o.whole else "≥ "
        rows.append(
            f'<tr{on} data-trace="{place}"><th scope="row" dir="auto">{clipped(o.trace.question.text, 90)}</th>'
            f'<td class="n">{least}{o.retrievals}</td><td class="n">{o.trace.retrievals_count}</td>'
            f"<td>{esc(until(o))}</td><td>{clipped(_first_change(o), 60)}</td>"
            f'<td class="n">{num(o.count.precision, 2)}</td><td class="n">{num(o.count.recall, 2)}</td></tr>'
        )
    more = len(outcomes) - MAX_ROWS
    rest = f'<p class="more">… {count(more, "more trace")}, counted above</p>' if more > 0 else ""
    table = f'<table class="all"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return row("traces", "Traces", "all at these settings", f'<div class="wide">{table}</div>{rest}')


def _first_change(outcome: Outcome) -> str:
    return "nothing" if outcome.since is None else outcome.turns[outcome.since].change or outcome.why


# -- one trace --------------------------------------------------------------------------------------------------------


def detail(outcome: Outcome) -> str:
    """Every draft of one trace as the settings judge it, with the mark behind which the stored text no longer tells."""
    trace = outcome.trace
    scale = scale_at(outcome)
    shown = list(zip(trace.steps[:MAX_STEPS], outcome.turns, strict=False))
    room = share_out([t.made or s.draft for s, t in shown if s.draft is not None], MAX_PIECES)
    out = [legend(scale, "", "Hover a piece for its figures.")]
    for step, turn in shown:
        title = f"Step {step.index + 1}"
        inner = attempt(title, partial(_turn, outcome, step, turn, scale, room), lambda: "")
        css = "row turn" if turn.told else "row turn beyond"
        said = _headline(step, turn)
        out.append(f'<section class="{css}" data-part="turn" data-step="{step.index}">')
        out.append(f"<h4><b>{title}</b> <small>{esc(said)}</small></h4><div>{inner}</div></section>")
        if outcome.since == turn.step:
            out.append(
                '<div class="until" data-part="until" role="note">✂ From here on the stored text no longer tells'
                f"<span>{clipped(outcome.why, 300)}</span></div>"
            )
    if not shown:
        out.append(f'<div class="head">{soft("This trace has no steps, so there is nothing to replay.")}</div>')
    if len(trace.steps) > MAX_STEPS:
        out.append(f'<p class="head more">… {count(len(trace.steps) - MAX_STEPS, "more step")}</p>')
    return "".join(out)


def scale_at(outcome: Outcome) -> Scale:
    """The trace's scale of colours with θ where the settings put it."""
    scale = scale_of(outcome.trace)
    theta = outcome.method.threshold
    if scale.kind != "score" or theta is None:
        return scale
    scores = [t.words.score[np.isfinite(t.words.score)] for t in outcome.turns]
    return Scale(scale.kind, scale.name, max([scale.top, *(float(s.max()) for s in scores if s.size)]), theta)


def _headline(step: Step, turn: Turn) -> str:
    if step.draft is None:
        return "searches whatever is written" if step.query is not None else "nothing is held against θ"
    if not turn.told:
        return "if the episode came here"
    return turn.change or "as it was"


def _turn(outcome: Outcome, step: Step, turn: Turn, scale: Scale, room: dict[int, int]) -> str:
    out = []
    made = turn.made or step.draft
    if turn.change and turn.told:
        out.append(tag(turn.change))
    if turn.decision is not None:
        sign = tag("◆ retrieve" if turn.decision.retrieve else "✓ go on", "ok")
        out.append(f'<p class="why-now" dir="auto">{sign}{clipped(turn.decision.reason, 300)}</p>')
    if made is not None:
        fired = None if turn.decision is None else turn.decision.piece
        look = Look.of(made, turn.words, scale, fired, outcome.method.variant == "reference")
        end = len(made.text)
        cut = end
        if turn.decision is not None and turn.decision.retrieve and turn.decision.cut is not None:
            cut = min(turn.decision.cut, end)
        most = room.get(id(made), MAX_PIECES)
        body = stretch(look, most, 0, cut, special=cut >= end)
        gone = f'{tag("✂ cut here")}<del class="cut">{stretch(look, most, cut, end)}</del>' if cut < end else ""
        out.append(f'<div class="txt" dir="auto">{body}{gone}</div>')
    if turn.query is not None:
        out.append(ask_box(turn.query))
        if step.query is not None and step.query.text != turn.query.text:
            out.append(f'<p class="soft was" dir="auto">It asked: {clipped(step.query.text, 300)}</p>')
    if turn.why:
        out.append(soft(f"{turn.why[0].upper()}{turn.why[1:]}."))
    if turn.count != Count():
        out.append(soft(_judged(turn.count)))
    return "".join(out)


def _judged(counted: Count) -> str:
    said = []
    if counted.right:
        said.append("a fact is missing here, so this retrieval was needed")
    if counted.wrong:
        said.append("nothing that the model could not know is missing here")
    if counted.missed:
        said.append(f"it passes over {count(counted.missed, 'sentence')} with a missing fact")
    return f"Ground truth: {'; '.join(said)}."


# -- text -------------------------------------------------------------------------------------------------------------


def plain(outcomes: Sequence[Outcome]) -> str:
    """The same as text, one line a trace and the first one's steps."""
    out = [f"Settings      {changes_of(outcomes[0])}"]
    for o in outcomes[:MAX_ROWS]:
        least = "" if o.whole else "at least "
        out.append(
            f"{clip(o.trace.question.text, 60)[0]}: {least}{count(o.retrievals, 'retrieval')} "
            f"(was {o.trace.retrievals_count}), tells {until(o)}"
        )
    out.append("")
    for turn in outcomes[0].turns[:MAX_STEPS]:
        said = turn.change or ("as it was" if turn.told else "")
        reason = "" if turn.decision is None else turn.decision.reason
        out.append(f"Step {turn.step + 1}  {'' if turn.told else 'if the episode came here: '}{said}  {reason}")
        if turn.query is not None:
            out.append(f"        query: {turn.query.text}")
        if turn.step == outcomes[0].since:
            out.append(f"        from here on the stored text no longer tells: {outcomes[0].why}")
    theta = outcomes[0].method.threshold
    return "\n".join(out) + (f"\nθ {short(theta)}\n" if theta is not None else "\n")
