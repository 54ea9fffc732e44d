"""How little a token's distribution prefers any token (arXiv 2502.18581; lm-polygraph 0.7.0, ``self_certainty.py``).

S(p) = (sum_v log p(v)) / V + log V, nats, of p = softmax(l) for raw logits l (V,). It is minus the divergence
KL(uniform || p): 0 where p is uniform and negative elsewhere, so θ is negative too. lm-polygraph averages it over a
text.

The default θ gives about one retrieval a question on Almanac's development questions. It holds for no other model.
"""

from __future__ import annotations

import numpy as np

from dragin_lab.core.draft import Draft
from dragin_lab.core.trigger import when

_SOURCE = "self-certainty (arXiv 2502.18581); lm-polygraph 0.7.0, self_certainty.py"


@when("self-certainty", threshold=-7.8, needs=("self-certainty",), source=_SOURCE)
def self_certainty(draft: Draft) -> np.ndarray:
    """A token is drawn from a distribution that prefers no token: the vocabulary's mean log p, plus log V (nats)."""
    return draft.measure("self-certainty")  # (n,)
