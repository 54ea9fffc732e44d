"""Results as figures: a sweep's measures against its values, and what quality costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dragin_lab.checks import several, text
from dragin_lab.core.settings import title_setting
from dragin_lab.data import paper as published
from dragin_lab.errors import SettingError
from dragin_lab.run.intervals import summary
from dragin_lab.run.sweeps import on_a_scale
from dragin_lab.views import theme
from dragin_lab.views.html import count, num

#: How measures are called.
NAMES = {"em": "exact match", "f1": "F1", "retrievals": "retrievals a question", "tokens": "tokens a question"}
_PAPER = {"threshold": "value", "num": "retrievals", "#num": "retrievals"}  # what the paper's tables call our columns


def sweep(
    table: pd.DataFrame, paper: pd.DataFrame | bool | None = None, measures: Sequence[str] = ("em", "f1", "retrievals")
) -> go.Figure:
    """Measures against the value of a setting, a panel each with its 95 % interval; ticks are the values tried.

    ``table`` is a sweep's: a row for each value, with ``value`` and the measures (``em_low`` and ``em_high`` where
    there are intervals). ``paper`` (True: the paper's Table 5) stands under it, on an axis of its own, because a θ of
    one model means something else for another; a column of panels has one scale. Raises ``SettingError`` for missing
    columns, and for ``paper`` beside another setting than its own.
    """
    if not (measures := several("measures", measures, str, "give names of columns, such as ('em', 'f1')")):
        raise SettingError("measures is empty; give names of columns, such as ('em', 'f1')")
    ours = check_table(table, ("value", *measures))
    setting = title_setting(str(ours["setting"].iloc[0])) if "setting" in ours and len(ours) else "θ"
    sources = [("ours", ours)]
    if paper is not None and paper is not False:
        rows = check_table(published.load(5) if paper is True else paper, ())
        rows = rows.rename(columns={name: _PAPER.get(str(name).lower(), str(name).lower()) for name in rows})
        if setting != title_setting("threshold"):
            raise SettingError(
                f"the paper's table has values of θ, and this sweep goes over {setting}; leave paper out"
            )
        sources.append(("the paper's", check_table(rows, ("value",))))
    titles = [NAMES.get(name, name) for name in measures]
    figure = theme.panels(
        titles, len(sources), len(measures), shared_yaxes="columns", vertical_spacing=0.2, horizontal_spacing=0.07
    )
    for row, (whose, rows) in enumerate(sources, 1):
        scaled = on_a_scale(rows["value"])
        rows = rows.sort_values("value") if scaled else rows
        values = rows["value"].tolist() if scaled else [theme.clip_label(value, 24) for value in rows["value"]]
        for col, name in enumerate(measures, 1):
            if name in rows:
                _draw_measure(figure, rows, values, name, setting, whose, scaled, at={"row": row, "col": col})
            figure.update_xaxes(**place_ticks(rows["value"].tolist(), scaled), title_text=setting, row=row, col=col)
        if len(sources) > 1:
            figure.update_yaxes(title_text=whose, row=row, col=1)
    figure.update_yaxes(rangemode="tozero")
    n = f" ({count(int(ours['n'].max()), 'question')})" if "n" in ours and len(ours) else ""
    title = f"Quality and retrievals against {setting}{n}; bands are 95 % intervals" if len(ours) else "Nothing was run"
    return theme.finish(figure, title, 100 + 250 * len(sources), showlegend=False)


def _draw_measure(
    figure: go.Figure, rows: pd.DataFrame, values: list[Any], name: str, setting: str, whose: str, scaled: bool, at: Any
) -> None:
    """One measure as a line with its band, or as points with bars where the values stand on no scale."""
    look, y = theme.style(0 if whose == "ours" else 1), rows[name].to_numpy(float)
    ends = [
        rows[f"{name}{end}"].fillna(rows[name]).to_numpy(float) if f"{name}_low" in rows else y
        for end in ("_low", "_high")
    ]
    order = [int(np.argmax(np.nan_to_num(y))), len(y) - 1, 0] if len(y) else []
    labelled = choose_apart(rows["value"].tolist() if scaled else range(len(y)), order, 0.2)
    hover_texts = [
        f"{setting} {theme.label(value)} · {whose}<br>{NAMES.get(name, name)} {num(one)}"
        + (f" ({num(low)} to {num(high)})" if low < high else "")
        for value, one, low, high in zip(rows["value"], y, *ends, strict=True)
    ]
    if scaled and f"{name}_low" in rows:
        band = {"x": [*values, *values[::-1]], "y": [*ends[1], *ends[0][::-1]], "fillcolor": look["line"]["color"]}
        figure.add_scatter(**band, fill="toself", line_width=0, opacity=0.18, mode="lines", hoverinfo="skip", **at)
    bars = {"array": ends[1] - y, "arrayminus": y - ends[0], "thickness": 1.2} if not scaled else None
    figure.add_scatter(
        x=values, y=y, mode=("lines+" if scaled else "") + "markers+text",
        text=[f"{value:.2f}" if place in labelled else "" for place, value in enumerate(y)],
        textposition="top center", cliponaxis=False, error_y=bars, **look,
        customdata=hover_texts, hovertemplate="%{customdata}<extra></extra>", **at,
    )  # fmt: skip


def place_ticks(values: list[Any], scaled: bool) -> dict[str, Any]:
    """Ticks at all values; those that lie close are turned, and where even so they would meet some have no name."""
    if not scaled:
        return {"type": "category", "tickangle": -60 if len(values) > 6 else None}
    named = choose_apart(values, [0, len(values) - 1, *range(len(values))], 0.09)
    flat = len(choose_apart(values, range(len(values)), 0.18)) == len(values)
    names = [f"{value:g}" if place in named else "" for place, value in enumerate(values)]
    return {"tickvals": values, "ticktext": names, "tickangle": None if flat else -60}


def choose_apart(values: Sequence[float], order: Sequence[int], least: float) -> list[int]:
    """Of the places in ``order`` those whose values lie at least this share of the axis from those chosen before."""
    chosen: list[int] = []
    for place in order if len(values) else []:
        if all(abs(values[place] - values[other]) >= least * (max(values) - min(values)) > 0 for other in chosen):
            chosen.append(place)
    return chosen


def frontier(table: pd.DataFrame, cost: str = "retrievals", quality: str = "em", by: str = "method") -> go.Figure:
    """Quality against cost with 95 % intervals, a point or a line for each ``by``; the dotted line is the best of all.

    ``table`` has a row a point. A point is on the dotted line (Pareto's) where none is as good at a lower cost. Raises
    ``SettingError`` for missing columns.
    """
    rows = check_table(table, (cost, quality, by))
    rows = rows[np.isfinite(rows[[cost, quality]].to_numpy(float)).all(axis=1)] if len(rows) else rows
    figure = go.Figure()
    for number, (name, own) in enumerate(rows.groupby(by, sort=False)):
        own = own.sort_values(cost)
        figure.add_scatter(
            x=own[cost], y=own[quality], name=theme.clip_label(name, 40), **theme.style(number),
            mode="lines+markers" if len(own) > 1 else "markers+text", text=theme.clip_label(name, 24),
            error_x=_read_bars(own, cost), error_y=_read_bars(own, quality),
            textposition="top center", cliponaxis=False,
            customdata=[_describe_point(row, (cost, quality)) for row in own.to_dict("records")],
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    best = rows.sort_values([cost, quality], ascending=[True, False])
    best = best[best[quality] > best[quality].cummax().shift(fill_value=-np.inf)]
    line = {"dash": "dot", "shape": "hv", "color": theme.INK}
    figure.add_scatter(
        x=best[cost], y=best[quality], mode="lines", line=line, name="best at its cost", hoverinfo="skip"
    )
    most = float(rows[cost].max()) if len(rows) else 1.0
    figure.update_xaxes(title_text=NAMES.get(cost, cost), range=[-0.06 * most, 1.1 * most])
    figure.update_yaxes(title_text=NAMES.get(quality, quality))
    title = f"{NAMES.get(quality, quality)} against {NAMES.get(cost, cost)}; bars are 95 % intervals".capitalize()
    legend = theme.BELOW
    return theme.finish(figure, title if len(rows) else "Nothing was run", 480, legend=legend)


def runs_plot(runs: Any, cost: str = "retrievals", quality: str = "em") -> go.Figure:
    """``frontier`` of the methods of some ``Runs``, each with its means over all data sets."""
    lines = {name: [x for at in runs.datasets for x in runs.lines(at, name).values()] for name in runs.names}
    return frontier(pd.DataFrame([{"method": name} | summary(own) for name, own in lines.items()]), cost, quality)


def _read_bars(rows: pd.DataFrame, name: str) -> dict[str, Any] | None:
    if f"{name}_low" not in rows:
        return None
    low, high = rows[name] - rows[f"{name}_low"], rows[f"{name}_high"] - rows[name]
    return {"array": high, "arrayminus": low, "thickness": 1, "color": theme.GREY}


def _describe_point(row: dict[str, Any], first: Sequence[str]) -> str:
    """Everything that is known of a point; an interval beside its mean."""
    lines = []
    for name, value in row.items():
        if str(name).endswith(("_low", "_high")):
            continue
        shown = num(value) if isinstance(value, float) else theme.clip_label(value, 80)
        known = f" ({num(row[f'{name}_low'])} to {num(row[f'{name}_high'])})" if f"{name}_low" in row else ""
        lines.append(f"{NAMES.get(str(name), theme.label(name))} {shown}{known}")
    return "<br>".join(lines)


def check_table(table: Any, needed: Sequence[str]) -> pd.DataFrame:
    """A table with these columns, of one setting. Raises ``SettingError`` otherwise."""
    rows = getattr(table, "table", table)
    if not isinstance(rows, pd.DataFrame):
        raise SettingError(f"a figure of results takes a table (pandas.DataFrame), not {type(rows).__name__}")
    missing = [name for name in needed if text("column", name) not in rows]
    if missing and len(rows):
        there = ", ".join(map(str, rows.columns)) or "none"
        raise SettingError(f"the table lacks the column {missing[0]!r}; it has {there}")
    if "setting" in rows and rows["setting"].nunique() > 1:
        raise SettingError(f"the table goes over {' and '.join(rows['setting'].unique())}; draw one setting at a time")
    return rows if len(rows) else pd.DataFrame(columns=list(dict.fromkeys([*rows.columns, *needed])))
