"""Every method on the embedded model: side by side each question gets the text that it gets alone.

``benchmarks/batch.py`` makes the same comparison on as many questions as it is given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from answering import recorded

from dragin_lab.catalog.methods import method
from dragin_lab.core.method import PAPERS, VARIANTS
from dragin_lab.data.datasets import demo_questions
from dragin_lab.model.load import LanguageModel
from dragin_lab.reference.rules import REFERENCE_METHODS
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.run.lab import Lab
from dragin_lab.trace.trace import Trace

CLOSE = 1e-4  # nats between the two likeliest tokens where a batch may choose the other one
#: Every method in both variants; in the quick tier one variant each, and both of DRAGIN.
CELLS = [
    pytest.param(name, variant, marks=() if variant == "paper" or name == "dragin" else pytest.mark.slow)
    for name in PAPERS
    for variant in VARIANTS
    if variant == "paper" or name in REFERENCE_METHODS
]


@functools.cache
def world() -> tuple[LanguageModel, BM25]:
    return LanguageModel.load(dtype="float32"), BM25(Corpus.load())


@pytest.mark.parametrize(("name", "variant"), CELLS)
def test_same_text_as_alone(name: str, variant: str) -> None:
    lm, retriever = world()
    questions = demo_questions()[:2]
    chosen = method(name, variant=variant, max_new_tokens=32)
    side = {t.question.id: t for t in Lab(lm, retriever=retriever).ask_many(questions, chosen, batch_size=2)}
    for alone in Lab(lm, retriever=retriever).ask_many(questions, chosen):
        other = side[alone.question.id]
        if [c.ids.tolist() for c in alone.continuations] == [c.ids.tolist() for c in other.continuations]:
            assert outcome(other) == outcome(alone)
        else:
            assert gap_of_first_difference(alone, other) <= CLOSE


def gap_of_first_difference(alone: Trace, other: Trace) -> float:
    """How much likelier the likeliest token was than the next, in nats, where two traces first chose another one."""
    for x, y in zip(alone.continuations, other.continuations, strict=False):
        assert x.prompt_ids.tolist() == y.prompt_ids.tolist()
        for t, (a, b) in enumerate(zip(x.ids, y.ids, strict=False)):
            if a != b:
                first, second = np.log(x.alternative_probs[t, :2].astype(float))
                return float(first - second)
        assert len(x) == len(y)
    raise AssertionError("one trace has a draft more")


def outcome(trace: Trace) -> tuple[object, ...]:
    found = [[p.id for p in step.passages] for step in trace.steps]
    return trace.ended, trace.text, trace.answer, trace.scores, trace.queries, found, len(trace.steps)


# -- what goes wrong in the middle ------------------------------------------------------------------------------------

SHORT = method("wo-rag", variant="paper", max_new_tokens=12)


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int, int], BaseException | None]) -> list[int]:
    """Let a shared forward fail as ``fails(forwards before, texts)`` says; returns the texts of each, as they come."""
    lm, _ = world()
    lm.forget()
    step, seen = lm.tap.step, []

    def limited(pending: Any, **inputs: Any) -> Any:
        if inputs["input_ids"].shape[1] == 1:
            seen.append(len(inputs["input_ids"]))
            if (error := fails(len(seen) - 1, seen[-1])) is not None:
                raise error
        return step(pending, **inputs)

    monkeypatch.setattr(lm.tap, "step", limited)
    return seen


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory: you")],
)
def test_out_of_memory_in_the_middle_costs_no_answer(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, _ = world()
    questions = demo_questions()[:5]
    alone = {t.question.id: t for t in Lab(lm).ask_many(questions, SHORT)}
    seen = failing(monkeypatch, lambda before, texts: error if before > 5 and texts > 2 else None)
    with pytest.warns(UserWarning, match="a batch of 5 did not fit into memory; went on with 2"):
        side = {t.question.id: t for t in Lab(lm).ask_many(questions, SHORT, batch_size=5)}
    assert {key: outcome(trace) for key, trace in side.items()} == {key: outcome(t) for key, t in alone.items()}
    assert max(seen[:6]) == 5
    assert max(seen[7:]) == 2
    said = [trace.provenance["batch"] for trace in side.values()]
    assert all(one["asked"] == 5 and one["size"] == 2 and len(one["notes"]) == 1 for one in said)


def test_an_interrupt_in_a_batch_keeps_the_finished_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lm, _ = world()
    questions = demo_questions()[:5]

    def answered(folder: Path) -> list[bytes]:
        recorded(Lab(lm), questions, SHORT, folder, batch_size=2)
        return (folder / "predictions.jsonl").read_bytes().splitlines()

    whole = failing(monkeypatch, lambda before, texts: None)
    expected = answered(tmp_path / "whole")
    monkeypatch.undo()
    failing(monkeypatch, lambda before, texts: KeyboardInterrupt() if before == 2 * len(whole) // 3 else None)
    with pytest.raises(KeyboardInterrupt) as caught:
        answered(tmp_path / "cut")
    assert any("Run again" in note for note in caught.value.__notes__)
    monkeypatch.undo()
    kept = (tmp_path / "cut" / "predictions.jsonl").read_bytes().splitlines()
    assert 0 < len(kept) < 5
    assert set(kept) < set(expected)
    assert answered(tmp_path / "cut") == expected
