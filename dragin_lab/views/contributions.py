"""Why a fitted trigger scored a word as it did: what each feature added to its log-odds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.catalog.methods import restore_method
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.study.stored_drafts import as_judged
from dragin_lab.trace.trace import Trace
from dragin_lab.triggers.logistic import Logistic
from dragin_lab.views.figures import AMBER, BLUE, INK, SOFT, clip_label, make_figure, new_drawing
from dragin_lab.views.frame import View, make_message, open_trace
from dragin_lab.views.html import clip, count, num, short

if TYPE_CHECKING:
    import pandas as pd

MAX_WORDS = 60
ROW = 16  # pixels of a word
LABELLED = 0.25  # share of the largest square from which a number stands beside one


def contributions(trace: Trace | str | Path) -> View:
    """The words of the drafts with their scores and, for each feature of the fitted trigger, what it added.

    The area of a square is the size of what was added: a full one raises the score, a hollow one lowers it. Features
    with the largest weights come first. A path that holds no readable trace gives its message in place. Raises
    ``SettingError`` for a trace of another trigger, and where its trigger is not defined here, ``MissingPackageError``
    without matplotlib.
    """
    try:
        shown = open_trace(trace)
    except TraceFileError as error:
        return make_message("Contributions", str(error))
    trigger = restore_method(shown.method, None).trigger
    if not isinstance(trigger, Logistic):
        raise SettingError(f"trigger {trigger.name!r} has no weights; ask with a trigger that dl.fit_trigger made")
    rows, left_out = _read_words(shown, trigger)
    if not len(rows):
        return make_message("Contributions", "No draft was judged.")
    weights = {name: weight for name, weight, *_ in sorted(trigger.terms, key=lambda term: -abs(term[1]))}
    highest = rows.loc[rows["score"].idxmax()]
    strongest = max(weights, key=lambda name: highest[name])
    about = (
        "A square is what a feature adds to the log-odds of a word, against a token of average features: full raises "
        f"the score, hollow lowers it. Above θ {short(trigger.threshold)} (dashed) a word fires (◆); one in brackets "
        "is not judged. Weights stand beside the names of the features."
    ) + (f" {count(left_out, 'more word')} left out." if left_out else "")
    return make_figure(
        clip(shown.question.text, 80)[0], partial(_draw_matrix, rows, weights, trigger.threshold), about=about,
        alt=f"{highest['word']} has the highest score, {num(highest['score'])}; what adds most to it is {strongest}.",
        table=rows.drop(columns="hit"), numbers="The numbers",
    )  # fmt: skip


def _read_words(trace: Trace, trigger: Logistic) -> tuple[pd.DataFrame, int]:
    """A row for each judged word, with the figures of its highest token; and how many words are left out."""
    import pandas as pd

    method, names = restore_method(trace.method, None), [name for name, *_ in trigger.terms]
    rows = []
    for step in trace.steps:
        if step.draft is None or not len(step.words):
            continue
        draft = as_judged(trace, step, method)
        added, score = trigger.contributions(draft), trigger.score(draft)  # (n, f), (n,)
        words = step.words
        for text, (start, stop), hit, bare in zip(words.text, words.spans, words.hit, words.unjudged, strict=True):
            inside = np.arange(start, min(stop, len(score)))
            if len(inside):
                highest = inside[score[inside].argmax()]
                shown = text.strip("▁Ġ \n") or "␣"
                row: dict[str, Any] = {"step": step.index + 1, "word": f"({shown})" if bare else shown}
                row |= {"hit": bool(hit) and trigger.unit == "word", "score": float(score[highest])}
                rows.append(row | dict(zip(names, added[highest].tolist(), strict=True)))
    return pd.DataFrame(rows[:MAX_WORDS]), max(len(rows) - MAX_WORDS, 0)


def _draw_matrix(rows: pd.DataFrame, weights: dict[str, float], theta: float, width: int) -> Any:
    """The scores of the words as bars, and beside them a square for each feature; both share the rows."""
    steps = rows["step"].rank(method="dense").to_numpy()
    places = np.arange(len(rows)) + steps  # a row for the name of each step
    drawing = new_drawing(width, ROW * (places[-1] + 2) + 150)
    bars, squares = drawing.subplots(1, 2, sharey="all", width_ratios=(1, 4 if width > 500 else 2.2))
    bars.barh(places, rows["score"], height=0.7, color=np.where(rows["hit"], AMBER, SOFT))
    bars.axvline(theta, color=INK, linewidth=1.4, linestyle=(0, (4, 3)))
    bars.set(xlim=(0, 1), xticks=(0, 1), title="score")
    added = rows[list(weights)].to_numpy()  # (w, f) log-odds
    largest = float(np.abs(added).max()) or 1.0
    y, x = (places[:, None] + 0 * added).ravel(), np.tile(np.arange(len(weights)), len(rows))
    sizes, up = np.abs(added.ravel()) / largest * (ROW - 2) ** 2, added.ravel() > 0
    squares.scatter(x[up], y[up], s=sizes[up], marker="s", color=AMBER, linewidth=0)
    squares.scatter(x[~up], y[~up], s=sizes[~up], marker="s", facecolor="none", edgecolor=BLUE, linewidth=1)
    for at, place in zip(*np.nonzero(np.abs(added) > LABELLED * largest), strict=True) if width > 500 else ():
        squares.annotate(
            f"{added[at, place]:+.1f}".replace("-", "−"), (place, places[at]), xytext=(10, 0),
            textcoords="offset points", va="center", size=11, color=SOFT,
        )  # fmt: skip
    names = [f"{clip_label(name, 16)}  {num(weight, 2)}" for name, weight in weights.items()]
    squares.set_xticks(range(len(weights)), names, rotation=90, ha="center")
    squares.set(xlim=(-0.6, len(weights) - 0.4))
    squares.xaxis.tick_top()
    labels = [f"{'◆ ' * hit}{clip_label(word, 14)}" for word, hit in zip(rows["word"], rows["hit"], strict=True)]
    heads = {float(places[at]) - 1: f"step {rows['step'][at]}" for at in np.flatnonzero(np.diff(steps, prepend=0))}
    bars.set_yticks([*places, *heads], [*labels, *heads.values()])
    bars.set_ylim(places[-1] + 0.7, -0.7)
    for panel in (bars, squares):
        panel.tick_params(length=0, labelcolor=INK)
        panel.grid(visible=False, axis="x" if panel is bars else "both")
    return drawing
