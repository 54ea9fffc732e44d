"""RAUQ: probabilities, carried on by attention (arXiv 2505.20045; lm-polygraph 0.7.0, ``rauq.py``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dragin_lab.checks import number
from dragin_lab.core.draft import Draft
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger


def carry_confidence(p: np.ndarray, weight: np.ndarray, alpha: float) -> np.ndarray:
    """c_1 = p_1, c_t = α p_t + (1 - α) w_t c_(t-1), for probabilities (n,) and weights w_2 … w_n (n - 1,); (n,)."""
    confidence = p.copy()  # (n,)
    for t in range(1, len(p)):
        confidence[t] = alpha * p[t] + (1 - alpha) * weight[t - 1] * confidence[t - 1]
    return confidence


@TRIGGERS.add
@dataclass(frozen=True)
class Rauq(Trigger):
    """A sentence is improbable, and its tokens attend little to the one before (RAUQ).

    In each layer of the middle third, L // 3 to ceil(2 L / 3) of L, w_t is the weight of the head in which it is
    largest on average, and ``carry_confidence`` gives c_t. The score of token t is 1 - log c_t in the layer where the
    mean of these is highest, and that mean is the sentence's: U = max over layers of 1 - (1 / n) sum_t log c_t.

    The paper has w_t = a(t, t-1), what token t pays to token t - 1. The code of its authors and lm-polygraph read it in
    the pass that predicts token t, which is that of token t - 1: w_t is what token t - 1 pays to itself.
    ``attends_to="itself"``, the default, is the code's reading, "previous" what token t pays to token t - 1.

    α is 0.2; for instruction-tuned models the authors take 0.5. Rows are kept in half precision. The default θ gives
    about one retrieval a question on Almanac's development questions. It holds for no other model.
    """

    name, source = "rauq", "RAUQ (arXiv 2505.20045); lm-polygraph 0.7.0, rauq.py"
    unit, pool, cut = "sentence", "mean", "sentence"
    needs: ClassVar[tuple[str, ...]] = ("attention:middle-third",)
    threshold: float = setting(2.7, label="RAUQ score")
    alpha: float = setting(0.2, label="weight of a token's own probability", top=1.0)
    attends_to: str = setting("itself", choices=("itself", "previous"), label="whose attention weight is read")

    def __post_init__(self) -> None:
        super().__post_init__()
        number("alpha", self.alpha, 0.0, 1.0)

    def score(self, draft: Draft) -> np.ndarray:
        if not len(draft):
            return np.zeros(0)
        p = np.exp(draft.logprob)  # (n,)
        layers = draft.attention_of(*self.needs).values()  # (h, n, p + n) each
        confidences = [carry_confidence(p, self._weights(rows), self.alpha) for rows in layers]
        return max((1 - np.log(confidence) for confidence in confidences), key=np.mean)  # (n,)

    def _weights(self, rows: np.ndarray) -> np.ndarray:
        """w_2 … w_n (n - 1,) of the head in which they are largest, from a layer's rows (h, n, p + n)."""
        start = rows.shape[2] - rows.shape[1]  # the column of the first token
        if self.attends_to == "itself":
            weights = np.diagonal(rows, start, axis1=1, axis2=2)[:, :-1]  # (h, n - 1)
        else:
            weights = np.diagonal(rows, start - 1, axis1=1, axis2=2)[:, 1:]  # (h, n - 1)
        heads = weights.astype(np.float64)
        largest: np.ndarray = heads[heads.sum(axis=1).argmax()]
        return largest
