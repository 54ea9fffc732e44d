"""Threshold sweeps (DRAGIN, Table 5): quality and retrievals against θ, and what quality costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import text
from dragin_lab.core.settings import title_setting
from dragin_lab.errors import SettingError
from dragin_lab.run.sweeps import on_a_scale
from dragin_lab.views.figures import BLUE, INK, SOFT, clip_label, draw_panels, label_points, make_figure
from dragin_lab.views.frame import View, make_message
from dragin_lab.views.html import count, num
from dragin_lab.views.sections import setting_text

if TYPE_CHECKING:
    import pandas as pd

#: How measures are called.
NAMES = {
    "em": "EM",
    "f1": "F1",
    "retrievals": "retrievals per question",
    "tokens": "tokens per question",
}
MEASURES = ("em", "f1", "retrievals")
#: What the paper's tables call our columns.
_PAPER = {"threshold": "value", "num": "retrievals", "#num": "retrievals"}


def threshold_sweep(table: pd.DataFrame | Any, *, paper: pd.DataFrame | None = None, title: str = "") -> View:
    """EM, F1 and retrievals against the value of a setting, a panel each, with their intervals.

    Numbers stand on an axis; texts, bools and None stand beside one another, in the order of the rows.

    ``table`` is a sweep, or its table: one row per value with ``value``, ``em``, ``f1``, ``retrievals`` and, where
    there are intervals, the same with ``_low`` and ``_high``; ``setting`` names what was swept, ``n`` counts questions.
    ``paper`` (``threshold`` or ``value`` with any of ``em``, ``f1``, ``num`` or ``retrievals``) has panels beside
    them, on the same scale of quality or cost but with values of its own, as a θ of one model means something else for
    another. Raises ``SettingError`` for missing columns and for ``paper`` beside another setting than its own,
    ``MissingPackageError`` without matplotlib.
    """
    rows = _table_rows(table, ("value", *MEASURES))
    if not len(rows):
        return make_message("Threshold sweep", "This sweep has no rows yet: nothing was run, or every value failed.")
    published, setting = _paper_rows(paper), _setting_name(rows)
    numbers = _interval_table(rows, {"value": setting}, MEASURES)
    values = [_name_value(value) for value in rows["value"]]
    over = f"from {values[0]} to {values[-1]}" if on_a_scale(rows["value"]) else f"in {', '.join(values)}"
    alt = _span_text(rows, MEASURES, f"{setting} {over}")
    if published is not None:
        if (own := _setting_name(published)) != setting:
            raise SettingError(f"paper= has values of {own}, and this sweep goes over {setting}; leave paper= out")
        columns = {"value": setting} | {name: f"{NAMES[name]}, paper" for name in MEASURES if name in published}
        numbers = numbers.merge(published[list(columns)].astype(float).rename(columns=columns), on=setting, how="outer")
        alt += " The paper's values stand beside them."
    return make_figure(
        text("title", title) or f"Quality and retrievals against {setting}{_question_count(rows)}",
        partial(_draw_sweep, rows, published, setting), alt=alt, table=numbers, numbers="The numbers",
        about=f"{'Bands' if on_a_scale(rows['value']) else 'Lines'} are 95 % intervals." if "em_low" in rows else "",
    )  # fmt: skip


def _draw_sweep(rows: pd.DataFrame, published: pd.DataFrame | None, setting: str, width: int) -> Any:
    sources = [rows] if published is None else [rows, published]
    cells = [(name, source) for source in sources for name in MEASURES]
    if width < 500:  # a measure is a row, with the paper's panel at its right
        cells.sort(key=lambda cell: MEASURES.index(cell[0]))
    titles = [NAMES[name] if source is rows else f"{NAMES[name].split()[0]}, paper" for name, source in cells]
    most = len(MEASURES) if width >= 500 else len(sources)
    drawing, panels = draw_panels(titles, width, height=190, least=width // most, most=most)
    for (name, source), panel in zip(cells, panels, strict=True):
        frame = source.dropna(subset=[name]) if name in source else source.head(0)
        places, scaled, own = frame["place"], on_a_scale(source["value"]), source is rows
        panel.plot(places, frame.get(name, places), ("o" if own else "D") + "-" * scaled, color=BLUE if own else SOFT)
        if scaled:
            _draw_band(panel, frame, "place", name)
        elif f"{name}_low" in frame:
            panel.vlines(places, frame[f"{name}_low"], frame[f"{name}_high"], color=BLUE, alpha=0.35, linewidth=1)
        marked = frame.iloc[sorted({0, len(frame) // 2, len(frame) - 1} & {*range(len(frame))})] if scaled else frame
        for place, value in zip(marked["place"], marked.get(name, ()), strict=False):
            above = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center"}
            panel.annotate(f"{value:.2f}", (place, value), size=11, color=INK, **above)
        measured = [one.filter(items=[name, f"{name}_high"]).to_numpy(float).ravel() for one in sources]
        highest = float(np.nanmax([0.0, *np.concatenate(measured)]))  # an interval may be missing
        panel.set(xlabel=setting, ylim=(0, 1.15 * highest or 1))
        ticks = marked.iloc[:: max(len(marked) - 1, 1)] if scaled else marked
        labels = [clip_label(_name_value(value), 18) for value in ticks["value"]]
        crowded = not scaled and 8 * sum(map(len, labels)) > width // most
        panel.set_xticks(ticks["place"], labels, rotation=90 if crowded else 0)
        panel.margins(x=0.14)
    return drawing


def _draw_band(panel: Any, rows: pd.DataFrame, x: str, y: str) -> None:
    """The 95 % interval of a measure, where there is one."""
    if f"{y}_low" in rows:
        band = (rows[x], rows[f"{y}_low"].astype(float), rows[f"{y}_high"].astype(float))
        panel.fill_between(*band, color=BLUE, alpha=0.15, linewidth=0)


def cost_quality(table: pd.DataFrame | Any, *, cost: str = "retrievals", quality: str = "f1", title: str = "") -> View:
    """Quality against cost, one labelled point per row, with the Pareto frontier.

    ``table`` as for ``threshold_sweep``; a column ``name`` (or ``method``) names the points. A point is on the frontier
    where none costs less and is as good, or costs the same and is better. Errors as there.
    """
    rows = _table_rows(table, (cost, quality))
    if not len(rows):
        return make_message("Quality and cost", "There are no rows to compare: nothing was run, or everything failed.")
    best, labels = pareto(rows[cost].to_numpy(float), rows[quality].to_numpy(float)), _point_labels(rows)
    numbers = _interval_table(rows, {}, (cost, quality))
    numbers.insert(0, "point", labels)
    numbers.insert(1, "on the frontier", ["yes" if on else "" for on in best])
    return make_figure(
        text("title", title) or f"{_axis_name(quality)} against {_axis_name(cost)}{_question_count(rows)}",
        partial(_draw_points, rows, cost, quality, best, labels),
        about="Filled points are on the Pareto frontier: no other is as good at a lower cost.",
        alt=_span_text(rows, (quality,), f"{_axis_name(cost)} from {num(rows[cost].min())} to {num(rows[cost].max())}")
        + f" On the frontier: {', '.join(np.array(labels, object)[best]) or 'none'}.",
        table=numbers, numbers="The numbers",
    )  # fmt: skip


def _draw_points(
    rows: pd.DataFrame, cost: str, quality: str, best: np.ndarray, labels: Sequence[str], width: int
) -> Any:
    drawing, [panel] = draw_panels([""], width, height=420 if width > 500 else 340)
    x, y = rows[cost].to_numpy(float), rows[quality].to_numpy(float)
    order = np.flatnonzero(best)[np.argsort(x[best], kind="stable")]
    panel.plot(x[order], y[order], color=SOFT, drawstyle="steps-post", linewidth=1.2, linestyle=(0, (2, 2)))
    for draw_intervals, name, at in ((panel.hlines, cost, y), (panel.vlines, quality, x)):
        if f"{name}_low" in rows:
            ends = rows[[f"{name}_low", f"{name}_high"]].to_numpy(float).T
            draw_intervals(at, *ends, color=BLUE, linewidth=1, alpha=0.35)
    for on, face in ((True, BLUE), (False, "none")):
        panel.plot(x[best == on], y[best == on], "o", color=BLUE, markerfacecolor=face, markersize=8)
    panel.set(xlabel=_axis_name(cost), ylabel=_axis_name(quality))
    label_points(panel, x, y, labels)
    return drawing


def frontier(table: pd.DataFrame | Any, *, cost: str = "retrievals", quality: str = "em", title: str = "") -> View:
    """Quality against cost per question, a panel per method over the grey lines of the others, with 95 % intervals.

    ``table`` is a ``study.budgets.Frontier``, or its table: one row per method and budget with ``method``, ``cost``
    ("retrievals" or "tokens") and ``quality`` ("em" or "f1"). The panels are ordered by their mean quality. Errors as
    ``threshold_sweep``.
    """
    rows = _table_rows(table, ("method", cost, quality))
    if not len(rows):
        return make_message("Frontier", "No method has a point yet.")
    lines = {str(name): own.sort_values(cost) for name, own in rows.groupby("method", sort=False)}
    lines = dict(sorted(lines.items(), key=lambda item: -item[1][quality].mean()))
    import pandas as pd

    ordered = pd.concat(lines.values())
    named = {"method": "method"} | ({"budget": "budget"} if "budget" in rows else {})
    return make_figure(
        text("title", title) or f"{_axis_name(quality)} against {_axis_name(cost)}{_question_count(rows)}",
        partial(_draw_frontier, lines, cost, quality),
        about="Each panel stresses one method over the grey lines of all others; the best on average comes first."
        + (" Bands are 95 % intervals." if f"{quality}_low" in rows else ""),
        alt=f"{_axis_name(quality)} against {_axis_name(cost)}, best first: {', '.join(lines)}.",
        table=_interval_table(ordered, named, (cost, quality)), numbers="The numbers",
    )  # fmt: skip


def _draw_frontier(lines: dict[str, pd.DataFrame], cost: str, quality: str, width: int) -> Any:
    drawing, panels = draw_panels(list(lines), width, height=150, sharex="all", sharey="all")
    for panel, own in zip(panels, lines.values(), strict=True):
        for other in lines.values():
            panel.plot(other[cost], other[quality], color=SOFT, linewidth=1, alpha=0.3)
        panel.plot(own[cost], own[quality], color=BLUE, marker="o", markersize=4)
        _draw_band(panel, own, cost, quality)
    drawing.supxlabel(_axis_name(cost), color=SOFT, size=12)
    drawing.supylabel(_axis_name(quality), color=SOFT, size=12)
    return drawing


def pareto(cost: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """Which points no other beats, (n,) bool: none is as good for less, none better for the same. NaN is beaten."""
    cost, quality = np.asarray(cost, float), np.asarray(quality, float)
    cheaper = (cost[None] < cost[:, None]) & (quality[None] >= quality[:, None])  # (n, n): row beaten by column
    better = (cost[None] <= cost[:, None]) & (quality[None] > quality[:, None])
    return np.isfinite(cost) & np.isfinite(quality) & ~(cheaper | better).any(axis=1)


# -- tables -----------------------------------------------------------------------------------------------------------


def _table_rows(table: Any, needed: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    rows = getattr(table, "table", table)
    if not isinstance(rows, pd.DataFrame):
        raise SettingError(f"a sweep's figure takes a table (pandas.DataFrame) or a sweep, not {type(rows).__name__}")
    missing = [name for name in needed if text("column", name) not in rows]
    if missing and len(rows):
        there = ", ".join(map(str, rows.columns)) or "none"
        raise SettingError(f"the table lacks the column {missing[0]!r}; it has {there}")
    if "setting" in rows and rows["setting"].nunique() > 1:
        raise SettingError(f"the table goes over {' and '.join(rows['setting'].unique())}; draw one setting at a time")
    if "value" not in rows:
        return rows
    scaled = on_a_scale(rows["value"])
    rows = rows.sort_values("value") if scaled else rows
    return rows.assign(place=rows["value"] if scaled else range(len(rows)))


def _paper_rows(paper: Any) -> pd.DataFrame | None:
    """The paper's table with our names of columns."""
    if paper is None:
        return None
    rows = _table_rows(paper, ())
    rows = rows.rename(columns={name: _PAPER.get(str(name).lower(), str(name).lower()) for name in rows.columns})
    return _table_rows(rows, ("value",))


