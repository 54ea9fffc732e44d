"""Which entropies have to be exact, of a model that gives bounds of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.catalog.methods import method as make
from dragin_lab.core.stops import Certainty
from dragin_lab.trace.draft import Draft


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
    so_far = Draft(
        np.arange(n),
        text,
        np.array(offsets),
        entropy=exact,
        logprob=np.full(n, -1.0),
        received=random.uniform(0, 0.6, n),
    )
    lacking = Certainty(method.trigger, method.pipeline).lacking(so_far, low, high, ended=ended)
    known = random.uniform(low, high)
    known[lacking] = exact[lacking]
    verdicts = [
        method.trigger.judge(replace(so_far, entropy=entropy).read_by(method.pipeline, ended=ended))
        for entropy in (exact, known)
    ]
    assert verdicts[0].hit.tolist() == verdicts[1].hit.tolist()


def test_rind_needs_only_the_entropies_whose_scores_lie_around_the_threshold() -> None:
    method = make("dragin", threshold=0.5)
    so_far = Draft(
        np.arange(3), "Riga Riga Riga", np.array([(0, 4), (4, 9), (9, 14)]), entropy=np.zeros(3), logprob=-np.ones(3)
    )
    so_far.received = np.array([0.5, 0.1, 0.0])
    low, high = np.array([0.9, 0.9, 0.9]), np.array([1.1, 1.1, 1.1])
    assert Certainty(method.trigger, method.pipeline).lacking(so_far, low, high, ended=True).tolist() == [0]
