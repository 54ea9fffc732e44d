"""What one θ for all questions costs and gives, and what the best θ of each would."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from dragin_lab.checks import number
from dragin_lab.core.budget import Threshold, shortest_between
from dragin_lab.drawn import Drawn
from dragin_lab.errors import SettingError

Curve = Any  # ``results.curve.Curve``, which imports this file

MEANING = (
    "A trigger that differs from this one in θ alone, chosen anew for each question, gives at most"
    " this; one that scores otherwise may give more."
)


# -- a budget --------------------------------------------------------------------------------------


def find_budget(curve: Curve, retrievals: float, held_out: Curve | None) -> Threshold:
    """The θ at which a question of a curve costs so many retrievals; ``Curve.budget``."""
    wanted = number("retrievals", retrievals)
    table = curve.table
    costs = table["retrievals"].to_numpy(float)  # (t,)
    refuse_unreached(curve, wanted, costs)
    place = nearest_cost(costs, wanted)
    start = table["value"].iloc[place]
    stop = table["until"].iloc[place]
    theta = Threshold(shortest_between(start, stop))
    rows = {"these questions": table.iloc[[place]]}
    if held_out is not None:
        rows["held out"] = row_at(held_out, theta)
    theta.table = pd.concat(rows).droplevel(1).drop(columns=["setting", "value", "until"])
    theta.reached = float(costs[place])
    theta.questions = len(curve.complete)
    return theta


def row_at(curve: Curve, theta: float) -> pd.DataFrame:
    """The row of a curve's table that holds at a θ. Raises ``SettingError`` below what is known."""
    curve.refuse_unknown(theta)
    table = curve.table
    return table[(table["value"] <= theta) & (theta < table["until"])]


def nearest_cost(costs: np.ndarray, wanted: float) -> int:
    """The place of the cost (t,) that is nearest to what is wanted; of equals the one of the
    highest θ.
    """
    apart = np.abs(costs - wanted)
    return int(np.flatnonzero(apart == apart.min())[-1])


def refuse_unreached(curve: Curve, wanted: float, costs: np.ndarray) -> None:
    """Raise ``SettingError`` where no θ of a curve costs as much as is wanted, or as little.

    A mean over n questions is known to one retrieval in n.
    """
    within = 1 / len(curve.complete)
    if costs.min() - within < wanted < costs.max() + within:
        return
    nearest = nearest_cost(costs, wanted)
    theta = curve.table["value"].iloc[nearest]
    more = "; make the curve with a lower lowest=" if wanted > costs.max() else ""
    raise SettingError(
        f"{wanted:g} retrievals a question cannot be reached on these {len(curve.complete):,}"
        f" questions at θ from {curve.lowest:.4g} up; the nearest is {costs[nearest]:.6g}, at"
        f" threshold={theta:.6g}{more}"
    )


# -- the best θ for each ---------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Headroom:
    """One θ for all questions against the best for each, by exact match and then by retrievals.

    ``table`` has both, a row each; ``questions`` those on which they part.
    """

    table: pd.DataFrame  # rows "one θ for all", "the best θ for each"; em, retrievals
    questions: pd.DataFrame
    theta: float  # from which on is the best for all
    n: int
    curve: pd.DataFrame  # ``Curve.table``

    plot = Drawn()  # both, and the curve between them

    def __repr__(self) -> str:
        rows = []
        for name, row in self.table.iterrows():
            rows.append(f"{name}: EM {row['em']:.3f} at {row['retrievals']:.2f} retrievals")
        return f"Headroom({'; '.join(rows)}; {self.n} questions, {len(self.questions)} part)"

    def _repr_html_(self) -> str:
        shown = self.table.to_html(float_format="{:.3f}".format)
        return f"<p>{escape(repr(self))}</p>{shown}<p>{MEANING}</p>"


def find_headroom(curve: Curve) -> Headroom:
    """``Curve.headroom``."""
    values = curve.values("em")  # (q, t)
    costs = curve.values("retrievals")  # (q, t)
    scored = np.isfinite(values[:, 0])
    if not scored.any():
        raise SettingError("no question has a gold answer, so no θ is better than another")
    values = values[scored]
    costs = costs[scored]
    ids = np.array(curve.complete)[scored]
    shared = best_of(values.mean(axis=0), costs.mean(axis=0))
    each = [best_of(*row) for row in zip(values, costs, strict=True)]
    rows = np.arange(len(ids))
    best = values[rows, each]  # (q,)
    least = costs[rows, each]  # (q,)
    values = values[:, shared]
    costs = costs[:, shared]
    columns = {"em": [values.mean(), best.mean()], "retrievals": [costs.mean(), least.mean()]}
    table = pd.DataFrame(columns, index=["one θ for all", "the best θ for each"])
    better = best > values
    cheaper = ~better & (least < costs)
    theta = float(curve.thetas[shared])
    described = []
    for place in (*np.flatnonzero(better), *np.flatnonzero(cheaper)):
        described.append(_describe(curve, ids[place], theta, curve.thetas[each[place]]))
    names = ["question", "text", "answer", "retrievals", "θ", "best answer", "best retrievals"]
    parted = pd.DataFrame(described, columns=names)
    return Headroom(table, parted, theta, len(ids), curve.table)


def best_of(quality: np.ndarray, cost: np.ndarray) -> int:
    """The place of the highest quality (t,), of equals that of the lowest cost (t,), of equals the
    last.
    """
    best = np.isclose(quality, quality.max(), rtol=0, atol=1e-12)
    cheapest = np.where(best, cost, math.inf)
    return int(np.flatnonzero(np.isclose(cheapest, cheapest.min(), rtol=0, atol=1e-12))[-1])


def _describe(curve: Curve, id: str, theta: float, best: float) -> list[Any]:
    here = curve.piece(id, theta).line
    there = curve.piece(id, best).line
    ours = [here["question"], here["answer"], here["retrievals"]]
    return [id, *ours, best, there["answer"], there["retrievals"]]
