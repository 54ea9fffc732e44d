"""Does a trigger fire where it is needed? ROC, precision and recall, histograms, and a fitted one's reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from sklearn.metrics import roc_curve

from dragin_lab.catalog.methods import restore_method
from dragin_lab.checks import instance, number, several
from dragin_lab.errors import SettingError
from dragin_lab.study.statistics import roc_area
from dragin_lab.study.stored_drafts import as_judged
from dragin_lab.trace.trace import Trace
from dragin_lab.triggers.logistic import Logistic
from dragin_lab.views import theme
from dragin_lab.views.html import num, short
from dragin_lab.views.rows import check_trace, show_spaces

BINS = 32
SHOWN = 0.98  # the share of the scores that a histogram shows; larger ones stand in the last bar
MAX_WORDS = 60
NOT_BOTH = "There are not both missing and known facts here, so there is nothing to tell apart."


def roc(
    table: pd.DataFrame,
    missing: str = "missing",
    triggers: Sequence[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> go.Figure:
    """ROC and precision-recall of triggers over labelled facts; a diamond stands at a trigger's own θ.

    ``table`` has a row for each fact: the bool column ``missing`` and a column of scores for each trigger (those of
    ``triggers``; default every column of numbers). What only fires or not is a point. Raises ``SettingError`` for
    columns that are not there.
    """
    labels, scores, thetas = read_scores(table, missing, triggers, thresholds)
    if not (labels.any() and not labels.all()):
        return theme.message("ROC", NOT_BOTH)
    figure = theme.panels(["ROC", "precision and recall"], cols=2, horizontal_spacing=0.12)
    areas = {name: roc_area(values, labels) for name, values in scores.items()}
    for place, name in enumerate(sorted(scores, key=lambda name: -areas[name])):
        values, look = scores[name], theme.style(place)
        alarms, recall, at = roc_curve(labels, values, drop_intermediate=False)
        with np.errstate(invalid="ignore", divide="ignore"):
            precision = recall * labels.sum() / (recall * labels.sum() + alarms * (~labels).sum())
        if set(np.unique(values)) <= {0.0, 1.0}:
            only = at == 1.0
            alarms, recall, at, precision = alarms[only], recall[only], at[only], precision[only]
        hover_texts = [
            f"{theme.label(name)}, area {areas[name]:.3f}<br>score ≥ {num(t)}<br>"
            f"{r:.0%} of missing fire, {a:.0%} of known<br>precision {num(p, 2)}"
            for t, r, a, p in zip(at, recall, alarms, precision, strict=True)
        ]
        shared = {
            "name": f"{theme.label(name)} {areas[name]:.2f}", "legendgroup": name, "line": look["line"],
            "mode": "lines" if len(at) > 1 else "markers", "marker": look["marker"],
            "customdata": hover_texts, "hovertemplate": "%{customdata}<extra></extra>",
        }  # fmt: skip
        figure.add_scatter(x=alarms, y=recall, **shared, row=1, col=1)
        figure.add_scatter(x=recall, y=precision, showlegend=False, **shared, row=1, col=2)
        if name in thetas:
            fired = values > thetas[name]
            hits, false = float(fired[labels].mean()), float(fired[~labels].mean())
            right = float(labels[fired].mean()) if fired.any() else math.nan
            point = {
                "mode": "markers", "marker": look["marker"] | {"symbol": "diamond", "size": 13}, "showlegend": False,
                "legendgroup": name, "hovertemplate": f"{theme.label(name)}, its θ {short(thetas[name])}<br>"
                f"{hits:.0%} of missing fire, {false:.0%} of known<br>precision {num(right, 2)}<extra></extra>",
            }  # fmt: skip
            figure.add_scatter(x=[false], y=[hits], **point, row=1, col=1)
            figure.add_scatter(x=[hits], y=[right], **point, row=1, col=2)
    chance = {"mode": "lines", "line": {"dash": "dot", "color": theme.INK}, "hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(x=[0, 1], y=[0, 1], **chance, row=1, col=1)
    figure.add_scatter(x=[0, 1], y=[labels.mean()] * 2, **chance, row=1, col=2)
    for col, (x, y) in enumerate((("known facts that fire", "missing facts that fire"), ("recall", "precision")), 1):
        figure.update_xaxes(title_text=x, range=[-0.02, 1.02], tickformat=".0%", row=1, col=col)
        figure.update_yaxes(title_text=y, range=[-0.02, 1.05], tickformat=".0%", row=1, col=col)
    title = (
        f"Does a trigger fire where it is needed? {int(labels.sum()):,} facts missing, {int((~labels).sum()):,} known"
    )
    return theme.finish(figure, title, 480, legend=theme.BELOW)


def scores(
    table: pd.DataFrame,
    missing: str = "missing",
    triggers: Sequence[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> go.Figure:
    """How each trigger scores known and missing facts: two histograms a trigger, each a share of its own kind.

    The largest 2 % of all scores stand in the last bar; a dashed line is θ. Arguments and errors as for ``roc``.
    """
    labels, columns, thetas = read_scores(table, missing, triggers, thresholds)
    if not (len(columns) and labels.any() and not labels.all()):
        return theme.message("Scores", NOT_BOTH)
    across = min(3, len(columns))
    down = math.ceil(len(columns) / across)
    figure = theme.panels(list(columns), down, across, vertical_spacing=0.35 / down, horizontal_spacing=0.06)
    for place, (name, values) in enumerate(columns.items()):
        at = {"row": place // across + 1, "col": place % across + 1}
        low, top = float(min(values.min(), 0.0)), float(np.quantile(values, SHOWN))
        edges = np.linspace(low, top if top > low else low + 1.0, BINS + 1)
        for kind, inside, colour, shape in (("known", ~labels, theme.GREY, ""), ("missing", labels, theme.BLUE, "/")):
            shares = np.histogram(values[inside].clip(edges[0], edges[-1]), edges)[0] / inside.sum()
            figure.add_bar(
                x=(edges[:-1] + edges[1:]) / 2, y=shares, width=edges[1] - edges[0], name=kind, legendgroup=kind,
                showlegend=not place, customdata=[f"{num(a)} to {num(b)}" for a, b in pairwise(edges)],
                marker={"color": colour, "opacity": 0.6, "pattern": theme.HATCH | {"shape": shape}},
                hovertemplate=f"{kind}: %{{y:.1%}} score %{{customdata}}<extra></extra>", **at,
            )  # fmt: skip
        if name in thetas:
            figure.add_vline(thetas[name], **theme.THETA, annotation_text=f"θ {short(thetas[name])}", **at)
    figure.update_yaxes(tickformat=".0%", ticklabelstandoff=4)
    figure.update_xaxes(ticklabelstandoff=6)
    title = f"Scores of {int((~labels).sum()):,} known and {int(labels.sum()):,} missing facts"
    return theme.finish(figure, title, 130 + 190 * down, barmode="overlay", legend=theme.BELOW)


def read_scores(
    table: Any, missing: str, triggers: Any, thresholds: Any
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, float]]:
    """Which facts are missing (m,) bool, the scores (m,) of each trigger, and the thresholds. Errors as ``roc``."""
    rows = instance("table", table, pd.DataFrame, "give a DataFrame: a row for each fact, scores as columns")
    numeric = [str(name) for name in rows.select_dtypes("number")]
    names = numeric if triggers is None else several("triggers", triggers, str, "give names of columns", alone=True)
    missing = instance("missing", missing, str, "give the name of the column that says which facts are missing")
    if absent := [name for name in (missing, *names) if name not in rows]:
        raise SettingError(
            f"the table has no column {absent[0]!r}; it has {', '.join(map(str, rows.columns)) or 'none'}"
        )
    given = instance("thresholds", thresholds or {}, Mapping, "give a number for each trigger: {'rind': 0.25}")
    thetas = {str(name): number(f"the threshold of {name}", at, -math.inf) for name, at in given.items()}
    if bad := [name for name in names if name not in numeric or rows[name].isna().any()]:
        raise SettingError(f"column {bad[0]!r} has values that are no scores; leave it out of triggers")
    return rows[missing].to_numpy(bool), {name: rows[name].to_numpy(float) for name in names}, thetas


def contributions(trace: Trace) -> go.Figure:
    """Why a fitted trigger scored the words of a trace as it did: what each feature added to their log-odds.

    Raises ``SettingError`` for a trace of another trigger.
    """
    method = restore_method(check_trace(trace).method, None)
    trigger = method.trigger
    if not isinstance(trigger, Logistic):
        raise SettingError(f"trigger {trigger.name!r} has no weights; ask with a trigger that dl.fit_trigger made")
    terms = sorted(trigger.terms, key=lambda term: -abs(term[1]))
    order = [[name for name, *_ in trigger.terms].index(name) for name, *_ in terms]
    labels, values, hover_texts = [], [], []
    for step in (one for one in trace.steps if one.draft is not None and len(one.words)):
        draft = as_judged(trace, step, method)
        added, score = trigger.contributions(draft)[:, order], trigger.score(draft)  # (n, f), (n,)
        for word, (start, stop), hit in zip(step.words.text, step.words.spans, step.words.hit, strict=True):
            inside = np.arange(start, min(stop, len(score)))
            if len(inside):
                token = inside[score[inside].argmax()]
                name = f"{'◆ ' * bool(hit)}{theme.clip_label(show_spaces(word), 18)}"
                labels.append(f"{step.index + 1} · {name}")
                values.append(added[token])
                hover_texts.append(
                    [
                        f"{name}: score {num(score[token])}<br>{theme.label(n)} {v:+.2f}"
                        for (n, *_), v in zip(terms, added[token], strict=True)
                    ]
                )
    if not values:
        return theme.message(trace.question.text, "No draft was judged.")
    z = np.array(values[:MAX_WORDS])  # (w, f) log-odds
    names = [f"{theme.clip_label(name, 18)} {num(weight, 2)}" for name, weight, *_ in terms]
    figure = go.Figure().add_heatmap(
        z=z, x=names, y=list(range(len(z))), customdata=hover_texts[:MAX_WORDS],
        hovertemplate="%{customdata}<extra></extra>",
        texttemplate="%{z:+.1f}", textfont_size=10, zmid=0, colorbar_title="log-odds",
        colorscale=[[0, theme.BLUE], [0.5, "#f2f0ec"], [1, theme.AMBER]], xgap=1, ygap=1,
    )  # fmt: skip
    figure.update_yaxes(tickvals=list(range(len(z))), ticktext=labels[:MAX_WORDS], autorange="reversed")
    figure.update_xaxes(side="top", tickangle=-60)
    more = f"; {len(values) - MAX_WORDS} more words left out" if len(values) > MAX_WORDS else ""
    title = f"{trace.question.text} · ◆ scores above θ {short(trigger.threshold)}{more}"
    return theme.finish(figure, title, 260 + 19 * len(z))
