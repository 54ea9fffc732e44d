"""Results as figures: a sweep's measures, and what quality costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dragin_lab.checks import check_text, flag, several
from dragin_lab.core.settings import title_setting
from dragin_lab.data import paper as published
from dragin_lab.drawn import draws
from dragin_lab.errors import SettingError
from dragin_lab.results.runs import Runs
from dragin_lab.results.sweeps import Sweep
from dragin_lab.run.intervals import summarize_lines
from dragin_lab.run.sweeps import on_a_scale
from dragin_lab.study.whatif import Outcome
from dragin_lab.views import theme
from dragin_lab.views.facts import num, plural

#: How measures are called.
NAMES = {
    "em": "exact match",
    "f1": "F1",
    "retrievals": "retrievals a question",
    "tokens": "tokens a question",
}


def title_measure(name: str) -> str:
    """What a measure is called; another column by its own name."""
    return NAMES.get(name, name)


def say_measure(row: dict[str, Any], name: str) -> str:
    """A measure with its interval, where it has one."""
    mean = f"{theme.label(title_measure(name))} {num(row[name])}"
    if f"{name}_low" not in row:
        return mean
    return f"{mean} ({num(row[f'{name}_low'])} to {num(row[f'{name}_high'])})"


def sweep(
    table: pd.DataFrame, paper: bool = False, measures: Sequence[str] = ("em", "f1", "retrievals")
) -> go.Figure:
    """Measures against the value of a setting, under one another, with 95 % intervals; ticks are
    the values tried.

    ``table`` is a sweep's: a row for each value, with ``value`` and the measures (``em_low`` and
    ``em_high`` where there are intervals). With ``paper`` its Table 5 stands beside it, on an axis
    of its own, because a θ of one model means something else for another; a row of panels has one
    scale. Raises ``SettingError`` for missing columns, and for ``paper`` beside another setting
    than θ.
    """
    remedy = "give names of columns, such as ('em', 'f1')"
    measures = several("measures", measures, str, remedy)
    if not measures:
        raise SettingError(f"measures is empty; {remedy}")
    ours = check_table(table, ("value", *measures))
    setting = "θ"
    title = "Nothing was run"
    if len(ours):
        setting = title_setting(str(ours["setting"].iloc[0])) if "setting" in ours else "θ"
        n = f" ({plural(int(ours['n'].max()), 'question')})" if "n" in ours else ""
        title = f"Quality and retrievals against {setting}{n}; bands are 95 % intervals"
    sources = {"ours": ours}
    if flag("paper", paper):
        if setting != "θ":
            raise SettingError(
                f"the paper's table has values of θ, and this sweep goes over {setting}; leave"
                " paper out"
            )
        sources["the paper's"] = _read_thresholds()
    titles = []
    for name in measures:
        titles += [title_measure(name), *list(sources)[1:]]
    spacing = {"vertical_spacing": 0.3 / len(measures), "horizontal_spacing": 0.07}
    figure = theme.panels(titles, len(measures), len(sources), shared_yaxes="rows", **spacing)
    for col, (whose, rows) in enumerate(sources.items(), 1):
        scaled = on_a_scale(rows["value"])
        if scaled:
            rows = rows.sort_values("value")
        for row, name in enumerate(measures, 1):
            if name in rows:
                curves = _draw_measure(rows, name, setting, whose, scaled)
                figure.add_traces(curves, rows=row, cols=col)
            figure.update_xaxes(**place_ticks(rows["value"].tolist(), scaled), row=row, col=col)
        figure.update_xaxes(title_text=setting, row=len(measures), col=col)
    figure.update_yaxes(rangemode="tozero")
    return theme.finish(figure, title, 100 + 210 * len(measures), showlegend=False)


def _read_thresholds() -> pd.DataFrame:
    """The paper's Table 5, a row for each θ."""
    values = published.values(5).astype({"threshold": float})
    rows = values.pivot(index="threshold", columns="metric", values="value").reset_index()
    return rows.rename(columns={"threshold": "value", "num": "retrievals"})


