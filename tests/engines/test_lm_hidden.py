"""Hidden states: those that transformers itself gives, in a stream, side by side, served from a
cache and forced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lm_tiny import PROMPT, alike, build, byte_level, written

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.lab import Lab
from dragin_lab.run.cache import Cache, serve_from
from dragin_lab.trace.trace import Prompt


def find_nothing(query: str, k: int) -> list[dl.Passage]:
    return []


def asked(hidden: int | str | None, prompt: str = PROMPT, **options: Any) -> Write:
    return Write(Prompt(prompt), 8, hidden=hidden, **options)


def own_states(lm: LanguageModel, ids: list[int], layer: int | str) -> np.ndarray:
    """(positions, d), by the model's own means: embeddings, then one entry a layer, the last one
    after its norm.
    """
    with torch.inference_mode():
        states = lm.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    results: np.ndarray = states[-1 if layer == "last" else range(1, 5)[int(layer)]][0].numpy()
    return results


def test_side_by_side_each_draft_has_its_own() -> None:
    lm = LanguageModel(build("llama"), byte_level())
    drafts = [
        asked("last"),
        asked(1, "Question: Who?\nAnswer:"),
        asked(None),
        asked(-2, PROMPT * 2),
    ]
    for draft, beside in zip(drafts, written(lm.batch(3), drafts), strict=True):
        alike(lm.write(draft), beside)


def test_served_from_a_cache_and_forced() -> None:
    lm = LanguageModel(build("llama"), byte_level())
    model = serve_from(lm, Cache())
    first, again = model.write(asked("last")), model.write(asked("last"))
    assert again.stored
    np.testing.assert_array_equal(first.hidden, again.hidden)
    assert not model.write(asked(1)).stored
    for layer in ("last", -2):
        forced = lm.score(Prompt(PROMPT), " The director", hidden=layer)
        theirs = own_states(lm, [*forced.prompt_ids.tolist(), *forced.ids.tolist()], layer)
        np.testing.assert_allclose(
            forced.hidden, theirs[len(forced.prompt_ids) - 1 : -1], atol=1e-4
        )


def test_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModelError, match=r"layer=9: this model has layers 0 to 3"):
        LanguageModel(build("llama"), byte_level()).write(asked(9))


def test_a_custom_trigger_reads_them_from_a_cache_too() -> None:
    seen: list[tuple[int, ...]] = []

    @dl.when("norm", threshold=1e9, needs=("hidden:1", "attention"))
    def norm(draft: dl.Draft) -> np.ndarray:
        """The length of the hidden state."""
        seen.append(draft.hidden.shape)
        assert draft.attention.shape[1] == len(draft)
        return np.linalg.norm(draft.hidden, axis=1)

    model = serve_from(LanguageModel(build("llama"), byte_level()), Cache())
    method = dl.method(when="norm", what="question", max_new_tokens=8)
    for _ in range(2):
        trace = Lab(model, retriever=find_nothing).ask("Who?", method)
    output = trace.steps[0].draft
    assert output.states is not None
    assert set(seen) <= {(n, 32) for n in range(len(output) + 1)}
    dl.when("silent", threshold=1e9)(lambda draft: draft.hidden[:, 0])
    with pytest.raises(
        SettingError, match=r"'silent' .*draft\.hidden was not captured; .*needs=\('hidden',\)"
    ):
        Lab(model, retriever=find_nothing).ask("Who?", dl.method(when="silent", what="question"))
