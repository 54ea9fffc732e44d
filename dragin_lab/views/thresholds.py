"""Threshold sweeps (DRAGIN, Table 5): quality and retrievals against θ, and what quality costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import text
from dragin_lab.errors import SettingError
from dragin_lab.views.figures import (
    GREY,
    INK,
    Style,
    dressed,
    graph_objects,
    label,
    message_figure,
    panels,
    scatter,
    sides,
    style,
    titled,
)
from dragin_lab.views.html import count, short

if TYPE_CHECKING:
    import pandas as pd

#: How measures and settings are called.
NAMES = {
    "em": "EM",
    "f1": "F1",
    "retrievals": "retrievals per question",
    "tokens": "tokens per question",
    "threshold": "θ",
    "top_n": "top n",
}
#: What the paper's tables call our columns.
_PAPER = {"threshold": "value", "num": "retrievals", "#num": "retrievals"}


def threshold_sweep(table: pd.DataFrame | Any, *, paper: pd.DataFrame | None = None, title: str = "") -> Any:
    """EM, F1 and retrievals against the value of a setting, with their intervals; a plotly figure.

    ``table`` is a sweep, or its table: one row per value with ``value``, ``em``, ``f1``, ``retrievals`` and, where
    there are intervals, the same with ``_low`` and ``_high``; ``setting`` names what was swept, ``n`` counts questions.
    ``paper`` (``threshold`` or ``value`` with any of ``em``, ``f1``, ``num`` or ``retrievals``) is drawn faintly
    with it. Raises ``SettingError`` for missing columns, ``MissingPackageError`` without plotly.
    """
    rows = _rows(table, ("value", "em", "f1", "retrievals"))
    if not len(rows):
        return message_figure("This sweep has no rows yet: nothing was run, or every value failed.")
    behind = _paper_rows(paper)
    figure = panels(2, 1, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.62, 0.38])
    places = {"em": 1, "f1": 1, "retrievals": 2}
    drawn = [(behind, True)] if behind is not None else []
    for shown, from_paper in [*drawn, (rows, False)]:
        for number, (name, row) in enumerate(places.items()):
            if name in shown:
                figure.add_trace(_curve(shown, name, style(number), from_paper), row=row, col=1)
    setting = _setting(rows)
    figure.update_xaxes(title_text=setting, row=2, col=1)
    figure.update_yaxes(title_text="EM, F1", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text="retrievals<br>per question", rangemode="tozero", row=2, col=1)
    titled(figure, title or f"Quality and retrievals against {setting}{_questions(rows)}")
    figure.update_layout(height=520, margin={"b": 110}, hovermode="x unified")
    return figure


def cost_quality(
    table: pd.DataFrame | Any,
    *,
    cost: str = "retrievals",
    quality: str = "f1",
    paper: pd.DataFrame | None = None,
    title: str = "",
) -> Any:
    """Quality against cost, one point per row, with the Pareto frontier; a plotly figure.

    ``table`` as for ``threshold_sweep``; a column ``name`` (or ``method``) tells several series apart. A point is on
    the frontier where none costs less and is as good, or costs the same and is better. Errors as there.
    """
    rows = _rows(table, (cost, quality))
    if not len(rows):
        return message_figure("There are no rows to compare yet: nothing was run, or everything failed.")
    figure = dressed(graph_objects().Figure())
    behind = _paper_rows(paper)
    if behind is not None and {cost, quality} <= set(behind):
        texts = [f"the paper's, {short(v)}" for v in behind["value"]]
        hover = "%{text}: %{x:.3f}, %{y:.3f}<extra></extra>"
        points: dict[str, Any] = {"mode": "markers", "symbol": GREY.hollow, "opacity": 0.8, "legendrank": 2000}
        figure.add_trace(
            scatter(GREY, behind[cost], behind[quality], "paper", text=texts, hovertemplate=hover, **points)
        )
    x, y = rows[cost].to_numpy(float), rows[quality].to_numpy(float)
    best = np.flatnonzero(pareto(x, y))
    best = best[np.argsort(x[best], kind="stable")]
    frontier = scatter(GREY, x[best], y[best], "Pareto frontier", mode="lines", hoverinfo="skip")
    figure.add_trace(frontier.update(line_shape="hv"))
    key = next((name for name in ("name", "method") if name in rows), None)
    groups = [(str(name), np.flatnonzero((rows[key] == name).to_numpy())) for name in rows[key].unique()] if key else []
    setting = _setting(rows)
    texts = [f"{setting} {short(v)}" for v in rows["value"]] if "value" in rows else [""] * len(rows)
    places = np.array(sides(x, y, texts), object)
    for number, (name, inside) in enumerate(groups or [("settings", np.arange(len(rows)))]):
        own, named = rows.iloc[inside], np.array(texts, object)[inside]
        series = _points(own, cost, quality, np.isin(inside, best), name, style(number))
        shown = np.where(places[inside] == "", "", named).tolist()
        series.update(customdata=named, text=shown, textposition=[side or "top right" for side in places[inside]])
        figure.add_trace(series)
    figure.update_xaxes(title_text=_axis(cost))
    figure.update_yaxes(title_text=_axis(quality))
    said = f"{NAMES.get(quality, quality)} against {NAMES.get(cost, cost)}{_questions(rows)}"
    figure.update_layout(height=460, margin={"b": 100})
    titled(figure, title or said, "Filled points are on the Pareto frontier: no other is as good at a lower cost.")
    return figure


def frontier(table: pd.DataFrame | Any, *, cost: str = "retrievals", quality: str = "em", title: str = "") -> Any:
    """Quality against cost per question, one line per method, with 95 % intervals; a plotly figure.

    ``table`` is a ``study.budgets.Frontier``, or its table: one row per method and budget with ``method``, ``cost``
    ("retrievals" or "tokens") and ``quality`` ("em" or "f1"). Errors as ``threshold_sweep``.
    """
    rows = _rows(table, ("method", cost, quality))
    if not len(rows):
        return message_figure("No method has a point yet.")
    figure = dressed(graph_objects().Figure())
    for number, (name, own) in enumerate(rows.sort_values(cost).groupby("method", sort=False)):
        look, bars = style(number), _interval(own, quality)
        more: dict[str, Any] = {
            "customdata": [_said(row, quality) for _, row in own.iterrows()],
            "hovertemplate": f"{label(name)}<br>%{{x:.2f}} {_axis(cost)}<br>%{{customdata}}<extra></extra>",
            "error_y": bars and bars | {"color": look.faded(0.35), "thickness": 1},
        }
        figure.add_trace(scatter(look, own[cost], own[quality], label(name), **more))
    figure.update_xaxes(title_text=_axis(cost))
    figure.update_yaxes(title_text=_axis(quality))
    figure.update_layout(height=560, margin={"b": 150})
    return titled(figure, title or f"{NAMES.get(quality, quality)} against {_axis(cost)}{_questions(rows)}")


def pareto(cost: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """Which points no other beats, (n,) bool: none is as good for less, none better for the same. NaN is beaten."""
    cost, quality = np.asarray(cost, float), np.asarray(quality, float)
    good = np.isfinite(cost) & np.isfinite(quality)
    out = np.zeros(len(cost), bool)
    for i in np.flatnonzero(good):
        cheaper = (cost[good] < cost[i]) & (quality[good] >= quality[i])
        better = (cost[good] <= cost[i]) & (quality[good] > quality[i])
        out[i] = not (cheaper | better).any()
    return out


# -- parts ------------------------------------------------------------------------------------------------------------


def _rows(table: Any, needed: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    rows = getattr(table, "table", table)
    if not isinstance(rows, pd.DataFrame):
        raise SettingError(f"a sweep's figure takes a table (pandas.DataFrame) or a sweep, not {type(rows).__name__}")
    missing = [name for name in needed if text("column", name) not in rows]
    if missing and len(rows):
        there = ", ".join(map(str, rows.columns)) or "none"
        raise SettingError(f"the table lacks the column {missing[0]!r}; it has {there}")
    return rows.sort_values("value") if "value" in rows else rows


def _paper_rows(paper: Any) -> pd.DataFrame | None:
    if paper is None:
        return None
    rows = _rows(paper, ())
    rows = rows.rename(columns={name: _PAPER.get(str(name).lower(), str(name).lower()) for name in rows.columns})
    return _rows(rows, ("value",))


def _setting(rows: pd.DataFrame) -> str:
    name = str(rows["setting"].iloc[0]) if "setting" in rows else "threshold"
    return NAMES.get(name, name)


def _questions(rows: pd.DataFrame) -> str:
    if "n" not in rows:
        return ""
    low, high = int(rows["n"].min()), int(rows["n"].max())
    return f" ({count(high, 'question')})" if low == high else f" ({low:,} to {high:,} questions)"


def _interval(rows: pd.DataFrame, name: str) -> dict[str, Any] | None:
    """Error bars from ``name_low`` to ``name_high``; None where the table has none."""
    if f"{name}_low" not in rows or f"{name}_high" not in rows:
        return None
    up, down = rows[f"{name}_high"] - rows[name], rows[name] - rows[f"{name}_low"]
    return {
        "type": "data",
        "array": up.to_numpy(float),
        "arrayminus": down.to_numpy(float),
        "thickness": 1.3,
        "width": 4,
    }


def _curve(rows: pd.DataFrame, name: str, look: Style, from_paper: bool) -> Any:
    """One measure against the setting; the paper's fainter, with hollow markers."""
    told: dict[str, Any] = {"error_y": _interval(rows, name), "hovertemplate": "%{customdata}<extra></extra>"}
    if from_paper:
        told = {"opacity": 0.85, "legendrank": 2000, "width": 1.5, "size": 8, "symbol": look.hollow}
        told["hovertemplate"] = f"the paper's {NAMES[name]} %{{y:.3f}}<extra></extra>"
    texts = [_said(row, name) for _, row in rows.iterrows()]
    title = f"{NAMES[name]}, paper" if from_paper else NAMES[name]
    return scatter(look, rows["value"], rows[name], title, customdata=texts, **told)


def _said(row: Any, name: str) -> str:
    between = f" ({row[f'{name}_low']:.3f} to {row[f'{name}_high']:.3f})" if f"{name}_low" in row else ""
    return f"{NAMES.get(name, name)} {row[name]:.3f}{between}"


def _points(own: pd.DataFrame, cost: str, quality: str, best: np.ndarray, name: str, look: Style) -> Any:
    """The points of one series, filled where they are on the frontier."""
    faint = {"color": look.faded(0.6)}
    bars: dict[str, Any] = {"error_x": _interval(own, cost), "error_y": _interval(own, quality)}
    return scatter(
        look,
        own[cost],
        own[quality],
        label(name),
        mode="markers+text",
        textfont={"size": 11, "color": INK},
        symbol=[look.marker if on else look.hollow for on in best],
        size=11,
        edge={"width": 1.5, "color": look.colour},
        hovertemplate=f"%{{customdata}}<br>{_axis(cost)} %{{x:.3f}}<br>{_axis(quality)} %{{y:.3f}}<extra></extra>",
        **{axis: found and found | faint for axis, found in bars.items()},
    )


def _axis(name: str) -> str:
    return NAMES.get(name, label(name))
