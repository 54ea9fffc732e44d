"""Thresholds by budget (``catalog.budget``), asked for: a calibration set is answered once, and serves every budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragin_lab.catalog.budget import NEVER, Budget, Calibration
from dragin_lab.checks import instance
from dragin_lab.core.method import Method, exchanged
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.lab import Lab, as_method
from dragin_lab.trace.trace import Trace


def calibration(
    lab: Lab, questions: Any, method: Method | str, *, limit: int | None = None, batch_size: int = 1, **settings: Any
) -> Calibration:
    """What a method's trigger scores on ``questions`` (as for ``Lab.run``), each answered once without a retrieval.

    Give it to ``dl.method(threshold="budget:1.5", calibration=…)``. How often the method would retrieve at a threshold
    is read off the scores: one retrieval for each sentence that fires, or for each draft of a method that judges
    drafts. Raises ``SettingError`` for a method without a threshold, and where no question could be answered.
    """
    instance("lab", lab, Lab, "give a dl.Lab")
    asked, made = as_benchmark(questions, limit), as_method(method, settings)
    if made.threshold is None:
        raise SettingError(f"method {made.name!r} with when={made.trigger.name!r} has no threshold to calibrate")
    lab = lab.replace(exemplars=lab.template(made, asked.template))
    traces = list(lab.ask_many(asked.questions, exchanged(made, threshold=NEVER), batch_size=batch_size))
    place = {question.id: i for i, question in enumerate(asked.questions)}
    return Calibration.of(sorted(traces, key=lambda trace: place[trace.question.id]), asked.name)


def calibrate(
    lab: Lab, questions: Any, method: Method | str, threshold: str, *, limit: int | None = None, **settings: Any
) -> Method:
    """The method with the threshold that a budget asks for, found on ``questions``; ``.calibrated`` says how.

    Raises ``SettingError`` as ``calibration``, for a text that is no budget, and for a budget that no threshold
    reaches, naming the nearest that one does.
    """
    Budget.read(threshold)  # before any question is asked
    made = as_method(method, settings)
    return exchanged(made, threshold=threshold, calibration=calibration(lab, questions, made, limit=limit))


@dataclass(frozen=True)
class Transfer:
    """What a calibrated threshold gives on other questions: ``found`` as it is run there, and the difference."""

    budget: Budget
    found: float
    n: int

    @property
    def error(self) -> float:
        """How far it is from the budget, in retrievals per question or in share of drafts."""
        return self.found - self.budget.amount


def transfer(method: Method, traces: Iterable[Trace]) -> Transfer:
    """How far a budget moved from its calibration set to the questions of ``traces``, run with its method.

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
