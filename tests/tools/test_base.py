"""What the scripts of pages share: rows on disk that survive a kill, and a reading that survives a new page."""

from __future__ import annotations

import json
from pathlib import Path

from tools.pages.base import READING, keep_reading, kept_rows


def test_rows_already_there_are_not_made_again_and_torn_ones_are(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    computed: list[int] = []

    def compute(item: int) -> dict[str, int]:
        computed.append(item)
        return {"item": item}

    assert kept_rows(path, [1, 2], compute) == [{"item": 1}, {"item": 2}]
    path.write_text(path.read_text(encoding="utf-8")[:-4], encoding="utf-8")
    assert kept_rows(path, [1, 2, 3], compute) == [{"item": 1}, {"item": 2}, {"item": 3}]
    assert computed == [1, 2, 2, 3]
    assert [json.loads(line)["item"] for line in path.read_text(encoding="utf-8").splitlines()] == [1, 2, 3]
    assert kept_rows(path, [1], compute) == [{"item": 1}]


def test_a_page_that_is_made_again_keeps_what_people_wrote(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert keep_reading(page) == f"{READING[0]}\nNothing written yet.\n{READING[1]}"
    page.write_text(f"# A\n\n{READING[0]}\nEntropy does well.\n{READING[1]}\n\nold\n", encoding="utf-8")
    assert keep_reading(page) == f"{READING[0]}\nEntropy does well.\n{READING[1]}"
