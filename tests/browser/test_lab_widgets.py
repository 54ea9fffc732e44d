"""The widgets in JupyterLab, by mouse and by keys: what a person does, and what must then be seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import NARROW, WIDE, Notebook, exported, write_notebook
from pages import Pages
from shown import RAN
from tidy import card_problems, sideways

QUESTION = "In which town was the director of The Ashen Rooftop born?"
HERE = Path(__file__).parent
CELLS = [
    f'''import time
import dragin_lab as dl

lab, bm25 = dl.Lab(), dl.BM25(dl.Corpus.load())
question = {QUESTION!r}


class Slow:
    """The same passages, after three seconds."""

    def search(self, query, k):
        time.sleep(3)
        return bm25.search(query, k)


traces = [
    lab.ask(asked, gold=gold)
    for asked, gold in ((question, "Hartfold"), ("Who directed <b>The Crooked Carousel</b>?", ""))
]
paper = lab.ask(question, variant="paper", threshold=0.5, gold="Hartfold")
released = lab.ask(question, variant="reference", threshold=1.2, gold="Hartfold")''',
    "dl.explore(paper)",
    "lab.tune(traces)",
    "lab.explore(question, others={'slow': lab.replace(retriever=Slow())})",
    "dl.compare(released, paper, labels=('reference', 'paper'))",
    "dl.explore('no such file.trace')",
]
EXPLORE, TUNER, ASK, COMPARE, MISSING = range(1, 6)
NAMES = {EXPLORE: "explore", TUNER: "tuner", ASK: "ask", COMPARE: "compare"}


@pytest.fixture(scope="module")
def notebook(lab, browser) -> Iterator[Notebook]:
    """A notebook with every widget, run."""
    pages = Pages(browser)
    found = Notebook.open(pages(lab), lab, write_notebook(lab.root, "widgets.ipynb", CELLS))
    assert [error for cell in found.run_all() for error in cell.errors] == []
    for place, name in NAMES.items():
        found.outputs(place).locator(f".dl-{name}").wait_for()
    yield found
    found.end()
    pages.close()


@pytest.fixture(autouse=True)
def left_alone(notebook) -> Iterator[None]:
    """JupyterLab takes no key for its own, no script of a text has run."""
    yield
    assert len(notebook.cells()) == len(CELLS)
    assert notebook.page.locator(".jp-Dialog").count() == 0
    assert RAN not in notebook.page.title()


def test_explore_is_walked_by_keys_and_clicks(notebook):
    card = notebook.outputs(EXPLORE).locator(".dl-explore")
    chosen = card.locator('.dl-cell[aria-selected="true"]')
    words, about = card.locator(".dl-tokens"), card.locator(".dl-token")
    words.focus()
    words.press("Home")
    first = about.inner_text()
    words.press("ArrowRight")
    assert chosen.count() == 1
    assert about.inner_text() != first
    for part in ("entropy", "attention received", "probability", "token 2 of"):
        assert part in about.inner_text()
    words.press("h")
    assert re.search(r"\bhit\b", chosen.get_attribute("class"))
    card.locator(".dl-cell").nth(3).click()
    assert chosen.get_attribute("data-token") == "3"
    card.get_by_role("button", name="Next token").click()
    assert chosen.get_attribute("data-token") == "4"
    tabs = card.get_by_role("tab")
    assert tabs.count() >= 2
    tabs.nth(1).click()
    assert tabs.nth(1).get_attribute("aria-selected") == "true"
    words.press("ArrowUp")
    assert tabs.nth(0).get_attribute("aria-selected") == "true"


def test_the_tuners_slider_changes_heat_and_decisions_and_its_button_runs_the_model(notebook):
    page, card = notebook.page, notebook.outputs(TUNER).locator(".dl-tuner")
    slider, number = card.locator("input.dl-slider.dl-threshold"), card.locator("input.dl-threshold-number")
    shown = card.locator(".dl-answer")
    heat = "box => [...box.querySelectorAll('[data-i]')].map(token => token.className).join()"
    before, words = shown.evaluate(heat), shown.inner_text()
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    share = float(slider.input_value()) / float(slider.get_attribute("max"))
    page.mouse.move(box["x"] + 8 + share * (box["width"] - 16), middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.97 * box["width"], middle, steps=12)
    page.mouse.up()
    page.wait_for_function("([box, old]) => box.innerText !== old", arg=[shown.element_handle(), words])
    assert float(number.input_value()) > 0.9 * float(slider.get_attribute("max"))
    assert shown.evaluate(heat) != before
    words = shown.inner_text()
    number.fill("0.3")
    page.wait_for_function("([box, old]) => box.innerText !== old", arg=[shown.element_handle(), words])
    assert float(slider.input_value()) < 1
    card.locator(".dl-run").click()
    ran = card.locator(".dl-ran")
    ran.locator(".dl").first.wait_for()
    assert QUESTION in ran.inner_text()


def test_a_number_box_says_what_it_does_not_take(notebook):
    card = notebook.outputs(TUNER).locator(".dl-tuner")
    number, wrong = card.locator("input.dl-threshold-number"), card.locator(".dl-wrong").first
    number.fill("0.4")
    notebook.page.wait_for_function(
        "box => !box.hasAttribute('aria-busy')", arg=card.locator(".dl-answer").element_handle()
    )
    for value, said in (("999", "give at most"), ("-1", "give at least 0"), ("", "is empty")):
        number.fill(value)
        assert said in wrong.inner_text()
        assert "0.4 still holds" in wrong.inner_text()
        assert number.get_attribute("aria-invalid") == "true"
    number.fill("0.5")
    assert wrong.is_hidden()


def test_ask_live_stops_and_goes_on(notebook):
    page, card = notebook.page, notebook.outputs(ASK).locator(".dl-ask")
    start, stop, status = card.locator(".dl-start"), card.locator(".dl-stop"), card.locator(".dl-status")
    card.locator("select.dl-lab").select_option("slow")
    assert stop.is_disabled()
    start.click()
    card.locator(".dl-live .txt").first.wait_for()  # the draft, whether or not its tokens are judged by now
    stop.click()
    page.wait_for_function("box => box.textContent.startsWith('Stopped')", arg=status.element_handle())
    assert stop.is_disabled()
    assert card.locator(".dl-ran").is_visible()
    card.locator("select.dl-lab").select_option("almanac")
    question = card.locator(".dl-question")
    question.fill(QUESTION + " ")
    question.press("Control+Enter")
    page.wait_for_function("button => button.disabled", arg=start.element_handle())
    page.wait_for_function("button => !button.disabled", arg=start.element_handle())
    assert "Hartfold" in card.locator(".dl-ran").inner_text()


def test_compare_goes_from_one_difference_to_the_next(notebook):
    card = notebook.outputs(COMPARE).locator(".dl-compare")
    assert "reference" in card.inner_text()
    card.get_by_role("button", name="difference →").click()
    assert card.locator(".dl-on").count() == 1
    card.locator(".dl-tools").press("n")
    assert "difference 2 of" in card.get_by_role("status").inner_text()
    card.get_by_role("button", name="Only what differs").click()
    assert card.locator('[data-part="sentence"]:visible').count() >= 1


def test_an_error_stands_in_the_widget(notebook):
    assert "no such file" in notebook.outputs(MISSING).locator(".dl-explore").inner_text()


@pytest.mark.parametrize(("theme", "scheme"), [("light", "dark"), ("dark", "light")])
def test_widgets_wear_jupyterlabs_theme(notebook, theme, scheme, picture):
    page = notebook.page
    page.emulate_media(color_scheme=scheme)
    notebook.theme(theme)
    for width in (WIDE, NARROW):
        notebook.resize(width, 2400)
        for place, name in NAMES.items():
            card = notebook.outputs(place).locator(f".dl-{name}").first
            card.screenshot(path=picture(f"{name}-{theme}-{width}"))
            assert card_problems(card) == [], name
        assert sideways(page) <= 0


def test_a_lost_kernel_is_said_and_a_saved_notebook_shows_the_static_views(lab, browser, picture):
    pages = Pages(browser)
    cells = [
        f"""import sys
