"""An attribution adds up: what the passages gave a token is what it gained by all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
from given import WORDS, some
from hypothesis import given
from hypothesis import strategies as st
from scripted import Parrot, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.study.leaving_out import shapley


class Reader(Parrot):
    """Is the surer of a word the more often its prompt holds it."""

    def measure(self, request: Write, ids: list[int]) -> dl.Draft:
        draft, read = super().measure(request, ids), request.prompt.text.split()
        often = np.array([read.count(piece.strip("▁")) for piece in draft.pieces])
        return replace(draft, logprob=-1 / (1 + often))


@some(12)
@given(st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_shapley_values_are_means_over_all_orders(k: int, seed: int) -> None:
    value = np.random.default_rng(seed).normal(size=(2**k, 3))
    mean, orders = np.zeros((k, 3)), list(permutations(range(k)))
    for order in orders:
        there = 0
        for i in order:
            mean[i] += (value[there | 1 << i] - value[there]) / len(orders)
            there |= 1 << i
    np.testing.assert_allclose(shapley(value), mean, atol=1e-12)


@some(5)
@given(
    st.sampled_from(["sr-rag", "fs-rag", "flare", "dragin"]),
    st.sampled_from(["paper", "reference"]),
    st.lists(
        st.lists(WORDS, min_size=1, max_size=5).map(" ".join), min_size=1, max_size=3, unique=True
    ),
)
def test_an_attribution_adds_up(name: str, variant: Any, passages: list[str]) -> None:
    lab = dl.Lab(
        Reader(" It is by Bo Ek. So the answer is Li."), retriever=ScriptedRetriever(*passages)
    )
    tokens = lab.attribute(lab.ask("Who made it?", name, variant=variant, top_k=3)).tokens
    if tokens.empty:
        return
    gained = np.log((tokens["p_with"] / tokens["p_without"]).astype(float))
    np.testing.assert_allclose(tokens.filter(regex="^passage ").sum(axis=1), gained, atol=1e-5)
