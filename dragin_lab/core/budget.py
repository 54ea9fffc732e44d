"""Thresholds by budget: retrievals per question, or the share of drafts that retrieve (TARG, arXiv 2511.09803).

A budget is written ``budget:1.5`` or ``share:0.3``. Its threshold is found on a calibration set, from the scores of
texts that the method wrote there without retrieving.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragin_lab.checks import shown
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError
from dragin_lab.trace.records import fingerprint
from dragin_lab.trace.trace import Trace

_FORM = re.compile(r"(budget|share):(\d+(?:\.\d*)?|\.\d+)")
NEVER = 1e12  # a threshold that no score is above


def read_budget(text: str) -> tuple[str, float]:
    """The kind of a budget, "budget" or "share", and how much it is. Raises ``SettingError`` for any other text."""
    match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or (match[1] != "budget" and float(match[2]) > 1):
        raise SettingError(f"threshold={shown(text)} is not a budget; write budget:1.5 (per question) or share:0.3")
    return match[1], float(match[2])


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

    def threshold(self, when: Trigger, variant: str, budget: str) -> tuple[float, dict[str, Any]]:
        """θ of a trigger for a budget, and as plain data where it is from.

        Raises ``SettingError`` for a trigger that the scores are not of, and as ``threshold_for``.
        """
        settings = {"when": when.name, "variant": variant} | when.settings
        for key, value in settings.items():
            stored = self.method.get(key)
            if key != "threshold" and json.dumps(value) != json.dumps(stored):
                raise SettingError(
                    f"the calibration's scores are of {key}={stored!r}, the method has {key}={value!r}; calibrate it"
                )
        budget = "{}:{:g}".format(*read_budget(budget))  # in one spelling
        theta, reached = threshold_for(budget, self.drafts, when.declared()["threshold"].ge)
        found = {"budget": budget, "reached": reached, "benchmark": self.benchmark, "questions": len(self.drafts)}
        return theta, found | {"fingerprint": self.fingerprint}  # of the questions, their gold answers included


def peaks(trace: Trace) -> list[np.ndarray]:
    """What is compared with θ in each draft of a trace without retrievals: one number per sentence, or per draft."""
    compared = []
    for step in trace.steps:
        if step.draft is None or step.decision is None:
            continue
        words, score = step.words, step.words.score.astype(np.float64)  # (w,)
        numbers = np.unique(words.sentence[words.sentence >= 0])  # (s,)
        found = np.array(step.decision.peaks or [score[words.sentence == n].max() for n in numbers])  # (u,)
        compared.append(found[np.isfinite(found)])
    return compared


def threshold_for(budget: str, drafts: Sequence[Sequence[np.ndarray]], least: float = 0.0) -> tuple[float, float]:
    """θ, and what it gives, from the peaks of each question's drafts.

    A "budget" is retrievals per question, a "share" the part of the drafts that retrieve. ``least`` is the lowest θ
    that the trigger takes, -inf where its scores may be below 0: what every score is above is then just below the
    lowest of them. Raises ``SettingError`` where even that θ gives less, naming what it gives.
    """
    kind, amount = read_budget(budget)
    parts = [part for question in drafts for part in question]
    if kind == "share":
        values, whole = np.array([part.max(initial=-np.inf) for part in parts]), len(parts)
    else:
        values, whole = np.concatenate([np.zeros(0), *parts]), len(drafts)
    ranked = np.sort(values[values > least])[::-1]
    # Peaks are stored in single precision, so the next number below the lowest is below what it was rounded from.
    lowest = np.nextafter(np.float32(ranked[-1]), np.float32(-np.inf)) if len(ranked) else 0.0
    bottom = least if np.isfinite(least) else float(lowest)
    most = len(ranked) / whole if whole else 0.0
    if amount > most:
        raise SettingError(f"{budget} cannot be reached; the nearest is {kind}:{most:.3g}, at θ {bottom:g}")
    k = round(amount * whole)
    if k >= len(ranked):
        return bottom, most
    theta = float(ranked[k] if k == 0 or ranked[k] == ranked[k - 1] else (ranked[k - 1] + ranked[k]) / 2)
    return theta, float((values > theta).sum() / whole)
