"""Scoring a text gives what generating it gave."""

from __future__ import annotations

import lm_tiny
import numpy as np
import pytest

from dragin_lab.core.episode import Write
from dragin_lab.errors import ModelError
from dragin_lab.model.load import LanguageModel
from dragin_lab.trace.trace import Continuation, Prompt

PROMPT = Prompt(lm_tiny.PROMPT)


def same(forced: Continuation, made: Continuation) -> None:
    assert forced.stopped == "forced"
    np.testing.assert_array_equal(forced.ids, made.ids)
    np.testing.assert_array_equal(forced.prompt_ids, made.prompt_ids)
    np.testing.assert_array_equal(forced.offsets, made.offsets)
    assert (forced.text, forced.raw_text, forced.tokens) == (made.text, made.raw_text, made.tokens)
    for name in ("entropy", "logprob", "received", "alternative_probs"):
        np.testing.assert_allclose(getattr(forced, name), getattr(made, name), atol=1e-4, err_msg=name)
    assert forced.attention is not None
    assert made.attention is not None
    np.testing.assert_allclose(forced.attention, made.attention, atol=1e-3)


@pytest.mark.parametrize("name", ["almanac-prototype", "almanac-small"])
def test_score_of_a_generated_text_is_what_generating_it_measured(name: str) -> None:
    lm = LanguageModel.load(lm_tiny.PARITY / name)
    made = lm.generate(Write(PROMPT, 24, attention=True))
    lead = "" if made.text.startswith(" ") else " "
    same(lm.score(PROMPT, lead + made.text, attention=True), made)


def test_score_leaves_the_cache_of_drafts_alone() -> None:
    lm = LanguageModel.load(lm_tiny.PARITY / "almanac-small")
    prompt = Prompt(PROMPT.text, {"exemplars": (0, 20)})
    assert lm.generate(Write(prompt, 4)).reused == 0
    lm.score(Prompt("Something else"), " entirely.")
    assert lm.generate(Write(prompt, 4)).reused > 0


def test_a_text_without_tokens_is_refused() -> None:
    lm = LanguageModel.load(lm_tiny.PARITY / "almanac-small")
    with pytest.raises(ModelError, match="no tokens"):
        lm.score(PROMPT, "")


def test_a_text_that_merges_with_the_prompt_is_refused() -> None:
    lm = LanguageModel(lm_tiny.build("llama"), lm_tiny.byte_level())
    encode = lm.tokenizer.encode
    whole = encode("mother", special=False)
    heads = {cut: encode("mother"[:cut], special=False) for cut in range(1, 6)}
    cut = next(cut for cut, ids in heads.items() if ids != whole[: len(ids)])
    with pytest.raises(ModelError, match="merges with the end"):
        lm.score(Prompt("mother"[:cut]), "mother"[cut:])


def test_a_text_too_long_for_the_position_table_is_refused() -> None:
    lm = LanguageModel(lm_tiny.build("gpt2"), lm_tiny.byte_level())
    with pytest.raises(ModelError, match="do not fit"):
        lm.score(PROMPT, " Ada was" * 300)
