"""Why a fitted trigger scored a word as it did: what each feature added to its log-odds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dragin_lab.catalog.methods import restore_method
from dragin_lab.errors import SettingError
from dragin_lab.study.stored_drafts import as_judged
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.triggers.logistic import Logistic
from dragin_lab.views.frame import View, draw_trace
from dragin_lab.views.rendering import render_template

MAX_WORDS = 200  # of one draft


@dataclass(frozen=True)
class WordRow:
    """A word with its score and what each feature added, (f,) log-odds: those of the word's highest token."""

    text: str
    hit: bool
    score: float
    added: list[float]


@dataclass(frozen=True)
class DraftRows:
    """The words of a draft, and how many of them are left out."""

    step: Step
    words: list[WordRow]
    left_out: int

    @property
    def largest(self) -> float:
        """The largest size of a contribution, where a bar is full."""
        return max((abs(value) for word in self.words for value in word.added), default=0.0) or 1.0


def contributions(trace: Trace | str | Path) -> View:
    """The words of each draft with their scores and, for each feature of the fitted trigger, what it added.

    A bar to the right of a cell's middle raises the score, one to the left lowers it; features stand by the size of
    their weights, which are in the first line. A path that holds no readable trace gives its message in place. Raises
    ``SettingError`` for a trace of another trigger, and where its trigger is not defined here.
    """
    if isinstance(trace, Trace):
        _fitted_trigger(trace)
    card, text = partial(_fill, "contributions.html"), partial(_fill, "contributions.txt")
    return draw_trace("contributions", trace, card, text, "contributions")


def _fitted_trigger(trace: Trace) -> Logistic:
    trigger = restore_method(trace.method, None).trigger
    if not isinstance(trigger, Logistic):
        raise SettingError(f"trigger {trigger.name!r} has no weights; ask with a trigger that dl.fit_trigger made")
    return trigger


def _fill(template: str, trace: Trace) -> str:
    trigger = _fitted_trigger(trace)
    order = sorted(range(len(trigger.terms)), key=lambda i: -abs(trigger.terms[i][1]))
    judged = [step for step in trace.steps if step.draft is not None and len(step.words)]
    drafts = [_draft_rows(trigger, trace, step, order) for step in judged]
    terms = [(trigger.terms[i][0].replace("_", " "), trigger.terms[i][1]) for i in order]
    return render_template(template, trace=trace, theta=trigger.theta, terms=terms, drafts=drafts)


def _draft_rows(trigger: Logistic, trace: Trace, step: Step, order: list[int]) -> DraftRows:
    draft = as_judged(trace, step, restore_method(trace.method, None))
    added, score = trigger.contributions(draft)[:, order], trigger.score(draft)  # (n, f), (n,)
    rows = []
    for text, (start, stop), hit in zip(step.words.text, step.words.spans, step.words.hit, strict=True):
        inside = np.arange(start, min(stop, len(score)))
        if len(inside):
            highest = inside[score[inside].argmax()]
            flagged = bool(hit) and trigger.unit == "word"
            rows.append(WordRow(text.strip("▁Ġ \n") or text, flagged, float(score[highest]), added[highest].tolist()))
    return DraftRows(step, rows[:MAX_WORDS], max(len(rows) - MAX_WORDS, 0))
