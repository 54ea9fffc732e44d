"""``dl.capture`` on people's own ``generate`` gives what ``LanguageModel`` gives, and leaves no mark."""

from __future__ import annotations

from typing import Any

import lm_tiny
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.errors import ModelError
from dragin_lab.model.load import LanguageModel
from dragin_lab.trace.trace import Prompt


def encoded(tokenizer: Any, text: str = lm_tiny.PROMPT) -> Any:
    return tokenizer(text, return_tensors="pt")


@lm_tiny.matrix(*lm_tiny.REGISTRY, "falcon", "gpt_neo", "diffllama", *lm_tiny.HYBRIDS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_capture_equals_language_model(kind: str, use_cache: bool) -> None:
    tokenizer = lm_tiny.byte_level()
    expected = LanguageModel(lm_tiny.build(kind), tokenizer).generate(Write(Prompt(lm_tiny.PROMPT), 9, attention=True))
    model = lm_tiny.build(kind)
    with dl.capture(model, tokenizer) as tape:
        model.generate(**encoded(tokenizer), max_new_tokens=9, do_sample=False, use_cache=use_cache)
    lm_tiny.alike(tape.continuation, expected)


@pytest.mark.parametrize("name", ["almanac-prototype", "almanac-small"])
def test_capture_finds_the_tokenizer_of_a_saved_model(name: str) -> None:
    path = lm_tiny.PARITY / name
    expected = LanguageModel.load(path).generate(Write(Prompt(lm_tiny.PROMPT), 24, attention=True))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    lm = LanguageModel(model, LanguageModel.load(path).tokenizer)
    with dl.capture(model) as tape:
        result = model.generate(
            **encoded(lm.tokenizer.hf), max_new_tokens=24, do_sample=False, return_dict_in_generate=True
        )
        inside = lm.generate(Write(Prompt(lm_tiny.PROMPT), 24, attention=True))  # a tap over a tap
    lm_tiny.alike(tape.continuation, expected)
    lm_tiny.alike(inside, expected)
    assert result.sequences[0].tolist() == [*expected.prompt_ids, *expected.ids]
    assert result.past_key_values.get_seq_length() == result.sequences.shape[1] - 1  # as without the tap
    table = tape.tokens
    assert table["token"].tolist() == list(expected.tokens)
    assert "".join(table["text"]) == expected.text
    np.testing.assert_allclose(table["entropy"], expected.entropy, atol=lm_tiny.CLOSE)


def test_every_call_is_kept_and_long_ones_grow() -> None:
    model, tokenizer = lm_tiny.build("llama"), lm_tiny.byte_level()
    model.generation_config.eos_token_id = None
    with dl.capture(model, tokenizer, heads=[2], attention=False) as tape:
        for n in (3, 150):
            model.generate(**encoded(tokenizer), max_new_tokens=n, do_sample=False)
    assert [len(c) for c in tape.continuations] == [3, 150]
    assert len(tape.tokens) == 153
    lm = LanguageModel(lm_tiny.build("llama"), tokenizer, heads=[2])
    lm.eos = frozenset()
    long = lm.generate(Write(Prompt(lm_tiny.PROMPT), 150))
    np.testing.assert_allclose(tape.continuation.received, long.received, atol=lm_tiny.CLOSE)
    assert tape.continuation.attention is None


@pytest.mark.parametrize("kind", ["llama", "gemma2", "falcon"])
def test_the_model_is_left_as_it_was(kind: str) -> None:
    model, tokenizer = lm_tiny.build(kind), lm_tiny.byte_level()
    before = {n: (m.config, dict(vars(m))) for n, m in model.named_modules() if hasattr(m, "config")}
    chosen = model.config._attn_implementation
    with pytest.raises(KeyError), dl.capture(model, tokenizer):
        raise KeyError
    with dl.capture(model, tokenizer):
        model.generate(**encoded(tokenizer), max_new_tokens=2, do_sample=False)
    assert model.config._attn_implementation == chosen
    assert "generate" not in vars(model)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    for name, module in model.named_modules():
        if name in before:
            config, attributes = before[name]
            assert module.config is config
            assert vars(module).keys() - {"_output_capturing_hooks_installed"} == attributes.keys()


def test_attention_that_capture_exchanges_is_said_where_it_changes_the_text() -> None:
    model, tokenizer = lm_tiny.build("falcon-alibi"), lm_tiny.byte_level()
    with pytest.warns(UserWarning, match="its text may not be generate's"), dl.capture(model, tokenizer):
        pass


def test_what_cannot_be_followed_is_refused() -> None:
    model, tokenizer = lm_tiny.build("llama"), lm_tiny.byte_level()
    inputs = encoded(tokenizer)
    padded = tokenizer([lm_tiny.PROMPT], padding="max_length", max_length=99, padding_side="left", return_tensors="pt")
    with dl.capture(model, tokenizer) as tape:
        with pytest.raises(ModelError, match="nothing was captured"):
            _ = tape.continuation
        with pytest.raises(ModelError, match="2 side by side"):
            model.generate(**inputs, max_new_tokens=3, num_beams=2)
        with pytest.raises(ModelError, match="padded"):
            model.generate(**padded, max_new_tokens=3)
        with pytest.raises(ModelError, match="cache_implementation"):
            model.generate(**inputs, max_new_tokens=3, cache_implementation="static")
        with pytest.raises(ModelError, match="assisted"):
            model.generate(**inputs, max_new_tokens=9, prompt_lookup_num_tokens=3, do_sample=False)
        with pytest.raises(ModelError, match="captured already"), dl.capture(model, tokenizer):
            pass
        assert not tape.continuations
        model.generate(**inputs, max_new_tokens=3, do_sample=False)  # a refused call spoils nothing
        assert len(tape.continuation) == 3
    with pytest.raises(ModelError, match="no generate"), dl.capture(object(), tokenizer):
        pass
    with pytest.raises(ModelError, match="pass tokenizer="), dl.capture(model):
        pass