def _draw_measure(
    rows: pd.DataFrame, name: str, setting: str, whose: str, scaled: bool
) -> list[go.Scatter]:
    """One measure as a line with its band, or as points with bars where the values stand on no
    scale.
    """
    look = theme.style(0 if whose == "ours" else 1)
    y = rows[name].to_numpy(float)
    values = rows["value"].tolist()
    x = values if scaled else [theme.label(value) for value in values]
    low, high = (
        rows.get(f"{name}{end}", rows[name]).fillna(rows[name]).to_numpy(float)
        for end in ("_low", "_high")
    )
    order = [int(np.argmax(np.nan_to_num(y))), len(y) - 1, 0] if len(y) else []
    labelled = choose_apart(values if scaled else range(len(y)), order, 0.2)
    hover = []
    for value, mean, a, b in zip(values, y, low, high, strict=True):
        interval = f" ({num(a)} to {num(b)})" if a < b else ""
        about = f"{setting} {theme.label(value)} · {whose}<br>{title_measure(name)}"
        hover.append(f"{about} {num(mean)}{interval}")
    bars = {"array": high - y, "arrayminus": y - low, "thickness": 1.2}
    points = go.Scatter(
        x=x,
        y=y,
        mode="lines+markers+text" if scaled else "markers+text",
        **look,
        text=[f"{value:.2f}" if place in labelled else "" for place, value in enumerate(y)],
        textposition="top center",
        cliponaxis=False,
        error_y=None if scaled else bars,
        customdata=hover,
    )
    if not scaled or f"{name}_low" not in rows:
        return [points]
    band = go.Scatter(
        x=[*x, *x[::-1]],
        y=[*high, *low[::-1]],
        fillcolor=look["line"]["color"],
        fill="toself",
        line_width=0,
        opacity=0.18,
        mode="lines",
        hoverinfo="skip",
    )
    return [band, points]


def place_ticks(values: list[Any], scaled: bool) -> dict[str, Any]:
    """Ticks at all values; those that lie close are turned, and where even so they would meet
    some have no name.
    """
    if not scaled:
        names = [theme.clip_label(value, 24) for value in values]
        labels = [theme.label(value) for value in values]
        angle = -60 if len(values) > 6 else None
        ticks = {"tickvals": labels, "ticktext": names}
        return {"type": "category", "tickangle": angle} | ticks
    places = range(len(values))
    names = [""] * len(values)
    for place in choose_apart(values, [*places[:1], *places[-1:], *places], 0.09):
        names[place] = f"{values[place]:g}"
    flat = len(choose_apart(values, places, 0.18)) == len(values)
    return {"tickvals": values, "ticktext": names, "tickangle": None if flat else -60}


def choose_apart(values: Sequence[float], order: Sequence[int], least: float) -> list[int]:
    """Of the places in ``order`` those whose values lie at least this share of the axis from
    those chosen before.
    """
    chosen: list[int] = []
    gap = least * (max(values, default=0) - min(values, default=0))
    for place in order:
        apart = [abs(values[place] - values[other]) for other in chosen]
        if not chosen or min(apart) >= gap > 0:
            chosen.append(place)
    return chosen


def frontier(
    table: pd.DataFrame, cost: str = "retrievals", quality: str = "em", by: str = "method"
) -> go.Figure:
    """Quality against cost with 95 % intervals, a point or a line for each ``by``; the dotted line
    is the best of all.

    ``table`` has a row a point. A point is on the dotted line (Pareto's) where none is as good at a
    lower cost. Raises ``SettingError`` for missing columns.
    """
    rows = check_table(table, (cost, quality, by))
    known = np.isfinite(rows[[cost, quality]].to_numpy(float)).all(axis=1)
    rows = rows[known].reset_index(drop=True)  # a table's names may be all the same
    figure = theme.Figure()
    looks = theme.styles(map(str, rows[by].unique()))
    most = max([*rows[cost], 0.0]) or 1.0
    for name, own in rows.groupby(by, sort=False):
        look = looks[str(name)] | {"name": theme.clip_label(name, 40)}
        _draw_points(figure, own.sort_values(cost), cost, quality, look)
    best = best_at_cost(rows, cost, quality)
    line = {"dash": "dot", "shape": "hv", "color": theme.INK}
    shared = {"mode": "lines", "name": "best at its cost", "hoverinfo": "skip"}
    figure.add_scatter(x=best[cost], y=best[quality], line=line, **shared)
    costs = title_measure(cost)
    good = title_measure(quality)
    figure.update_xaxes(title_text=costs, range=[-0.06 * most, 1.1 * most])
    figure.update_yaxes(title_text=good)
    title = f"{good[0].upper()}{good[1:]} against {costs}; bars are 95 % intervals"
    if not len(rows):
        title = "Nothing was run"
    return theme.finish(figure, title, 480, legend=theme.BELOW)


