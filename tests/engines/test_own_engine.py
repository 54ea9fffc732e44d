"""An engine of one's own is a tokenizer and ``write``: every method, the sweep and the tuner run on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import spacy
from scripted import EOS, ScriptedRetriever, WordTokenizer

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.engines.engine import Engine, OnToken
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.trace.trace import Draft

QUESTION = "Who made the thing?"
METHODS = [*((entry.name, "paper") for entry in dl.methods()), *((name, "reference") for name in REFERENCE_METHODS)]


class Parrot(Engine):
    """Says the same to every prompt, doubts every name, and looks back at all words alike."""

    name, has_attention = "parrot", True

    def __init__(self, says: str = " It is by Bo Ek. So the answer is Bo Ek.") -> None:
        self.tokenizer = WordTokenizer()
        self.says = [i for i, _, _ in self.tokenizer.cut(says)]

    def write(self, request: Write, seed: int | None = None, *, watch: OnToken | None = None) -> Draft:
        ids = [*request.prefix, *self.says[len(request.prefix) :], EOS][: request.max_new_tokens]
        for n in range(1, len(ids) + 1):
            draft = self.measure(request, ids[:n])
            stopped = "eos" if ids[n - 1] == EOS else request.stop.reached(draft) or "length" * (n == len(ids))
            if watch is not None:
                watch(draft)
            if stopped:
                break
        return replace(draft, stopped=stopped, ended=True)

    def measure(self, request: Write, ids: list[int]) -> Draft:
        n, pieces = len(ids), self.tokenizer.tokens(ids)
        ends = [0, *(len(self.tokenizer.decode(ids[: i + 1], special=False)) for i in range(n))]
        prompt_ids, prompt_offsets = self.tokenizer.encode_with_offsets(request.prompt.text)
        sure = np.array([0.2 if piece.strip("▁").istitle() else 0.9 for piece in pieces])
        rows = self.attend([*prompt_ids, *ids])[:, len(prompt_ids) - 1 :]
        return Draft(
            np.array(ids), self.tokenizer.decode(ids, special=False), np.array(list(pairwise(ends))), tuple(pieces),
            self.tokenizer.decode(ids, special=True), np.array(prompt_ids), prompt_offsets, entropy=1 - sure,
            logprob=np.log(sure), alternative_ids=np.array([[i, 0] for i in ids]), received=np.full(n, 0.5),
            alternative_probs=np.stack([sure, 1 - sure], 1), rows=rows if request.attention else None, ended=False,
            among=np.full(n * (n + 1) // 2, 0.5, np.float32) if request.among else None,
        )  # fmt: skip

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        return np.tril(np.ones((1, len(ids), len(ids)), np.float32)) / np.arange(1, len(ids) + 1)[:, None]


@pytest.fixture
def lab() -> dl.Lab:
    return dl.Lab(Parrot(), retriever=ScriptedRetriever())


@pytest.mark.parametrize(("name", "variant"), METHODS)
def test_every_method_runs(lab: dl.Lab, name: str, variant: str) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Bo Ek"}])
    method = dl.method(name, variant=variant, nlp=nlp)
    trace = lab.ask(QUESTION, method, gold="Bo Ek")
    assert trace.ended in ("answered", "length", "stalled")
    assert trace.text
    assert list(lab.ask_many([QUESTION, QUESTION], method, batch_size=2))[1].answer == trace.answer
    *_, ended = lab.stream(QUESTION, method)
    assert ended.trace.answer == trace.answer


def test_the_sweep_and_the_tuner_run(lab: dl.Lab, tmp_path: Path) -> None:
    sweep = lab.sweep([QUESTION], "dragin", threshold=[0.1, 9.0], progress=False)
    assert sweep.table["retrievals"].tolist()[1] == 0 < sweep.table["retrievals"].tolist()[0]
    trace = lab.ask(QUESTION, "dragin")
    assert trace.save(tmp_path / "t.trace").stat().st_size
    assert dl.Replay(trace).at(threshold=0.01).turns[0].reached
    dl.tune([trace])
