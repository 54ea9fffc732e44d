"""What each retrieval was good for, as figures: nats by word and passage, and a funnel of many
retrievals.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pandas as pd
import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from dragin_lab.checks import choice
from dragin_lab.drawn import draws
from dragin_lab.study.attribution import Attribution
from dragin_lab.study.runs import Runs
from dragin_lab.views import theme
from dragin_lab.views.facts import clip, num

if TYPE_CHECKING:
    from dragin_lab.study.attribution import Attribution

WORDS = 250  # words that stand on the axis
_SHAPES = ("", "/", "x", "-", "\\", "+")


@draws(Attribution, "plot")
def plot_attribution(source: Attribution) -> go.Figure:
    """What each passage gave to each word, in nats, one bar over the other; below 0 it made the
    word less likely.
    """
    numbers = [name for name in source.tokens if name.startswith("passage ")]
    words = source.tokens.groupby(["step", "source", "word"], sort=False, dropna=False)
    nats = words[numbers].sum()
    labels = [
        f"{place} {clip(text.strip(), 18)[0]}"
        for place, text in enumerate(words["text"].agg("".join), 1)
    ]
    if not numbers:
        return theme.message(source.trace.question.text, "No passage was in view of what was kept.")
    figure = go.Figure()
    for place, name in enumerate(numbers):
        pairs = zip(labels, nats[name], strict=True)
        hover = [f"{theme.label(label)}<br>{name}: {num(value, 2)} nats" for label, value in pairs]
        look = {
            "color": theme.COLOURS[place % len(theme.COLOURS)],
            "pattern": {"shape": _SHAPES[place % len(_SHAPES)]},
        }
        figure.add_bar(
            x=labels[:WORDS], y=nats[name][:WORDS], name=name, marker=look, customdata=hover[:WORDS]
        )
    more = f" (the first {WORDS} of {len(labels)} words)" if len(labels) > WORDS else ""
    ticks = {
        "tickvals": labels[:WORDS],
        "ticktext": [theme.clip_label(one.split(" ", 1)[1], 18) for one in labels[:WORDS]],
    }
    return theme.finish(
        figure,
        source.trace.question.text + more,
        340,
        barmode="relative",
        xaxis={"tickangle": -60, **ticks},
        yaxis_title="nats",
        legend=theme.BELOW,
        showlegend=True,
    )


@draws(Runs, "funnel")
def draw_funnel(runs: Runs, by: str = "method") -> go.Figure:
    """Where retrievals go: asked by each method (or data set), found, used, and part of a right
    answer (a Sankey). ``by`` is "method" or "dataset".
    """
    choice("by", by, ("method", "dataset"))
    retrievals = runs.retrievals
    states = {
        "found": ("found", "not found", "found? unknown"),
        "used": ("used", "not used", ""),
        "right": ("right answer", "wrong answer", "no gold answer"),
    }
    rows = pd.DataFrame({by: retrievals[by].astype(str)})
    for name, (yes, no, unknown) in states.items():
        rows[name] = [
            unknown if pd.isna(value) else yes if value else no for value in retrievals[name]
        ]
    stages, groups = [by, *states], list(dict.fromkeys(rows[by]))
    nodes = [(stage, value) for stage in stages for value in dict.fromkeys(rows[stage])]
    links = pd.concat(
        rows.groupby([by, one, other], sort=False)
        .size()
        .rename("n")
        .rename_axis(["by", "one", "other"])
        .reset_index()
        .assign(
            source=lambda f, s=one: [nodes.index((s, value)) for value in f["one"]],
            target=lambda f, s=other: [nodes.index((s, value)) for value in f["other"]],
        )
        for one, other in pairwise(stages)
    )
    counts = [int((rows[stage] == value).sum()) for stage, value in nodes]
    labels = [
        f"{theme.clip_label(value, 40)} {n}" for (_, value), n in zip(nodes, counts, strict=True)
    ]
    faded = [f"rgba{(*hex_to_rgb(colour), 0.45)}" for colour in theme.COLOURS]
    colours = [faded[groups.index(name) % len(faded)] for name in links["by"]]
    said = [
        f"{row.n} retrievals of {theme.label(row.by)}: {row.one} → {row.other}"
        for row in links.itertuples()
    ]
    figure = go.Figure(
        go.Sankey(
            node={
                "label": labels,
                "color": theme.GREY,
                "pad": 18,
                "hovertemplate": "%{label}<extra></extra>",
            },
            link={
                "source": links["source"],
                "target": links["target"],
                "value": links["n"],
                "color": colours,
                "customdata": said,
                "hovertemplate": "%{customdata}<extra></extra>",
            },
        )
    )
    return theme.finish(
        figure, f"{len(rows)} retrievals: asked, found, used, part of a right answer", 380
    )
