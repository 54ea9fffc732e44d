"""The paper variant answers Almanac's development questions as it did when they were recorded.

``recorded_answers.jsonl`` holds what every method wrote, asked and answered: ten development
questions of each benchmark, with the threshold that is recorded. They were recorded when the
embedded model was last exchanged, by code that gave the second edition's answers on the weights
before it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from answering import embedded

import dragin_lab as dl
from dragin_lab.catalog.by_name import method
from dragin_lab.run.benchmark import Benchmark
from dragin_lab.run.benchmark import benchmark as open_benchmark

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "recorded_answers.jsonl").read_text("utf-8").splitlines()
]

NAMES = sorted({row["method"] for row in ROWS})


@pytest.fixture(scope="module")
def lab() -> dl.Lab:
    return embedded().replace(cache=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_that_were_recorded(
    lab: dl.Lab, name: str, request: pytest.FixtureRequest
) -> None:
    # else half of two benchmarks, by the method
    whole = request.config.getoption("--tier") == "slow"
    rows = {(row["benchmark"], row["id"]): row for row in ROWS if row["method"] == name}
    changed: list[tuple[str, str, str]] = []
    known = sorted({benchmark for benchmark, _ in rows})
    for benchmark in map(open_development, known if whole else known[NAMES.index(name) % 2 :: 2]):
        asking = lab.replace(exemplars=benchmark.template)
        chosen = method(name, variant="paper", threshold=next(iter(rows.values()))["threshold"])
        for trace in asking.ask_many(
            benchmark.questions[: None if whole else 5], chosen, batch_size=10
        ):
            row = rows[benchmark.name, trace.question.id]
            written = {
                "text": trace.text,
                "queries": trace.queries,
                "answer": trace.answer,
                "ended": trace.ended,
            }
            changed += [
                (benchmark.name, trace.question.id, key)
                for key in written
                if written[key] != row[key]
            ]
    assert changed == []


def open_development(name: str) -> Benchmark:
    return open_benchmark(name.removesuffix("-dev"), split="dev", limit=10)
