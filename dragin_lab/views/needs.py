"""Does a trigger fire where a fact is missing? ROC, precision and recall on ground truth, and histograms of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import instance, number, several, text
from dragin_lab.errors import SettingError
from dragin_lab.study import ranking
from dragin_lab.study.needs import CLOCKS, Item, left_out
from dragin_lab.views.figures import AMBER, BLUE, INK, SOFT, draw_panels, make_figure, new_drawing
from dragin_lab.views.frame import View, make_message
from dragin_lab.views.html import count, short

if TYPE_CHECKING:
    import pandas as pd

BINS = 32
#: The share of the scores that the histograms show; larger ones stand in the last bar.
SHOWN = 0.98
#: Thresholds of a trigger in the table under its curves.
MAX_THRESHOLDS = 24
#: How the other triggers' lines look, and how many points of each are drawn.
BEHIND: dict[str, Any] = {"color": SOFT, "linewidth": 1, "alpha": 0.25, "markersize": 3}
POINTS_BEHIND = 40


#: The columns of a curve's table.
THETA, ALARMS, RECALL, PRECISION = COLUMNS = ("score ≥", "known that fire", "missing that fire", "precision")


@dataclass(frozen=True)
class Curve:
    """A trigger's ROC and precision: ``points`` has a row per threshold, from the highest; a clock has one row."""

    name: str
    area: float
    points: pd.DataFrame  # COLUMNS: shares of known and of missing facts, and of what fires the share that is missing
    chosen: dict[str, float]  # of the trigger's own θ; empty where none is given

    def sample(self, most: int) -> pd.DataFrame:
        """At most ``most`` rows, evenly along the curve, both ends among them."""
        last = len(self.points) - 1
        return self.points.iloc[np.unique(np.linspace(0, last, min(most, last + 1)).round().astype(int))]


def read_curve(name: str, scores: np.ndarray, positive: np.ndarray, theta: float | None) -> Curve:
    """The curve of ``scores (m,)`` against ``positive (m,)`` bool; a score above ``theta`` fires."""
    import pandas as pd

    alarms, recall, thresholds = ranking.roc_curve(scores, positive)
    hits, false = recall * positive.sum(), alarms * (~positive).sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = (thresholds, alarms, recall, hits / (hits + false))
    points = pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))
    if set(np.unique(scores)) <= {0.0, 1.0}:
        points = points[points[THETA] == 1.0]
    chosen = {}
    if theta is not None:
        precision, missing = ranking.precision_recall(scores, positive, theta)
        chosen = {ALARMS: float((scores[~positive] > theta).mean()), RECALL: missing, PRECISION: precision}
    return Curve(name.replace("-", " "), ranking.roc_area(scores, positive), points, chosen)


