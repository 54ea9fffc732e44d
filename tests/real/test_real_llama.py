"""SmolLM2 as it is quantized, in llama.cpp in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from open_questions import QUESTIONS

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Prompt

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def quantized(gguf: Path, corpus: Any, exemplars: Any) -> Iterator[dl.Lab]:
    with dl.Lab(gguf, corpus, exemplars, engine="llama.cpp") as lab:
        yield lab


def test_dragin_answers_on_the_attention_of_the_quantized_model(quantized: dl.Lab) -> None:
    trace = quantized.ask(QUESTIONS[0], "dragin", threshold=0.05, max_new_tokens=24)
    assert trace.queries
    assert "<|im_end|>" not in trace.text + trace.answer + "".join(trace.queries)
    assert all(
        ((step.draft.received >= 0) & (step.draft.received <= 1)).all() for step in trace.steps
    )


def test_decisions_are_mostly_those_of_the_dequantized_model(
    quantized: dl.Lab, smollm2: LanguageModel
) -> None:
    """llama.cpp rounds activations too, so a score close to θ may fall on the other side."""
    same, fired, ours, theirs = [], 0, [], []
    for question in QUESTIONS:
        prompt = Prompt(f"Question: {question}\nAnswer: To answer this, we first need to know")
        draft = quantized.model.write(Write(prompt, 32))
        forced = smollm2.write(Write(prompt, len(draft), prefix=tuple(draft.ids.tolist())))
        assert forced.ids.tolist() == draft.ids.tolist()
        ours += draft.received[:-1].tolist()
        theirs += forced.received[:-1].tolist()
        for theta in (0.1, 0.3, 0.6):
            method = dl.method("dragin", threshold=theta)
            hits = [
                method.trigger.judge(one.read_by(method.pipeline)).hit.tolist()
                for one in (draft, forced)
            ]
            same.append(hits[0] == hits[1])
            fired += any(hits[1])
    correlation = np.corrcoef(ours, theirs)[0, 1]
    print(
        f"the same decision in {sum(same)} of {len(same)} ({fired} retrieve); received: r ="
        f" {correlation:.4f}"
    )
    assert 0 < fired < len(same)
    assert np.mean(same) >= 0.8
    assert correlation > 0.99
