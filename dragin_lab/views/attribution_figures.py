"""What each retrieval was good for, as figures: nats by word and passage, and a funnel of many
retrievals.
"""

from __future__ import annotations

from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd
import plotly.graph_objects as go

from dragin_lab.checks import choice
from dragin_lab.drawn import draws
from dragin_lab.results.runs import Runs
from dragin_lab.study.attribution import Attribution
from dragin_lab.views import theme
from dragin_lab.views.attribution import COLOURS
from dragin_lab.views.facts import clip, num, plural

if TYPE_CHECKING:
    from dragin_lab.study.attribution import Attribution

WORDS = 250  # words that stand on the axis
FOUND = {True: "found", False: "not found"}
HOLDS = {True: "holds the gold answer", False: "holds no gold answer"}
USED = {True: "used", False: "not used"}
RIGHT = {True: "right answer", False: "wrong answer"}
_SHAPES = ("", "/", "x", "-", "\\", "+")


@draws(Attribution, "plot")
def plot_attribution(source: Attribution) -> go.Figure:
    """What each passage gave to each word, in nats, one bar over the other; below 0 it made the
    word less likely.

    A passage has the number and colour of the page; those that gave no word are one grey bar.
    """
    numbers = [name for name in source.tokens if name.startswith("passage ")]
    if not numbers:
        return theme.message(source.trace.question.text, "No passage was in view of what was kept.")
    words = source.tokens.groupby(["step", "source", "word"], sort=False, dropna=False)
    nats = words[numbers].sum()[:WORDS]
    texts = words["text"].agg("".join)[:WORDS]
    names = [clip(text.strip(), 18)[0] for text in texts]
    labels = [f"{place} {name}" for place, name in enumerate(names, 1)]
    figure = theme.Figure()
    others = set(numbers)
    for number, shade in source.shades.items():
        title = theme.clip_label(source.by_number[number].title or "(no title)", 40)
        look: dict[str, Any] = {"color": theme.COLOURS[shade % COLOURS]}
        look["pattern"] = {"shape": _SHAPES[shade % len(_SHAPES)]}
        _add_bars(figure, labels, nats[f"passage {number}"], f"{number} {title}", look)
        others.discard(f"passage {number}")
    if others:
        rest = nats[sorted(others)].sum(axis=1)
        name = f"{plural(len(others), 'passage')} that gave no word"
        _add_bars(figure, labels, rest, name, {"color": theme.GREY})
    title = source.trace.question.text
    if words.ngroups > WORDS:
        title += f" (the first {WORDS} of {words.ngroups} words)"
    ticks = [theme.clip_label(name, 18) for name in names]
    figure.update_xaxes(tickangle=-60, tickvals=labels, ticktext=ticks)
    look = {"barmode": "relative", "yaxis_title": "nats", "legend": theme.BELOW}
    return theme.finish(figure, title, 340, showlegend=True, **look)


def _add_bars(
    figure: go.Figure, labels: list[str], nats: pd.Series, name: str, look: dict[str, Any]
) -> None:
    """What one passage gave to each word."""
    hover = []
    for label, value in zip(labels, nats, strict=True):
        hover.append(f"{theme.label(label)}<br>{name}: {num(value, 2)} nats")
    figure.add_bar(x=labels, y=nats, name=name, marker=look, customdata=hover)


@draws(Runs, "funnel")
def draw_funnel(runs: Runs, by: str = "method") -> go.Figure:
    """Where retrievals go: asked by each method (or data set), found, used, and part of a right
    answer (a Sankey). ``by`` is "method" or "dataset".
    """
    choice("by", by, ("method", "dataset"))
    rows = say_states(runs.retrievals, by)
    stages = [*rows]
    names = rows[by].unique()
    colours = dict(zip(names, cycle(theme.COLOURS), strict=False))
    bands = theme.Bands()
    places = dict[tuple[str, str], int]()
    for stage in stages:
        for value, n in rows[stage].value_counts(sort=False).items():
            places[stage, value] = bands.add(f"{value} {n}", theme.GREY)
    for stage, following in pairwise(stages):
        joined = rows.groupby([rows[by], rows[stage], rows[following]], sort=False)
        for (name, start, end), n in joined.size().items():
            whose = theme.label(name)
            about = f"{n} retrievals of {whose}: {start} → {end}"
            source = places[stage, start]
            target = places[following, end]
            bands.join(source, target, n, colours[name], about)
    title = f"{len(rows)} retrievals: asked, found, used, part of a right answer"
    return theme.finish(bands.draw(), title, 380)


def say_states(retrievals: pd.DataFrame, by: str) -> pd.DataFrame:
    """A row for each retrieval: whose it is, and in words whether it was found, used and right."""
    rows = retrievals[[by]].astype(str)
    # where no passage is labelled, what is known is whether the gold answer stands in one
    holds = retrievals["holds gold"].map(HOLDS).fillna("found? unknown")
    rows["found"] = retrievals["found"].map(FOUND).fillna(holds)
    rows["used"] = retrievals["used"].map(USED)
    rows["right"] = retrievals["right"].map(RIGHT).fillna("no gold answer")
    return rows
