"""A linear probe on hidden states (Probing-RAG, arXiv 2410.13339, for each token)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from dragin_lab.checks import several
from dragin_lab.core.draft import Draft
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.errors import SettingError


@TRIGGERS.add
@dataclass(frozen=True)
class Probe(Trigger):
    """A linear probe w · h + b on the hidden state that each token is drawn from is above θ."""

    name, source, needs = "probe", "Probing-RAG (arXiv 2410.13339), linear, for each token", ("hidden",)
    threshold: float = setting(0.0, label="probe")
    weights: tuple[float, ...] = ()  # (d,)
    bias: float = setting(0.0, ge=-np.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = several("weights", self.weights, Real, "give one number per component of the hidden state")
        object.__setattr__(self, "weights", tuple(map(float, weights)))

    def score(self, draft: Draft) -> np.ndarray:
        if not len(draft):
            return np.zeros(0)
        w, d = len(self.weights), draft.hidden.shape[1]
        if w != d:
            raise SettingError(f"the probe has {w} weights, and a hidden state of this model {d} numbers")
        return draft.hidden.astype(np.float64) @ np.array(self.weights) + self.bias
