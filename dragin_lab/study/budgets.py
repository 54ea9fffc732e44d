"""Thresholds by budget: so many retrievals a question, or such a share of drafts (TARG, arXiv 2511.09803).

A budget is written ``budget:1.5`` or ``share:0.3``. Its threshold is found on a calibration set, from the scores of
texts that the method writes there without retrieving.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragin_lab.core.method import Method, exchanged
from dragin_lab.core.trace import Trace
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.lab import Lab, as_method

_FORM = re.compile(r"(budget|share):(\d+(?:\.\d*)?|\.\d+)")
NEVER = 1e12  # a threshold that no score is above


@dataclass(frozen=True)
class Budget:
    """``amount`` retrievals per question ("budget"), or the ``amount`` of drafts that retrieve, 0 to 1 ("share")."""

    kind: str
    amount: float

    @staticmethod
    def read(text: str) -> Budget:
        """A budget from its written form. Raises ``SettingError`` for what is none."""
        found = _FORM.fullmatch(text.strip())
        if found is None or (found[1] == "share" and float(found[2]) > 1):
            raise SettingError(f"threshold={text!r} is not a budget; write budget:1.5, per question, or share:0.3")
        return Budget(found[1], float(found[2]))

    def __str__(self) -> str:
        return f"{self.kind}:{self.amount:g}"


@dataclass(frozen=True)
class Calibrated:
    """A method with the threshold that a budget asks for, and what it was found on.

    ``reached`` is what the threshold gives on the calibration set, by the stored scores.
    """

    method: Method
    budget: Budget
    reached: float
    benchmark: str
    questions: int
    fingerprint: str  # of the questions, their gold answers included (``Benchmark.fingerprint``)

    @property
    def record(self) -> dict[str, Any]:
        """The same as plain data, for a file beside a run."""
        told = {"method": str(self.method), "threshold": self.method.threshold, "budget": str(self.budget)}
        return told | {key: getattr(self, key) for key in ("reached", "benchmark", "questions", "fingerprint")}


def calibrate(
    lab: Lab, questions: Any, method: Method | str, threshold: str, *, limit: int | None = None, **settings: Any
) -> Calibrated:
    """The method with the threshold that a budget asks for, found on ``questions`` (as for ``Lab.run``).

    Each question is answered once without a retrieval; how often the method would have retrieved at a threshold is
    read off the scores: one retrieval for each sentence that fires, or for each draft of a method that judges drafts.

    Raises ``SettingError`` for a text that is no budget, a method without a threshold, and a budget that no threshold
    reaches, naming the nearest that one does.
    """
    budget, asked = Budget.read(threshold), as_benchmark(questions, limit)
    made = as_method(method, settings)
    if made.threshold is None:
        raise SettingError(f"method {made.name!r} with when={made.when.name!r} has no threshold to calibrate")
    quiet = exchanged(made, threshold=NEVER)
    traces = [trace for trace in lab.ask_many(asked.questions, quiet) if trace.ended != "error"]
    theta, reached = threshold_for(budget, [peaks(trace) for trace in traces])
    return Calibrated(
        exchanged(made, threshold=theta), budget, reached, asked.name, len(asked.questions), asked.fingerprint
    )


def peaks(trace: Trace) -> list[np.ndarray]:
    """What is held against θ in each draft of a trace without retrievals: one number per sentence, or per draft."""
    found = []
    for step in trace.steps:
        if step.draft is None or step.decision is None:
            continue
        words, score = step.words, step.words.score.astype(np.float64)  # (w,)
        by_sentence = [score[words.sentence == n].max() for n in np.unique(words.sentence) if n >= 0]
        held = np.array(step.decision.peaks or by_sentence)
        found.append(held[np.isfinite(held)])
    return found


def threshold_for(budget: Budget, drafts: Sequence[Sequence[np.ndarray]]) -> tuple[float, float]:
    """θ, and what it gives, from the peaks of each question's drafts.

    Raises ``SettingError`` where even θ = 0 gives less, naming what that gives; for questions without any draft too.
    """
    if not drafts:
        raise SettingError("no calibration question was answered; look at the traces' errors")
    if budget.kind == "share":
        values = np.array([part.max(initial=0.0) for question in drafts for part in question])
        whole = len(values)
    else:
        values = np.concatenate([np.zeros(0), *(part for question in drafts for part in question)])
        whole = len(drafts)
    most = float((values > 0).sum() / whole) if whole else 0.0
    if budget.amount > most:
        raise SettingError(f"{budget} cannot be reached; the nearest is {budget.kind}:{most:.3g}, at θ 0")
    ranked = np.sort(values[values > 0])[::-1]
    k = round(budget.amount * whole)
    if k >= len(ranked):
        return 0.0, most
    theta = float(ranked[k] if k == 0 or ranked[k] == ranked[k - 1] else (ranked[k - 1] + ranked[k]) / 2)
    return theta, float((values > theta).sum() / whole)


@dataclass(frozen=True)
class Transfer:
    """What a calibrated threshold gives on other questions: ``found`` as it is run there, and the difference."""

    calibrated: Calibrated
    found: float
    n: int

    @property
    def error(self) -> float:
        """How far it is from the budget, in retrievals per question or in share of drafts."""
        return self.found - self.calibrated.budget.amount


def transfer(calibrated: Calibrated, traces: Iterable[Trace]) -> Transfer:
    """How far a budget moved from its calibration set to the questions of ``traces``, run with its method.

    Raises ``SettingError`` where no trace is left that did not fail.
    """
    sound = [trace for trace in traces if trace.ended != "error"]
    if not sound:
        raise SettingError("there is no trace that did not fail; a transfer error needs at least one")
    if calibrated.budget.kind == "budget":
        return Transfer(calibrated, float(np.mean([trace.retrievals_count for trace in sound])), len(sound))
    fired = [bool(s.decision.retrieve) for trace in sound for s in trace.steps if s.draft is not None and s.decision]
    return Transfer(calibrated, float(np.mean(fired)), len(sound))
