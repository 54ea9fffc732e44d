"""The score of doubt, as a musical score is one: what a method wrote for each question, how much it
doubted it, and where it asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dragin_lab.checks import choice, count
from dragin_lab.drawn import draws
from dragin_lab.errors import SettingError
from dragin_lab.results.runs import Runs
from dragin_lab.study.written_order import LINE, lay_out
from dragin_lab.trace.trace import Trace
from dragin_lab.views import theme
from dragin_lab.views.facts import num, sign_of
from dragin_lab.views.rows import measure_of, threshold_of

LANES = 4  # of a row, of which the last is free
SCALE = [[0, "#dbe8f1"], [0.4, "#5d9cc8"], [1, "#06263f"]]  # darker is more, in grey too
KEY = {"len": 160, "lenmode": "pixels", "thickness": 10}
ROW = 18  # pixels
HEAD = 200  # pixels
BAR = {"symbol": "line-ns", "size": ROW // 2, "line": {"width": 2.5, "color": theme.AMBER}}
DOT = {"size": 6, "color": theme.AMBER, "line": {"width": 1, "color": theme.PAPER}}


@draws(Runs, "doubt")
def draw_doubt(runs: Runs, method: str, limit: int = 50) -> go.Figure:
    """A method's answers as a score: a row a question, tokens as they were written, dark where the
    trigger doubted.

    A bar stands where it retrieved: what was thrown away hangs below the line, what came instead
    stands above it. A dot is on what a passage gave, where answers are attributed; ✓ or ✗ ends a
    row. Rows go by their retrievals, the earliest first; at most ``limit`` questions are drawn.
    Raises ``SettingError`` where the runs kept no traces.
    """
    among = find_traces(runs, choice("method", method, runs.names))
    traces = islice(among, count("limit", limit))
    rows = [(lay_out(trace), trace) for trace in traces]
    if not rows:
        raise SettingError(f"the runs of {method!r} kept no traces; run them with traces=True")
    rows.sort(key=lambda row: row[0].cuts or [np.inf])
    figure = theme.Figure()
    parts = []
    cuts = []
    names = []
    for y, (row, trace) in enumerate(rows):
        parts.append(row.tokens.assign(lane=row.tokens["lane"] + LANES * y))
        for x in row.cuts:
            cuts.append((x - 0.5, y))
        names.append(theme.clip_label(trace.question.text, 26))
        sign = sign_of(trace.scores)
        theme.write(figure, sign, row.end + 1, y, font_color=theme.SIGNS[sign])
    tokens = pd.concat(parts)
    add_tokens(figure, tokens, rows[0][1])
    retrieved = pd.DataFrame(cuts, columns=["x", "y"])
    add_marks(figure, retrieved, "retrieved", BAR)
    tokens["y"] = (tokens["lane"] - LINE) / LANES
    given = tokens[tokens["given"]]
    add_marks(figure, given, "a passage gave it", DOT)
    n = len(rows)
    ticks = {"tickvals": [*range(n)], "ticktext": names, "tickfont_size": 10}
    figure.update_yaxes(range=[n - 0.4, -0.6], showgrid=False, **ticks)
    figure.update_xaxes(title_text="tokens, as they were written", showgrid=False)
    title = f"{method}, {n} answers. Below: thrown away. Above: what came instead"
    return theme.finish(figure, title, HEAD + ROW * n, legend=theme.BELOW)


def find_traces(runs: Runs, method: str) -> Iterator[Trace]:
    """The traces that the runs of a method kept, in the order of the questions."""
    for dataset in runs.datasets:
        for qid in runs.lines(dataset, method):
            record, _ = runs.record(qid, method, dataset)
            trace = runs.kept_trace(record, qid)
            if trace is not None and trace.continuations:
                yield trace


def add_tokens(figure: go.Figure, tokens: pd.DataFrame, trace: Trace) -> None:
    """A cell a token, as dark as its score is near the θ of ``trace``; unscored ones are grey."""
    measure = measure_of(trace)
    scores = tokens["score"].to_numpy(float)  # (n,)
    hover = []
    for text, score in zip(tokens["text"], scores, strict=True):
        hover.append(f"{theme.label(text)}<br>{measure} {num(score)}")
    about = spread(tokens, hover)
    shared = {"y0": -LINE / LANES, "dy": 1 / LANES, "customdata": about, "hoverongaps": False}
    unscored = np.where(np.isnan(scores), 0, np.nan)
    bare = spread(tokens, unscored).astype(float)
    figure.add_heatmap(z=bare, colorscale=["#dedbd6"] * 2, showscale=False, **shared)
    top = theta = threshold_of(trace)
    name = f"θ {theta:g}"
    if not theta > 0:
        top = np.nanmax(scores, initial=1.0)
        name = f"{top:.2g}"
    key = KEY | {"title": measure, "tickvals": [0, top], "ticktext": ["0", name]}
    look = {"colorscale": SCALE, "zmin": 0, "zmax": top, "colorbar": key}
    figure.add_heatmap(z=spread(tokens, scores).astype(float), **look, **shared)


def spread(tokens: pd.DataFrame, values: np.ndarray | list[str]) -> np.ndarray:
    """(lanes, x) object: each token's value in its lane and place, None elsewhere."""
    lane = tokens["lane"]
    x = tokens["x"]
    rows = lane.max() // LANES + 1
    cells = np.full((LANES * rows, x.max() + 1), None)
    cells[lane, x] = values
    return cells


def add_marks(figure: go.Figure, marks: pd.DataFrame, name: str, look: dict[str, object]) -> None:
    shown = {"mode": "markers", "marker": look, "hoverinfo": "skip", "showlegend": len(marks) > 0}
    figure.add_scatter(x=marks["x"], y=marks["y"], name=name, **shown)
