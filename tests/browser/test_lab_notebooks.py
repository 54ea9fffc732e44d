"""Every notebook in JupyterLab: all cells run, nothing complains, and it looks right in both themes and two widths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import NARROW, ROOT, WIDE, Notebook, Server
from pages import Pages
from tidy import card_problems, figure_problems, sideways

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


class Ahead:
    """Runs each notebook while the one before it is looked at: one core draws, the other computes."""

    def __init__(self, lab: Server, pages: Pages, names: list[str]) -> None:
        self.lab, self.pages, self.waiting = lab, pages, list(names)
        self.started: dict[str, Notebook] = {}

    def take(self, name: str) -> Notebook:
        """The notebook, run; the next one is on its way."""
        while name in self.waiting:
            self._start()
        if self.waiting:
            self._start()
        notebook = self.started.pop(name)
        notebook.wait()
        return notebook

    def _start(self) -> None:
        name = self.waiting.pop(0)
        self.started[name] = Notebook.open(self.pages(self.lab), self.lab, name)
        self.started[name].start_all()


@pytest.fixture(scope="module")
def ahead(request, lab, browser) -> Iterator[Ahead]:
    """All notebooks that this session tests, in their order."""
    chosen = [item.callspec.params["name"] for item in request.session.items if item.module is request.module]
    pages = Pages(browser)
    yield Ahead(lab, pages, chosen)
    pages.close()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_whole_and_looks_right(name, ahead, picture):
    notebook = ahead.take(name)
    page, cells = notebook.page, notebook.cells()
    assert [error for cell in cells for error in cell.errors] == []
    assert all(cell.count for cell in cells if cell.type == "code" and cell.source.strip())
    stem = name.removesuffix(".ipynb")
    for theme, width in (("light", WIDE), ("dark", NARROW)):
        notebook.theme(theme)
        notebook.pictures(picture, f"{stem}-{theme}", width)
        for card in page.locator(".jp-OutputArea-output .dl-out > .dl").all():
            replaced = card.locator("xpath=ancestor::*[contains(@class, 'dl-stand-in')]").count()  # by its live control
            assert card.is_visible() != bool(replaced)
            assert card_problems(card) == []
        for figure in page.locator(".jp-OutputArea-output.js-plotly-plot").all():
            assert figure_problems(figure) == []
        assert sideways(page) <= 0
    notebook.end()
    page.context.close()
    ahead.pages.heard.nothing()