def needs_curves(
    items: Sequence[Item],
    *,
    triggers: Sequence[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    positive: Callable[[Item], bool] = lambda item: item.missing,
    title: str = "",
) -> View:
    """ROC and precision-recall of triggers over the items of ``needs.forced_items`` or ``needs.free_items``.

    A panel per trigger over the grey lines of the others, the largest area first; triggers that only fire or not (the
    clocks) are single points. A diamond stands where a trigger's ``thresholds`` entry puts it. Raises ``SettingError``
    for a trigger without scores, ``MissingPackageError`` without matplotlib.
    """
    import pandas as pd

    thetas, names, labels = _check_items(items, triggers, thresholds, positive)
    if (reason := _missing_contrast(labels)) is not None:
        return make_message("ROC", reason)
    scores = {name: np.array([item.scores[name] for item in items]) for name in names}
    curves = [read_curve(name, values, labels, thetas.get(name)) for name, values in scores.items()]
    curves.sort(key=lambda curve: -curve.area)
    table = pd.concat([curve.sample(MAX_THRESHOLDS).assign(trigger=curve.name) for curve in curves])
    facts = f"{count(int(labels.sum()), 'fact')} missing, {int((~labels).sum()):,} known"
    remarks = ["A panel per trigger, with its area under the ROC, over the grey lines of the others."]
    remarks += ["A diamond is the trigger's θ."] if thetas else []
    remarks += [_unscored_text(items)] if triggers is None else []
    areas = ", ".join(f"{curve.name} {curve.area:.2f}" for curve in curves)
    return make_figure(
        text("title", title) or f"Does a trigger fire where it is needed? {facts}",
        partial(_draw_curves, curves, float(labels.mean())),
        about=" ".join(filter(None, remarks)), alt=f"Area under the ROC: {areas}.",
        table=table[["trigger", *COLUMNS]], numbers="Thresholds along the curves",
    )  # fmt: skip


def _draw_curves(curves: Sequence[Curve], share: float, width: int) -> Any:
    across = max(1, min(width // 150, 5, len(curves)))
    drawing = new_drawing(width, 2 * (40 + 160 * math.ceil(len(curves) / across)))
    sides = (
        ("ROC", ALARMS, RECALL, "share of known facts that fire", "missing facts that fire"),
        ("Precision and recall", RECALL, PRECISION, "recall: missing facts that fire", "precision"),
    )
    for part, (heading, x, y, x_name, y_name) in zip(drawing.subfigures(2, 1), sides, strict=True):
        part.set_facecolor("none")
        part.suptitle(heading, x=0.01, ha="left", size=13, color=INK)
        titles = [f"{curve.name} {curve.area:.2f}" if x == ALARMS else curve.name for curve in curves]
        _, panels = draw_panels(titles, width, parent=part, sharex="all", sharey="all")
        for panel, own in zip(panels, curves, strict=True):
            by_chance = [0, 1] if x == ALARMS else [share, share]
            panel.plot([0, 1], by_chance, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
            others = [(curve.sample(POINTS_BEHIND), BEHIND) for curve in curves if curve is not own]
            for points, look in [*others, (own.points, {"color": BLUE})]:
                single = {"marker": "o", "linestyle": "none"} if len(points) == 1 else {}
                panel.plot(points[x], points[y], **look, **single)
            if own.chosen:
                panel.plot(own.chosen[x], own.chosen[y], "D", color=AMBER, markersize=8, markeredgecolor=INK)
            panel.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_ticks((0, 0.5, 1), ("0", ".5", "1"))
        part.supxlabel(x_name, color=SOFT, size=12)
        part.supylabel(y_name, color=SOFT, size=12)
    return drawing


def score_distributions(
    items: Sequence[Item],
    *,
    triggers: Sequence[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    positive: Callable[[Item], bool] = lambda item: item.missing,
    title: str = "",
) -> View:
    """How each trigger scores known facts and missing ones: two histograms per trigger, θ as a line.

    A bar is a share of its own kind. The largest 2 % of all scores stand in the last bar. The clocks, which give no
    scores, are left out unless they are named. Errors as ``needs_curves``.
    """
    thetas, names, labels = _check_items(items, triggers, thresholds, positive)
    if (reason := _missing_contrast(labels)) is not None:
        return make_message("Scores", reason)
    if triggers is None:
        names = [name for name in names if name not in CLOCKS]
    scores = {name.replace("-", " "): np.array([item.scores[name] for item in items]) for name in names}
    thetas = {name.replace("-", " "): theta for name, theta in thetas.items()}
    known, missing = int((~labels).sum()), int(labels.sum())
    remarks = [f"Grey areas are known ({known:,} facts); hatched outlines are missing ({missing:,} facts)."]
    remarks += ["A dashed line is the trigger's θ."] if thetas else []
    remarks += [_unscored_text(items)] if triggers is None else []
    table = _score_table(scores, labels, thetas)
    medians = [f"{row[0]} {row[1]} {short(row[4])}" for row in table.itertuples(index=False)]
    return make_figure(
        text("title", title) or "Scores of known and of missing facts", partial(_draw_scores, scores, labels, thetas),
        about=" ".join(filter(None, remarks)), alt=f"Median scores: {', '.join(medians)}.",
        table=table, numbers="Quantiles of the scores",
    )  # fmt: skip


def _draw_scores(scores: Mapping[str, np.ndarray], labels: np.ndarray, thetas: Mapping[str, float], width: int) -> Any:
    titles = [name + (f", θ {short(thetas[name])}" if name in thetas else "") for name in scores]
    drawing, panels = draw_panels(titles, width, height=160, least=200, most=4)
    grey, hatched = {"facecolor": SOFT, "alpha": 0.35}, {"facecolor": "none", "edgecolor": BLUE, "hatch": "////"}
    for panel, (name, values) in zip(panels, scores.items(), strict=True):
        edges = _bin_edges(values)
        for inside, look in ((~labels, grey), (labels, hatched)):
            shares = np.histogram(np.clip(values[inside], edges[0], edges[-1]), edges)[0] / inside.sum()
            panel.stairs(shares, edges, fill=True, linewidth=1.4, **look)
        if name in thetas:
            panel.axvline(thetas[name], color=INK, linewidth=1.4, linestyle=(0, (4, 3)))
        panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
        panel.set_ylim(bottom=0)
    drawing.supxlabel("score", color=SOFT, size=12)
    drawing.supylabel("share of its kind", color=SOFT, size=12)
    return drawing


def _bin_edges(values: np.ndarray) -> np.ndarray:
    """(BINS + 1,) ends of the bars, from 0 or the lowest score to the quantile ``SHOWN``."""
    low, top = float(min(values.min(), 0.0)), float(np.quantile(values, SHOWN))
    top = top if top > low else float(values.max()) if values.max() > low else low + 1.0
    return np.linspace(low, top, BINS + 1)


def _score_table(scores: Mapping[str, np.ndarray], labels: np.ndarray, thetas: Mapping[str, float]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for name, values in scores.items():
        for kind, own in (("known", values[~labels]), ("missing", values[labels])):
            above = float((own > thetas[name]).mean()) if name in thetas else math.nan
            rows.append([name, kind, len(own), *np.quantile(own, (0.1, 0.5, 0.9)).tolist(), above])
    return pd.DataFrame(rows, columns=["trigger", "kind", "facts", "10 %", "median", "90 %", "share above θ"])


# -- checks -----------------------------------------------------------------------------------------------------------


def _check_items(
    items: Sequence[Item],
    wanted: Sequence[str] | None,
    thresholds: Mapping[str, float] | None,
    positive: Callable[[Item], bool],
) -> tuple[dict[str, float], list[str], np.ndarray]:
    """The thresholds, the triggers to show, and (m,) bool: which items are positive."""
    several("items", items, Item, "give the items of needs.forced_items or needs.free_items")
    instance("positive", positive, Callable, "give a function that takes an Item and says whether its fact is missing")
    by_trigger = instance(
        "thresholds",
        {} if thresholds is None else thresholds,
        Mapping,
        "give a number for each trigger: {'rind': 0.25}",
    )
    thetas = {str(name): number(f"the threshold of {name}", at, -math.inf) for name, at in by_trigger.items()}
    scored = [name for name in items[0].scores if all(name in item.scores for item in items)] if items else []
    names = [] if wanted is None else several("triggers", wanted, str, "give the names of triggers", alone=True)
    unknown = [name for name in names if items and name not in scored]
    if unknown:
        raise SettingError(f"no trigger {unknown[0]!r} scored these items; they have {', '.join(scored)}")
    return thetas, names or scored, np.array([positive(item) for item in items], bool)


def _missing_contrast(labels: np.ndarray) -> str | None:
    """Why there is nothing to tell apart; None where there is."""
    if not len(labels):
        return "There are no labelled facts: nothing was scored yet."
    if labels.any() and not labels.all():
        return None
    kind = "missing" if labels.all() else "known"
    return f"All {len(labels):,} facts are {kind}; a trigger is judged by how it tells known facts from missing ones."


def _unscored_text(items: Sequence[Item]) -> str:
    """Which triggers have no curve here, and why; "" where all have one."""
    reasons = [f"{name.replace('-', ' ')} ({why})" for name, why in left_out(items).items()]
    return f"Not scored on these facts: {', '.join(reasons)}." if reasons else ""
