"""Plain triggers: one measured number by itself, and a bound.

The default thresholds of ``entropy`` and ``margin`` lie between those that give one budget of
retrievals on two models (docs/results/thresholds.md), that of ``max-probability`` gives about one
retrieval a question on Almanac's development questions; ``random`` is a round number. None holds
for another model, where ``lab.budget`` finds one.
"""

from __future__ import annotations

import hashlib

import numpy as np

from dragin_lab.core.when import when
from dragin_lab.errors import SettingError
from dragin_lab.trace.draft import Draft


@when("entropy", threshold=3.0, needs=("entropy",), source="DRAGIN Eq. 1, by itself")
def entropy(draft: Draft) -> np.ndarray:
    """A token is drawn from a distribution of high entropy (nats)."""
    return draft.entropy


@when("margin", threshold=0.95, source="TARG (arXiv 2511.09803), for each token")
def margin(draft: Draft, beta: float = 1.0) -> np.ndarray:
    """The second-likeliest token is nearly as likely as the likeliest: exp(-(l1 - l2) / β)."""
    if draft.alternative_probs.shape[1] < 2:
        raise SettingError(
            "the margin takes two alternatives; load the model with alternatives=2 or more"
        )
    first, second = draft.alternative_probs[:, :2].T  # (n,), (n,)
    return (second / first) ** (1 / beta)  # (n,), as l1 - l2 = log p1 - log p2


@when("random", threshold=0.9, source="a bound: what a rate of retrievals gives without looking")
def random(draft: Draft, seed: int = 0) -> np.ndarray:
    """Words drawn at random: θ = 0.9 fires at a tenth of them, the same ones whenever the text
    is the same.
    """
    before = f"{seed}\n{draft.question}\n{draft.answer_so_far}"
    texts = [before + draft.text[:start].rstrip() for start in draft.word_starts]
    shares = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64 for text in texts]
    return np.array(shares, float)[draft.word_of_token]


@when(
    "max-probability",
    threshold=3.0,
    unit="sentence",
    pool="sum",
    source="maximum sequence probability (lm-polygraph 0.7.0)",
)
def max_probability(draft: Draft) -> np.ndarray:
    """A sentence is improbable as a whole: the sum of -log p of its tokens (nats)."""
    return -draft.logprob  # (n,)