def _draw_points(
    figure: go.Figure, rows: pd.DataFrame, cost: str, quality: str, look: dict[str, Any]
) -> None:
    """What one name gives: a point, or a line."""
    mode = "lines+markers" if len(rows) > 1 else "markers"
    hover = [_describe_point(row) for row in rows.to_dict("records")]
    shown = {"mode": mode, "cliponaxis": False, "customdata": hover}
    shown["error_x"] = _draw_interval(rows, cost)
    shown["error_y"] = _draw_interval(rows, quality)
    figure.add_scatter(x=rows[cost], y=rows[quality], **shown, **look)


def _draw_interval(rows: pd.DataFrame, measure: str) -> dict[str, Any] | None:
    """The bars of a measure's intervals; None of one without."""
    if f"{measure}_low" not in rows:
        return None
    mean, low, high = (rows[f"{measure}{end}"] for end in ("", "_low", "_high"))
    look = {"thickness": 1, "color": theme.GREY}
    return look | {"array": high - mean, "arrayminus": mean - low}


def best_at_cost(rows: pd.DataFrame, cost: str, quality: str) -> pd.DataFrame:
    """The rows that are better than every one that costs as much or less, by cost."""
    ranked = rows.sort_values([cost, quality], ascending=[True, False])
    return ranked[ranked[quality] > ranked[quality].cummax().shift(fill_value=-np.inf)]


@draws(Sweep, "plot")
def plot_sweep(swept: Sweep, paper: bool = False) -> go.Figure:
    """Quality and retrievals against the values; with ``paper`` the paper's Table 5 beside them."""
    return sweep(swept.table, paper)


@draws(Runs, "plot")
def runs_plot(
    runs: Runs, cost: str = "retrievals", quality: str = "em", *, on: str = "common"
) -> go.Figure:
    """``frontier`` of the methods of some ``Runs``, each with its means over the same questions
    of all data sets.
    """
    compared = runs.compared(on)
    rows = [
        {"method": name} | summarize_lines([*lines.values()])
        for name, lines in compared.pooled.items()
    ]
    figure = frontier(pd.DataFrame(rows), cost, quality)
    return theme.add_lines(figure, "; ".join(compared.about_pooled))


def _describe_point(row: dict[str, Any]) -> str:
    """Everything that is known of a point; an interval beside its mean."""
    lines = []
    for name, value in row.items():
        if str(name).endswith(("_low", "_high")):
            continue
        about = f"{theme.label(title_measure(str(name)))} {theme.clip_label(value, 80)}"
        lines.append(say_measure(row, name) if isinstance(value, float) else about)
    return "<br>".join(lines)


def check_table(table: Any, needed: Sequence[str]) -> pd.DataFrame:
    """A table with these columns, of one setting. Raises ``SettingError`` otherwise."""
    rows = getattr(table, "table", table)
    if not isinstance(rows, pd.DataFrame):
        raise SettingError(
            f"a figure of results takes a table (pandas.DataFrame), not {type(rows).__name__}"
        )
    missing = [name for name in needed if check_text("column", name) not in rows]
    if missing and len(rows):
        columns = ", ".join(map(str, rows.columns)) or "none"
        raise SettingError(f"the table lacks the column {missing[0]!r}; it has {columns}")
    if "setting" in rows and rows["setting"].nunique() > 1:
        raise SettingError(
            f"the table goes over {' and '.join(rows['setting'].unique())}; draw one setting at a"
            " time"
        )
    return rows if len(rows) else rows.reindex(columns=[*rows.columns, *missing])


