"""From look to word: one retrieval from the words it was asked with to the words that it gave."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from dragin_lab.checks import position
from dragin_lab.drawn import draws
from dragin_lab.study.attribution import Attribution
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import theme
from dragin_lab.views.episodes import PARTS, find_parts
from dragin_lab.views.facts import num

UNUSED = 0.03  # the width of a passage that gave no word, as a share of all
LINE, HEAD = 26, 190  # pixels
HEADINGS = ("asked with", "query", "found (grey: not used)", "gave")


class Node(NamedTuple):
    name: str
    colour: str


class Link(NamedTuple):
    """A band between two nodes, which are known by their place."""

    source: int
    target: int
    width: float
    colour: str
    about: str


@draws(Attribution, "flow")
def draw_flow(source: Attribution, step: int | None = None) -> go.Figure:
    """One retrieval from left to right: the words that it was asked with, the query, the passages
    that it found (grey: not used), and the words of the answer that they gave.

    On the left a width is a share of the attention that what fired paid, on the right one of the
    nats that passages gave. ``step`` counts from 1; default the first whose passages gave a word.
    Raises ``SettingError`` for a step that is not there.
    """
    trace, made = source.trace, source.retrievals
    if step is None and not len(made):
        return theme.message(trace.question.text, "This episode retrieved nothing.")
    first = step
    if first is None:
        first = int(made["step"][made["used"].argmax()])
    own = trace.steps[position("step", first, len(trace.steps), "the trace")]
    if own.query is None:
        return theme.message(trace.question.text, f"Step {first} retrieved nothing.")
    nodes, links = list_asked(trace, own)
    query = len(nodes)
    nodes.append(Node(own.query.text, theme.INK))
    add_given(source, first, nodes, links)
    reason = own.decision.reason if own.decision is not None else "searched first"
    tallest = max(query, len(nodes) - query - 1)
    figure = draw_bands(nodes, links)
    return theme.finish(figure, f"Step {first}: {reason}", HEAD + LINE * tallest)


def list_asked(trace: Trace, step: Step) -> tuple[list[Node], list[Link]]:
    """The words that a query was made of, each with its band; where none was weighed, the text that
    it is from.
    """
    query = step.query
    assert query is not None
    chosen = query.chosen
    parts = np.array(find_parts(trace, step), object)[chosen]
    words = np.array(query.words, object)[chosen]
    weights = query.weights[chosen]
    if not weights.sum() > 0:
        text = "the draft" if step.draft is not None else "the question"
        whole = Link(0, 1, 1.0, theme.GREY, "nothing was weighed")
        return [Node(text, theme.GREY)], [whole]
    shares = weights / weights.sum()
    nodes, links = [], []
    for place, (word, part, share) in enumerate(zip(words, parts, shares, strict=True)):
        about = f"{theme.label(word)}, {part}: attention {num(weights[place])}"
        nodes.append(Node(word, PARTS[part]))
        links.append(Link(place, len(words), share, PARTS[part], about))
    return nodes, links


def add_given(source: Attribution, step: int, nodes: list[Node], links: list[Link]) -> None:
    """The passages that a step found, behind the last node, and behind them what each gave."""
    passages = source.passages[source.passages["retrieval"] == step]
    words = source.words
    words = words[words["mark"] == "passage"]
    words = words[words["retrieval"] == step]
    total = float(words["nats"].sum()) or 1.0
    query, end = len(nodes) - 1, len(nodes) + len(passages)
    gave: list[Node] = []
    for place, row in enumerate(passages.itertuples()):
        own = words[words["passage"] == row.number]
        colour = theme.GREY
        if len(own):
            colour = theme.COLOURS[place % len(theme.COLOURS)]
        share = own["nats"].sum() / total
        about = say_nats(row.title, row.nats)
        found = Link(query, len(nodes), max(share, UNUSED), colour, about)
        links.append(found)
        for word, nats in zip(own["word"], own["nats"], strict=True):
            about = say_nats(word, nats)
            target = end + len(gave)
            given = Link(len(nodes), target, nats / total, colour, about)
            links.append(given)
            gave.append(Node(word, colour))
        nodes.append(Node(f"{row.number} {row.title}", colour))
    nodes += gave


def say_nats(name: str, nats: float) -> str:
    return f"{theme.label(name)}: {num(nats)} nats"


def draw_bands(nodes: list[Node], links: list[Link]) -> go.Figure:
    """The nodes and the bands between them, with a heading over each column."""
    labels = [theme.clip_label(node.name, 27) for node in nodes]
    shown: dict[str, Any] = {"label": labels, "align": "left"}
    shown["color"] = [node.colour for node in nodes]
    shown |= {"pad": 12, "thickness": 12, "hovertemplate": "%{label}<extra></extra>"}
    source, target, width, colours, about = zip(*links, strict=True)
    faded = [f"rgba{(*hex_to_rgb(colour), 0.4)}" for colour in colours]
    link: dict[str, Any] = {"source": source, "target": target, "value": width, "color": faded}
    link |= {"customdata": about, "hovertemplate": "%{customdata}<extra></extra>"}
    figure = go.Figure(go.Sankey(node=shown, link=link))
    for place, text in enumerate(HEADINGS):
        side = "right" if place == 3 else "left"
        at = {"x": place / 3, "y": 1.02, "xref": "paper", "yref": "paper", "xanchor": side}
        figure.add_annotation(at, text=f"<b>{text}</b>", yanchor="bottom", showarrow=False)
    return figure
