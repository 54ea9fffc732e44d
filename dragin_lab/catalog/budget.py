"""Thresholds by budget: retrievals per question, or the share of drafts that retrieve (TARG, arXiv 2511.09803).

A budget is written ``budget:1.5`` or ``share:0.3``. Its threshold is found on a calibration set, from the scores of
texts that the method wrote there without retrieving. ``p:0.5`` asks for a probability instead: the score at which what
is judged lacks information that often, by labels (``catalog.need``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dragin_lab.catalog.need import Need
from dragin_lab.checks import convert_record, shown
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError
from dragin_lab.trace.records import Step, fingerprint
from dragin_lab.trace.trace import Trace

_FORM = re.compile(r"(budget|share|p):(\d+(?:\.\d*)?|\.\d+)")
NEVER = 1e12  # a threshold that no score is above


@dataclass(frozen=True)
class Budget:
    """``amount`` retrievals per question ("budget"), or the ``amount`` of drafts that retrieve, 0 to 1 ("share").

    Of kind "p" it is the probability, 0 to 1, from which on a retrieval is worth it.
    """

    kind: str
    amount: float

    @staticmethod
    def read(text: str) -> Budget:
        """A budget from its written form. Raises ``SettingError`` for any other text."""
        match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None or (match[1] != "budget" and float(match[2]) > 1):
            raise SettingError(
                f"threshold={shown(text)} is not a budget; write budget:1.5 (per question), share:0.3 or p:0.5"
            )
        return Budget(match[1], float(match[2]))

    def __str__(self) -> str:
        return f"{self.kind}:{self.amount:g}"


@dataclass(frozen=True)
class Calibrated:
    """Where a threshold is from: the budget, what it gives by the stored scores, and whose scores they are."""

    budget: str
    reached: float  # of a probability: the share of the labelled sentences or drafts that are above θ
    benchmark: str
    questions: int
    fingerprint: str  # of the questions, their gold answers included
    need: Need | None = None  # the probabilities that "p:0.5" was read off

    @property
    def record(self) -> dict[str, Any]:
        """The same as plain data, which ``read`` takes."""
        return {key: value for key, value in asdict(self).items() if value is not None}

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
    #: In the same order, where labels were given: 1 where a fact is missing, 0 where none is, NaN where nobody knows.
    missing: tuple[tuple[np.ndarray, ...], ...] | None = None
    regression: str = "isotonic"  # or "platt": how scores become probabilities

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

        Raises ``SettingError`` for a trigger that the scores are not of, and as ``threshold_for``; for a probability as
        ``labelled``, ``Need.fit`` and ``Need.score_at``.
        """
        settings = {"when": when.name, "variant": variant} | when.settings
        for key, value in settings.items():
            stored = self.method.get(key)
            if key != "threshold" and json.dumps(value) != json.dumps(stored):
                raise SettingError(
                    f"the calibration's scores are of {key}={stored!r}, the method has {key}={value!r}; calibrate it"
                )
        need = None
        if budget.kind == "p":
            scores, missing, _ = self.labelled()
            need = Need.fit(scores, missing, self.regression)
            theta = need.score_at(budget.amount)
            reached = float((scores > theta).mean())
        else:
            theta, reached = threshold_for(budget, self.drafts, when.declared()["threshold"].ge)
        return theta, Calibrated(str(budget), reached, self.benchmark, len(self.drafts), self.fingerprint, need)

    def labelled(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What labels know of: scores (m,), whether a fact is missing (m,) bool, and the number of the question (m,).

        Raises ``SettingError`` where no labels were given.
        """
        if self.missing is None:
            raise SettingError(
                "a probability is fitted on labelled drafts; give calibration=dl.calibration(lab, questions, method, "
                "labels=almanac.labels(…))"
            )
        rows = [
            (number, *row)
            for number, (drafts, labels) in enumerate(zip(self.drafts, self.missing, strict=True))
            for draft, label in zip(drafts, labels, strict=True)
            for row in zip(draft, label, strict=True)
        ]
        questions, scores, missing = np.array(rows, np.float64).reshape(-1, 3).T  # (m,) each
        known = ~np.isnan(missing)  # (m,)
        return scores[known], missing[known] > 0, questions[known].astype(int)


def peaks(trace: Trace) -> list[np.ndarray]:
    """What is compared with θ in each draft of a trace without retrievals: one number per sentence, or per draft."""
    return [judged_units(step)[0] for step in trace.steps if step.draft is not None and step.decision is not None]


def judged_units(step: Step) -> tuple[np.ndarray, np.ndarray]:
    """What is compared with θ in a draft: (u,) float64, and (u,) the number of the sentence; -1 for the whole draft."""
    assert step.decision is not None
    words, score = step.words, step.words.score.astype(np.float64)  # (w,)
    numbers = np.unique(words.sentence[words.sentence >= 0])  # (s,)
    compared = np.array(step.decision.peaks or [score[words.sentence == n].max() for n in numbers])  # (u,)
    sentences = numbers if len(compared) == len(numbers) else np.full(len(compared), -1)  # (u,)
    finite = np.isfinite(compared)  # (u,)
    return compared[finite], sentences[finite]


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