def draw_board(known: Mapping[float, Sequence[Outcome]], measured: Any = None) -> go.Figure:
    """Exact match and retrievals a question against θ over stored traces; ``known`` has all their
    outcomes at each θ.

    A line stands where all texts are followed to their end, the band is what is possible elsewhere;
    ``measured`` is a sweep's table, whose values stand as points. Raises ``SettingError`` for a
    sweep over another setting.
    """
    outcomes = next(iter(known.values()))
    scored = all("em" in outcome.trace.scores for outcome in outcomes)
    names = ["em", "retrievals"] if scored else ["retrievals"]
    titles = [NAMES[name] for name in names]
    rows = check_table(pd.DataFrame() if measured is None else measured, ("value", *names))
    for setting in rows.get("setting", ())[:1]:
        if setting != "threshold":
            raise SettingError(f"the sweep goes over {setting}; give one over the threshold")
    figure = theme.panels(titles, len(names), shared_xaxes=True, vertical_spacing=0.16)
    lines = {"mode": "lines+markers", "line": {"color": theme.BLUE, "shape": "hv"}}
    lines |= {"marker": {"size": 4}, "name": "known"}
    squares = {"color": theme.AMBER, "size": 9, "symbol": "square"}
    points = {"mode": "markers", "marker": squares, "name": "measured by a sweep"}
    for place, name in enumerate(names, 1):
        shared = {"row": place, "col": 1, "showlegend": place == 1}
        least, most = bound_measure(known, name)
        _add_possible(figure, least, most, **shared)
        _add_values(figure, least.where(least == most), NAMES[name], **lines, **shared)
        if len(rows):
            values = rows.set_index("value")[name]
            _add_values(figure, values, f"{NAMES[name]}, measured", **points, **shared)
    theme.name_thetas(figure, len(names))
    figure.update_yaxes(rangemode="tozero")
    if scored:
        figure.update_yaxes(range=[0, 1.05], row=1, col=1)
    title = f"{plural(len(outcomes), 'trace')} at every θ, as far as the stored texts tell"
    return theme.finish(figure, title, 100 + 150 * len(names), legend=theme.BELOW)


def bound_measure(
    known: Mapping[float, Sequence[Outcome]], name: str
) -> tuple[pd.Series, pd.Series]:
    """The least and the most that a measure can be at each θ; the same where all texts are followed
    to their end.
    """
    n = len(next(iter(known.values())))
    least = []
    open_ends = []
    for outcomes in known.values():
        whole = [outcome for outcome in outcomes if outcome.whole]
        open_ends.append(n - len(whole))
        if name == "em":
            least.append(sum(outcome.trace.scores["em"] for outcome in whole) / n)
        else:
            least.append(sum(outcome.retrievals for outcome in outcomes) / n)
    low = pd.Series(least, [*known])
    left = pd.Series(open_ends, [*known])
    if name == "em":
        return low, low + left / n
    return low, low.mask(left > 0, 1.3 * max(*least, 1.0))


def _add_values(figure: go.Figure, values: pd.Series, measure: str, **look: Any) -> None:
    """A measure's values by θ, which are said on hover."""
    hover = [f"θ {theta:g}: {value:.2f} {measure}" for theta, value in values.items()]
    figure.add_scatter(x=[*values.index], y=[*values], customdata=hover, **look)


def _add_possible(figure: go.Figure, low: pd.Series, high: pd.Series, **shared: Any) -> None:
    """The band between two values by θ; between two θ as wide as at either of them."""
    look = {"x": [*low.index], "mode": "lines", "line": {"width": 0, "shape": "hv"}}
    look |= {"hoverinfo": "skip", "name": "possible where stored texts end"}
    look |= shared
    below = np.fmin(low, low.shift(-1))
    above = np.fmax(high, high.shift(-1))
    fill = {"fill": "tonexty", "fillcolor": theme.tint(theme.BLUE)}
    figure.add_scatter(y=below, **look | {"showlegend": False})
    figure.add_scatter(y=above, **look | fill)
