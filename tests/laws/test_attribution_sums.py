"""An attribution adds up: what the passages gave a token is what it gained by all of them; of equal
passages each has the same share, what is used was in view, and a file says the same.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from given import WORDS, some
from hypothesis import given
from hypothesis import strategies as st
from scripted import Parrot, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.study.attribution import passage_at
from dragin_lab.study.leaving_out import shapley
from dragin_lab.views.attribution import attribution_page


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
    st.lists(st.lists(WORDS, min_size=1, max_size=5).map(" ".join), min_size=1, max_size=3),
)
def test_an_attribution_adds_up(name: str, variant: Any, passages: list[str]) -> None:
    lab = dl.Lab(
        Reader(" It is by Bo Ek. So the answer is Li."), retriever=ScriptedRetriever(*passages)
    )
    trace = lab.ask("Who made it?", name, variant=variant, top_k=3)
    attribution = lab.attribute(trace, gold=passages[:1])
    tokens = attribution.tokens
    if tokens.empty:
        return
    gained = np.log((tokens["p_with"] / tokens["p_without"]).astype(float))
    np.testing.assert_allclose(tokens.filter(regex="^passage ").sum(axis=1), gained, atol=1e-5)
    for text in attribution.record.texts:
        contents = [passage_at(trace, place).text for place in text.passages]
        for i, content in enumerate(contents):
            same = contents.index(content)
            np.testing.assert_array_equal(text.nats[:, i], text.nats[:, same])
    seen = attribution.passages[attribution.passages["in view"]]
    in_view = set(zip(seen["retrieval"], seen["number"], strict=True))
    used = attribution.words[attribution.words["use"]]
    assert set(zip(used["retrieval"], used["passage"], strict=True)) <= in_view
    assert set(attribution.retrievals.query("used")["step"]) == set(used["retrieval"])
    with TemporaryDirectory() as folder:
        loaded = dl.Attribution(dl.Trace.load(trace.save(Path(folder) / "a.trace")))
    for table in ("tokens", "words", "passages", "retrievals"):
        assert getattr(loaded, table).equals(getattr(attribution, table)), table
    assert attribution_page(loaded).text == attribution_page(attribution).text
