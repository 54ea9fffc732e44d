"""Every notebook in JupyterLab: all cells run, nothing complains, and it looks right in both themes and two widths."""

from __future__ import annotations

import pytest
from lab import NARROW, ROOT, WIDE, Notebook

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_whole_and_quietly(name, lab, new_page, picture):
    page = new_page(lab)
    notebook = Notebook.open(page, lab, name)
    cells = notebook.run_all()
    assert [error for cell in cells for error in cell.errors] == []
    assert all(cell.count for cell in cells if cell.type == "code" and cell.source.strip())
    stem = name.removesuffix(".ipynb")
    for theme, width in (("light", WIDE), ("dark", NARROW)):
        notebook.theme(theme)
        notebook.pictures(picture, f"{stem}-{theme}", width)
