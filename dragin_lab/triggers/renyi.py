"""Rényi's entropy of the distribution that each token is drawn from (arXiv 2212.09171; lm-polygraph, ``renyi_neg.py``).

R_a(p) = log(sum_v p(v)^a) / (1 - a), nats, of p = softmax(l / T) for raw logits l (V,): from 0 to log V.

lm-polygraph 0.7.0 averages -R_a(p) - log V over a text, at a = 0.5 and T = 2. That is larger where the model is surer,
though its docstring says the opposite, so the entropy itself is taken here. The divergence from the uniform
distribution that it names is log V - R_a(p); with the other sign of log V, every score of a vocabulary is moved alike.

The default θ give about one retrieval a question on Almanac's development questions. They hold for no other model.
"""

from __future__ import annotations

import numpy as np

from dragin_lab.core.draft import Draft
from dragin_lab.core.trigger import when

_SOURCE = "RainProof (arXiv 2212.09171); lm-polygraph 0.7.0, renyi_neg.py"


@when("renyi", threshold=6.15, needs=("renyi:0.5@2",), source=_SOURCE)
def renyi(draft: Draft) -> np.ndarray:
    """A token is drawn from a distribution of high Rényi entropy, order 0.5 at temperature 2 (nats)."""
    return draft.measure("renyi:0.5@2")  # (n,)


@when("renyi-2", threshold=1.65, needs=("renyi:2",), source="collision entropy (Rényi 1961)")
def renyi_2(draft: Draft) -> np.ndarray:
    """A token is drawn from a distribution of high collision entropy: -log of the sum of p² (nats)."""
    return draft.measure("renyi:2")  # (n,)
