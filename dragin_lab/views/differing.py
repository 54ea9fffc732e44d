"""Two methods at a glance: what one won and lost against the other, and what it cost, question
by question.
"""

from __future__ import annotations

import textwrap
from typing import Any

import plotly.graph_objects as go

from dragin_lab.checks import choice
from dragin_lab.drawn import draws
from dragin_lab.results.differing import Difference
from dragin_lab.views import theme

ROWS = 40  # questions that are drawn; the table has all
_LOOK = {"won": (theme.TEAL, "✓"), "lost": (theme.AMBER, "✗")}


@draws(Difference, "plot")
def draw_difference(found: Difference, cost: str = "retrievals") -> go.Figure:
    """How many questions were won and lost, above; below, for each of them, ``cost`` and answer of
    both methods.

    ``cost`` is "retrievals" or "tokens". An open circle is ``one``, a full one ``other``; ✓ marks
    what ``other`` won.
    """
    choice("cost", cost, ("retrievals", "tokens"))
    one, other, rows = found.one, found.other, found.table.head(ROWS)
    left_out = f", the first {ROWS}" if len(found.table) > ROWS else ""
    titles = [f"{sum(found.counts.values()):,} questions", f"{cost}: {one} ○ → {other} ●{left_out}"]
    height = 190 + 36 * max(len(rows), 1)
    figure = theme.panels(
        titles, 2, 1, row_heights=[60 / height, 1 - 60 / height], vertical_spacing=70 / height
    )
    names = {"both wrong": "both wrong", "lost": f"only {one} right", "won": f"only {other} right"}
    for kind, name in (names | {"both right": "both right"}).items():
        size, (colour, sign) = found.counts[kind], _LOOK.get(kind, (theme.GREY, ""))
        look = {
            "color": colour,
            "pattern": theme.HATCH | {"shape": {"lost": "/", "both wrong": "."}.get(kind, "")},
        }
        figure.add_bar(
            y=[""],
            x=[size],
            orientation="h",
            marker=look,
            name=theme.clip_label(f"{sign} {name} {size:,}", 40),
            customdata=[f"{theme.label(name)}: {size:,}"],
            row=1,
            col=1,
        )
    for place, row in enumerate(rows.to_dict("records")):
        x, answers = ([row[f"{key} {name}"] for name in (one, other)] for key in (cost, "answer"))
        colour = _LOOK[row["outcome"]][0]
        sides = ["middle left", "middle right"] if x[0] <= x[1] else ["middle right", "middle left"]
        figure.add_scatter(
            x=x,
            y=[place] * 2,
            mode="lines+markers+text",
            showlegend=False,
            cliponaxis=False,
            textposition=sides,
            text=[f"&nbsp; {theme.clip_label(answer, 20)} &nbsp;" for answer in answers],
            textfont_size=11,
            line_color=colour,
            marker={"symbol": ["circle-open", "circle"], "size": 10, "color": colour},
            customdata=[_describe(row, found, cost)] * 2,
            row=2,
            col=1,
        )
    labels = []
    for row in rows.itertuples():
        text = f"{_LOOK[row.outcome][1]} {row.question}"
        lines = textwrap.wrap(text, 50, max_lines=3, placeholder=" …")
        labels.append("<br>".join(map(theme.label, lines)))
    most = max([1.0, *(float(rows[f"{cost} {name}"].max()) for name in (one, other) if len(rows))])
    figure.update_xaxes(visible=False, row=1, col=1)
    figure.update_xaxes(
        title_text=f"{cost} a question", range=[-0.6 * most, 1.7 * most], row=2, col=1
    )
    if most < 15:
        figure.update_xaxes(tickvals=[*range(int(most) + 1)], row=2, col=1)
    ticks = {"tickvals": [*range(len(rows))], "ticktext": labels, "range": [len(rows) - 0.5, -0.5]}
    figure.update_yaxes(**ticks, tickfont_size=10, showgrid=False, row=2, col=1)
    return theme.finish(figure, found.title, height + 60, barmode="stack", legend=theme.BELOW)


def _describe(row: dict[str, Any], found: Difference, cost: str) -> str:
    lines = [row["question"], f"id {row['id']}, gold {row['gold']}"]
    lines += [
        f"{name}: {row[f'answer {name}']} ({row[f'{cost} {name}']} {cost})"
        for name in (found.one, found.other)
    ]
    return "<br>".join(theme.clip_label(line, 90) for line in (*lines, row["why"]) if line)
