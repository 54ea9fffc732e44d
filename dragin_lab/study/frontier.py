"""Exact match against what it costs, for many methods at the same budgets; and what a retrieval changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragin_lab.core.intervals import Interval, bootstrap
from dragin_lab.core.method import Method, label
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.lab import Lab, as_method
from dragin_lab.run.lines import Line, summary
from dragin_lab.run.sweeps import run_together
from dragin_lab.study.budgets import Calibrated, calibrate

if TYPE_CHECKING:
    import pandas as pd

BUDGETS = (0.5, 1.0, 1.5, 2.0)  # retrievals per question


@dataclass(frozen=True)
class Point:
    """A method at one budget: what it was calibrated to, and what it gave on the questions."""

    name: str
    calibrated: Calibrated
    predictions: list[Line]


@dataclass(frozen=True)
class Frontier:
    """Methods at several budgets, on the same questions."""

    points: tuple[Point, ...]
    unreached: tuple[str, ...]  # budgets that a method cannot reach, with the nearest

    @property
    def table(self) -> pd.DataFrame:
        """One row per method and budget: threshold, means with 95 % intervals, and the budget's transfer error."""
        import pandas as pd

        rows = []
        for point in self.points:
            found, budget = summary(point.predictions), point.calibrated.budget.amount
            where = {"method": point.name, "budget": budget, "threshold": point.calibrated.method.threshold}
            rows.append(where | found | {"transfer": found["retrievals"] - budget})
        return pd.DataFrame(rows)


def frontier(
    lab: Lab,
    questions: Any,
    methods: Mapping[str, Method | str] | Sequence[Method | str],
    calibration: Any,
    *,
    budgets: Sequence[float] = BUDGETS,
    limit: int | None = None,
) -> Frontier:
    """Calibrate each method to each budget on ``calibration``, and answer ``questions`` with all of them.

    Methods share what they write through a cache, so that what two thresholds have in common is written once.
    Raises ``SettingError`` where no method reaches any budget, and as ``Lab.run``.
    """
    asked, held = as_benchmark(questions, limit), as_benchmark(calibration, limit)
    lab = lab if lab.cache is not None or lab.uncached else lab.replace(cache=True)
    made = [as_method(one, {}) for one in (methods.values() if isinstance(methods, Mapping) else methods)]
    names = list(methods) if isinstance(methods, Mapping) else [label(one) for one in made]
    found: list[tuple[str, Calibrated]] = []
    unreached = []
    for name, method in zip(names, made, strict=True):
        for amount in budgets:
            try:
                found.append((name, calibrate(lab, held, method, f"budget:{amount:g}")))
            except SettingError as error:
                unreached.append(f"{name}: {error}")
    if not found:
        raise SettingError("no budget can be reached: " + "; ".join(unreached))
    runs = [(one.method, None, "") for _, one in found]
    lines = run_together(lab, asked, runs)
    points = tuple(Point(name, one, part) for (name, one), part in zip(found, lines, strict=True))
    return Frontier(points, tuple(unreached))


@dataclass(frozen=True)
class Change:
    """What retrieving changed on the questions that a method retrieved for, against answering without."""

    helped: int  # wrong to right
    harmed: int  # right to wrong
    right: int  # right both times
    wrong: int  # wrong both times
    gain: Interval | None  # exact match with retrievals minus without, on these questions

    @property
    def asked(self) -> int:
        """Questions that it retrieved for."""
        return self.helped + self.harmed + self.right + self.wrong


def change(with_retrieval: Sequence[Line], without: Sequence[Line]) -> Change:
    """Benefit and harm of retrieving, from the prediction lines of the same questions answered with and without.

    Raises ``SettingError`` for lines of other questions.
    """
    alone = {line["qid"]: line for line in without}
    if missing := [line["qid"] for line in with_retrieval if line["qid"] not in alone]:
        raise SettingError(
            f"question {missing[0]!r} was not answered without retrieval; give runs of the same questions"
        )
    pairs = [
        (bool(line["em"]), bool(alone[line["qid"]]["em"]))
        for line in with_retrieval
        if line["retrievals"] and line["em"] is not None and alone[line["qid"]]["em"] is not None
    ]
    counts = {kind: pairs.count(kind) for kind in ((True, False), (False, True), (True, True), (False, False))}
    gain = bootstrap([float(after) - float(before) for after, before in pairs]) if pairs else None
    return Change(counts[True, False], counts[False, True], counts[True, True], counts[False, False], gain)
