"""Every view as JupyterLab, its exports and an untrusted notebook show it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from lab import NARROW, WIDE, exported, write_notebook
from shown import BAD, BAD_FIGURES, CARDS, FIGURES, RAN
from tidy import card_problems, figure_problems, sideways

pytestmark = pytest.mark.xdist_group("views")  # they look at one notebook, which the first of them runs

HERE = Path(__file__).parent
SETS = {"CARDS": CARDS, "FIGURES": FIGURES, "BAD": BAD, "BAD_FIGURES": BAD_FIGURES}
#: Seen on pages of their own: no method has the name of the hostile trace's, and one long trace a notebook is enough.
ELSEWHERE = ("hostile", "5,000 pieces", "5,000 pieces timeline")
#: The cells of the notebook: a set and a name in it.
SHOWN = [(kind, name) for kind, things in SETS.items() for name in things if name not in ELSEWHERE]


def source(kind: str, name: str) -> str:
    """What draws one of them."""
    return f"shown.{kind}[{name!r}]{'[0]' if kind.startswith('BAD') else ''}()"


@pytest.fixture(scope="module")
def made(lab, browser) -> str:
    """A notebook with a cell for each view; run once, saved with its outputs."""
    first = f"import sys\nsys.path.insert(0, {str(HERE)!r})\nimport shown"
    return write_notebook(lab.root, "views.ipynb", [first, *(source(*what) for what in SHOWN)])


def test_views_in_jupyterlab(made, open_notebook, picture):
    notebook = open_notebook(made)
    page = notebook.page
    cells = notebook.run_all()
    assert [error for cell in cells for error in cell.errors] == []
    places = {what: place for place, what in enumerate(SHOWN, 1)}
    for (kind, name), place in places.items():
        if kind == "BAD":
            assert BAD[name][1] in notebook.outputs(place).first.inner_text()
    assert RAN not in page.title()
    # The card follows JupyterLab's theme, whatever the system prefers.
    for theme, scheme, width in (("light", "dark", WIDE), ("dark", "light", NARROW), ("dark", "dark", WIDE)):
        page.emulate_media(color_scheme=scheme)
        notebook.theme(theme)
        notebook.resize(width)
        for (kind, name), place in places.items():
            if kind not in ("CARDS", "FIGURES") and width == NARROW:
                continue
            shown = notebook.outputs(place).first
            if kind in ("CARDS", "BAD"):
                card = shown.locator(".dl-out > .dl")
                assert card.is_visible()
                assert not shown.locator(".dl-out > .alt").is_visible()
                assert card.evaluate("card => getComputedStyle(card).colorScheme") == theme
                assert card_problems(card) == [], name
            else:
                shown.locator(".main-svg").first.wait_for(state="attached")
                assert figure_problems(shown) == [], name
                if kind == "FIGURES":
                    shown.screenshot(path=picture(f"{name}-{theme}-{width}"))
        assert sideways(page) <= 0
    notebook.save()


def test_views_in_an_exported_notebook_without_scripts(made, lab, new_page, tmp_path, picture):
    if not any(cell.get("outputs") for cell in nbformat.read(lab.root / made, 4).cells):
        pytest.skip("the notebook was not run")
    page = new_page(scripts=False, scheme="dark")  # the exported page is light, and so must the views be
    page.goto(exported(lab.root / made, tmp_path / "views.html"))
    cards = page.locator(".dl-out > .dl")
    assert cards.count() == sum(kind in ("CARDS", "BAD") for kind, _ in SHOWN)
    for card in cards.all()[: len(CARDS)]:
        assert card.is_visible()
        assert card.evaluate("card => getComputedStyle(card).colorScheme") == "light"
        assert card_problems(card) == []
    cards.first.screenshot(path=picture("nbconvert"))
    assert page.title() != RAN


def test_an_untrusted_notebook_shows_texts(made, lab, open_notebook, picture):
    book = nbformat.read(lab.root / made, 4)
    if not any(cell.get("outputs") for cell in book.cells):
        pytest.skip("the notebook was not run")
    book.cells[0].source += "\n# somebody else wrote this"  # no signature of this notebook is known
    nbformat.write(book, lab.root / "untrusted.ipynb")
    notebook = open_notebook("untrusted.ipynb")
    for place, (kind, name) in enumerate(SHOWN, 1):
        if kind in ("CARDS", "BAD"):
            shown = notebook.outputs(place).first
            assert "Question" in shown.inner_text() or "trace" in shown.inner_text(), name
    notebook.outputs(1).first.screenshot(path=picture("untrusted"))
    assert RAN not in notebook.page.title()
