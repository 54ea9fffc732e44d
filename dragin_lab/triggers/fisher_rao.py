"""How near each token's distribution is to the uniform one (arXiv 2212.09171; lm-polygraph, ``fisher_rao.py``).

F(p) = 1 - (2 / π) arccos(sum_v √p(v) / √V), of p = softmax(l / 2) for raw logits l (V,): 1 where p is uniform.

lm-polygraph 0.7.0 averages (2 / π) arccos(…) over a text, the Fisher-Rao distance from the uniform distribution. It is
larger where the model is surer, though its docstring says the opposite, so 1 minus it is taken here.

The default θ gives about one retrieval a question on Almanac's development questions. It holds for no other model.
"""

from __future__ import annotations

import numpy as np

from dragin_lab.core.draft import Draft
from dragin_lab.core.trigger import when

_SOURCE = "RainProof (arXiv 2212.09171); lm-polygraph 0.7.0, fisher_rao.py"


@when("fisher-rao", threshold=0.38, needs=("fisher-rao@2",), source=_SOURCE)
def fisher_rao(draft: Draft) -> np.ndarray:
    """A token is drawn from a distribution near the uniform one: 1 - Fisher-Rao distance, at temperature 2."""
    return draft.measure("fisher-rao@2")  # (n,)
