"""ETC: retrieval where the trend of entropy turns, by the paper (arXiv 2511.09980)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragin_lab.core.formulators import FORMULATORS, Qfs
from dragin_lab.core.scores import pool_words
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.trace.draft import Draft, contain_any


def compute_trends(entropy: np.ndarray) -> np.ndarray:
    """M_k of content words with entropies (w,), nats, as the paper has it; (w,) float64, 0 for the
    first two.

    x_k = H_k - 2 H_{k-1} + H_{k-2}; E_k = mean(x_1 … x_k); w_k = |x_{k-1} - E_k| / (|x_k - E_k| +
    |x_{k-1} - E_k|); M_k = w_k x_k + (1 - w_k) x_{k-1}. The first has no x before it, so M_1 = x_1;
    where x_k = x_{k-1} = E_k, M_k = x_k.
    """
    trend = np.zeros(len(entropy))  # (w,)
    second = np.diff(entropy, 2)  # (w - 2,)
    for k, x in enumerate(second):
        before = second[max(k - 1, 0)]
        mean = second[: k + 1].mean()
        apart = abs(before - mean)
        spread = abs(x - mean) + apart
        weight = apart / spread if spread > 0 else 1.0
        trend[k + 2] = weight * x + (1 - weight) * before
    return trend


@TRIGGERS.add
@dataclass(frozen=True)
class EntropyTrend(Trigger):
    """The second difference of the content words' entropies turns (ETC)."""

    name = "entropy-trend"
    source = "ETC §3 (arXiv 2511.09980)"
    needs = ("entropy",)
    # as released; the paper's own are on its formula
    threshold: float = setting(1.3, label="entropy trend")

    def score(self, draft: Draft) -> np.ndarray:
        content = contain_any(draft.words, draft.pipeline.content_words(draft.text))  # (w,)
        entropy = pool_words(draft.entropy, draft.word_list, "max")  # (w,)
        trend = np.zeros(len(entropy))  # (w,)
        trend[content] = np.abs(compute_trends(entropy[content]))
        return trend[draft.word_of_token]

    def measure_words(self, draft: Draft, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # the equations do not look at attention
        return np.full(len(highest), np.nan), draft.entropy[highest]


@FORMULATORS.add
@dataclass(frozen=True)
class EtcQfs(Qfs):
    """QFS with ETC's number of words."""

    name = "qfs-etc"
    source = "ETC (arXiv 2511.09980)"
    top_n: int = setting(35, label="words in the query", unit="words")
