"""The script behind docs/almanac.md: what it keeps, what it resumes, and that it does not change what methods write."""

from __future__ import annotations

import json
from pathlib import Path

from tools.pages import almanac as make

ROOT = Path(__file__).parents[2]


def test_rows_already_there_are_not_made_again_and_torn_ones_are(tmp_path: Path) -> None:
    work = make.Work.__new__(make.Work)
    work.folder, work.deadline = tmp_path, float("inf")
    made: list[int] = []

    def compute(item: int) -> dict[str, int]:
        made.append(item)
        return {"item": item}

    assert work.each("x", [1, 2], compute) == [{"item": 1}, {"item": 2}]
    path = tmp_path / "x.jsonl"
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[:-4], encoding="utf-8")
    assert work.each("x", [1, 2, 3], compute) == [{"item": 1}, {"item": 2}, {"item": 3}]
    assert made == [1, 2, 2, 3]
    assert [json.loads(line)["item"] for line in path.read_text(encoding="utf-8").splitlines()] == [1, 2, 3]
    assert work.each("x", [1], compute) == [{"item": 1}]
    work.deadline = 0.0
    assert work.each("x", [1, 2, 3, 4], compute, until=True) == [{"item": 1}, {"item": 2}, {"item": 3}]
