"""Thresholds by budget (``core.budget``), and exact match against cost for many methods at the same budgets."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from dragin_lab.catalog.methods import exchange_settings
from dragin_lab.checks import instance, number, several
from dragin_lab.core.budget import NEVER, Calibration
from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError
from dragin_lab.run.arguments import as_method
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.intervals import summary
from dragin_lab.run.lab import Lab
from dragin_lab.run.sweeps import run_together

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


def frontier(
    lab: Lab,
    questions: Any,
    methods: Sequence[Method | str],
    calibration_set: Any,
    *,
    budgets: Sequence[float] = BUDGETS,
    limit: int | None = None,
    batch_size: int = 1,
) -> pd.DataFrame:
    """Calibrate each method to each budget on ``calibration_set``, and answer ``questions`` with all of them.

    One row per method and budget: threshold, means with 95 % intervals, and ``transfer``, how far use drifts from the
    budget; ``attrs["unreached"]`` has what no threshold reaches. The calibration set is answered once per method, and
    what two thresholds have in common is written once, through a cache. Raises ``SettingError`` where no method
    reaches any budget, and as ``Lab.run``.
    """
    import pandas as pd

    asked, development = as_benchmark(questions, limit), as_benchmark(calibration_set, limit)
    instance("lab", lab, Lab, "give a dl.Lab")
    if lab.cache is None and not lab.uncached:
        lab = lab.replace(cache=True)
    wanted = several("methods", methods, Method | str, "give methods or their names")
    amounts = [number("each of budgets", amount) for amount in several("budgets", budgets, Real, "give numbers")]
    reached: list[tuple[float, Method]] = []
    unreached = []
    for method in (as_method(one, {}) for one in wanted):
        scores = calibration(lab, development, method, batch_size=batch_size)
        for amount in amounts:
            try:
                budget = {"threshold": f"budget:{amount:g}", "calibration": scores}
                reached.append((amount, exchange_settings(method, **budget)))
            except SettingError as error:
                unreached.append(f"{method.label}: {error}")
    if not reached:
        raise SettingError("no budget can be reached: " + "; ".join(unreached))
    lines = run_together(lab, asked, [(method, None, "") for _, method in reached], batch_size=batch_size)
    table = pd.DataFrame(
        {"method": method.label, "budget": amount, "threshold": method.threshold} | summary(part)
        for (amount, method), part in zip(reached, lines, strict=True)
    )
    table["transfer"] = table["retrievals"] - table["budget"]
    table.attrs["unreached"] = unreached
    return table
