"""The gallery: executed notebooks as pages that need no network, and what stands in docs/gallery."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from run_folders import write_run

from dragin_lab.run.rundir import RunError, finished_runs

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
PAGES = sorted(GALLERY.glob("*.html"))


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield importlib.import_module("gallery_page")
    for name in ("gallery_page", "make_gallery"):
        sys.modules.pop(name, None)


def executed(*outputs: Any, source: str = "x", tags: tuple[str, ...] = ()) -> Any:
    first = new_markdown_cell("# A title\n\nWhat it *shows*.\n\nNext: [two](02_two.ipynb)")
    cell = new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags)})
    return new_notebook(cells=[first, cell])


def shown(data: dict[str, Any]) -> Any:
    return new_output("display_data", data=data)


def test_figures_share_one_file_that_stands_beside_the_page(docs: Any) -> None:
    figure = {docs.PLOTLY: go.Figure(go.Scatter(x=[1], y=[2])).to_plotly_json(), "text/plain": "Figure"}
    html = docs.page(executed(shown(figure), shown(figure)), "01_one", "made")
    assert html.count('<script src="plotly.min.js">') == 1
    assert html.count("Plotly.newPlot") == 2
    assert len(set(re.findall(r'id="(dl-figure-\d+)"', html))) == 2
    assert len(html) < 60_000


def test_a_page_without_figures_loads_nothing(docs: Any) -> None:
    html = docs.page(executed(new_output("stream", name="stdout", text="2 questions\n")), "01_one", "made")
    assert "<script" not in html
    assert "2 questions" in html


def test_links_between_notebooks_lead_to_their_pages(docs: Any) -> None:
    html = docs.page(executed(), "01_one", "made", ("00_no.html", "Nought"), ("02_two.html", "Two"))
    assert html.count('href="02_two.html"') == 2
    assert 'href="00_no.html"' in html
    assert '.ipynb"' not in html


def test_a_live_control_says_that_it_needs_a_kernel_and_a_finished_bar_nothing(docs: Any) -> None:
    control = shown({docs.WIDGET: {"model_id": "1"}, "text/plain": "Explore()"})
    assert "needs a kernel" in docs.page(executed(control), "01_one", "made")
    bar = shown({docs.WIDGET: {"model_id": "1"}, "text/plain": "  0%|          | 0/3"})
    assert "kernel" not in docs.page(executed(bar), "01_one", "made")


def test_outputs_are_shown_as_text_where_they_are_text(docs: Any) -> None:
    found = [
        new_output("stream", name="stderr", text="<b>bold</b>"),
        new_output("error", ename="E", evalue="", traceback=["\x1b[31mred\x1b[39m <script>"]),
        shown({"text/plain": "<img>"}),
        shown({"text/html": "<em>yes</em>", "text/plain": "no"}),
    ]
    html = docs.page(executed(*found), "01_one", "made")
    assert "&lt;b&gt;bold" in html
    assert "&lt;script&gt;" in html
    assert "&lt;img&gt;" in html
    assert "<em>yes</em>" in html
    assert "\x1b" not in html


def test_words_stand_to_the_left_in_a_table_and_numbers_to_the_right(docs: Any) -> None:
    import pandas as pd

    frame = pd.DataFrame({"word": ["a", "town"], "score": [1.5, -2], "hit": [True, False]})
    html = docs.page(executed(shown({"text/html": frame.to_html()})), "01_one", "made")
    assert re.search(r'<td class="words">a</td>\s*<td>1.5</td>\s*<td>True</td>', html)
    assert '<th class="words">word</th>' in html
    assert 'border="1"' not in html


def test_long_code_is_folded_and_parameters_never(docs: Any) -> None:
    source = "\n".join(["a = 1"] * (docs.FOLD + 1))
    assert f"Code, {docs.FOLD + 1} lines" in docs.page(executed(source=source), "01_one", "made")
    assert "<details" not in docs.page(executed(source=source, tags=("parameters",)), "01_one", "made")


def test_an_executed_notebook_of_ones_own_becomes_a_page(docs: Any, tmp_path: Path) -> None:
    make = importlib.import_module("make_gallery")
    nbformat.write(executed(new_output("stream", name="stdout", text="mine")), tmp_path / "mine.ipynb")
    make.main(["--page", str(tmp_path / "mine.ipynb"), "--output", str(tmp_path / "pages")])
    assert "mine" in (tmp_path / "pages" / "mine.html").read_text(encoding="utf-8")
    assert (tmp_path / "pages" / "plotly.min.js").stat().st_size < 5_000_000


def test_every_parameter_of_the_pages_is_one_of_the_notebook(docs: Any) -> None:
    make = importlib.import_module("make_gallery")
    for book in sorted(make.NOTEBOOKS.glob("[0-9]*.ipynb")):
        source = next(
            c.source for c in nbformat.read(book, as_version=4).cells if "parameters" in c.metadata.get("tags", [])
        )
        for name in make.parameters(book.stem, "runs"):
            assert re.search(rf"^{name} = ", source, re.MULTILINE), (book.stem, name)


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
    if 'plotly.min.js"' in html:
        assert (GALLERY / "plotly.min.js").stat().st_size < 5_000_000


# -- finished runs ----------------------------------------------------------------------------------------------------


def test_runs_that_are_missing_or_not_complete_name_the_command_that_makes_them(tmp_path: Path) -> None:
    command = "python docs/make_runs.py --part methods"
    with pytest.raises(RunError, match=r"no such folder.*made with: python docs/make_runs.py --part methods"):
        finished_runs(tmp_path / "nothing", command)
    whole = write_run(tmp_path / "whole", "dragin")
    assert [run.folder for run in finished_runs(tmp_path / "whole", command)] == [whole]
    write_run(tmp_path / "half", "dragin", asked=9)
    with pytest.raises(RunError, match=r"4 of 9 questions.* is not complete; .*this completes it: python docs"):
        finished_runs([tmp_path / "whole", tmp_path / "half"], command)
    write_run(tmp_path / "half", "flare", em=(1.0, None))
    with pytest.raises(RunError, match="and 1 more are not"):
        finished_runs(tmp_path / "half", command)
