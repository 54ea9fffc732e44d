"""The pages with blocks of figures show what the benchmarks' files and the paper's tables give."""

from __future__ import annotations

import re

import pytest

from tools.pages import figures, performance
from tools.pages.base import DOCS, RESULTS

GPU = {
    "shape": {"layers": 32, "hidden": 4096, "dtype": "bfloat16"},
    "machine": {"device": "Some GPU"},
    "decoding": [{"episodes": 8, "prompt": 1024, "tokens": 128, "median_s": {"capture": 16.0}}],
}


@pytest.mark.parametrize("page", figures.PAGES)
def test_a_page_holds_what_the_files_give(page: str) -> None:
    text = figures.PAGES[page].read_text(encoding="utf-8")
    blocks = dict(re.findall(r"<!-- (\w+)[^>]*-->\n(.*?)<!-- end -->", text, re.DOTALL))
    assert blocks == figures.write_blocks(page), "run python -m tools.pages.figures --measured"


def test_the_page_of_measurements_is_what_the_files_give() -> None:
    assert (DOCS / "measured.md").read_text(encoding="utf-8") == figures.write_measured()
    assert {path.stem for path in RESULTS.glob("*.json")} >= performance.ELSEWHERE


def test_table_2_is_counted_from_the_paper() -> None:
    assert figures.count_episodes() == 3 * 6 * (1000 + 1000 + 1000 + 954)


def test_a_measured_rate_becomes_a_cost_and_what_was_not_measured_is_announced() -> None:
    drafts = figures.read_results("cluster")["an_episode"]["drafts"]
    cost = figures.duration(figures.count_episodes() * drafts * 2)
    assert f"| 8 | 2.000 | {cost} |" in figures.write_blocks("scaling", gpu=GPU)["gpu"].splitlines()
    nothing = figures.write_blocks("scaling", cluster=None, gpu=None)
    assert nothing["one_machine"].startswith("Nothing was measured")
    assert nothing["gpu"].startswith("No figure was measured")
    assert "| 8 | 2.000 |" in figures.write_blocks("scaling", cluster=None, gpu=GPU)["gpu"].splitlines()


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 seconds"), (600, "10 minutes"), (7100, "118 minutes"), (8000, "2.2 hours")]
)
def test_durations(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text
