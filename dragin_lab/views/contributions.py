"""Why a fitted trigger scored a word as it did: what each feature added to its log-odds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dragin_lab.core.method import restored
from dragin_lab.errors import SettingError
from dragin_lab.study.stored_drafts import as_judged
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.triggers.logistic import Logistic
from dragin_lab.views.frame import View, draw
from dragin_lab.views.rendering import render

MAX_WORDS = 200  # of one draft


@dataclass(frozen=True)
class Told:
    """A draft word by word: score, and what each of f features added; a word takes the score of its highest token."""

    step: Step
    words: list[tuple[str, bool, float, list[float]]]  # text, whether it is a hit, score, (f,) log-odds
    left_out: int


def contributions(trace: Trace | str | Path) -> View:
    """The words of each draft with their scores and, for each feature of the fitted trigger, what it added.

    The first line holds the weights. A path that holds no readable trace gives its message in place. Raises
    ``SettingError`` for a trace of another trigger, and where its trigger is not defined here.
    """
    if isinstance(trace, Trace):
        _when(trace)
    return draw("contributions", trace, partial(_drawn, "contributions.html"), partial(_drawn, "contributions.txt"))


def _when(trace: Trace) -> Logistic:
    when = restored(trace.method, None).trigger
    if not isinstance(when, Logistic):
        raise SettingError(f"when {when.name!r} has no weights; ask with a trigger that dl.fit_trigger made")
    return when


def _drawn(template: str, trace: Trace) -> str:
    when = _when(trace)
    told = [_told(when, trace, step) for step in trace.steps if step.draft is not None and len(step.words)]
    return render(template, trace=trace, when=when, names=[term[0] for term in when.terms], told=told)


def _told(when: Logistic, trace: Trace, step: Step) -> Told:
    draft = as_judged(trace, step, restored(trace.method, None))
    added, score = when.contributions(draft), when.score(draft)  # (n, f), (n,)
    rows = []
    for text, (start, stop), hit in zip(step.words.text, step.words.spans, step.words.hit, strict=True):
        inside = np.arange(start, min(stop, len(score)))
        if len(inside):
            loudest = inside[score[inside].argmax()]
            rows.append(
                (
                    text.strip("▁Ġ \n") or text,
                    bool(hit) and when.unit == "word",
                    float(score[loudest]),
                    added[loudest].tolist(),
                )
            )
    return Told(step, rows[:MAX_WORDS], max(len(rows) - MAX_WORDS, 0))
