"""The QFS view: from the hit, the words it attended to, in the text itself; the query made of them; what it found."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from dragin_lab.almanac.facts import Labelled
from dragin_lab.checks import several
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import sections
from dragin_lab.views.canvas import Canvas
from dragin_lab.views.frame import View, draw
from dragin_lab.views.html import clip
from dragin_lab.views.rendering import render
from dragin_lab.views.selections import Token, tokens, wanted

MAX_RETRIEVALS = 40
WORDS = 400  # of one text
PARTS = {"question": "question", "answer": "answer so far", "draft": "draft"}


def selections(trace: Trace | str | Path, *, gold: Labelled | Iterable[str] | None = None) -> View:
    """Every retrieval of a trace: what its query was made from, word by word, and what it found.

    ``gold`` says which passages hold what was needed: the question's labels (``facts.load_labels``) or the ids of the
    passages. A path that holds no readable trace gives its message in place. Raises ``SettingError`` for the labels of
    another question.
    """
    known = (
        gold
        if gold is None or isinstance(gold, str | Labelled)
        else tuple(several("gold", gold, str | int, "give passage ids"))
    )
    if isinstance(trace, Trace):
        wanted(trace, known)
    return draw("query", trace, partial(_drawn, "query.html", known), partial(_drawn, "query.txt", known), "qfs")


def _drawn(template: str, gold: Labelled | Iterable[str] | None, trace: Trace) -> str:
    need = wanted(trace, gold)
    context: dict[str, Any] = {
        "trace": trace,
        "canvas": Canvas.of(trace, "query", gold=frozenset(need)),
        "steps": [step for step in trace.steps if step.query is not None],
        "most": MAX_RETRIEVALS,
        "need": need,
    }
    return render(template, **context, looked_at=looked_at, placed=placed, unlabelled=unlabelled)


@dataclass(frozen=True)
class LookedAt:
    """What a query could be made of: each part's name, words and how many of them are left out before these."""

    parts: list[tuple[str, list[Token], int]]
    top: float  # the largest weight
    remarks: list[str]


def looked_at(trace: Trace, step: Step) -> LookedAt:
    """The words that a step's query could be made of; a long text is cut at its start, as its end is near the hit."""
    words, lost = tokens(trace, step)
    top = max((t.weight for t in words if t.weighed and math.isfinite(t.weight)), default=0.0)
    parts, drawn = [], 0
    for part, group in groupby(words, key=lambda t: t.part):
        inside = list(group)
        left_out = max(len(inside) - (WORDS if part == "draft" else max(WORDS - drawn, 0)), 0)
        drawn += len(inside) - left_out
        parts.append((PARTS[part], inside[left_out:], left_out))
    remarks = []
    if not any(t.weighed for t in words):
        what = trace.method.get("what", "?")
        remarks.append(f"This query was not made by attention (what: {what}), so no word has a weight.")
    if lost:
        remarks.append(f"Not found in the text: {clip(' '.join(lost), 300)[0]}.")
    return LookedAt(parts, top, remarks)


def placed(step: Step, need: dict[str, str]) -> list[tuple[str, int, str]]:
    """Each gold passage: its id, its rank among those found (0: not found), what it states."""
    ranks = {p.id: rank for rank, p in enumerate(step.passages, 1)}
    return [(name, ranks.get(name, 0), states) for name, states in need.items()]


def unlabelled(trace: Trace, step: Step) -> str:
    """What is known of a retrieval's worth where no passage is labelled."""
    golds = trace.question.golds
    holding = [str(rank) for rank, p in enumerate(step.passages, 1) if sections.holds_gold(p, golds)]
    if holding:
        return f"Not labelled; a gold answer stands in passage {', '.join(holding)}."
    if golds:
        return "Not labelled; none of the passages holds a gold answer."
    return "Not known: neither labels nor gold answers were given."
