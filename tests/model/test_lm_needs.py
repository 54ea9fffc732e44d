"""Measures of the whole distribution, and attention of further layers: alone, side by side, cached and forced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lm_tiny import HYBRIDS, PROMPT, After, alike, build, byte_level, matrix, tiny, written

from dragin_lab.core.episode import SoFar, Write
from dragin_lab.errors import SettingError
from dragin_lab.model.load import LanguageModel
from dragin_lab.model.taps import use_attention
from dragin_lab.run.cache import Cache
from dragin_lab.run.cached import cached
from dragin_lab.trace.trace import Continuation, Prompt

MEASURES = ("renyi:2", "renyi:0.5@1.5", "fisher-rao", "self-certainty")
LAYERS = ("attention:0", "attention:middle-third")
HALF = 5e-4  # a step of float16 below 1


def asked(prompt: str = PROMPT, **options: Any) -> Write:
    return Write(Prompt(prompt), 8, **{"measures": MEASURES, "layers": LAYERS} | options)


def own_pass(lm: LanguageModel, output: Continuation) -> tuple[np.ndarray, list[Any]]:
    """Logits (n, V) that gave the tokens, and every layer's rows (h, n + 1, p + n), by the model's own eager means."""
    ids = torch.tensor([[*output.prompt_ids.tolist(), *output.ids.tolist()]])
    with torch.inference_mode(), use_attention(lm.model, "eager"):
        result = lm.model(ids, output_attentions=True, use_cache=False)
    p, n = len(output.prompt_ids), len(output)
    return result.logits[0, p - 1 : -1].double().numpy(), [one[0, :, -(n + 1) :].numpy() for one in result.attentions]


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    result: np.ndarray = weights / weights.sum(-1, keepdims=True)
    return result


def own_measures(logits: np.ndarray) -> dict[str, np.ndarray]:
    p, warm, v = softmax(logits), softmax(logits / 1.5), logits.shape[-1]
    return {
        "renyi:2": -np.log((p**2).sum(-1)),
        "renyi:0.5@1.5": 2 * np.log(np.sqrt(warm).sum(-1)),
        "fisher-rao": 1 - 2 / np.pi * np.arccos(np.sqrt(p).sum(-1) / np.sqrt(v)),
        "self-certainty": np.log(p).mean(-1) + np.log(v),
    }


def check_own(lm: LanguageModel, output: Continuation, layers: set[int]) -> None:
    logits, maps = own_pass(lm, output)
    assert tuple(output.measures) == MEASURES
    for need, values in own_measures(logits).items():
        assert output.measures[need].dtype == np.float32
        np.testing.assert_allclose(output.measures[need], values, atol=2e-4, err_msg=need)
    assert set(output.layers) == layers
    assert output.layer_count == len(maps)
    for layer, rows in output.layers.items():
        assert rows.dtype == np.float16
        np.testing.assert_allclose(rows, maps[layer], atol=HALF, err_msg=str(layer))


@matrix("llama", "mistral", "gemma2", "gemma3", "gpt2", "gpt-oss", "falcon", "gpt_neo", "opt", "bloom")
def test_they_are_those_of_the_models_own_pass(kind: str) -> None:
    lm = tiny(kind)
    bare = lm.generate(Write(Prompt(PROMPT), 8))
    output = lm.generate(asked())
    np.testing.assert_array_equal(output.ids, bare.ids)
    np.testing.assert_array_equal(output.received, bare.received)
    third = {2: {0, 1}, 3: {0, 1, 2}, 4: {0, 1, 2, 3}}[lm.layer_count]
    check_own(lm, output, third)
    check_own(lm, lm.score(Prompt(PROMPT), output.text, measures=MEASURES, layers=LAYERS), third)
    assert (bare.measures, bare.layers, bare.layer_count) == ({}, {}, 0)


def test_the_captured_layer_may_be_one_of_them_and_heads_are_its_own() -> None:
    lm = tiny(heads=[2, 0])
    output = lm.generate(asked(layers=("attention:-1",), attention=True))
    assert output.attention is not None
    assert list(output.layers) == [3]
    np.testing.assert_allclose(output.layers[3], output.attention, atol=HALF)


def test_side_by_side_each_draft_has_its_own() -> None:
    lm = tiny()
    drafts = [
        asked(),
        asked("Question: Who?\nAnswer:", measures=("fisher-rao",), layers=("attention:1",)),
        asked(measures=(), layers=()),
        asked(PROMPT * 2, layers=(), attention=True),
        asked(PROMPT + " The", measures=(), stop=After(3)),
    ]
    for draft, beside in zip(drafts, written(lm.batch(3), drafts), strict=True):
        alike(lm.generate(draft), beside)
        assert tuple(beside.measures) == draft.measures


def test_prompts_read_in_parts_and_sampled_drafts_have_them() -> None:
    parts = Prompt(PROMPT, {"exemplars": (0, 20), "question": (20, 40)})
    for lm in (tiny(), tiny(sample=True)):
        for _ in range(2):  # the second time what the prompt begins with is served
            output = lm.generate(Write(parts, 8, measures=MEASURES, layers=LAYERS), seed=3)
            check_own(lm, output, {0, 1, 2, 3})
    forced = tiny().generate(asked(prefix=(5, 6, 7)))
    check_own(tiny(), forced, {0, 1, 2, 3})


def test_a_cache_serves_what_was_captured_and_nothing_else() -> None:
    lm = tiny()
    model = cached(lm, Cache())
    assert not model.generate(asked(measures=(), layers=())).stored
    for options in ({}, {"measures": ("renyi:2",)}, {"layers": ("attention:0",)}, {"measures": ()}, {"layers": ()}):
        first = model.generate(asked(**options))
        assert not first.stored
        again = model.generate(asked(**options))
        assert again.stored
        for a, b in ((first.measures, again.measures), (first.layers, again.layers)):
            assert a.keys() == b.keys()
            for key in a:
                np.testing.assert_array_equal(a[key], b[key])
        shorter = model.generate(asked(stop=After(3), **options))
        assert shorter.stored
        alike(lm.generate(asked(stop=After(3), **options)), shorter)


class Reading(After):
    """Sees measures and layers after each token, and keeps them."""

    seen: list[tuple[dict[str, np.ndarray], dict[int, np.ndarray]]]

    def reached(self, so_far: SoFar) -> str | None:
        self.seen.append((so_far.measures, {layer: rows.copy() for layer, rows in so_far.layers.items()}))
        return super().reached(so_far)


@pytest.mark.parametrize("way", ["alone", "beside", "replayed"])
def test_a_stop_sees_what_is_there_so_far(way: str) -> None:
    lm = tiny()
    stop = Reading(6)
    object.__setattr__(stop, "seen", [])
    draft = asked(stop=stop)
    if way == "beside":
        (output,) = written(lm.batch(2), [draft])
    else:
        model = cached(lm, Cache())
        output = model.generate(draft)
        if way == "replayed":
            stop.seen.clear()
            output = model.generate(draft)
            assert output.stored
    p = len(output.prompt_ids)
    for n, (measures, layers) in enumerate(stop.seen, 1):
        for need in MEASURES:
            np.testing.assert_array_equal(measures[need], output.measures[need][:n])
        for layer, rows in layers.items():
            assert rows.shape[1:] == (n + 1, p + n)
            np.testing.assert_array_equal(rows[:, :n], output.layers[layer][:, :n, : p + n])
            assert not rows[:, n].any()  # the last token has not looked back yet
    assert len(stop.seen) == len(output) == 6


@matrix(*HYBRIDS[:2], "mamba")
def test_layers_without_attention_are_refused_by_name(kind: str) -> None:
    lm = LanguageModel(build(kind), byte_level())
    have = "1, 3" if kind != "mamba" else "no layer of it has any"
    for need in ("attention:0", "attention:middle-third"):
        with pytest.raises(SettingError, match=rf"needs='{need}': layer \d of .* has no attention; .*{have}"):
            lm.generate(asked(layers=(need,)))
    if kind != "mamba":
        assert set(lm.generate(asked(layers=("attention:1",))).layers) == {1}
    check = lm.generate(asked(layers=()))
    logits, _ = own_pass(lm, check) if kind != "mamba" else (None, None)
    assert tuple(check.measures) == MEASURES
    if logits is not None:
        np.testing.assert_allclose(check.measures["renyi:2"], own_measures(logits)["renyi:2"], atol=2e-4)


def test_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingError, match=r"needs='attention:9': this model has the 4 layers 0 to 3"):
        tiny().generate(asked(layers=("attention:9",)))
    ended = written(tiny().batch(2), [asked(layers=("attention:9",)), asked()])
    assert isinstance(ended[0], SettingError)
    assert isinstance(ended[1], Continuation)
