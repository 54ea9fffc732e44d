"""Which entropies have to be exact, of a model that gives bounds of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.catalog.methods import method as make
from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import SoFar
from dragin_lab.core.stops import Certainty


@given(st.integers(0, 2**32), st.integers(1, 30), st.booleans())
def test_decisions_by_bounds_are_those_of_whole_distributions(seed: int, n: int, ended: bool) -> None:
    """RIND's, with entropies anywhere within their bounds, once those that are lacking are exact."""
    method, random = make("dragin"), np.random.default_rng(seed)
    low = random.exponential(1.0, n)
    high = low + random.exponential(0.2, n) * random.integers(0, 2, n)
    exact = random.uniform(low, high)
    text = " ".join(random.choice(["Riga", "of", "1964", "film"], n))
    ends = np.cumsum([len(word) + 1 for word in text.split()]) - 1
    offsets = [(int(end) - len(word), int(end)) for end, word in zip(ends, text.split(), strict=True)]
    so_far = SoFar(list(range(n)), text, offsets, exact.tolist(), [-1.0] * n, random.uniform(0, 0.6, n))
    lacking = Certainty(method.trigger, method.pipeline).lacking(so_far, low, high, ended=ended)
    known = random.uniform(low, high)
    known[lacking] = exact[lacking]
    verdicts = [
        method.trigger.judge(Draft(replace(so_far, entropy=entropy.tolist()), method.pipeline, ended=ended))
        for entropy in (exact, known)
    ]
    assert verdicts[0].hit.tolist() == verdicts[1].hit.tolist()


def test_rind_needs_only_the_entropies_whose_scores_lie_around_the_threshold() -> None:
    method = make("dragin", threshold=0.5)
    so_far = SoFar([0, 1, 2], "Riga Riga Riga", [(0, 4), (4, 9), (9, 14)], [0.0] * 3, [-1.0] * 3)
    so_far.received = np.array([0.5, 0.1, 0.0])
    low, high = np.array([0.9, 0.9, 0.9]), np.array([1.1, 1.1, 1.1])
    assert Certainty(method.trigger, method.pipeline).lacking(so_far, low, high, ended=True).tolist() == [0]
