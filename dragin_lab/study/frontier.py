"""Exact match against what it costs, for many methods at the same budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import instance, number, several
from dragin_lab.core.method import Method, exchanged, label
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.lab import Lab, as_method
from dragin_lab.run.lines import Line, interval_of, summary
from dragin_lab.run.sweeps import run_together
from dragin_lab.study.budgets import calibration
from dragin_lab.study.conditions import check_same_questions

if TYPE_CHECKING:
    import pandas as pd

BUDGETS = (0.5, 1.0, 1.5, 2.0)  # retrievals per question


@dataclass(frozen=True)
class Point:
    """A method at one budget, and what it gave on the questions."""

    name: str
    budget: float  # retrievals per question
    threshold: float | None
    predictions: Sequence[Line]


@dataclass(frozen=True)
class Frontier:
    """Methods at several budgets, on the same questions. Raises ``SettingError`` for points of other questions."""

    points: tuple[Point, ...]
    unreached: tuple[str, ...] = ()  # budgets that a method cannot reach, with the nearest

    def __post_init__(self) -> None:
        check_same_questions(
            {f"{p.name} at {p.budget:g}": {line["qid"]: line for line in p.predictions} for p in self.points}
        )

    @property
    def table(self) -> pd.DataFrame:
        """One row per method and budget: threshold, means with 95 % intervals, and the budget's transfer error."""
        import pandas as pd

        rows = []
        for point in self.points:
            found = summary(point.predictions)
            where = {"method": point.name, "budget": point.budget, "threshold": point.threshold}
            rows.append(where | found | {"transfer": found["retrievals"] - point.budget})
        return pd.DataFrame(rows)

    def at(self, retrievals: float) -> pd.DataFrame:
        """Exact match, F1 and tokens at one number of retrievals per question: one row per method, with 95 % intervals.

        Between the two neighbouring points a coin decides, for each question, which threshold it is answered with.
        NaN where a method's points lie on one side.
        """
        import pandas as pd

        rows = []
        for name in dict.fromkeys(point.name for point in self.points):
            row: dict[str, Any] = {"method": name, "retrievals": retrievals}
            for measure in ("em", "f1", "tokens"):
                values = self.mixed(name, retrievals, measure)
                found = None if values is None else interval_of(measure, values)
                for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high")):
                    row[measure + suffix] = float("nan") if found is None else getattr(found, part)
            rows.append(row)
        return pd.DataFrame(rows)

    def mixed(self, name: str, retrievals: float, measure: str = "em") -> np.ndarray | None:
        """(m,) what each question scores on average at that many retrievals; None where it lies outside the points.

        Questions that some method failed on are left out.
        """
        failed = {line["qid"] for point in self.points for line in point.predictions if line["ended"] == "error"}
        mine = [[line for line in p.predictions if line["qid"] not in failed] for p in self.points if p.name == name]
        mine = sorted(mine, key=lambda lines: float(np.mean([line["retrievals"] for line in lines])))
        means = [float(np.mean([line["retrievals"] for line in lines])) for lines in mine]
        for low, high, a, b in zip(means, means[1:], mine, mine[1:], strict=False):
            if low <= retrievals <= high:
                weight = (retrievals - low) / (high - low) if high > low else 0.0
                return np.array([(1 - weight) * x[measure] + weight * y[measure] for x, y in zip(a, b, strict=True)])
        return None


def frontier(
    lab: Lab,
    questions: Any,
    methods: Mapping[str, Method | str] | Sequence[Method | str],
    calibration_set: Any,
    *,
    budgets: Sequence[float] = BUDGETS,
    limit: int | None = None,
    batch_size: int = 1,
) -> Frontier:
    """Calibrate each method to each budget on ``calibration_set``, and answer ``questions`` with all of them.

    The calibration set is answered once per method. Methods share what they write through a cache, so that what two
    thresholds have in common is written once. Raises ``SettingError`` where no method reaches any budget, and as
    ``Lab.run``.
    """
    instance("lab", lab, Lab, "give a dl.Lab")
    named = methods if isinstance(methods, Mapping) else None
    given = several(
        "methods", methods if named is None else named.values(), Method | str, "give methods or their names"
    )
    amounts = [number("each of budgets", amount) for amount in several("budgets", budgets, Real, "give numbers")]
    asked, held = as_benchmark(questions, limit), as_benchmark(calibration_set, limit)
    lab = lab if lab.cache is not None or lab.uncached else lab.replace(cache=True)
    made = [as_method(one, {}) for one in given]
    names = [label(one) for one in made] if named is None else list(named)
    found: list[tuple[str, float, Method]] = []
    unreached = []
    for name, method in zip(names, made, strict=True):
        scores = calibration(lab, held, method, batch_size=batch_size)
        for amount in amounts:
            try:
                found.append((name, amount, exchanged(method, threshold=f"budget:{amount:g}", calibration=scores)))
            except SettingError as error:
                unreached.append(f"{name}: {error}")
    if not found:
        raise SettingError("no budget can be reached: " + "; ".join(unreached))
    lines = run_together(lab, asked, [(method, None, "") for _, _, method in found], batch_size=batch_size)
    points = (Point(name, amount, m.threshold, part) for (name, amount, m), part in zip(found, lines, strict=True))
    return Frontier(tuple(points), tuple(unreached))
