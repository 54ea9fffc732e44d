"""What is captured while decoding, against one eager forward over everything with all
attentions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lm_tiny
import numpy as np
import pytest
import torch
import transformers as tf
from lm_tiny import CLOSE, HALF, settled
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from dragin_lab.core.episode import Write
from dragin_lab.engines import tap
from dragin_lab.engines.layers import attention_layers
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft, Prompt


def one_pass(
    model: Any, output: Draft
) -> tuple[np.ndarray, list[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Logits (T, V) of prompt and continuation in one pass, the maps (1, h, T, T) of the layers
    with any, and states.

    The states (1, T, d) are the embeddings, then those of each layer, the last one's after its
    norm.
    """
    ids = torch.tensor([[*output.prompt_ids.tolist(), *output.ids.tolist()]])
    with torch.inference_mode():
        out = model(ids, use_cache=False, output_attentions=True, output_hidden_states=True)
    return (
        out.logits[0].numpy(),
        [one for one in out.attentions if one is not None],
        out.hidden_states,
    )


def agree(output: Draft, logits: np.ndarray, attention: np.ndarray) -> None:
    p, n = len(output.prompt_ids), len(output)
    assert output.rows.shape == (attention.shape[0], n + 1, p + n)
    assert output.rows.dtype == np.float16
    np.testing.assert_allclose(output.rows, attention[:, p - 1 :], atol=HALF)
    mean = attention.mean(0)
    for i in range(n):
        expected = mean[p + i + 1 :, p + i].max() if i < n - 1 else 0.0
        assert output.received[i] == pytest.approx(expected, abs=CLOSE)
    logs = torch.log_softmax(torch.tensor(logits[p - 1 : p + n - 1]).double(), -1).numpy()  # (n, V)
    entropy = -(np.exp(logs) * logs).sum(-1)
    np.testing.assert_allclose(output.entropy, entropy, atol=20 * CLOSE)
    np.testing.assert_allclose(output.logprob, logs[np.arange(n), output.ids], atol=20 * CLOSE)
    np.testing.assert_array_equal(output.ids, logs.argmax(-1))
    settled(output)
    np.testing.assert_array_equal(output.alternative_ids[:, 0], output.ids)
    np.testing.assert_allclose(
        output.alternative_probs, -np.sort(-np.exp(logs), -1)[:, :5], atol=CLOSE
    )


SHOTS, FOUND = (
    "Question: Who is Ann Lee?\nAnswer: She was born in Ulm.\n\n",
    "[1] Elm Road is a film by Ann Lee.\n",
)


def in_parts(question: str) -> Prompt:
    """A prompt whose exemplars and passages are read in forwards of their own, where the model
    can go on from them.
    """
    end = len(SHOTS) + len(FOUND)
    spans = {"exemplars": (0, len(SHOTS)), "passages": (len(SHOTS), end)}
    return Prompt(f"{SHOTS}{FOUND}Question: {question}\nAnswer:", spans)


