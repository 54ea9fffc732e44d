"""How improbable a sentence is (lm-polygraph 0.7.0, ``max_probability.py`` and ``perplexity.py``).

Of n tokens with probabilities p_t: U = -sum_t log p_t (maximum sequence probability), and U / n, the logarithm of the
perplexity, both in nats.

The default θ give about one retrieval a question on Almanac's development questions. They hold for no other model.
"""

from __future__ import annotations

import numpy as np

from dragin_lab.core.draft import Draft
from dragin_lab.core.trigger import when


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


@when(
    "perplexity",
    threshold=0.27,
    unit="sentence",
    pool="mean",
    source="perplexity; lm-polygraph 0.7.0, perplexity.py",
)
def perplexity(draft: Draft) -> np.ndarray:
    """A sentence is improbable for its length: the mean of -log p of its tokens, log of the perplexity (nats)."""
    return -draft.logprob  # (n,)
