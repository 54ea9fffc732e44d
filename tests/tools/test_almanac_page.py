"""The script behind docs/almanac.md: what it keeps, what it resumes, and that it does not change what methods write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dragin_lab import almanac
from dragin_lab.study import needs
from tools.pages import almanac as make
from tools.pages import almanac_page as page
from tools.pages.queries import Asked

ROOT = Path(__file__).parents[2]


def results(page: Any) -> Any:
    """Two questions: DRAGIN has both right, wo-RAG one."""
    labels = almanac.labels("iirc", "test", 2)
    items = []
    for number in range(12):
        scores = dict.fromkeys(("rind", "rind-reference", *needs.CLOCKS), 0.2)
        scores["entropy"] = 5.0 if number % 2 else 0.1
        items.append(
            needs.Item(
                f"q{number}", "never" if number % 2 else "often", number % 2 == 1, scores, number % 3 == 0, scores
            )
        )
    rows = {}
    for method, right in (("wo-rag", (1.0, 0.0)), ("dragin", (1.0, 1.0)), ("dragin-sparing", (0.0, 1.0))):
        passages = [[fact.passage for fact in labels[1].facts]] if method != "wo-rag" else []
        rows[method] = [
            {"qid": one.qid, "em": em, "retrievals": len(passages), "passages": passages, "tokens": 40}
            for one, em in zip(labels, right, strict=True)
        ]
    asked = {
        f"{variant} {what}": [Asked("q1", "f", "x", found, "7") for found in (("7",), ("1", "2", "3", "7"))]
        for variant in ("reference", "paper")
        for what, found in (("qfs", ()), ("question", ()))
    }
    return page.Results(
        model={"model": "tiny", "weights_sha256": "0123456789abcdef", "dtype": "float32", "layer": 3},
        passages=2075, pipeline="a pipeline", dev_limit=5, best=needs.best_thresholds(items), facts=items,
        sentences=items, free=items, ends=["lost", "all right", "first wrong"], lost=1, asked=asked,
        top_n={v: {"qfs": 5, "last-n": 10} for v in ("reference", "paper")},
        words={"dragin": 15, "dragin-paper": 10}, thetas={"dragin": 1.5, "dragin-sparing": 2.5},
        tried={"dragin": {1.5: (0.5, 1.0)}}, answered={"iirc": rows}, labels={one.qid: one for one in labels},
    )  # fmt: skip


def test_page_says_what_was_found_and_keeps_its_reading(tmp_path: Path) -> None:
    path = tmp_path / "almanac.md"
    page.write_page(path, results(page))
    text = path.read_text(encoding="utf-8")
    assert "| `entropy` | 1.000 – |" in text
    assert "| `every-sentence` | 0.500 – |" in text
    assert "| wo-RAG | 0.500 [0.095, 0.905] |" in text
    assert "| DRAGIN | 1.000 [0.342, 1.000] |" in text
    assert "| DRAGIN − wo-RAG | +0.500 [+0.000, +1.000] |" in text
    assert "| DRAGIN, at most 1.6 − wo-RAG | +0.000 [-1.000, +1.000] |" in text
    assert "retrievals per question there: 2.5." in text.replace("\n", " ")
    assert "| qfs | 0.500 [0.095, 0.905] | 0.625 |" in text
    path.write_text(text.replace("Nothing written yet.", "Entropy is perfect here."), encoding="utf-8")
    page.write_page(path, results(page))
    again = path.read_text(encoding="utf-8")
    assert "Entropy is perfect here." in again
    assert again.replace("Entropy is perfect here.", "Nothing written yet.") == text
    assert all(
        line.count("|") == table.split("\n")[0].count("|") for table in tables(again) for line in table.splitlines()
    )


def tables(text: str) -> list[str]:
    return [block for block in text.split("\n\n") if block.startswith("| ")]


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
