"""Two methods at a glance: what one won and lost against the other, and what it cost, question
by question.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from dragin_lab.checks import choice
from dragin_lab.drawn import draws
from dragin_lab.results.differing import Difference
from dragin_lab.views import theme

ROWS = 40  # questions that are drawn; the table has all
#: The kinds of questions: the colour, the sign and the pattern of each.
_LOOK = {
    "both wrong": (theme.GREY, "", "."),
    "lost": (theme.AMBER, "✗", "/"),
    "won": (theme.TEAL, "✓", ""),
    "both right": (theme.GREY, "", ""),
}


@draws(Difference, "plot")
def draw_difference(found: Difference, cost: str = "retrievals") -> go.Figure:
    """How many questions were won and lost, above; below, for each of them, ``cost`` and answer of
    both methods.

    ``cost`` is "retrievals" or "tokens". An open circle is ``one``, a full one ``other``; ✓ marks
    what ``other`` won.
    """
    choice("cost", cost, ("retrievals", "tokens"))
    one = found.one
    other = found.other
    rows = found.table.head(ROWS)
    left_out = f", the first {ROWS}" if len(found.table) > ROWS else ""
    titles = [f"{sum(found.counts.values()):,} questions", f"{cost}: {one} ○ → {other} ●{left_out}"]
    height = 190 + 36 * max(len(rows), 1)
    share = 60 / height
    figure = theme.panels(titles, 2, row_heights=[share, 1 - share], vertical_spacing=70 / height)
    names = {"lost": f"only {one} right", "won": f"only {other} right"}
    for kind, (colour, sign, shape) in _LOOK.items():
        size = found.counts[kind]
        name = names.get(kind, kind)
        figure.add_bar(
            y=[""],
            x=[size],
            orientation="h",
            marker={"color": colour, "pattern": theme.HATCH | {"shape": shape}},
            name=theme.clip_label(f"{sign} {name} {size:,}", 40),
            customdata=[f"{theme.label(name)}: {size:,}"],
            row=1,
            col=1,
        )
    labels = []
    most = 1.0
    for place, row in enumerate(rows.to_dict("records")):
        colour, sign, _ = _LOOK[row["outcome"]]
        x = [row[f"{cost} {name}"] for name in (one, other)]
        answers = [theme.clip_label(row[f"answer {name}"], 20) for name in (one, other)]
        sides = ["middle left", "middle right"]
        figure.add_scatter(
            x=x,
            y=[place] * 2,
            mode="lines+markers+text",
            showlegend=False,
            cliponaxis=False,
            textposition=sides if x[0] <= x[1] else sides[::-1],
            text=[f"&nbsp; {answer} &nbsp;" for answer in answers],
            textfont_size=11,
            line_color=colour,
            marker={"symbol": ["circle-open", "circle"], "size": 10, "color": colour},
            customdata=[_describe(row, found, cost)] * 2,
            row=2,
            col=1,
        )
        lines = theme.break_lines(f"{sign} {row['question']}", 50)
        labels.append("<br>".join(map(theme.label, lines)))
        most = max(most, *x)
    figure.update_xaxes(visible=False, row=1, col=1)
    across = {"title_text": f"{cost} a question", "range": [-0.6 * most, 1.7 * most]}
    if most < 15:
        across["tickvals"] = [*range(int(most) + 1)]
    figure.update_xaxes(**across, row=2, col=1)
    ticks = {"tickvals": [*range(len(rows))], "ticktext": labels, "range": [len(rows) - 0.5, -0.5]}
    figure.update_yaxes(**ticks, tickfont_size=10, showgrid=False, row=2, col=1)
    return theme.finish(figure, found.title, height + 60, barmode="stack", legend=theme.BELOW)


def _describe(row: dict[str, Any], found: Difference, cost: str) -> str:
    lines = [row["question"], f"id {row['id']}, gold {row['gold']}"]
    for name in (found.one, found.other):
        lines.append(f"{name}: {row[f'answer {name}']} ({row[f'{cost} {name}']} {cost})")
    if row["why"]:
        lines.append(row["why"])
    return "<br>".join(theme.clip_label(line, 90) for line in lines)
