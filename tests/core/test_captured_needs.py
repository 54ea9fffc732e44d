"""What triggers may need beside probabilities: how it is written, and measures against loops over their formulas."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest
import torch
from factories import make_continuation, make_prompt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dragin_lab as dl
from dragin_lab.core.draft import Draft
from dragin_lab.core.needs import layers_in, measure_rows, measures_in, resolve_layers
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError

MEASURES = ("renyi:2", "renyi:0.5", "renyi:2@1.5", "fisher-rao", "fisher-rao@0.5", "self-certainty")
LAYERS = ("attention:8", "attention:-1", "attention:middle", "attention:middle-third")
rows = arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(2, 9)), elements=st.floats(-30, 30, width=32))


def softmax(logits: list[float], temperature: float = 1.0) -> list[float]:
    weights = [math.exp((x - max(logits)) / temperature) for x in logits]
    return [weight / sum(weights) for weight in weights]


def renyi(p: list[float], order: float) -> float:
    return math.log(sum(one**order for one in p)) / (1 - order)


def fisher_rao(p: list[float]) -> float:
    return 1 - 2 / math.pi * math.acos(min(1.0, sum(math.sqrt(one) for one in p) / math.sqrt(len(p))))


def self_certainty(p: list[float]) -> float:
    return sum(math.log(one) for one in p) / len(p) + math.log(len(p))


FORMULAS = {
    "renyi:2": lambda x: renyi(softmax(x), 2),
    "renyi:0.5": lambda x: renyi(softmax(x), 0.5),
    "renyi:2@1.5": lambda x: renyi(softmax(x, 1.5), 2),
    "fisher-rao": lambda x: fisher_rao(softmax(x)),
    "fisher-rao@0.5": lambda x: fisher_rao(softmax(x, 0.5)),
    "self-certainty": lambda x: self_certainty(softmax(x)),
}


def test_every_measure_has_its_formula() -> None:
    assert tuple(FORMULAS) == MEASURES


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize("need", MEASURES)
@given(logits=rows)
def test_measures_are_their_formulas(need: str, xp: ModuleType, logits: np.ndarray) -> None:
    log_p = torch.log_softmax(torch.tensor(logits).double(), -1)
    measured = np.asarray(measure_rows(need, log_p if xp is torch else log_p.numpy(), xp))
    np.testing.assert_allclose(measured, [FORMULAS[need](row) for row in logits.astype(float).tolist()], atol=1e-6)


@pytest.mark.parametrize("need", [*MEASURES, "renyi:40"])
def test_measures_of_a_large_vocabulary_are_finite_in_single_precision(need: str) -> None:
    flat, sharp = torch.zeros(1, 150_000), torch.zeros(1, 150_000)
    sharp[0, 0] = 1e4
    log_p = torch.log_softmax(torch.cat([flat, sharp]), -1)
    unsure, sure = measure_rows(need, log_p, torch).tolist()
    top = math.log(150_000) if "renyi" in need else 1.0 if "rao" in need else 0.0
    assert unsure == pytest.approx(top, abs=2e-3)
    assert math.isfinite(sure)
    assert sure < unsure


def test_layers_are_named_by_number_or_place() -> None:
    assert [resolve_layers(need, 12) for need in LAYERS] == [(8,), (11,), (6,), (4, 5, 6, 7, 8)]
    assert [resolve_layers("attention:middle-third", count) for count in (1, 2, 3, 4, 30)] == [
        (0,), (0, 1), (1, 2), (1, 2, 3), tuple(range(10, 21))
    ]  # fmt: skip
    for need in ("attention:12", "attention:-13"):
        with pytest.raises(SettingError, match=rf"needs='{need}': this model has the 12 layers 0 to 11; give one"):
            resolve_layers(need, 12)
    with pytest.raises(SettingError, match="'attention' names no layer"):
        resolve_layers("attention", 12)


NONE_OF_THEM = (
    *("renyi", "renyi:1", "renyi:1.0", "renyi:0", "renyi:-2", "renyi:2@0", "renyi:" + "9" * 400, "Renyi:2", "renyi:2 "),
    *("fisher-rao@", "self-certainty@2", "attention:", "attention:1.5", "attention:last", "hidden:last", "entropy"),
)


@pytest.mark.parametrize("need", NONE_OF_THEM)
def test_other_needs_are_refused_where_a_trigger_is_defined(need: str) -> None:
    says = r"needs=\['.*'\] of trigger '{}': give a tuple of 'attention', .*'self-certainty'"
    with pytest.raises(SettingError, match=says.format("own")):
        dl.when("own", needs=("renyi:2", need))
    with pytest.raises(SettingError, match=says.format("classy")):
        type("Classy", (Trigger,), {"name": "classy", "needs": ("received", need)})


def test_a_trigger_asks_for_what_it_needs() -> None:
    @dl.when("needy", threshold=1, needs=[*MEASURES, *LAYERS, "received", "hidden:3"])
    def needy(draft: dl.Draft) -> np.ndarray:
        return draft.measure("renyi:2")

    assert measures_in(needy.needs) == MEASURES
    assert layers_in(needy.needs) == LAYERS
    assert needy(threshold=1).hidden == 3


def test_a_draft_has_what_was_captured_and_no_more() -> None:
    written = make_continuation(make_prompt(), "The film is old. It is long.")
    n, p = len(written), len(written.prompt_ids)
    maps = np.random.default_rng(3).random((2, n + 1, p + n)).astype(np.float16)
    written.measures, written.layers, written.layer_count = {"renyi:2": written.entropy / 2}, {2: maps}, 4
    draft = Draft(written, load_pipeline())
    np.testing.assert_array_equal(draft.measure("renyi:2"), (written.entropy / 2).astype(np.float64))
    for need in ("attention:2", "attention:-2", "attention:middle"):
        (layer,) = draft.attention_of(need).items()
        assert layer[0] == 2
        np.testing.assert_array_equal(layer[1], maps[:, 1:].astype(np.float32))
    with pytest.raises(ValueError, match="read-only"):
        draft.measure("renyi:2")[0] = 1
    first = Draft(written.beginning(3), load_pipeline())
    np.testing.assert_array_equal(first.measure("renyi:2"), draft.measure("renyi:2")[:3])
    np.testing.assert_array_equal(first.attention_of("attention:2")[2], maps[:, 1:4, : p + 3].astype(np.float32))
    for ask, need in ((draft.measure, "fisher-rao"), (draft.attention_of, "attention:middle-third")):
        with pytest.raises(SettingError, match=rf"{need}'\) was not captured; define .* needs=\('{need}',\)"):
            ask(need)
    with pytest.raises(SettingError, match=r"'entropy' is not measured; give such as 'renyi:2'"):
        draft.measure("entropy")
    with pytest.raises(SettingError, match=r"'entropy' names no layer; give such as 'attention:8'"):
        draft.attention_of("entropy")
