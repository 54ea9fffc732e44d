"""An executed notebook with figures, a table, a page and a control, read elsewhere: as HTML, as
LaTeX, in VS Code.
"""

from __future__ import annotations

import nbformat
import pytest
from lab import ROOT, Pages, write_notebook
from nbclient import NotebookClient
from nbconvert import HTMLExporter, LatexExporter
from plotly.offline import get_plotlyjs

PLOTLY = "application/vnd.plotly.v1+json"
CELLS = [
    f"""import sys
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT / "tests" / "views")!r}]
sys.path[:0] = [{str(ROOT / "tests" / "browser")!r}]
import plotly.io as pio
from plotly.io.base_renderers import HtmlRenderer
pio.renderers["beside"] = HtmlRenderer(include_plotlyjs="directory")
pio.renderers.default = "plotly_mimetype+beside+png"
import shown, dragin_lab as dl""",
    *(f"shown.FIGURES[{name!r}]()" for name in ("heatmap", "selections", "attention", "sweep")),
    "dl.tune(shown.CARDS['trace']())",
    "shown.CARDS['trace']()",
    "shown.samples.sweep_table()",
]


@pytest.fixture(scope="module")
def notebook(chromium, tmp_path_factory):
    """The notebook with its outputs, in a folder that has plotly's script."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    path = folder / write_notebook(folder, "shown.ipynb", CELLS)
    executed = NotebookClient(nbformat.read(path, 4), timeout=300).execute()
    nbformat.write(executed, path)
    return path


def bundles(notebook):
    cells = nbformat.read(notebook, 4).cells
    return [output["data"] for cell in cells for output in cell.outputs if "data" in output]


def test_figures_and_the_picture_of_a_control_are_data_that_vs_code_draws(notebook):
    assert sum(PLOTLY in data for data in bundles(notebook)) == 5


def test_all_figures_of_an_exported_page_draw_offline_by_one_script(notebook, browser):
    page = Pages(browser)()  # nbconvert's own scripts are asked for outside, and refused
    html = notebook.with_suffix(".html")
    html.write_text(HTMLExporter().from_filename(str(notebook))[0], encoding="utf-8")
    page.goto(html.as_uri())
    page.locator(".main-svg").last.wait_for()
    figures = page.locator(".js-plotly-plot").all()
    assert len(figures) == 5
    assert [figure.locator(".main-svg").count() > 0 for figure in figures] == [True] * 5
    page.context.close()
    assert html.read_text(encoding="utf-8").count('src="plotly.min.js"') == 5


def test_latex_has_text_tables_and_pictures_and_no_names_of_objects(notebook):
    tex, resources = LatexExporter().from_filename(str(notebook))
    assert tex.count("{output_") == len(resources["outputs"]) == 5
    for says in ("Graizond", "Retrieve:", "retrievals", "The controls need a kernel"):
        assert says in tex
    for stub in ("Figure(", "IPython.core", "Tuner(", "children="):
        assert stub not in tex
