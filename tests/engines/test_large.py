"""Models that are spread or quantized: captured like any other, and estimated before they are loaded."""

from __future__ import annotations

from types import SimpleNamespace

import lm_tiny
import numpy as np
import pytest
import torch

from dragin_lab.core.episode import Write
from dragin_lab.engines import load
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Prompt

SMALL = lm_tiny.PARITY / "almanac-small"
#: The second layer's weights stay on disk and come when they are needed; the first and the last are in memory.
SPREAD = {
    "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.layers.2": "disk",
    "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu",
}  # fmt: skip


@pytest.mark.parametrize("layer", [0, 2])
def test_a_model_that_is_spread_writes_and_is_captured_like_one_that_is_not(layer: int) -> None:
    pytest.importorskip("accelerate")
    draft = Write(Prompt("Question: Who is Bo?\nAnswer:"), 12, attention=True)
    plain = LanguageModel.load(SMALL, layer=layer).write(draft)
    lm = LanguageModel.load(SMALL, layer=layer, device_map=SPREAD)
    assert any(p.device.type == "meta" for p in lm.model.parameters()), "nothing is on disk"
    spread = lm.write(draft)
    assert spread.ids.tolist() == plain.ids.tolist()
    assert plain.attention is not None
    assert spread.attention is not None
    np.testing.assert_allclose(spread.entropy, plain.entropy, atol=1e-4)
    np.testing.assert_allclose(spread.attention, plain.attention, atol=1e-3)  # float16
    assert lm.provenance()["device"] == "cpu, disk"
    assert lm.provenance()["weights_sha256"] == LanguageModel.load(SMALL).provenance()["weights_sha256"]


def test_side_by_side_works_on_a_model_that_is_spread() -> None:
    pytest.importorskip("accelerate")
    drafts = [
        Write(Prompt(text), 6, attention=True) for text in ("Question: Who?", "Question: Where is the town of it?")
    ]
    plain, spread = (
        lm_tiny.written(LanguageModel.load(SMALL, **options).batch(2), drafts)
        for options in ({}, {"device_map": SPREAD})
    )
    assert [one.ids.tolist() for one in spread] == [one.ids.tolist() for one in plain]


def test_the_estimate_is_what_the_weights_take(capsys: pytest.CaptureFixture[str]) -> None:
    lm = LanguageModel.load(SMALL)
    weights = sum(p.nbytes for p in lm.model.parameters())
    assert load.estimate_weights(str(SMALL), torch.float32, None) == weights
    four = load.estimate_weights(str(SMALL), torch.float32, SimpleNamespace(load_in_4bit=True))
    assert four is not None
    assert weights / 8 < four < weights
    assert capsys.readouterr().err == "", "a small model needs no word"


def test_what_does_not_fit_is_said_before_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load, "find_free_memory", lambda device, spread: 1)
    LanguageModel.load(SMALL)
    line = capsys.readouterr().err
    assert "its weights take about" in line
    assert 'free on cpu, which is less: spread it (device_map="auto")' in line


def test_a_quantization_that_is_none_is_refused() -> None:
    with pytest.raises(ModelError, match="quantization="):
        LanguageModel.load(SMALL, quantization={"load_in_4bit": "yes"})
