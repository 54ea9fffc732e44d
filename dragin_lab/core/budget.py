"""θ by what it costs: the threshold at which a method retrieves so often a question (TARG, arXiv
2511.09803).

It is found from the scores of texts that the method wrote without retrieving: every sentence whose
highest score is above θ counts as one retrieval, and so does every draft of a trigger that judges
drafts as a whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np

from dragin_lab.checks import number
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Trace

NEVER = 1e12  # a threshold that no score is above


class Threshold(float):
    """θ, as a number, and what it was found on."""

    reached: float  # retrievals a question at this θ, where they were counted
    questions: int  # that were counted


def peaks(trace: Trace) -> list[np.ndarray]:
    """What is compared with θ in each draft of a trace without retrievals: one number per
    sentence, or per draft.
    """
    compared = []
    for step in trace.steps:
        if step.draft is None or step.decision is None:
            continue
        score, judged = step.words.score.astype(np.float64), ~step.words.unjudged  # (w,), (w,)
        sentence = np.where(judged, step.words.sentence, -1)  # (w,)
        numbers = np.unique(sentence[sentence >= 0])  # (s,)
        # (u,)
        found = np.array(step.decision.peaks or [score[sentence == n].max() for n in numbers])
        compared.append(found[np.isfinite(found)])
    return compared


def find_threshold(retrievals: float, traces: Iterable[Trace], trigger: Trigger) -> Threshold:
    """The θ of a trigger at which it retrieves ``retrievals`` times a question, from traces that it
    wrote at ``NEVER``.

    Searches that the method makes whatever the scores are (FLARE's first) count too. Questions that
    failed are left out with a warning. Equal scores fire together, so that less than was asked for
    may be ``reached``.

    Raises ``SettingError`` for a number below 0, where every question failed, and for a number that
    no θ reaches, with the nearest one that is reached.
    """
    wanted, every = number("retrievals", retrievals), list(traces)
    sound = [trace for trace in every if trace.ended != "error"]
    if len(sound) < len(every):
        failed = next(trace for trace in every if trace.ended == "error")
        what = (
            f"{len(every) - len(sound)} of {len(every)} questions failed, the first with:"
            f" {failed.error}"
        )
        if not sound:
            raise SettingError(f"no threshold can be found: {what}")
        warnings.warn(f"{what}; the threshold is found on the others", stacklevel=3)
    count, always = len(sound), sum(trace.retrievals_count for trace in sound)
    # (u,)
    scores = np.concatenate([np.zeros(0), *(found for trace in sound for found in peaks(trace))])
    ranked, least = np.sort(scores)[::-1], trigger.declared()["threshold"].ge
    fired, most = round(wanted * count) - always, int((scores > least).sum())
    theta = _between(ranked, min(max(fired, 0), most), least)
    if not 0 <= fired <= most:
        nearest = (always + (0 if fired < 0 else most)) / count
        raise SettingError(
            f"{wanted:g} retrievals a question cannot be reached on these {count:,} questions; "
            f"the nearest is {nearest:.6g}, at threshold={theta:.6g}"
        )
    found = Threshold(theta)
    found.reached, found.questions = (always + int((scores > theta).sum())) / count, count
    return found


def _between(ranked: np.ndarray, fired: int, least: float) -> float:
    """The θ of fewest digits, ``least`` or more, that ``fired`` of the scores (u,) are above, from
    the highest down.

    Equal scores are never divided: then fewer are above it. Scores are stored in single precision,
    so θ is at least the next number after a score that must not fire. Then what that score was
    rounded from does not fire either. Where none shall fire, θ is up to a twentieth above the
    highest.
    """
    if not len(ranked):
        return max(least, 0.0)
    if fired and (fired == len(ranked) or ranked[fired] <= least):
        return (
            least
            if np.isfinite(least)
            else float(np.nextafter(np.float32(ranked[-1]), np.float32(-np.inf)))
        )
    low = max(float(np.nextafter(np.float32(ranked[fired]), np.float32(np.inf))), least)
    high = min(ranked[ranked > ranked[fired]], default=low + abs(low) / 20)
    rounded = (float(f"{(low + high) / 2:.{digits}g}") for digits in range(1, 18))
    return next((theta for theta in rounded if low <= theta < high), low)
