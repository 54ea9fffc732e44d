"""Every view as JupyterLab, its exports and an untrusted notebook show it."""

from __future__ import annotations

from pathlib import Path

import nbformat
from lab import NARROW, WIDE, exported, write_notebook
from shown import CARDS, FIGURES, RAN
from tidy import card_problems, figure_problems, sideways

HERE = Path(__file__).parent
#: The cells of the notebook: a set and a name in it. Bad input is seen on pages of its own.
SHOWN = [("CARDS", name) for name in CARDS] + [("FIGURES", name) for name in FIGURES]


def test_views_in_jupyterlab_exported_and_untrusted(lab, open_notebook, new_page, tmp_path, picture):
    """One notebook with a cell for each view, run once."""
    first = f"import sys\nsys.path.insert(0, {str(HERE)!r})\nimport shown"
    made = write_notebook(lab.root, "views.ipynb", [first, *(f"shown.{kind}[{name!r}]()" for kind, name in SHOWN)])
    in_jupyterlab(open_notebook(made), picture)
    exported_without_scripts(lab.root / made, new_page, tmp_path, picture)
    untrusted(lab.root / made, open_notebook, picture)


def in_jupyterlab(notebook, picture):
    page, cells = notebook.page, notebook.run_all()
    assert [error for cell in cells for error in cell.errors] == []
    assert RAN not in page.title()
    # The card follows JupyterLab's theme, whatever the system prefers.
    for theme, scheme, width in (("light", "dark", WIDE), ("dark", "light", NARROW)):
        page.emulate_media(color_scheme=scheme)
        notebook.theme(theme)
        notebook.resize(width)
        for place, (kind, name) in enumerate(SHOWN, 1):
            shown = notebook.outputs(place).first
            card = shown.locator(".dl-out > .dl")
            assert card.is_visible()
            assert not shown.locator(".dl-out > .alt").is_visible()
            assert card.evaluate("card => getComputedStyle(card).colorScheme") == theme
            assert card_problems(card) == [], name
            if kind == "FIGURES":
                assert figure_problems(shown) == [], name
                shown.screenshot(path=picture(f"{name}-{theme}-{width}"))
        assert sideways(page) <= 0
    notebook.save()


def exported_without_scripts(made, new_page, tmp_path, picture):
    page = new_page(scripts=False, scheme="dark")  # the exported page is light, and so must the views be
    page.goto(exported(made, tmp_path / "views.html"))
    cards = page.locator(".dl-out > .dl")
    assert cards.count() == len(SHOWN)
    for card in cards.all()[: len(CARDS)]:
        assert card.is_visible()
        assert card.evaluate("card => getComputedStyle(card).colorScheme") == "light"
        assert card_problems(card) == []
    cards.first.screenshot(path=picture("nbconvert"))
    assert page.title() != RAN


def untrusted(made, open_notebook, picture):
    book = nbformat.read(made, 4)
    book.cells[0].source += "\n# somebody else wrote this"  # no signature of this notebook is known
    nbformat.write(book, made.with_name("untrusted.ipynb"))
    notebook = open_notebook("untrusted.ipynb")
    for place, (_, name) in enumerate(SHOWN, 1):
        assert len(notebook.outputs(place).first.inner_text().split()) > 4, name
    notebook.outputs(1).first.screenshot(path=picture("untrusted"))
    assert RAN not in notebook.page.title()
