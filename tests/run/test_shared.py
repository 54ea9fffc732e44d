"""The embedded model with a cache: every method answers what it answers without one, and a sweep pays for less."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from dragin_lab.core.method import METHODS, VARIANTS, method
from dragin_lab.data.datasets import demo_questions
from dragin_lab.model.load import LanguageModel
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.run.benchmark import Benchmark, run_benchmark
from dragin_lab.run.cache import Cache
from dragin_lab.run.drivers import ask, run_many
from dragin_lab.run.sweeps import sweep

THETAS = [0.5, 1.0, 1.5, 2.0, 2.5]
#: Every method in both variants; in the quick tier one variant each, and both of DRAGIN.
CELLS = [
    pytest.param(name, variant, marks=() if variant == "paper" or name == "dragin" else pytest.mark.slow)
    for name in METHODS
    for variant in VARIANTS
]


@functools.cache
def world() -> tuple[LanguageModel, BM25, Cache]:
    return LanguageModel.load(dtype="float32"), BM25(Corpus.load()), Cache()


@pytest.mark.parametrize(("name", "variant"), CELLS)
def test_the_same_trace_to_the_bit(name: str, variant: str) -> None:
    lm, retriever, cache = world()  # one cache for all methods: each finds what the others left
    question = demo_questions()[1]
    chosen = method(name, variant=variant, max_new_tokens=32)
    plain = ask(chosen, lm, retriever, question)
    first = ask(chosen, lm, retriever, question, cache=cache)
    again = ask(chosen, lm, retriever, question, cache=cache)
    assert plain.diff(first) == plain.diff(again) == ""
    assert again.stored == {"drafts": again.counters["drafts"], "pieces": again.counters["generated"]}
    assert plain.stored == {"drafts": 0, "pieces": 0}
    (side,) = run_many(chosen, lm, retriever, [question], cache=cache, batch_size=2)
    del side.provenance["batch"]
    assert plain.diff(side) == ""  # nothing was left to write beside others


def test_five_thresholds_make_less_than_five_runs(tmp_path: Path) -> None:
    lm, retriever, _ = world()
    asked = Benchmark("three", tuple(demo_questions()[:2]))
    chosen = method("dragin", max_new_tokens=32)
    shared = sweep(chosen, lm, retriever, asked, thresholds=THETAS, folder=tmp_path, progress=False)
    alone = sweep(chosen, lm, retriever, asked, thresholds=THETAS, cache=False, progress=False)
    assert alone.counts is None
    assert shared.predictions == alone.predictions
    assert shared.values == tuple(THETAS)
    assert shared.counts is not None
    all_pieces = sum(line["pieces"] for lines in alone.predictions for line in lines)
    assert shared.counts.pieces_made + shared.counts.pieces_served == all_pieces
    assert shared.counts.pieces_made < 0.7 * all_pieces
    assert shared.counts.drafts_outgrown == 0


def test_predictions_are_the_same_bytes_whatever_ran_before(tmp_path: Path) -> None:
    lm, retriever, cache = world()
    chosen = method("dragin", variant="paper", max_new_tokens=24)
    asked = demo_questions()[:2]

    def predicted(name: str, lm: LanguageModel, questions: list, cache: Cache | None = None) -> bytes:  # type: ignore[type-arg]
        folder = tmp_path / name
        run_benchmark(chosen, lm, retriever, Benchmark("two", tuple(questions)), folder, progress=False, cache=cache)
        return (folder / "predictions.jsonl").read_bytes()

    fresh = predicted("fresh", LanguageModel.load(dtype="float32"), asked)
    ask(method("fs-rag", max_new_tokens=24), lm, retriever, demo_questions()[3])
    assert predicted("warm", lm, asked) == fresh
    backwards = predicted("backwards", lm, asked[::-1])
    assert sorted(backwards.splitlines()) == sorted(fresh.splitlines())
    assert predicted("kept", lm, asked, cache) == predicted("served", lm, asked, cache) == fresh
    half = tmp_path / "fresh" / "predictions.jsonl"
    half.write_bytes(fresh.splitlines(keepends=True)[0] + fresh.splitlines()[1][:40])  # killed in a line
    assert predicted("fresh", lm, asked, cache) == fresh
