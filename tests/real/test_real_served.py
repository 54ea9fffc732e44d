"""SmolLM2 as it is quantized, served by llama.cpp in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from open_questions import QUESTIONS

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.trace.draft import Draft
from dragin_lab.trace.trace import Prompt

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def served(gguf: Path, corpus: Any, exemplars: Any) -> Iterator[dl.Lab]:
    with dl.Lab(gguf, corpus, exemplars, engine="llama.cpp") as lab:
        yield lab


def test_flare_answers_and_its_entropies_have_bounds(served: dl.Lab) -> None:
    trace = served.ask(QUESTIONS[0], "flare", variant="paper")
    assert trace.ended in ("answered", "length")
    assert "<|im_end|>" not in trace.text + trace.answer + "".join(trace.queries)
    assert trace.retrievals_count
    widths = np.concatenate([made.entropy_width for made in trace.continuations])
    assert (widths >= 0).all()
    assert 0 < np.median(widths) < 1


def test_a_threshold_within_the_bounds_is_decided_by_the_whole_distribution(served: dl.Lab) -> None:
    draft = served.ask(QUESTIONS[0], "wo-rag", variant="paper", max_new_tokens=12).steps[0].draft
    assert draft is not None
    assert draft.entropy_width is not None
    theta = float(draft.entropy[int(draft.entropy_width.argmax())])
    trace = served.ask(QUESTIONS[0], "flare", variant="paper", when=f"entropy@{theta}", max_new_tokens=12)
    assert trace.asked_again


def test_dragin_runs_on_the_attention_of_the_quantized_model(served: dl.Lab) -> None:
    trace = served.ask(QUESTIONS[0], "dragin", threshold=0.05, max_new_tokens=24)
    assert trace.queries
    assert "<|im_end|>" not in "".join(trace.queries)
    drafts = [step.draft for step in trace.steps]
    assert all(((draft.received >= 0) & (draft.received <= 1)).all() for draft in drafts)


def test_decisions_are_mostly_those_of_the_dequantized_model(served: dl.Lab, smollm2: dl.LanguageModel) -> None:
    """Of the same drafts at three thresholds: 22 or 23 of 24, as what a prompt was read with changes the rounding.

    llama.cpp rounds activations too, so its rows are another model's in the last digits, and a score close to θ may
    fall on the other side.
    """
    same, fired, ours, theirs = [], 0, [], []
    for question in QUESTIONS:
        prompt = Prompt(f"Question: {question}\nAnswer: To answer this, we first need to know")
        draft = served.model.write(Write(prompt, 32, received=True))
        forced = smollm2.score(prompt, draft.text)
        pairs = enumerate(zip(draft.ids, forced.ids, strict=False))
        alike = next((i for i, (a, b) in pairs if a != b), len(forced))  # a text's end may be encoded otherwise
        assert alike >= 16
        ours += draft.received[: alike - 1].tolist()
        theirs += forced.received[: alike - 1].tolist()
        for theta in (0.1, 0.3, 0.6):
            method = dl.method("dragin", threshold=theta)
            written = [Draft(one.beginning(alike), method.pipeline) for one in (draft, forced)]
            hits = [method.trigger.judge(one).hit.tolist() for one in written]
            same.append(hits[0] == hits[1])
            fired += any(hits[1])
    correlation = np.corrcoef(ours, theirs)[0, 1]
    print(f"the same decision in {sum(same)} of {len(same)} ({fired} retrieve); received: r = {correlation:.4f}")
    assert 0 < fired < len(same)
    assert np.mean(same) >= 0.8
    assert correlation > 0.99
