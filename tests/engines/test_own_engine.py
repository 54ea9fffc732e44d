"""An engine of one's own is a tokenizer and ``write``; a text scored after several prompts is
scored as after each.
"""

from __future__ import annotations

from typing import Any

import lm_tiny
import numpy as np
import pytest
from lm_tiny import tiny
from scripted import Parrot, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.engines.engine import Engine
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft, Prompt

PROMPTS = [
    Prompt(lm_tiny.PROMPT + text, {"exemplars": (0, 20)})
    for text in ("", " The end.", " The river. The end.")
]


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
def test_what_prompts_begin_with_is_read_once_and_changes_nothing(kind: str) -> None:
    lm = tiny(kind)
    ids = lm.write(Write(PROMPTS[0], 9)).ids.tolist()
    scores = lm.score_many(PROMPTS, ids)
    assert scores.shape == (3, 9)
    np.testing.assert_allclose(scores, Engine.score_many(lm, PROMPTS, ids), atol=1e-4)
    np.testing.assert_allclose(scores[0], lm.write(Write(PROMPTS[0], 9)).logprob, atol=1e-4)


def test_an_engine_of_ones_own_scores_one_by_one_and_is_asked_side_by_side_swept_and_tuned() -> (
    None
):
    parrot = Parrot()
    assert parrot.score_many([Prompt("Who?"), Prompt("When?")], parrot.says[:3]).shape == (2, 3)
    lab = dl.Lab(parrot, retriever=ScriptedRetriever())
    alone, *beside = (
        lab.ask("Who?", "dragin"),
        *lab.ask_many(["Who?", "Who?"], "dragin", batch_size=2),
    )
    assert alone.queries
    assert [trace.text for trace in beside] == [alone.text] * 2
    swept = lab.sweep(["Who?"], "dragin", threshold=[0.1, 9.0], progress=False).table
    assert swept["retrievals"].tolist()[1] == 0 < swept["retrievals"].tolist()[0]
    dl.tune([alone])


class Deaf(Parrot):
    """Writes what it likes, whatever is given."""

    name = "deaf"

    def write(self, request: Write, seed: int | None = None, **more: Any) -> Draft:
        return super().write(Write(request.prompt, request.max_new_tokens), seed, **more)


def test_an_engine_that_does_not_measure_a_given_text_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match="deaf gives no log-probabilities of a text that is given"):
        Deaf().score_many([Prompt("Who?")], [5, 6])
    with pytest.raises(ModelError, match="no ids to score"):
        Deaf().score_many([Prompt("Who?")], [])
