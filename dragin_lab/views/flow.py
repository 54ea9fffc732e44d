"""From look to word: one retrieval from the words it was asked with to the words that it gave."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import plotly.graph_objects as go

from dragin_lab.drawn import draws
from dragin_lab.study.attribution import Attribution
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import theme
from dragin_lab.views.episodes import PARTS, find_parts
from dragin_lab.views.facts import num, shorten
from dragin_lab.views.rows import find_step

UNUSED = 0.03  # the width of a passage that gave no word, as a share of all
LINE = 26  # pixels
HEAD = 190  # pixels
HEADINGS = ("asked with", "query", "found", "gave")
QUERY = 0  # the place of the query's node


@draws(Attribution, "flow")
def draw_flow(source: Attribution, step: int | None = None) -> go.Figure:
    """One retrieval from left to right: the words that it was asked with, the query, the passages
    that it found (grey: not used), and the words of the answer that they gave.

    On the left a width is a share of the attention that what fired paid, on the right one of the
    nats that passages gave. ``step`` counts from 1; default the first whose passages gave a word.
    Raises ``SettingError`` for a step that is not there.
    """
    trace = source.trace
    retrievals = source.retrievals
    number = step
    if number is None:
        number = int(retrievals["step"][retrievals["used"].argmax()]) if len(retrievals) else 1
    own = find_step(trace, number)
    if own.query is None:
        return theme.message(trace.question.text, f"Step {number} retrieved nothing.")
    bands = theme.Bands()
    bands.add(shorten(own.query.text, 22), theme.INK)
    asked = add_asked(bands, trace, own)
    given = add_given(bands, source, number)
    figure = bands.draw()
    for place, text in enumerate(HEADINGS):
        side = "right" if place == 3 else "left"
        at = {"xref": "paper", "yref": "paper", "xanchor": side, "yanchor": "bottom"}
        theme.write(figure, f"<b>{text}</b>", place / 3, 1.02, **at)
    reason = own.decision.reason if own.decision is not None else "searched first"
    return theme.finish(
        figure, f"Step {number}: {reason}; grey passages: not used", HEAD + LINE * max(asked, given)
    )


def add_asked(bands: theme.Bands, trace: Trace, step: Step) -> int:
    """The words that a query was made of, each with its band; where none was weighed, the text that
    it is from. Returns how many nodes these are.
    """
    query = step.query
    assert query is not None
    total = query.weights[query.chosen].sum()
    if not total > 0:
        text = "the draft" if step.draft is not None else "the question"
        whole = bands.add(text, theme.GREY)
        bands.join(whole, QUERY, 1.0, theme.GREY, "nothing was weighed")
        return 1
    parts = find_parts(trace, step)
    chosen = np.flatnonzero(query.chosen)
    for place in chosen:
        word = query.words[place]
        part = parts[place]
        weight = query.weights[place]
        about = f"{theme.label(word)}, {part}: attention {num(weight)}"
        node = bands.add(word, PARTS[part])
        bands.join(node, QUERY, weight / total, PARTS[part], about)
    return len(chosen)


def add_given(bands: theme.Bands, source: Attribution, step: int) -> int:
    """The passages that a step found, and behind them what each gave; how many nodes these are."""
    passages = source.passages[source.passages["retrieval"] == step]
    words = source.words[source.words["mark"] == "passage"]
    words = words[words["retrieval"] == step]
    total = words["nats"].sum() or 1.0
    coloured = zip(passages.itertuples(), cycle(theme.COLOURS), strict=False)
    for row, colour in coloured:
        given = words[words["passage"] == row.number]
        shade = colour if len(given) else theme.GREY
        passage = bands.add(f"{row.number} {row.title}", shade)
        gave = given["nats"].sum() / total
        share = max(gave, UNUSED)
        about = say_nats(row.title, row.nats)
        bands.join(QUERY, passage, share, shade, about)
        for word in given.itertuples():
            node = bands.add(word.word, shade)
            about = say_nats(word.word, word.nats)
            bands.join(passage, node, word.nats / total, shade, about)
    return len(passages) + len(words)


def say_nats(name: str, nats: float) -> str:
    return f"{theme.label(name)}: {num(nats)} nats"