def _interval_table(rows: pd.DataFrame, leading: dict[str, str], measures: Sequence[str]) -> pd.DataFrame:
    """The columns ``leading``, renamed, then each measure with its 95 % interval in a column beside it."""
    import pandas as pd

    table = pd.DataFrame({shown: rows[name].to_numpy() for name, shown in leading.items()})
    for name in measures:
        table[_axis_name(name)] = rows[name].to_numpy(float)
        if f"{name}_low" in rows:
            ends = zip(rows[f"{name}_low"], rows[f"{name}_high"], strict=True)
            table[f"{_axis_name(name)}, 95 %"] = [f"{num(low)} to {num(high)}" for low, high in ends]
    return table


def _point_labels(rows: pd.DataFrame) -> list[str]:
    """What a row's point is called: by its ``name``, else its ``method``, else its value; both where names repeat."""
    key = next((name for name in ("name", "method") if name in rows), None)
    values = [f"{_setting_name(rows)} {_name_value(value)}" for value in rows["value"]] if "value" in rows else None
    if key is None:
        return values or [str(row) for row in rows.index]
    names = [str(name) for name in rows[key]]
    if values is None or len(set(names)) == len(names):
        return names
    return [f"{name}, {value}" for name, value in zip(names, values, strict=True)]


def _setting_name(rows: pd.DataFrame) -> str:
    return title_setting(str(rows["setting"].iloc[0]) if "setting" in rows else "threshold")


def _name_value(value: Any) -> str:
    return "None" if value is None else setting_text(value)


def _axis_name(name: str) -> str:
    return NAMES.get(name, name)


def _question_count(rows: pd.DataFrame) -> str:
    if "n" not in rows:
        return ""
    low, high = int(rows["n"].min()), int(rows["n"].max())
    return f" ({count(high, 'question')})" if low == high else f" ({low:,} to {high:,} questions)"


def _span_text(rows: pd.DataFrame, measures: Sequence[str], over: str) -> str:
    """``EM from 0.3 to 0.34, … over θ from 0.8 to 1.6.``, for those who do not see the picture."""
    spans = [f"{_axis_name(name)} from {num(rows[name].min())} to {num(rows[name].max())}" for name in measures]
    return f"{', '.join(spans)}, over {over}."
