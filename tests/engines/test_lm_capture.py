"""``dl.capture`` on people's own ``generate`` gives what ``LanguageModel`` gives, and leaves no
mark.
"""

from __future__ import annotations

from typing import Any

import lm_tiny
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Prompt


def encoded(tokenizer: Any, text: str = lm_tiny.PROMPT) -> Any:
    return tokenizer(text, return_tensors="pt")


@lm_tiny.matrix(*lm_tiny.REGISTRY, "diffllama", *lm_tiny.HYBRIDS)
def test_capture_equals_language_model(kind: str) -> None:
    tokenizer = lm_tiny.byte_level()
    expected = LanguageModel(lm_tiny.build(kind), tokenizer).write(
        Write(Prompt(lm_tiny.PROMPT), 9, attention=True)
    )
    model = lm_tiny.build(kind)
    with dl.capture(model, tokenizer) as tape:
        model.generate(**encoded(tokenizer), max_new_tokens=9, do_sample=False)
    lm_tiny.alike(tape.continuation, expected, close=20 * lm_tiny.CLOSE)


@pytest.mark.parametrize("name", ["almanac-prototype", "almanac-small"])
def test_capture_finds_the_tokenizer_of_a_saved_model(name: str) -> None:
    path = lm_tiny.PARITY / name
    expected = LanguageModel.load(path).write(Write(Prompt(lm_tiny.PROMPT), 24, attention=True))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    lm = LanguageModel(model, LanguageModel.load(path).tokenizer)
    with dl.capture(model) as tape:
        result = model.generate(
            **encoded(lm.tokenizer.hf),
            max_new_tokens=24,
            do_sample=False,
            return_dict_in_generate=True,
        )
        inside = lm.write(Write(Prompt(lm_tiny.PROMPT), 24, attention=True))  # a tap over a tap
    lm_tiny.alike(tape.continuation, expected)
    lm_tiny.alike(inside, expected)
    assert result.sequences[0].tolist() == [*expected.prompt_ids, *expected.ids]
    # as without the tap
    assert result.past_key_values.get_seq_length() == result.sequences.shape[1] - 1
    table = tape.tokens
    assert table["token"].tolist() == list(expected.pieces)
    assert "".join(table["text"]) == expected.text
    np.testing.assert_allclose(table["entropy"], expected.entropy, atol=lm_tiny.CLOSE)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_the_model_is_left_as_it_was(kind: str) -> None:
    model, tokenizer = lm_tiny.build(kind), lm_tiny.byte_level()
    before = {
        n: (m.config, dict(vars(m))) for n, m in model.named_modules() if hasattr(m, "config")
    }
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


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 2, "do_sample": False},
        {"do_sample": True, "num_return_sequences": 2},
        {"prompt_lookup_num_tokens": 3, "do_sample": False},
    ],
    ids=lambda options: "-".join(options),
)
def test_however_generate_decodes_its_texts_are_measured(options: dict[str, Any]) -> None:
    model, tokenizer = lm_tiny.build("llama"), lm_tiny.byte_level()
    lm = LanguageModel(lm_tiny.build("llama"), tokenizer)
    with dl.capture(model, tokenizer) as tape:
        sequences = model.generate(**encoded(tokenizer), max_new_tokens=5, **options)
    assert len(tape.continuations) == len(sequences)
    for continuation, sequence in zip(tape.continuations, sequences.tolist(), strict=True):
        assert [*continuation.prompt_ids, *continuation.ids] == sequence
        ids = (
            continuation.prompt_ids.tolist(),
            continuation.prompt_offsets,
            continuation.ids.tolist(),
        )
        expected = lm.measure_text(*ids, attention=True)
        np.testing.assert_allclose(continuation.entropy, expected.entropy, atol=lm_tiny.CLOSE)


def test_every_call_is_kept_and_texts_written_side_by_side_are_those_written_alone() -> None:
    model, tokenizer = lm_tiny.build("llama"), lm_tiny.byte_level()
    texts = [lm_tiny.PROMPT, "Answer: Ulm"]
    with dl.capture(model, tokenizer, heads=[2], attention=False) as tape:
        for text in texts:
            model.generate(**encoded(tokenizer, text), max_new_tokens=6, do_sample=False)
        # the second text ends early, and is padded behind its end
        end = int(tape.continuations[1].ids[2])
        inputs = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
        model.generate(**inputs, max_new_tokens=6, do_sample=False, eos_token_id=end)
    *alone, first, second = tape.continuations
    lm_tiny.alike(alone[0], first)
    assert second.prompt_ids.tolist() == alone[1].prompt_ids.tolist()
    expected = LanguageModel(lm_tiny.build("llama"), tokenizer, heads=[2]).write(
        Write(Prompt(texts[0]), 6)
    )
    lm_tiny.alike(expected, first, close=20 * lm_tiny.CLOSE)
    assert len(tape.tokens) == sum(map(len, tape.continuations)) == 21
    assert [*tape.tokens.index] == [*range(21)]  # over all calls
    assert (second.ids.tolist(), second.stopped) == (alone[1].ids[:3].tolist(), "eos")
    np.testing.assert_allclose(second.entropy, alone[1].entropy[:3], atol=lm_tiny.CLOSE)


def test_what_cannot_be_followed_is_refused() -> None:
    model, tokenizer = lm_tiny.build("llama"), lm_tiny.byte_level()
    with dl.capture(model, tokenizer) as tape:
        with pytest.raises(ModelError, match="nothing was captured"):
            _ = tape.continuation
        with pytest.raises(ModelError, match="gave embeddings"):
            model.generate(inputs_embeds=torch.zeros(1, 2, 32), max_new_tokens=3)
        with pytest.raises(ModelError, match="captured already"), dl.capture(model, tokenizer):
            pass
        assert not tape.continuations
        # a refused call spoils nothing
        model.generate(**encoded(tokenizer), max_new_tokens=3, do_sample=False)
        assert len(tape.continuation) == 3
    with pytest.raises(ModelError, match="no generate"), dl.capture(object(), tokenizer):
        pass
    with pytest.raises(ModelError, match="pass tokenizer="), dl.capture(model):
        pass
