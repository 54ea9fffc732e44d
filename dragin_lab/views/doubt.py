"""The score of doubt, as a musical score is one: what a method wrote for each question, how much it
doubted it, and where it asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

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
from dragin_lab.views.facts import num
from dragin_lab.views.rows import measure_of, threshold_of

LANES = 4  # of a row, of which the last is free
SCALE = [[0, "#dbe8f1"], [0.4, "#5d9cc8"], [1, "#06263f"]]  # darker is more, in grey too
BARE = [[0, "#dedbd6"], [1, "#dedbd6"]]
KEY = {"len": 160, "lenmode": "pixels", "thickness": 10}
ROW, HEAD = 18, 200  # pixels
BAR = {"symbol": "line-ns", "size": ROW // 2, "line": {"width": 2.5, "color": theme.AMBER}}
DOT = {"size": 6, "color": theme.AMBER, "line": {"width": 1, "color": theme.PAPER}}
ENDS = {1.0: ("✓", theme.TEAL), 0.0: ("✗", theme.AMBER)}


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
    traces = list(islice(among, count("limit", limit)))
    if not traces:
        raise SettingError(f"the runs of {method!r} kept no traces; run them with traces=True")
    rows = [(lay_out(trace), trace) for trace in traces]
    rows.sort(key=lambda row: row[0].cuts or [np.inf])
    figure = go.Figure()
    parts, cuts = [], []
    for y, (row, trace) in enumerate(rows):
        parts.append(row.tokens.assign(y=y))
        cuts += [(x - 0.5, y) for x in row.cuts]
        add_end(figure, row.end + 1, y, trace.scores.get("em"))
    tokens = pd.concat(parts)
    given = tokens[tokens["given"]]
    lanes = given["y"] + (given["lane"] - LINE) / LANES
    dots = [*zip(given["x"], lanes, strict=True)]
    add_tokens(figure, tokens, traces[0])
    add_marks(figure, cuts, "retrieved", BAR)
    add_marks(figure, dots, "a passage gave it", DOT)
    name_rows(figure, [trace for _, trace in rows])
    figure.update_xaxes(title_text="tokens, as they were written", showgrid=False)
    key = "Below the line: thrown away. Above it: what came instead"
    title = f"{method}, {len(rows)} answers. {key}"
    return theme.finish(figure, title, HEAD + ROW * len(rows), legend=theme.BELOW)


def name_rows(figure: go.Figure, traces: list[Trace]) -> None:
    names = [theme.clip_label(trace.question.text, 26) for trace in traces]
    figure.update_yaxes(tickvals=[*range(len(names))], ticktext=names, tickfont_size=10)
    figure.update_yaxes(range=[len(names) - 0.4, -0.6], showgrid=False)


def find_traces(runs: Runs, method: str) -> Iterator[Trace]:
    """The traces that the runs of a method kept, in the order of the questions."""
    for dataset in runs.datasets:
        for qid in runs.lines(dataset, method):
            record, _ = runs.record(qid, method, dataset)
            trace = runs.kept_trace(record, qid) if record.has_trace(qid) else None
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
    scored = spread(tokens, scores).astype(float)
    figure.add_heatmap(z=bare, colorscale=BARE, showscale=False, **shared)
    look = scale_to(threshold_of(trace), scores)
    figure.add_heatmap(z=scored, **look, **shared)
    figure.update_traces(colorbar_title=measure, selector={"zmin": 0})


def scale_to(theta: float, scores: np.ndarray) -> dict[str, Any]:
    """The colours from 0 to θ; to the highest score where there is none."""
    top = theta if theta > 0 else float(np.nanmax(scores, initial=1.0))
    name = f"θ {top:g}" if theta > 0 else f"{top:.2g}"
    key = KEY | {"tickvals": [0, top], "ticktext": ["0", name]}
    return {"colorscale": SCALE, "zmin": 0, "zmax": top, "colorbar": key}


def spread(tokens: pd.DataFrame, values: Any) -> np.ndarray:
    """(lanes, x) object: each token's value in its lane and place, None elsewhere."""
    y = (LANES * tokens["y"] + tokens["lane"]).to_numpy(int)  # (n,)
    cells = np.full((LANES * (tokens["y"].max() + 1), tokens["x"].max() + 1), None)
    cells[y, tokens["x"]] = values
    return cells


def add_marks(figure: go.Figure, at: list[Any], name: str, look: dict[str, Any]) -> None:
    x, y = zip(*at, strict=True) if at else ((), ())
    marks = {"mode": "markers", "marker": look, "hoverinfo": "skip"}
    figure.add_scatter(x=x, y=y, name=name, showlegend=bool(at), **marks)


def add_end(figure: go.Figure, x: float, y: float, em: float | None) -> None:
    if em in ENDS:
        sign, colour = ENDS[em]
        font = {"color": colour, "size": 13}
        figure.add_annotation(x=x, y=y, text=sign, showarrow=False, font=font)
