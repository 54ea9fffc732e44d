"""Branches in the explorer: made by a click, by a key and by an edited query; walked without a kernel, and reloaded."""

from __future__ import annotations

from lab import NARROW, PHONE, WIDE, Notebook, write_notebook
from pages import Pages
from tidy import card_problems, sideways

import dragin_lab as dl

QUESTION = "In which town was the director of The Ashen Rooftop born?"
CELLS = [
    f"""import dragin_lab as dl

lab = dl.Lab(cache=True)
trace = lab.ask({QUESTION!r}, threshold=0.5, top_n=5, gold="Hartfold")""",
    "explorer = dl.explore(trace, lab, step=2, token=1)\nexplorer",
]


def test_branches_from_an_alternative_and_an_edited_query(lab, browser, picture):
    pages = Pages(browser)
    notebook = Notebook.open(pages(lab), lab, write_notebook(lab.root, "branches.ipynb", CELLS))
    assert [error for cell in notebook.run_all() for error in cell.errors] == []
    card = notebook.outputs(1).locator(".dl-branches")
    items, status = card.get_by_role("treeitem"), card.locator(".dl-status")
    card.locator(".dl-tokens").wait_for()
    assert items.count() == 1
    card.get_by_role("button", name="Oscar").click()
    items.nth(1).wait_for()
    assert "'Olga' → 'Oscar'" in items.nth(1).inner_text()
    assert "wrong" in items.nth(1).inner_text()
    assert items.nth(1).get_attribute("aria-selected") == "true"
    assert "Oscar" in card.locator(".dl-beside .slot ins").first.inner_text()
    parted = card.locator(".dl-cell.parted")
    assert (parted.count(), parted.get_attribute("aria-selected")) == (1, "true")
    assert parted.get_attribute("aria-label").startswith("the branch parts here")
    # By keys: back to the root, and the third alternative of the chosen token.
    items.nth(1).press("ArrowUp")
    assert items.nth(0).get_attribute("aria-selected") == "true"
    card.locator(".dl-tokens").press("Home")
    card.locator(".dl-tokens").press("3")
    items.nth(2).wait_for()
    # An edited query, and a decision.
    items.nth(0).click()
    card.get_by_role("tab").nth(1).click()
    card.get_by_label("Query").fill("The Ashen Rooftop")
    card.get_by_role("button", name="Search for this").click()
    items.nth(3).wait_for()
    assert "'The Ashen Rooftop'" in items.nth(3).inner_text()
    assert "step 2: query" in status.inner_text()
    items.nth(0).click()
    card.get_by_role("tab").nth(1).click()
    card.get_by_label("Keep").first.uncheck()
    card.get_by_role("button", name="Go on with these").click()
    items.nth(4).wait_for()
    card.get_by_label("Query").fill(" ")
    card.get_by_role("button", name="Search for this").click()
    card.get_by_role("alert").get_by_text("is empty; give a text to search for").wait_for()
    for width in (WIDE, NARROW):
        notebook.resize(width, 2400)
        card.screenshot(path=picture(f"live-{width}"))
        assert card_problems(card) == []
        assert sideways(notebook.page) <= 0
    pages.heard.nothing()
    # JupyterLab itself complains of what a restart cancels.
    notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    card.get_by_text("The kernel is gone: run the cell again").wait_for()
    assert card.get_by_role("button", name="Search for this").count() == 0
    items.nth(1).click()
    assert "Oscar" in card.locator(".dl-beside .slot ins").first.inner_text()
    notebook.end()
    notebook.page.context.close()


def test_a_saved_page_walks_its_branches(new_page, tmp_path, picture):
    asking = dl.Lab(cache=True)
    trace = asking.ask(QUESTION, threshold=0.5, top_n=5, gold="Hartfold")
    tree = dl.Branches.of([trace, asking.branch(trace, step=2, retrieve=False)])
    tree.add(asking.branch(tree[1], step=2, token=3, to=" ar"))
    page = new_page()
    page.goto(dl.explore(tree).save(tmp_path / "tree.html").as_uri())
    card = page.locator(".dl-branches")
    items = card.get_by_role("treeitem")
    assert items.count() == 3
    assert items.nth(2).get_attribute("aria-level") == "3"
    items.nth(0).focus()
    items.nth(0).press("End")
    assert items.nth(2).evaluate("item => item === document.activeElement")
    assert card.locator(".dl-cell.parted").get_attribute("aria-selected") == "true"
    assert card.locator(".dl-alternative, .dl-what-if").count() == 0
    card.locator(".dl-tokens").press("ArrowRight")
    items.nth(1).click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (WIDE, PHONE):
            page.set_viewport_size({"width": width, "height": 1000})
            page.screenshot(path=picture(f"saved-{scheme}-{width}"), full_page=True)
            assert card_problems(card) == []
            assert sideways(page) <= 0
