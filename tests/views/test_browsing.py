"""The batch explorer's data and page, over runs made by a scripted model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from answering import DRAGIN, answer
from run_folders import write_run

import dragin_lab as dl
from dragin_lab.catalog.methods import method
from dragin_lab.views.browsing import browse_data, browse_page, browse_still


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three questions: right by dragin, wrong by wo-rag."""
    root = tmp_path_factory.mktemp("runs")
    for name, how in (("dragin", DRAGIN), ("wo-rag", method("wo-rag", variant="paper"))):
        answer(root / name, 3, how=how)
    return root


def held(page: str) -> dict[str, Any]:
    """The data in a page."""
    [text] = re.findall(r'class="browse-data">(.*?)</script>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def test_each_question_has_its_answers_with_sentences_and_retrievals(folder: Path) -> None:
    data = browse_data(dl.Runs.load(folder))
    assert data["methods"] == ["dragin", "wo-rag"]
    first = data["questions"][0]
    dragin, alone = first["by"]
    assert (dragin["a"], dragin["em"], dragin["n"]) == ("Li 1", 1.0, 1)
    assert (alone["a"], alone["em"], alone["n"]) == ("Bo 1", 0.0, 0)
    assert alone["c"] == "unknown"
    assert [text for _, text, _ in dragin["text"]] == ["It is Li.", "So the answer is Li 1."]
    assert [fresh for fresh, _, _ in alone["text"]] == [0, 0]
    [step] = dragin["steps"]
    assert (step["n"], step["q"]) == (1, "Who made thing 1?")
    assert [data["passages"][at][0] for at in step["p"]] == ["0", "1", "2"]
    assert len(data["passages"]) == 3  # once each


def test_the_page_is_whole_and_holds_what_nobody_may_read_as_html(folder: Path, tmp_path: Path) -> None:
    page = browse_page(folder).page()
    assert held(page) == browse_data(dl.Runs.load(folder))
    assert "means per question" in page
    assert not re.search(r'(src|href)="http', page)
    odd = write_run(tmp_path, "dragin", name := "</script><b><!--<script>", [1.0, 0.0])
    page = browse_page(odd).page()
    assert held(page)["sets"] == [name]
    [data] = re.findall(r'class="browse-data">(.*?)</script>', page, re.DOTALL)
    assert "<" not in data


def test_what_stands_in_has_means_and_causes(folder: Path) -> None:
    still = browse_still(dl.Runs.load(folder))
    assert "unknown" in still.text
    assert "<script" not in still.html
    assert "1.000" in still.html
