"""The gallery: executed notebooks as pages that need no network, and what stands in docs/gallery."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import dragin_lab as dl
from dragin_lab.core.method import PAPERS
from tools import gallery, gallery_page, runs

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
PAGES = sorted(GALLERY.glob("*.html"))


def executed(*outputs: Any, source: str = "x", tags: tuple[str, ...] = ()) -> Any:
    first = new_markdown_cell("# A title\n\nWhat it *shows*.\n\nNext: [two](02_two.ipynb)")
    cell = new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags)})
    return new_notebook(cells=[first, cell])


def shown(data: dict[str, Any]) -> Any:
    return new_output("display_data", data=data)


def test_outputs_are_shown_as_text_where_they_are_text() -> None:
    found = [
        new_output("stream", name="stderr", text="<b>bold</b>"),
        new_output("error", ename="E", evalue="", traceback=["\x1b[31mred\x1b[39m <script>"]),
        shown({"text/plain": "<img>"}),
        shown({"text/html": "<em>yes</em>", "text/plain": "no"}),
    ]
    html = gallery_page.page(executed(*found), "01_one", "made")
    assert "&lt;b&gt;bold" in html
    assert "&lt;script&gt;" in html
    assert "&lt;img&gt;" in html
    assert "<em>yes</em>" in html
    assert "\x1b" not in html


def test_an_executed_notebook_of_ones_own_becomes_a_page(tmp_path: Path) -> None:
    nbformat.write(executed(new_output("stream", name="stdout", text="mine")), tmp_path / "mine.ipynb")
    gallery.main(["--page", str(tmp_path / "mine.ipynb"), "--output", str(tmp_path / "pages")])
    assert "mine" in (tmp_path / "pages" / "mine.html").read_text(encoding="utf-8")


def test_a_figure_of_plotly_is_drawn_by_the_one_script_beside_the_pages(tmp_path: Path) -> None:
    figure = {"data": [{"type": "bar", "y": [1, 2]}], "layout": {"title": {"text": "mine"}}}
    nbformat.write(executed(shown({gallery_page.PLOTLY: figure, "text/html": "5 MB"})), tmp_path / "mine.ipynb")
    gallery.main(["--page", str(tmp_path / "mine.ipynb"), "--output", str(tmp_path / "pages")])
    html = (tmp_path / "pages" / "mine.html").read_text(encoding="utf-8")
    assert html.count('<script src="plotly.min.js">') == html.count("plotly-graph-div") == 1
    assert "5 MB" not in html
    assert (tmp_path / "pages" / "plotly.min.js").stat().st_size > 10**6


def test_the_finished_runs_of_the_notebooks_are_of_all_methods_and_say_their_variant() -> None:
    names = [method.name for method in runs.TABLES["methods"][1]]
    assert set(names) == set(PAPERS)
    assert (names.count("flare"), names.count("dragin")) == (2, 2)
    for table, (benchmarks, methods) in runs.TABLES.items():
        packed = dl.Runs.load(runs.CORPORA / f"almanac_{table}.zip")
        assert set(packed.names) == {method.label for method in methods}
        assert set(packed.datasets) == {f"almanac/{name}" for name in benchmarks}
    assert all(
        name.endswith((" paper", " reference")) for name in dl.Runs.load(runs.CORPORA / "almanac_methods.zip").names
    )


# -- what stands in docs/gallery --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_that_stands_there_is_small_and_needs_no_network(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert page.stat().st_size < 1_500_000
    assert re.findall(r'(?:src|href)="(?:https?:)?//', html) == []
    for target in re.findall(r'href="([\w-]+\.html)"', html):
        assert (GALLERY / target).is_file()
    assert 'class="failed"' not in html
    assert 'class="stderr"' not in html  # a warning, with the paths of the machine that made the page
