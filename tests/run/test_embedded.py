"""Every method on the embedded model: side by side and with a cache, each question gets what it
gets alone.

``benchmarks/batch.py`` compares side by side with alone on as many questions as it is given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from answering import demo_questions, recorded

from dragin_lab.catalog.by_name import method
from dragin_lab.core.method import PAPERS, VARIANTS
from dragin_lab.engines import generating
from dragin_lab.engines.load import LanguageModel
from dragin_lab.lab import Lab
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.run.benchmark import Benchmark, open_run
from dragin_lab.run.cache import Cache
from dragin_lab.trace.trace import Trace

#: One of each loop; that a question has one trace is a law on drawn models
#: (tests/laws/test_one_trace.py).
FEW = [
    ("dragin", "paper"),
    ("dragin", "reference"),
    ("fs-rag", "paper"),
    ("flare-instruct", "paper"),
]
CLOSE = 1e-4  # nats between the two likeliest tokens where a batch may choose the other one
SHORT = method("wo-rag", variant="paper", max_new_tokens=12)


@functools.cache
def world() -> tuple[Lab, Lab]:
    """A lab with no cache, and one with a cache in which each method finds what the others left."""
    lm, retriever = LanguageModel.load(dtype="float32"), BM25(Corpus.load())
    return Lab(lm, retriever=retriever, cache=False), Lab(lm, retriever=retriever, cache=Cache())


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param(name, variant, marks=() if (name, variant) in FEW else pytest.mark.deep)
        for name in PAPERS
        for variant in VARIANTS
        if variant == "paper" or name in REFERENCE_METHODS
    ],
)
def test_a_method_answers_the_same_alone_side_by_side_and_from_a_cache(
    name: str, variant: str
) -> None:
    lab, caching = world()
    questions = demo_questions()[:2]
    chosen = method(name, variant=variant, max_new_tokens=32)
    side = {trace.question.id: trace for trace in lab.ask_many(questions, chosen, batch_size=2)}
    for alone in lab.ask_many(questions, chosen):
        other = side[alone.question.id]
        if written(alone) == written(other):
            assert outcome(other) == outcome(alone)
        else:
            assert gap_of_first_difference(alone, other) <= CLOSE
    first, again = (caching.ask(questions[1], chosen) for _ in range(2))
    # Computed twice, the same to rounding: no two tokens are that close here.
    assert (written(first), outcome(first)) == (written(alone), outcome(alone))
    assert first.diff(again) == ""
    assert again.stored == {
        "drafts": again.counters["drafts"],
        "tokens": again.counters["generated"],
    }
    assert alone.stored == {"drafts": 0, "tokens": 0}
    (served,) = caching.ask_many(questions[1:], chosen, batch_size=2)
    del served.provenance["batch"]
    assert first.diff(served) == ""  # nothing was left to write beside others


def written(trace: Trace) -> list[list[int]]:
    return [continuation.ids.tolist() for continuation in trace.continuations]


def outcome(trace: Trace) -> tuple[object, ...]:
    passages = [[p.id for p in step.passages] for step in trace.steps]
    return (
        trace.ended,
        trace.text,
        trace.answer,
        trace.scores,
        trace.queries,
        passages,
        len(trace.steps),
    )


def gap_of_first_difference(alone: Trace, other: Trace) -> float:
    """How much likelier the likeliest token was than the next, in nats, where two traces first
    chose another one.
    """
    for x, y in zip(alone.continuations, other.continuations, strict=False):
        assert x.prompt_ids.tolist() == y.prompt_ids.tolist()
        for t, (a, b) in enumerate(zip(x.ids, y.ids, strict=False)):
            if a != b:
                first, second = np.log(x.alternative_probs[t, :2].astype(float))
                return float(first - second)
        assert len(x) == len(y)
    raise AssertionError("one trace has a draft more")


# -- with a cache ----------------------------------------------------------------------------------


def test_five_thresholds_make_less_than_five_runs(tmp_path: Path) -> None:
    lab, _ = world()
    asked = Benchmark("one", tuple(demo_questions()[:1]))
    chosen = method("dragin", max_new_tokens=32)
    thetas = [0.5, 1.0, 1.5, 2.0, 2.5]
    shared = lab.replace(cache=None).sweep(
        asked, chosen, threshold=thetas, output=tmp_path, progress=False
    )
    alone = []
    for one in shared.methods:
        with open_run(lab.setup(one), one, asked, None) as go_on:
            alone.append(go_on(None))
    assert [record.predictions for record in shared.records] == alone
    assert shared.values == tuple(thetas)
    all_tokens = sum(line["tokens"] for lines in alone for line in lines)
    assert shared.counts.tokens_made + shared.counts.tokens_served == all_tokens
    assert shared.counts.tokens_made < 0.7 * all_tokens
    assert shared.counts.drafts_outgrown == 0


def test_predictions_are_the_same_bytes_whatever_ran_before(tmp_path: Path) -> None:
    lab, caching = world()
    chosen = method("dragin", variant="paper", max_new_tokens=24)
    asked = demo_questions()[:2]

    def predicted(name: str, lab: Lab, questions: Any = asked) -> bytes:
        recorded(lab, Benchmark("two", tuple(questions)), chosen, tmp_path / name)
        return (tmp_path / name / "predictions.jsonl").read_bytes()

    fresh = predicted("fresh", lab.replace(model=LanguageModel.load(dtype="float32")))
    lab.ask(demo_questions()[3], method("fs-rag", max_new_tokens=24))
    assert predicted("warm", lab) == fresh
    assert sorted(predicted("backwards", lab, asked[::-1]).splitlines()) == sorted(
        fresh.splitlines()
    )
    assert predicted("kept", caching) == predicted("served", caching) == fresh
    half = tmp_path / "fresh" / "predictions.jsonl"
    # killed in a line
    half.write_bytes(fresh.splitlines(keepends=True)[0] + fresh.splitlines()[1][:40])
    assert predicted("fresh", caching) == fresh


# -- what goes wrong in the middle of a batch ------------------------------------------------------


def failing(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[int, int], BaseException | None]
) -> list[int]:
    """Let a shared forward fail as ``fails(forwards before, texts)`` says; returns the texts of
    each, as they come.
    """
    lm = world()[0].model
    lm.prefixes.clear()
    record, seen = generating._Recorder.record, []

    def limited(self: Any, *args: Any) -> None:
        seen.append(len(self.beside))
        if (error := fails(len(seen) - 1, seen[-1])) is not None:
            raise error
        record(self, *args)

    monkeypatch.setattr(generating._Recorder, "record", limited)
    return seen


def test_out_of_memory_in_the_middle_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    (lab, _), error = world(), torch.OutOfMemoryError("CUDA out of memory.")
    questions = demo_questions()[:5]
    alone = {trace.question.id: outcome(trace) for trace in lab.ask_many(questions, SHORT)}
    seen = failing(monkeypatch, lambda before, texts: error if before > 5 and texts > 2 else None)
    with pytest.warns(UserWarning, match="a batch of 5 did not fit into memory; went on with 2"):
        side = list(lab.ask_many(questions, SHORT, batch_size=5))
    assert {trace.question.id: outcome(trace) for trace in side} == alone
    assert max(seen[:6]) == 5
    assert max(seen[7:]) == 2
    batches = [trace.provenance["batch"] for trace in side]
    assert all(one["asked"] == 5 and one["size"] == 2 and len(one["notes"]) == 1 for one in batches)
