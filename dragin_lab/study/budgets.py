"""Thresholds by budget (``core.budget``), and exact match against cost for many methods at the same budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from dragin_lab.catalog.methods import exchange_settings
from dragin_lab.checks import instance, number, several
from dragin_lab.core.budget import NEVER, Budget, Calibration
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


def frontier(
    lab: Lab,
    questions: Any,
    methods: Mapping[str, Method | str] | Sequence[Method | str],
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

    benchmark, development = as_benchmark(questions, limit), as_benchmark(calibration_set, limit)
    instance("lab", lab, Lab, "give a dl.Lab")
    if lab.cache is None and not lab.uncached:
        lab = lab.replace(cache=True)
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
    rows = []
    for (name, amount, method), part in zip(reached, lines, strict=True):
        means = summary(part)
        settings = {"method": name, "budget": amount, "threshold": method.threshold}
        rows.append(settings | means | {"transfer": means["retrievals"] - amount})
    table = pd.DataFrame(rows)
    table.attrs["unreached"] = unreached
    return table
