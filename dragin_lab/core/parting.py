"""Where two records of the same question part: what a batch, another machine or another precision changed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from dragin_lab.core.trace import Continuation, Trace


@dataclass(frozen=True)
class Parting:
    """The first difference between what two traces have generated.

    ``gap`` is how much likelier the likeliest piece was than the next one there, in nats, by the first trace; None
    where the drafts do not part by the choice of a piece (another prompt, another end, one draft more).
    """

    draft: int  # index in ``Trace.continuations``
    piece: int  # index in the draft's pieces
    gap: float | None
    what: str  # one line for people


def parting(a: Trace, b: Trace) -> Parting | None:
    """Where ``b`` generated something other than ``a``; None where every draft of both has the same pieces."""
    for i, (x, y) in enumerate(zip_longest(a.continuations, b.continuations)):
        if x is None or y is None:
            return Parting(i, 0, None, f"only one trace has a draft {i}")
        if x.prompt_ids.tolist() != y.prompt_ids.tolist():
            return Parting(i, 0, None, f"draft {i} has other prompts")
        if x.ids.tolist() != y.ids.tolist():
            return _within(i, x, y)
    return None


def _within(i: int, x: Continuation, y: Continuation) -> Parting:
    n = min(len(x), len(y))
    other = np.flatnonzero(x.ids[:n] != y.ids[:n])
    if not len(other):
        return Parting(i, n, None, f"draft {i} ends after {len(x)} pieces ({x.stopped}) and {len(y)} ({y.stopped})")
    t = int(other[0])
    likeliest = np.log(x.alternative_probs[t].astype(float))  # (k,) best first
    gap = float(likeliest[0] - likeliest[1]) if len(likeliest) > 1 else float("inf")
    return Parting(i, t, gap, f"draft {i}, piece {t}: {x.pieces[t]!r} or {y.pieces[t]!r}, {gap:.2g} nats apart")
