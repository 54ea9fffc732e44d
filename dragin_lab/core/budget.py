"""θ by what it costs: a threshold that says how often a question retrieves (TARG, arXiv
2511.09803), and the scores of a trace that are compared with one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dragin_lab.trace.trace import Trace

NEVER = 1e12  # a threshold that no score is above


class Threshold(float):
    """θ, as a number, and what it costs and gives."""

    reached: float  # retrievals a question
    questions: int  # that this is known of
    #: Rows "these questions" and "held out" (pandas.DataFrame): retrievals, exact match, F1,
    #: tokens, with 95 % intervals.
    table: Any


def list_peaks(trace: Trace) -> list[np.ndarray]:
    """What is compared with θ in each draft of a trace: one number per sentence, or per draft."""
    compared = []
    for step in trace.steps:
        if step.draft is None or step.decision is None:
            continue
        score = step.words.score.astype(np.float64)  # (w,)
        judged = ~step.words.unjudged  # (w,)
        sentence = np.where(judged, step.words.sentence, -1)  # (w,)
        numbers = np.unique(sentence[sentence >= 0])  # (s,)
        # (u,)
        scores = np.array(step.decision.peaks or [score[sentence == n].max() for n in numbers])
        compared.append(scores[np.isfinite(scores)])
    return compared


def shortest_between(start: float, stop: float) -> float:
    """The number of fewest digits above ``start`` and below ``stop``; an infinite stop is a
    twentieth above. Where there is none it is the start.
    """
    high = stop if np.isfinite(stop) else start + max(abs(start) / 20, 1e-6)
    for digits in range(1, 18):
        theta = float(f"{(start + high) / 2:.{digits}g}")
        if start < theta < high:
            return theta
    return start
