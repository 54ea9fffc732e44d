"""Thresholds by budget (``core.budget``), and exact match against cost for many methods at the same budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.catalog.methods import exchange_settings
from dragin_lab.checks import instance, number, several
from dragin_lab.core.budget import NEVER, Budget, Calibration
from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError
from dragin_lab.run.arguments import as_method
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.lab import Lab
from dragin_lab.run.lines import Line, interval_of, summary
from dragin_lab.run.sweeps import run_together
from dragin_lab.study.conditions import check_same_questions
from dragin_lab.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

BUDGETS = (0.5, 1.0, 1.5, 2.0)  # retrievals per question


def calibration(
    lab: Lab,
    questions: Any,
    method: Method | str,
    *,
    limit: int | None = None,
    batch_size: int = 1,
    **settings: Any,
) -> Calibration:
    """What a method's trigger scores on ``questions`` (as for ``Lab.run``), each answered once without a retrieval.

    Give it to ``dl.method(threshold="budget:1.5", calibration=…)``. How often the method would retrieve at a threshold
    is read off the scores: one retrieval for each sentence that fires, or for each draft of a method that judges
    drafts. Raises ``SettingError`` for a method without a threshold, and where no question could be answered.
    """
    instance("lab", lab, Lab, "give a dl.Lab")
    benchmark, own = as_benchmark(questions, limit), as_method(method, settings)
    if own.threshold is None:
        raise SettingError(f"method {own.name!r} with trigger {own.trigger.name!r} has no threshold to calibrate")
    lab = lab.replace(exemplars=lab.template(own, benchmark.template))
    traces = lab.ask_many(benchmark.questions, exchange_settings(own, threshold=NEVER), batch_size=batch_size)
    place = {question.id: i for i, question in enumerate(benchmark.questions)}
    return Calibration.of(sorted(traces, key=lambda trace: place[trace.question.id]), benchmark.name)


def calibrate(
    lab: Lab,
    questions: Any,
    method: Method | str,
    threshold: str,
    *,
    limit: int | None = None,
    **settings: Any,
) -> Method:
    """The method with the threshold that a budget asks for, found on ``questions``; ``.calibrated`` says how.

    Raises ``SettingError`` as ``calibration``, for a text that is no budget, and for a budget that no threshold
    reaches, naming the nearest that one does.
    """
    Budget.read(threshold)  # before any question is asked
    own = as_method(method, settings)
    scores = calibration(lab, questions, own, limit=limit)
    return exchange_settings(own, threshold=threshold, calibration=scores)


@dataclass(frozen=True)
class Transfer:
    """A budget, and what its calibrated threshold ``used`` on ``n`` other questions."""

    budget: Budget
    used: float  # retrievals per question, or the share of drafts that retrieved
    n: int

    @property
    def error(self) -> float:
        """How far use drifts from the budget."""
        return self.used - self.budget.amount


def transfer(method: Method, traces: Iterable[Trace]) -> Transfer:
    """How far use drifts from a budget on the questions of ``traces``, run with the calibrated method.

    Raises ``SettingError`` for a method that was not calibrated, and where no trace is left that did not fail.
    """
    if method.calibrated is None:
        raise SettingError(f"method {str(method)!r} has no budget; make it with threshold='budget:1.5'")
    budget = Budget.read(method.calibrated.budget)
    sound = [trace for trace in traces if trace.ended != "error"]
    if not sound:
        raise SettingError("there is no trace that did not fail; a transfer error needs at least one")
    if budget.kind == "budget":
        return Transfer(budget, float(np.mean([trace.retrievals_count for trace in sound])), len(sound))
    fired = [bool(s.decision.retrieve) for trace in sound for s in trace.steps if s.draft is not None and s.decision]
    return Transfer(budget, float(np.mean(fired)), len(sound))


# -- the frontier -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A method at one budget, with its prediction lines."""

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
            means = summary(point.predictions)
            settings = {"method": point.name, "budget": point.budget, "threshold": point.threshold}
            rows.append(settings | means | {"transfer": means["retrievals"] - point.budget})
        return pd.DataFrame(rows)

    def at(self, retrievals: float) -> pd.DataFrame:
        """Exact match, F1 and tokens at one number of retrievals per question: one row per method, with 95 % intervals.

        Interpolated by choosing one of the two neighbouring thresholds at random for each question. NaN where a
        method's points lie on one side.
        """
        import pandas as pd

        rows = []
        for name in dict.fromkeys(point.name for point in self.points):
            row: dict[str, Any] = {"method": name, "retrievals": retrievals}
            for measure in ("em", "f1", "tokens"):
                values = self.mixed(name, retrievals, measure)
                interval = None if values is None else interval_of(measure, values)
                for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high")):
                    row[measure + suffix] = getattr(interval, part, float("nan"))
            rows.append(row)
        return pd.DataFrame(rows)

    def mixed(self, name: str, retrievals: float, measure: str = "em") -> np.ndarray | None:
        """(m,) float64 what each question scores on average at that many retrievals; None outside the points.

        Questions that some method failed on are left out.
        """
        failed = {line["qid"] for point in self.points for line in point.predictions if line["ended"] == "error"}
        points = []
        for point in self.points:
            lines = [line for line in point.predictions if line["qid"] not in failed]
            if point.name == name:
                cost = float(np.mean([line["retrievals"] for line in lines]))
                points.append((cost, np.array([line[measure] for line in lines], np.float64)))
        for (low, a), (high, b) in pairwise(sorted(points, key=lambda point: point[0])):
            if low <= retrievals <= high:
                weight = (retrievals - low) / (high - low) if high > low else 0.0
                return (1 - weight) * a + weight * b
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
    benchmark, development = as_benchmark(questions, limit), as_benchmark(calibration_set, limit)
    lab = with_cache(lab)
    named = methods if isinstance(methods, Mapping) else None
    wanted = several(
        "methods", methods if named is None else named.values(), Method | str, "give methods or their names"
    )
    amounts = [number("each of budgets", amount) for amount in several("budgets", budgets, Real, "give numbers")]
    plain = [as_method(method, {}) for method in wanted]
    names = [method.label for method in plain] if named is None else list(named)
    reached: list[tuple[str, float, Method]] = []
    unreached = []
    for name, method in zip(names, plain, strict=True):
        scores = calibration(lab, development, method, batch_size=batch_size)
        for amount in amounts:
            try:
                reached.append(
                    (name, amount, exchange_settings(method, threshold=f"budget:{amount:g}", calibration=scores))
                )
            except SettingError as error:
                unreached.append(f"{name}: {error}")
    if not reached:
        raise SettingError("no budget can be reached: " + "; ".join(unreached))
    lines = run_together(lab, benchmark, [(method, None, "") for _, _, method in reached], batch_size=batch_size)
    points = (Point(name, amount, m.threshold, part) for (name, amount, m), part in zip(reached, lines, strict=True))
    return Frontier(tuple(points), tuple(unreached))


def with_cache(lab: Lab) -> Lab:
    """The lab with a cache in memory, unless it has a cache or was opened with ``cache=False``."""
    instance("lab", lab, Lab, "give a dl.Lab")
    return lab if lab.cache is not None or lab.uncached else lab.replace(cache=True)
