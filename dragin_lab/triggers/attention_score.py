"""How little a sentence's tokens attend to themselves (LLM-Check, NeurIPS 2024; lm-polygraph, ``attention_score.py``).

U = -(1 / h) sum over heads and tokens of log(a(t, t) + 1e-12), where a(t, t) is what token t pays to itself in layer
L // 2 of L, of all that it pays to prompt and text.

lm-polygraph 0.7.0 sums over the prompt too, unless ``gen_only`` is set. Its slice then ends one token early and leaves
out the last generated token, which is the end mark where the model ended its text. Here every token of the sentence
counts. Rows are kept in half precision, so weights below 6e-8 are 0 and count as 1e-12.

The default θ gives about one retrieval a question on Almanac's development questions. It holds for no other model.
"""

from __future__ import annotations

import numpy as np

from dragin_lab.core.draft import Draft
from dragin_lab.core.trigger import when

_NEEDS = ("attention:middle",)
_SOURCE = "LLM-Check (NeurIPS 2024); lm-polygraph 0.7.0, attention_score.py"


@when("attention-score", threshold=60.0, unit="sentence", pool="sum", needs=_NEEDS, source=_SOURCE)
def attention_score(draft: Draft) -> np.ndarray:
    """A sentence's tokens attend little to themselves: the sum of -log a(t, t), mean of the middle layer's heads."""
    (rows,) = draft.attention_of(*_NEEDS).values()  # (h, n, p + n)
    own = np.diagonal(rows, rows.shape[2] - len(draft), axis1=1, axis2=2)  # (h, n)
    return -np.log(own.astype(np.float64) + 1e-12).mean(axis=0)  # (n,)
