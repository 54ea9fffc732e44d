"""A stored trace under other settings: what would fire and be asked, what that changes, and how far that is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dragin_lab.almanac.facts import Labelled
from dragin_lab.checks import several
from dragin_lab.core.settings import title_setting
from dragin_lab.errors import SettingError
from dragin_lab.study.truth import Count, find_labels
from dragin_lab.study.whatif import Outcome, Replay
from dragin_lab.trace.trace import Trace
from dragin_lab.views.facts import judge_answer, setting_text
from dragin_lab.views.html import clip, count, esc, num
from dragin_lab.views.pages import Page, load_stylesheet, open_traces
from dragin_lab.views.texts import Texts
from dragin_lab.views.trace_page import trace_card


def replayed(
    traces: Trace | str | Path | Iterable[Trace | str | Path],
    labels: Iterable[Labelled] | None = None,
    *,
    tokenizer: Any = None,
    nlp: Any = None,
    **settings: Any,
) -> Page:
    """One or many stored traces under other settings, without the model: what ``dl.tune`` shows for one value.

    ``settings`` are those of the trigger and the query formulator, those not named as they were; the rest as for
    ``dl.Replay``. The first trace is drawn in full, the others are lines of a table. Raises ``SettingError``
    for settings that cannot be replayed, ``TraceFileError`` for a path that holds no trace.
    """
    opened = open_traces([traces] if isinstance(traces, Trace | str | Path) else traces)
    if not opened:
        raise SettingError("there is no trace to replay; give one or a list of them")
    known = several("labels", labels, Labelled, "give almanac.labels(...)") if labels is not None else None
    outcomes = [Replay(t, find_labels(t, known), tokenizer=tokenizer, nlp=nlp).at(**settings) for t in opened]
    return show_outcomes(outcomes)


def show_outcomes(outcomes: Sequence[Outcome]) -> Page:
    """The page of outcomes, the first one in full."""
    return Page(outcomes[0].trace.question.text, partial(_draw_page, outcomes), partial(_write_text, outcomes))


def table_of(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """A row for each trace, those that change first, and of them those that change earliest."""
    order = sorted(outcomes, key=lambda one: (one.since is None, one.since or 0))
    rows = [
        {
            "question": clip(one.trace.question.text, 90)[0],
            "answer was": judge_answer(one.trace)[1],
            "is now": "not known" if one.known is None else judge_answer(one.known)[1],
            "retrievals": f"{'' if one.whole else '≥ '}{one.retrievals}",
            "was": one.trace.retrievals_count,
            "known": known_until(one),
            "what changes": "nothing" if one.since is None else one.turns[one.since].change or one.why,
            "precision": num(one.count.precision, 2),
            "recall": num(one.count.recall, 2),
        }
        for one in order
    ]
    return pd.DataFrame(rows)


def changes_of(outcome: Outcome) -> str:
    """``θ 0.8 (was 1.2)``: the settings of an outcome that are not the trace's own."""
    old, method = outcome.trace.method, outcome.method
    changes = [
        f"{title_setting(name)} {setting_text(value)} (was {setting_text(old[name])})"
        for name, value in (method.trigger.settings | method.formulator.settings).items()
        if name in old and value != old[name]
    ]
    return ", ".join(changes) or "as it was run"


def known_until(outcome: Outcome) -> str:
    """How far a stored trace shows what would happen."""
    return "to its end" if outcome.since is None else f"to step {outcome.since + 1}"


def summary_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """The figures of all traces together: name and value."""
    whole, total = sum(one.whole for one in outcomes), sum(one.retrievals for one in outcomes)
    before = sum(one.trace.retrievals_count for one in outcomes)
    least = "" if whole == len(outcomes) else "at least "
    known = f"{whole} of {count(len(outcomes), 'trace')} to its end" if len(outcomes) > 1 else known_until(outcomes[0])
    rows = [
        ("settings", changes_of(outcomes[0])),
        ("retrievals", f"{least}{total:,} (was {before:,})"),
        ("follows the stored text", known),
    ]
    scored = [(o.known.scores["em"], o.trace.scores["em"]) for o in outcomes if o.known is not None and o.trace.scores]
    if scored:
        now, then = (num(sum(of) / len(scored)) for of in zip(*scored, strict=True))
        rows.append(("exact match", f"{now} (was {then}), of the {len(scored)} whose answer is known"))
    counted = sum((one.count for one in outcomes), Count())
    if counted != Count():
        fired, needed = counted.right + counted.wrong, counted.right + counted.missed
        rows.append(("precision", f"{counted.right} of {fired} retrievals needed: {num(counted.precision, 2)}"))
        rows.append(("recall", f"{counted.right} of {needed} missing facts looked up: {num(counted.recall, 2)}"))
    return rows


def show_sums(outcomes: Sequence[Outcome], *, table: bool) -> str:
    """``summary_rows`` as HTML, with ``table_of`` below."""
    sums = "".join(f"<dt>{esc(name)}</dt><dd>{esc(value)}</dd>" for name, value in summary_rows(outcomes))
    rows = f'<div class="wide">{table_of(outcomes).to_html(index=False, border=0)}</div>' if table else ""
    return f'<dl class="facts">{sums}</dl>{rows}'


def show_table(outcomes: Sequence[Outcome]) -> str:
    """The sums and a row for each trace in the style of the pages."""
    style = f"<style>{load_stylesheet()}</style>"
    return (
        f'<div class="dl-out mathjax_ignore">{style}<div class="dl head">{show_sums(outcomes, table=True)}</div></div>'
    )


def _draw_page(outcomes: Sequence[Outcome]) -> str:
    one = outcomes[0]
    why = f'<p class="soft">{esc(one.why)}</p>' if one.why else ""
    head = f'<div class="head" role="status">{show_sums(outcomes, table=len(outcomes) > 1)}{why}</div>'
    return head + trace_card(Texts(one.judged), turns=one.turns, since=one.since)


def _write_text(outcomes: Sequence[Outcome]) -> str:
    lines = [f"{name:24}{value}" for name, value in summary_rows(outcomes)]
    if len(outcomes) > 1:
        lines += ["", table_of(outcomes).to_string(index=False)]
    for turn in outcomes[0].turns:
        reached = "" if turn.reached else "if the episode came here: "
        reason = turn.decision.reason if turn.decision else ""
        lines.append(f"Step {turn.step + 1}  {reached}{turn.change or 'as it was'}  {reason}")
        lines += [f"        query: {turn.query.text}"] if turn.query else []
        if turn.step == outcomes[0].since:
            lines.append(f"        from here the stored text cannot say what would happen: {outcomes[0].why}")
    return "\n".join(lines) + "\n"
