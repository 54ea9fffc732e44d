"""Every notebook in JupyterLab: all cells run, nothing complains, and it looks right in both
themes and two widths.
"""

from __future__ import annotations

import pytest
from lab import NARROW, ROOT, WIDE
from tidy import card_problems, sideways

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_whole_and_looks_right(name, open_notebook, picture):
    notebook = open_notebook(name)
    page, cells = notebook.page, notebook.run_all()
    assert [error for cell in cells for error in cell.errors] == []
    assert all(cell.count for cell in cells if cell.type == "code" and cell.source.strip())
    stem = name.removesuffix(".ipynb")
    for theme, width in (("light", WIDE), ("dark", NARROW)):
        notebook.theme(theme)
        notebook.pictures(picture, f"{stem}-{theme}", width)
        for card in page.locator(".jp-OutputArea-output .dl-out > .dl").all():
            if card.is_visible():
                assert card_problems(card) == []
        for figure in page.locator(".js-plotly-plot").all():
            drawn = figure.evaluate("figure => getComputedStyle(figure).filter")
            assert (drawn != "none") == (theme == "dark"), "no white slab on a dark page"
        assert sideways(page) <= 0