@lm_tiny.matrix(*lm_tiny.REGISTRY, *lm_tiny.FURTHER)
def test_what_is_captured_at_any_layer_is_what_one_eager_forward_gives(kind: str) -> None:
    """Of prompts read in parts and whole, longer than a window and shorter, alone and side by
    side.
    """
    eager = lm_tiny.build(kind, attn_implementation="eager")
    layers = list(attention_layers(eager)[0])
    prompts = in_parts("Who is the mother of Ann Lee?"), in_parts("Who?"), Prompt("Elm")
    for layer in sorted({layers[0], layers[len(layers) // 2], layers[-1]}):
        hidden = "last" if layer == layers[-1] else layer
        drafts = [Write(prompt, 6, attention=True, hidden=hidden) for prompt in prompts]
        lm = LanguageModel(lm_tiny.build(kind), lm_tiny.byte_level(), layer=layer, check=False)
        assert layer != layers[-1] or [check for check in lm.check() if not check.passed] == []
        place = layers.index(layer)
        alone = [lm.write(draft) for draft in drafts]
        assert bool(alone[1].reused) == bool(lm.parts)
        for output in (*alone, *lm_tiny.written(lm.batch(3), drafts)):
            logits, maps, states = one_pass(eager, output)
            agree(output, logits, maps[place if len(maps) == len(layers) else layer][0].numpy())
            own_states = states[-1 if hidden == "last" else layer + 1][
                0, len(output.prompt_ids) - 1 : -1
            ]
            # recurrent states add up otherwise
            np.testing.assert_allclose(output.states, own_states, atol=5e-4)
        ids = torch.tensor([output.ids.tolist()])
        with torch.inference_mode():
            own = [one for one in eager(ids, output_attentions=True).attentions if one is not None]
        own_map = own[place if len(own) == len(layers) else layer][0].numpy()
        np.testing.assert_allclose(lm.attend(output.ids.tolist()), own_map, atol=CLOSE)


@lm_tiny.matrix(*lm_tiny.CONFIGS)
def test_capture_never_changes_the_text(kind: str) -> None:
    """For every architecture: beyond its window and what a sparse layer looks at."""
    lm = LanguageModel(lm_tiny.build(kind), lm_tiny.byte_level(), check=False)
    lm.eos = frozenset()
    model = lm_tiny.build(kind)
    model.generation_config.eos_token_id = None
    for text in (lm_tiny.PROMPT, lm_tiny.PROMPT * 2):
        draft = lm.write(Write(Prompt(text), 16, attention=lm.has_attention))
        ids = torch.tensor([draft.prompt_ids.tolist()])
        own = model.generate(ids, max_new_tokens=16, do_sample=False)
        assert draft.ids.tolist() == own[0, ids.shape[1] :].tolist()
        assert lm.has_attention == (draft.rows is not None)


def test_a_check_with_small_windows_sees_what_a_short_text_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = lm_tiny.build("deepseek-v32")
    for module in [model, *model.modules()]:
        for holder in (module, getattr(module, "config", None)):
            if hasattr(holder, "index_topk"):
                holder.index_topk = 2048
    sound = LanguageModel(model, lm_tiny.byte_level())
    assert any("narrowed" in check.name for check in sound.check())
    assert {getattr(one, "index_topk", 2048) for one in model.modules()} == {2048}
    listen = tap.Tap.listen

    @contextmanager
    def dropping(self: Any, rows: int = 1) -> Iterator[None]:
        """The name of another function, as taps once gave it: the layer looks at all."""
        own, self.module.config = self.module.config, copy.deepcopy(self.module.config)
        tf.AttentionInterface.register("another", sdpa_attention_forward)
        self.module.config._attn_implementation = "another"
        with listen(self, rows):
            yield
        self.module.config = own

    monkeypatch.setattr(tap.Tap, "listen", dropping)
    with pytest.raises(ModelError, match="without capture, narrowed: FAILED"):
        LanguageModel(model, lm_tiny.byte_level())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "layers"), [("zamba2", [1, 3]), ("longcat", [0, 1, 2, 3])])
def test_layers_with_attention_are_those_whose_modules_have_some(
    kind: str, layers: list[int]
) -> None:
    found, shared = attention_layers(lm_tiny.build(kind))
    assert (list(found), shared) == (layers, False)


def test_a_layer_that_shares_its_module_is_not_captured() -> None:
    model = lm_tiny.build("llama")
    model.model.layers[3].self_attn = model.model.layers[1].self_attn
    found, shared = attention_layers(model)
    assert (list(found), shared) == ([0, 2], True)
    for layer in model.model.layers:
        layer.self_attn = model.model.layers[0].self_attn
    lm = LanguageModel(model, lm_tiny.byte_level(), check=False)
    assert lm.no_attention.endswith("share their attention, so a call does not tell whose it is")


def test_layers_and_heads_can_be_chosen() -> None:
    eager = lm_tiny.build("llama", attn_implementation="eager")
    for layer, index in ((1, 1), (-2, 2), ("last", 3)):
        lm = LanguageModel(lm_tiny.build("llama"), lm_tiny.byte_level(), layer=layer, heads=[3, 1])
        assert lm.layer == index
        output = lm.write(Write(Prompt(lm_tiny.PROMPT), 5, attention=True))
        logits, maps, _ = one_pass(eager, output)
        agree(output, logits, maps[index][0].numpy()[[3, 1]])


@lm_tiny.matrix(*lm_tiny.BYPASS)
def test_what_looks_no_attention_up_by_name_gives_probabilities_alone(kind: str) -> None:
    lm = LanguageModel(lm_tiny.build(kind), lm_tiny.byte_level(), check=False)
    assert [c for c in lm.check() if not c.passed] == []
    assert lm.no_attention.endswith("does not look its attention function up by name")
    written = lm.write(Write(Prompt(lm_tiny.PROMPT), 5))
    assert np.isfinite(written.entropy).all()
    assert np.isnan(written.received).all()


def test_bfloat16_models_give_float32_rows() -> None:
    lm = LanguageModel(lm_tiny.build("llama").to(torch.bfloat16), lm_tiny.byte_level())
    output = lm.write(Write(Prompt(lm_tiny.PROMPT), 5))
    assert output.received.dtype == np.float32
    np.testing.assert_allclose(lm.attend(output.ids).sum(-1), 1, atol=1e-5)
