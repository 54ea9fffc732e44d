"""Thresholds by budget: retrievals per question, or the share of drafts that retrieve (TARG, arXiv 2511.09803).

A budget is written ``budget:1.5`` or ``share:0.3``. Its threshold is found on a calibration set, from the scores of
texts that the method wrote there without retrieving.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dragin_lab.checks import convert_record, shown
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError
from dragin_lab.trace.records import Step, fingerprint
from dragin_lab.trace.trace import Trace

_FORM = re.compile(r"(budget|share):(\d+(?:\.\d*)?|\.\d+)")
NEVER = 1e12  # a threshold that no score is above


@dataclass(frozen=True)
class Budget:
    """``amount`` retrievals per question ("budget"), or the ``amount`` of drafts that retrieve, 0 to 1 ("share")."""

    kind: str
    amount: float

    @staticmethod
    def read(text: str) -> Budget:
        """A budget from its written form. Raises ``SettingError`` for any other text."""
        match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None or (match[1] != "budget" and float(match[2]) > 1):
            raise SettingError(f"threshold={shown(text)} is not a budget; write budget:1.5 (per question) or share:0.3")
        return Budget(match[1], float(match[2]))

    def __str__(self) -> str:
        return f"{self.kind}:{self.amount:g}"


@dataclass(frozen=True)
class Calibrated:
    """Where a threshold is from: the budget, what it gives by the stored scores, and whose scores they are."""

    budget: str
    reached: float
    benchmark: str
    questions: int
    fingerprint: str  # of the questions, their gold answers included

    @property
    def record(self) -> dict[str, Any]:
        """The same as plain data, which ``read`` takes."""
        return asdict(self)

    @staticmethod
    def read(record: Any) -> Calibrated:
        """From plain data. Raises ``SettingError`` for data that is not a ``record``."""
        return convert_record("calibrated", record, Calibrated, SettingError)


@dataclass(frozen=True, eq=False)
class Calibration:
    """What is compared with θ in texts that a method wrote on a calibration set without retrieving."""

    benchmark: str
    fingerprint: str
    method: dict[str, Any]  # its settings, as a trace records them
    drafts: tuple[tuple[np.ndarray, ...], ...]  # question -> draft -> one number per sentence, or for the whole draft

    @staticmethod
    def of(traces: Iterable[Trace], benchmark: str = "") -> Calibration:
        """The scores stored in traces of one method, without a retrieval in them.

        Raises ``SettingError`` where every trace failed, one holds a retrieval, or two are of different methods.
        """
        sound = [trace for trace in traces if trace.ended != "error"]
        if not sound:
            raise SettingError("no calibration question was answered; look at the traces' errors")
        method = sound[0].method
        for trace in sound:
            where = f"the calibration trace of {trace.question.text[:60]!r}"
            if trace.retrievals_count:
                raise SettingError(
                    f"{where} holds {trace.retrievals_count} retrievals, and scores are counted in texts without any; "
                    f"ask again with threshold={NEVER:g}"
                )
            if trace.method != method:
                raise SettingError(f"{where} is of another method than the first one; give traces of one method")
        asked = fingerprint(trace.question for trace in sound)
        return Calibration(benchmark, asked, method, tuple(tuple(peaks(trace)) for trace in sound))

    def threshold(self, when: Trigger, variant: str, budget: Budget) -> tuple[float, Calibrated]:
        """θ of a trigger for a budget, and where it is from.

        Raises ``SettingError`` for a trigger that the scores are not of, and as ``threshold_for``.
        """
        settings = {"when": when.name, "variant": variant} | when.settings
        for key, value in settings.items():
            stored = self.method.get(key)
            if key != "threshold" and json.dumps(value) != json.dumps(stored):
                raise SettingError(
                    f"the calibration's scores are of {key}={stored!r}, the method has {key}={value!r}; calibrate it"
                )
        theta, reached = threshold_for(budget, self.drafts, when.declared()["threshold"].ge)
        return theta, Calibrated(str(budget), reached, self.benchmark, len(self.drafts), self.fingerprint)


def peaks(trace: Trace) -> list[np.ndarray]:
    """What is compared with θ in each draft of a trace without retrievals: one number per sentence, or per draft."""
    return [_peaks_of(step) for step in trace.steps if step.draft is not None and step.decision is not None]


def _peaks_of(step: Step) -> np.ndarray:
    assert step.decision is not None
    words, score = step.words, step.words.score.astype(np.float64)  # (w,)
    numbers = np.unique(words.sentence[words.sentence >= 0])  # (s,)
    compared = np.array(step.decision.peaks or [score[words.sentence == n].max() for n in numbers])  # (u,)
    return compared[np.isfinite(compared)]


def threshold_for(budget: Budget, drafts: Sequence[Sequence[np.ndarray]], least: float = 0.0) -> tuple[float, float]:
    """θ, and what it gives, from the peaks of each question's drafts.

    ``least`` is the lowest θ that the trigger takes, -inf where its scores may be below 0: what every score is above is
    then just below the lowest of them. Raises ``SettingError`` where even that θ gives less, naming what it gives.
    """
    if budget.kind == "share":
        values = np.array([part.max(initial=-np.inf) for question in drafts for part in question])
        whole = len(values)
    else:
        values = np.concatenate([np.zeros(0), *(part for question in drafts for part in question)])
        whole = len(drafts)
    ranked = np.sort(values[values > least])[::-1]
    # Peaks are stored in single precision, so the next number below the lowest is below what it was rounded from.
    lowest = np.nextafter(np.float32(ranked[-1]), np.float32(-np.inf)) if len(ranked) else 0.0
    bottom = least if np.isfinite(least) else float(lowest)
    most = len(ranked) / whole if whole else 0.0
    if budget.amount > most:
        raise SettingError(f"{budget} cannot be reached; the nearest is {budget.kind}:{most:.3g}, at θ {bottom:g}")
    k = round(budget.amount * whole)
    if k >= len(ranked):
        return bottom, most
    theta = float(ranked[k] if k == 0 or ranked[k] == ranked[k - 1] else (ranked[k - 1] + ranked[k]) / 2)
    return theta, float((values > theta).sum() / whole)
