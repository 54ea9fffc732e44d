"""The paper variant answers Almanac's development questions as the second edition did, but for what was mended since.

``second_edition.jsonl`` holds what the second edition wrote, asked and answered: ten development questions of each
benchmark, every method, with the threshold that is recorded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dragin_lab as dl
from dragin_lab.catalog.methods import method
from dragin_lab.run.benchmark import Benchmark, open_benchmark

ROWS = [json.loads(line) for line in (Path(__file__).parent / "second_edition.jsonl").read_text("utf-8").splitlines()]
#: Where an answer that is asked for ends with its line now, and the space before it is the model's.
MENDED = {"flare-instruct": [("almanac/iirc-dev", "iirc-dev-003", "answer")]}


@pytest.fixture(scope="module")
def lab() -> dl.Lab:
    return dl.Lab(cache=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({row["method"] for row in ROWS}))
def test_answers_of_the_second_edition(lab: dl.Lab, name: str) -> None:
    rows = {(row["benchmark"], row["id"]): row for row in ROWS if row["method"] == name}
    changed: list[tuple[str, str, str]] = []
    for benchmark in map(open_development, sorted({benchmark for benchmark, _ in rows})):
        asking = lab.replace(exemplars=benchmark.template)
        chosen = method(name, variant="paper", threshold=next(iter(rows.values()))["threshold"])
        for trace in asking.ask_many(benchmark.questions, chosen, batch_size=10):
            row = rows[benchmark.name, trace.question.id]
            written = {"text": trace.text, "queries": trace.queries, "answer": trace.answer, "ended": trace.ended}
            changed += [(benchmark.name, trace.question.id, key) for key in written if written[key] != row[key]]
    assert changed == MENDED.get(name, [])


def open_development(name: str) -> Benchmark:
    return open_benchmark(name.removesuffix("-dev"), split="dev", limit=10)
