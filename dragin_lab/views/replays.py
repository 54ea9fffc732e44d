"""A stored trace under other settings: what would fire and be asked, what that changes, and how far that is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dragin_lab.almanac.facts import Labelled
from dragin_lab.checks import several
from dragin_lab.core.settings import title_setting
from dragin_lab.errors import SettingError
from dragin_lab.study.truth import Count, find_labels
from dragin_lab.study.whatif import Outcome, Replay, Turn
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import sections
from dragin_lab.views.canvas import MAX_STEPS, MAX_TOKENS, Canvas
from dragin_lab.views.frame import View, make_view, open_traces
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import count, num
from dragin_lab.views.rendering import render_template

MAX_ROWS = 200


def replayed(
    traces: Trace | str | Path | Iterable[Trace | str | Path],
    labels: Iterable[Labelled] | None = None,
    *,
    tokenizer: Any = None,
    nlp: Any = None,
    **settings: Any,
) -> View:
    """One or many stored traces under other settings, without the model: what ``widgets.tuner`` shows for one value.

    ``settings`` are those of the trigger and the query formulator, those not named as they were; the rest as for
    ``dl.Replay``. The first trace is drawn in full, the others are lines of a table. Raises ``SettingError``
    for settings that cannot be replayed, ``TraceFileError`` for a path that holds no trace.
    """
    opened = open_traces([traces] if isinstance(traces, Trace | str | Path) else traces)
    if not opened:
        raise SettingError("there is no trace to replay; give one or a list of them")
    known = several("labels", labels, Labelled, "give almanac.labels(...)") if labels is not None else None
    replays = [Replay(t, find_labels(t, known), tokenizer=tokenizer, nlp=nlp) for t in opened]
    outcomes = [r.at(**settings) for r in replays]
    card, text = partial(replay_card, outcomes), partial(replay_text, outcomes)
    return make_view("The replay", "replay", opened[0].question.text, card, text, "replay")


def replay_card(outcomes: Sequence[Outcome], chosen: int = 0) -> str:
    """The inside of the view's card; ``chosen`` is the trace drawn in full."""
    one = outcomes[chosen]
    canvas = Canvas.of(one.judged, "replay", MAX_TOKENS)
    canvas.scale = replace(canvas.scale, top=max(canvas.scale.top, scale_of(one.trace).top))  # the same for every θ
    turns = list(zip(canvas.trace.steps[:MAX_STEPS], one.turns, strict=False))
    return _fill_template(
        "replay.html", outcomes, one, chosen=chosen, canvas=canvas, turns=turns, facts=summary_rows(outcomes)
    )


def replay_text(outcomes: Sequence[Outcome]) -> str:
    """The same as text, one line per trace and the first one's steps."""
    return _fill_template("replay.txt", outcomes, outcomes[0])


def _fill_template(template: str, outcomes: Sequence[Outcome], one: Outcome, **context: Any) -> str:
    tools = (sort_outcomes, changes_of, known_until, step_headline, first_change, judge_decision)
    context |= {tool.__name__: tool for tool in tools} | {"most_rows": MAX_ROWS, "most": MAX_STEPS}
    return render_template(template, outcomes=outcomes, one=one, **context)


# -- texts ------------------------------------------------------------------------------------------------------------


def changes_of(outcome: Outcome) -> str:
    """``θ 0.8 (was 1.2)``: the settings of an outcome that are not the trace's own."""
    old, method = outcome.trace.method, outcome.method
    changes = [
        f"{title_setting(name)} {sections.setting_text(value)} (was {sections.setting_text(old[name])})"
        for name, value in (method.trigger.settings | method.formulator.settings).items()
        if name in old and value != old[name]
    ]
    return ", ".join(changes) or "as it was run"


def known_until(outcome: Outcome) -> str:
    """How far a stored trace shows what would happen."""
    return "to its end" if outcome.since is None else f"to step {outcome.since + 1}"


def summary_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str]]:
    """The figures of all traces together: name, value, remark."""
    whole = sum(o.whole for o in outcomes)
    least = "" if whole == len(outcomes) else "at least "
    total, before = sum(o.retrievals for o in outcomes), sum(o.trace.retrievals_count for o in outcomes)
    same = f"{whole} of {count(len(outcomes), 'trace')} to its end" if len(outcomes) > 1 else known_until(outcomes[0])
    parts = [
        ("settings", changes_of(outcomes[0]), ""),
        ("retrievals", f"{least}{total:,}", f"was {before:,}"),
        ("follows the stored text", same, ""),
    ]
    scored = [(o.known.scores["em"], o.trace.scores["em"]) for o in outcomes if o.known is not None and o.trace.scores]
    if scored:
        now, then = (num(sum(of) / len(scored)) for of in zip(*scored, strict=True))
        parts.append(("exact match", now, f"was {then}, over {len(scored)} of {len(outcomes)} whose answer is known"))
    counted = sum((o.count for o in outcomes), Count())
    if counted != Count():
        fired, needed = counted.right + counted.wrong, counted.right + counted.missed
        parts.append(("precision: retrievals needed", _share_text(counted.right, fired), num(counted.precision, 2)))
        parts.append(("recall: missing facts looked up", _share_text(counted.right, needed), num(counted.recall, 2)))
    return parts


def _share_text(some: int, whole: int) -> str:
    return f"{some} of {whole}" if whole else "none to judge"


def sort_outcomes(outcomes: Sequence[Outcome]) -> list[tuple[int, Outcome]]:
    """The outcomes with their places, those that change first, and of them those that change earliest."""
    return sorted(enumerate(outcomes), key=lambda pair: (pair[1].since is None, pair[1].since or 0, pair[0]))


def first_change(outcome: Outcome) -> str:
    """The first difference from the trace."""
    return "nothing" if outcome.since is None else outcome.turns[outcome.since].change or outcome.why


def step_headline(step: Step, turn: Turn) -> str:
    """What happens in a step under these settings."""
    if step.draft is None:
        return "searches whatever is written" if step.query is not None else "nothing is compared with θ"
    if not turn.reached:
        return "if the episode came here"
    return turn.change or "as it was"


def judge_decision(counted: Count) -> str:
    """The ground truth on a decision, in a sentence; "" where there is none."""
    remarks = []
    if counted.right:
        remarks.append("a fact is missing here, so this retrieval was needed")
    if counted.wrong:
        remarks.append("nothing that the model could not know is missing here")
    if counted.missed:
        remarks.append(f"it passes over {count(counted.missed, 'sentence')} with a missing fact")
    return f"Ground truth: {'; '.join(remarks)}." if remarks else ""
