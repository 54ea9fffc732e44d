"""The embedded model with a cache: every method answers what it answers without one, and a sweep pays for less."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from answering import recorded

from dragin_lab.catalog.methods import method
from dragin_lab.core.method import PAPERS, VARIANTS
from dragin_lab.data.datasets import demo_questions
from dragin_lab.model.load import LanguageModel
from dragin_lab.reference.rules import REFERENCE_METHODS
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.run.benchmark import Benchmark, open_run
from dragin_lab.run.cache import Cache
from dragin_lab.run.lab import Lab

THETAS = [0.5, 1.0, 1.5, 2.0, 2.5]
#: Every method in both variants; in the quick tier one variant each, and both of DRAGIN.
CELLS = [
    pytest.param(name, variant, marks=() if variant == "paper" or name == "dragin" else pytest.mark.slow)
    for name in PAPERS
    for variant in VARIANTS
    if variant == "paper" or name in REFERENCE_METHODS
]


@functools.cache
def world() -> tuple[LanguageModel, BM25, Cache]:
    return LanguageModel.load(dtype="float32"), BM25(Corpus.load()), Cache()


@pytest.mark.parametrize(("name", "variant"), CELLS)
def test_the_same_trace_and_what_is_served_to_the_bit(name: str, variant: str) -> None:
    lm, retriever, cache = world()  # one cache for all methods: each finds what the others left
    question = demo_questions()[1]
    chosen = method(name, variant=variant, max_new_tokens=32)
    plain = Lab(lm, retriever=retriever).ask(question, chosen)
    first = Lab(lm, retriever=retriever, cache=cache).ask(question, chosen)
    again = Lab(lm, retriever=retriever, cache=cache).ask(question, chosen)
    # Computed twice, the same to rounding: no two tokens are that close here.
    assert [c.ids.tolist() for c in plain.continuations] == [c.ids.tolist() for c in first.continuations]
    assert (plain.text, plain.answer, plain.queries) == (first.text, first.answer, first.queries)
    assert first.diff(again) == ""
    assert again.stored == {"drafts": again.counters["drafts"], "tokens": again.counters["generated"]}
    assert plain.stored == {"drafts": 0, "tokens": 0}
    (side,) = Lab(lm, retriever=retriever, cache=cache).ask_many([question], chosen, batch_size=2)
    del side.provenance["batch"]
    assert first.diff(side) == ""  # nothing was left to write beside others


def test_five_thresholds_make_less_than_five_runs(tmp_path: Path) -> None:
    lm, retriever, _ = world()
    asked = Benchmark("one", tuple(demo_questions()[:1]))
    chosen = method("dragin", max_new_tokens=32)
    shared = Lab(lm, retriever=retriever).sweep(asked, chosen, threshold=THETAS, output=tmp_path, progress=False)
    plain, alone = Lab(lm, retriever=retriever), []
    for one in shared.methods:
        with open_run(plain, one, asked, None) as go_on:
            alone.append(go_on(None))
    assert list(shared.predictions) == alone
    assert shared.values == tuple(THETAS)
    assert shared.counts is not None
    all_tokens = sum(line["tokens"] for lines in alone for line in lines)
    assert shared.counts.tokens_made + shared.counts.tokens_served == all_tokens
    assert shared.counts.tokens_made < 0.7 * all_tokens
    assert shared.counts.drafts_outgrown == 0


def test_predictions_are_the_same_bytes_whatever_ran_before(tmp_path: Path) -> None:
    lm, retriever, cache = world()
    chosen = method("dragin", variant="paper", max_new_tokens=24)
    asked = demo_questions()[:2]

    def predicted(name: str, lm: LanguageModel, questions: list, cache: Cache | None = None) -> bytes:  # type: ignore[type-arg]
        folder = tmp_path / name
        recorded(
            Lab(lm, retriever=retriever, cache=cache),
            Benchmark("two", tuple(questions)),
            chosen,
            folder,
        )
        return (folder / "predictions.jsonl").read_bytes()

    fresh = predicted("fresh", LanguageModel.load(dtype="float32"), asked)
    Lab(lm, retriever=retriever).ask(demo_questions()[3], method("fs-rag", max_new_tokens=24))
    assert predicted("warm", lm, asked) == fresh
    backwards = predicted("backwards", lm, asked[::-1])
    assert sorted(backwards.splitlines()) == sorted(fresh.splitlines())
    assert predicted("kept", lm, asked, cache) == predicted("served", lm, asked, cache) == fresh
    half = tmp_path / "fresh" / "predictions.jsonl"
    half.write_bytes(fresh.splitlines(keepends=True)[0] + fresh.splitlines()[1][:40])  # killed in a line
    assert predicted("fresh", lm, asked, cache) == fresh