sys.path.insert(0, {str(HERE)!r})
import shown
import dragin_lab as dl
trace = shown.samples.almanac_trace()""",
        "dl.tuner(trace)",
        "dl.explore(trace)",
    ]
    found = Notebook.open(pages(lab), lab, write_notebook(lab.root, "lost.ipynb", cells))
    assert [error for cell in found.run_all() for error in cell.errors] == []
    page, tuner = found.page, found.outputs(1).locator(".dl-tuner")
    tuner.wait_for()
    found.outputs(2).locator(".dl-explore").wait_for()
    stand_ins = page.locator(".dl-stand-in")
    assert [view.is_visible() for view in stand_ins.all()] == [False, False]
    found.save()
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    tuner.get_by_text("The kernel is gone: run the cell again").wait_for()
    assert tuner.locator("input.dl-threshold-number").is_disabled()
    assert tuner.locator("[aria-busy]").count() == 0
    tuner.screenshot(path=picture("lost"))
    found.end()
    page.context.close()
    again = Notebook.open(pages(lab), lab, "lost.ipynb")
    again.page.locator(".dl-stand-in .dl").first.wait_for()
    assert [view.is_visible() for view in again.page.locator(".dl-stand-in .dl-out > .dl").all()] == [True, True]
    again.page.screenshot(path=picture("reopened"), full_page=True)
    for said in ("model not found", "Loading widget"):
        assert not any(text.is_visible() for text in again.page.get_by_text(said).all())
    again.end()
    for context in pages.contexts[1:]:
        context.close()


def test_an_exported_notebook_shows_the_static_views(notebook, lab, new_page, tmp_path):
    notebook.save()
    page = new_page(scripts=False)
    page.goto(exported(lab.root / "widgets.ipynb", tmp_path / "widgets.html"))
    cards = page.locator(".dl-out > .dl")
    assert [card.is_visible() for card in cards.all()] == [True] * (len(CELLS) - 1)
