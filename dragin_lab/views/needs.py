"""Does a trigger fire where a fact is missing? ROC, precision and recall on ground truth, and histograms of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab import checks
from dragin_lab.checks import instance, several, shown
from dragin_lab.errors import SettingError
from dragin_lab.study import ranking
from dragin_lab.views.figures import (
    GREY,
    INK,
    Style,
    graph_objects,
    label,
    message_figure,
    panels,
    scatter,
    style,
    titled,
)
from dragin_lab.views.html import count, short

if TYPE_CHECKING:
    from dragin_lab.study.needs import Item

BINS = 32
#: What of the scores the histograms show; what lies above stands in the last bar.
SHOWN = 0.98


def needs_curves(
    items: Sequence[Item],
    *,
    triggers: Sequence[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    positive: Callable[[Item], bool] = lambda item: item.missing,
    title: str = "",
) -> Any:
    """ROC and precision-recall of triggers over the items of ``needs.forced_items`` or ``needs.free_items``.

    One line per trigger, the largest area first; triggers that only fire or not (the clocks) are single points. A large
    marker stands where a trigger's ``thresholds`` entry puts it. Raises ``SettingError`` for a trigger without scores.
    """
    thetas = _checked(items, thresholds, positive)
    chosen = _triggers(items, triggers)
    if (said := _one_sided(items, positive)) is not None:
        return message_figure(said)
    labels = np.array([positive(item) for item in items], bool)  # (m,)
    scores = {name: np.array([item.scores[name] for item in items]) for name in chosen}
    areas = {name: ranking.roc_area(values, labels) for name, values in scores.items()}
    titles = ("ROC", "Precision and recall")
    figure = panels(1, 2, subplot_titles=titles, horizontal_spacing=0.11)
    share = float(labels.mean())
    for column, y in enumerate(([0, 1], [share, share]), 1):
        shown: dict[str, Any] = {"legendgroup": "chance", "showlegend": column == 1, "hoverinfo": "skip"}
        figure.add_trace(scatter(GREY, [0, 1], y, "chance", mode="lines", width=1, **shown), row=1, col=column)
    for number, name in enumerate(sorted(chosen, key=lambda n: -areas[n])):
        for column, trace in enumerate(_curves(name, scores[name], labels, areas[name], style(number)), 1):
            figure.add_trace(trace, row=1, col=column)
        theta = thetas.get(name)
        if theta is not None:
            for column, trace in enumerate(_operating(name, scores[name], labels, theta, style(number)), 1):
                figure.add_trace(trace, row=1, col=column)
    span = {"range": [-0.02, 1.02], "constrain": "domain"}
    figure.update_xaxes(title_text="share of known facts that fire", row=1, col=1, **span)
    figure.update_yaxes(title_text="share of missing facts that fire", row=1, col=1, **span)
    figure.update_xaxes(title_text="recall", row=1, col=2, **span)
    figure.update_yaxes(title_text="precision", row=1, col=2, **span)
    facts = f"{count(int(labels.sum()), 'fact')} missing, {int((~labels).sum()):,} known"
    figure.update_layout(height=590, margin={"b": 160})
    said = _left_out(items) if triggers is None else ""
    titled(figure, title or f"Does a trigger fire where it is needed? {facts}", said, top=90)
    return figure


def score_distributions(
    items: Sequence[Item],
    *,
    triggers: Sequence[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    positive: Callable[[Item], bool] = lambda item: item.missing,
    title: str = "",
) -> Any:
    """How each trigger scores known facts and missing ones: two histograms per trigger, θ as a line.

    A bar is a share of its own kind. The largest 2 % of all scores stand in the last bar. The clocks, which give no
    scores, are left out unless they are named. Errors as ``needs_curves``.
    """
    thetas = _checked(items, thresholds, positive)
    chosen = _triggers(items, triggers)
    if triggers is None:
        from dragin_lab.study.needs import CLOCKS

        chosen = [name for name in chosen if name not in CLOCKS]
    if (said := _one_sided(items, positive)) is not None:
        return message_figure(said)
    labels = np.array([positive(item) for item in items], bool)  # (m,)
    columns = min(2, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    titles = [_named(name) + (f", θ {short(thetas[name])}" if name in thetas else "") for name in chosen]
    options = {"vertical_spacing": 0.42 / max(rows, 2), "horizontal_spacing": 0.1}
    figure = panels(rows, columns, subplot_titles=titles, **options)
    for number, name in enumerate(chosen):
        place = {"row": number // columns + 1, "col": number % columns + 1}
        values = np.array([item.scores[name] for item in items])
        for trace in _histograms(values, labels, first=number == 0):
            figure.add_trace(trace, **place)
        if name in thetas:
            figure.add_vline(x=thetas[name], line={"color": INK, "dash": "dash", "width": 1.5}, **place)
        if number >= len(chosen) - columns:
            figure.update_xaxes(title_text="score", **place)
        figure.update_yaxes(tickformat=".0%", rangemode="tozero", **place)
    figure.update_layout(height=200 + 170 * rows, margin={"b": 110}, barmode="overlay", bargap=0)
    said = _left_out(items) if triggers is None else ""
    titled(figure, title or "Scores of known and of missing facts", said, top=90)
    return figure


# -- parts ------------------------------------------------------------------------------------------------------------


def _triggers(items: Sequence[Item], wanted: Sequence[str] | None) -> list[str]:
    there = [name for name in items[0].scores if all(name in item.scores for item in items)] if items else []
    wanted = [] if wanted is None else several("triggers", wanted, str, "give the names of triggers", alone=True)
    for name in wanted:
        if items and name not in there:
            raise SettingError(f"no trigger {name!r} scored these items; they have {', '.join(there)}")
    return wanted or there


def _checked(items: Sequence[Item], thresholds: Mapping[str, float] | None, positive: Any) -> dict[str, float]:
    """The thresholds, with the arguments of both figures checked."""
    from dragin_lab.study.needs import Item

    several("items", items, Item, "give what needs.forced_items or needs.free_items made")
    if not callable(positive):
        raise SettingError(f"positive={shown(positive)}: give a function that says of an Item whether it is missing")
    by_trigger = instance(
        "thresholds",
        {} if thresholds is None else thresholds,
        Mapping,
        "give a number for each trigger: {'rind': 0.25}",
    )
    return {
        str(name): checks.number(f"the threshold of {name}", theta, -math.inf) for name, theta in by_trigger.items()
    }


def _one_sided(items: Sequence[Item], positive: Callable[[Item], bool]) -> str | None:
    """What to say where there is nothing to tell apart; None where there is."""
    if not items:
        return "There are no labelled facts: nothing was scored yet."
    missing = sum(map(positive, items))
    if missing in (0, len(items)):
        kind = "missing" if missing else "known"
        return (
            f"All {len(items):,} facts are {kind}; a trigger is judged by how it tells known facts from missing ones."
        )
    return None


def _left_out(items: Sequence[Item]) -> str:
    """Which triggers have no curve here, and why; "" where all have one."""
    from dragin_lab.study.needs import left_out

    named = [f"{name.replace('-', ' ')} ({why})" for name, why in left_out(items).items()]
    return f"Not scored on these facts: {', '.join(named)}." if named else ""


def _named(name: str) -> str:
    return label(name.replace("-", " "))


def _curves(name: str, scores: np.ndarray, labels: np.ndarray, area: float, look: Style) -> list[Any]:
    """The ROC and the precision-recall line; two single points for a trigger of one threshold."""
    false_rate, true_rate, theta = ranking.roc_curve(scores, labels)
    hits, alarms = true_rate * labels.sum(), false_rate * (~labels).sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = hits / (hits + alarms)
    clock = set(np.unique(scores)) <= {0.0, 1.0}
    common: dict[str, Any] = {"legendgroup": name, "mode": "markers" if clock else "lines", "size": 11}
    title, hover = f"{_named(name)} (area {area:.2f})", f"{_named(name)}, score ≥ %{{customdata:.3g}}"
    out = []
    sides = (
        (false_rate, true_rate, 0, "known that fire %{x:.0%}, missing %{y:.0%}"),
        (true_rate, precision, 1, "recall %{x:.0%}, precision %{y:.0%}"),
    )
    for x, y, first, said in sides:
        inner = theta == 1.0 if clock else slice(first, None)
        told: dict[str, Any] = {"customdata": theta[inner], "hovertemplate": f"{hover}<br>{said}<extra></extra>"}
        out.append(scatter(look, x[inner], y[inner], title, showlegend=first == 0, **told, **common))
    return out


def _operating(name: str, scores: np.ndarray, labels: np.ndarray, theta: float, look: Style) -> list[Any]:
    """Where a threshold puts a trigger on both curves."""
    precision, recall = ranking.precision_recall(scores, labels, theta)
    alarms = float((scores[~labels] > theta).mean())
    said = f"{_named(name)} at θ {short(theta)}<br>%{{x:.0%}}, %{{y:.0%}}<extra></extra>"
    edge = {"color": INK, "width": 1.5}
    common: dict[str, Any] = {"mode": "markers", "size": 12, "edge": edge, "hovertemplate": said}
    common |= {"legendgroup": name, "showlegend": False}
    return [scatter(look, [x], [y], _named(name), **common) for x, y in ((alarms, recall), (recall, precision))]


def _histograms(values: np.ndarray, labels: np.ndarray, *, first: bool) -> list[Any]:
    low, top = float(min(values.min(), 0.0)), float(np.quantile(values, SHOWN))
    top = top if top > low else float(values.max()) if values.max() > low else low + 1.0
    edges = np.linspace(low, top, BINS + 1)
    out = []
    for number, (name, inside) in enumerate((("known", ~labels), ("missing", labels))):
        look = style(number)
        shares = np.histogram(np.clip(values[inside], low, top), edges)[0] / inside.sum()
        tips = [f"{short(a)} to {short(b)}" for a, b in pairwise(edges)]
        tips[-1] = f"{short(edges[-2])} and above"
        out.append(
            graph_objects().Bar(
                x=(edges[:-1] + edges[1:]) / 2,
                y=shares,
                width=np.diff(edges),
                customdata=tips,
                name=f"{name} ({int(inside.sum()):,} facts)",
                legendgroup=name,
                showlegend=first,
                marker={
                    "color": look.faded(0.45 if number == 0 else 0.15),
                    "line": {"color": look.colour, "width": 1},
                    "pattern": {"shape": "" if number == 0 else "/", "size": 5, "fgcolor": look.colour},
                },
                hovertemplate=f"{name}, score %{{customdata}}: %{{y:.1%}}<extra></extra>",
            )
        )
    return out
