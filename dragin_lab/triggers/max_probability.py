"""How improbable a sentence is (lm-polygraph 0.7.0, ``max_probability.py``).

Of n tokens with probabilities p_t: U = -sum_t log p_t (maximum sequence probability), in nats.

The default θ gives about one retrieval a question on Almanac's development questions. It holds for no other model.
"""

from __future__ import annotations

import numpy as np

from dragin_lab.core.custom import when
from dragin_lab.trace.draft import Draft


@when(
    "max-probability",
    threshold=3.0,
    unit="sentence",
    pool="sum",
    source="maximum sequence probability; lm-polygraph 0.7.0, max_probability.py",
)
def max_probability(draft: Draft) -> np.ndarray:
    """A sentence is improbable as a whole: the sum of -log p of its tokens (nats)."""
    return -draft.logprob  # (n,)
