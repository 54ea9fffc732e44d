"""SmolLM2 as it is quantized, served by llama.cpp in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from open_questions import QUESTIONS

import dragin_lab as dl
from dragin_lab.errors import SettingError

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


def test_what_needs_attention_is_refused(served: dl.Lab) -> None:
    with pytest.raises(SettingError, match=r"'dragin' looks at attention, and SmolLM2.* has none"):
        served.ask(QUESTIONS[0], "dragin")
