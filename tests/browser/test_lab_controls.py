"""The controls in JupyterLab: by mouse and by keyboard, and without their kernel."""

from __future__ import annotations

from ast import literal_eval

import pytest
from lab import NARROW, WIDE, Notebook, Pages, write_notebook
from tidy import card_problems, sideways

QUESTION = "In which town was the director of The Ashen Rooftop born?"
CELLS = [
    f"""import dragin_lab as dl

lab = dl.Lab(cache=True)
trace = lab.ask({QUESTION!r}, threshold=0.5, top_n=5, gold="Hartfold")
asked = [{{"id": "1", "question": {QUESTION!r}, "answer": "Hartfold"}}]
methods = ["dragin", "wo-rag"]
runs = lab.run(asked, methods, output="browsed", traces=True, progress=False)""",
    "tuner = lab.tune([trace])\ntuner",
    "explorer = dl.explore(trace, lab)\nexplorer",
    "live = lab.explore('In which town was Olga Fenwisk born?')\nlive",
    "browser = dl.browse(runs)\nbrowser",
    "trace",
    (
        "tuner.theta.value, tuner.outcome.retrievals, len(explorer.tree), live.trace and"
        " live.trace.ended"
    ),
    "tuner  # once more",
    "import ipywidgets\n\nipywidgets.HBox([tuner, explorer])",
]


@pytest.fixture(scope="module")
def notebook(lab, browser):
    """The notebook with every control, run once; JupyterLab itself complains of what a restart
    cancels.
    """
    pages = Pages(browser)
    opened = Notebook.open(pages(lab), lab, write_notebook(lab.root, "controls.ipynb", CELLS))
    assert [error for cell in opened.run_all() for error in cell.errors] == []
    yield opened
    opened.end()
    opened.page.context.close()


def control(notebook: Notebook, place: int):
    """The box under a cell."""
    return (
        notebook.page.locator(".jp-Notebook .jp-Cell")
        .nth(place)
        .locator("[class*='dl-'].widget-vbox")
        .first
    )


def state(notebook: Notebook) -> str:
    """What Python says of the controls."""
    return notebook.run(6).outputs[-1]["data"]["text/plain"]


def test_controls_are_used_by_mouse_and_by_keyboard(notebook, picture):
    page = notebook.page
    tuner, explorer, live, browsed = (control(notebook, place) for place in (1, 2, 3, 4))
    for box in (tuner, explorer):
        box.locator(".js-plotly-plot .main-svg").first.wait_for()
    # Where a control lives, the picture that stands in for it is hidden.
    assert not page.get_by_text("The controls need a kernel").first.is_visible()
    # The tuner, by keyboard.
    tuner.locator(".noUi-handle").first.press("End")
    tuner.locator(".until").wait_for()
    control(notebook, 7).locator(".until").wait_for()  # a second view of it follows
    assert literal_eval(state(notebook))[1] == 0
    # The explorer: the slider chooses a token, a button branches, and the branch is what is shown.
    explorer.get_by_text("likeliest").first.wait_for()
    explorer.locator(".noUi-handle").first.press("Home")
    explorer.get_by_text("token 1 of").first.wait_for()
    explorer.get_by_role("button", name="write on without").click()
    explorer.locator("select").first.get_by_text("decision").wait_for(state="attached")
    explorer.locator(".js-plotly-plot").get_by_text("decision").first.wait_for()
    explorer.get_by_text("written with passages").first.wait_for()
    # Ask and watch.
    live.get_by_role("button", name="Ask").click()
    live.get_by_role("status").get_by_text("Answered").wait_for()
    assert state(notebook).endswith("0, 2, 'answered')")
    # Browse: a row shows its answer.
    browsed.locator(".dl-rows select").first.select_option(index=0)
    browsed.get_by_role("heading", name="Sentence 1").wait_for()
    for theme, width in (("light", WIDE), ("dark", NARROW)):
        notebook.theme(theme)
        notebook.pictures(picture, f"controls-{theme}", width)
        for card in page.locator(".jp-OutputArea-output .dl-out > .dl").all():
            if card.is_visible():
                assert card_problems(card) == []
        assert sideways(page) <= 0


@pytest.mark.deep
@pytest.mark.parametrize("theme", ["light", "dark"] * 5)
def test_on_a_busy_machine_figure_page_and_python_say_the_same_threshold(lab, browser, theme):
    pages, board = Pages(browser), "tuner = dl.tune([trace, trace])\ntuner"
    notebook = Notebook.open(
        pages(lab),
        lab,
        write_notebook(lab.root, "busy.ipynb", [CELLS[0], board, "tuner.theta.value"]),
    )
    notebook.theme(theme)
    busy = notebook.page.context.new_cdp_session(notebook.page)
    busy.send("Emulation.setCPUThrottlingRate", {"rate": 6})
    assert [error for cell in notebook.run_all() for error in cell.errors] == []
    tuner = control(notebook, 1)
    handle = tuner.locator(".noUi-handle").first
    handle.focus()
    for _ in range(6):
        handle.press("ArrowRight")
    theta = literal_eval(notebook.run(2).outputs[-1]["data"]["text/plain"])
    assert theta > 0.5
    tuner.locator(".js-plotly-plot").first.get_by_text(f"θ {theta:g}", exact=True).wait_for()
    tuner.get_by_text(f"θ {theta:g}: 0 of 2 traces").wait_for()
    notebook.end()
    notebook.page.context.close()


def test_a_notebook_that_was_saved_and_reopened_shows_pictures(notebook, picture):
    page = notebook.page
    notebook.theme("light")
    page.set_viewport_size({"width": WIDE, "height": 900})
    tuner = control(notebook, 1)
    tuner.locator(".js-plotly-plot .main-svg").first.wait_for()
    for box in (tuner, control(notebook, 8)):
        assert box.get_by_text("The kernel is gone").first.is_hidden()
    handle = tuner.locator(".noUi-handle").first
    handle.press("ArrowLeft")
    theta = literal_eval(state(notebook))[0]
    tuner.locator(".js-plotly-plot").first.get_by_text(f"θ {theta:g}", exact=True).wait_for()
    notebook.save()
    page.wait_for_timeout(1000)
    page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )
    for box in (tuner, control(notebook, 8)):
        box.get_by_text("The kernel is gone").first.wait_for()
    button = tuner.get_by_role("button", name="ask the model")
    assert button.evaluate("one => getComputedStyle(one).pointerEvents") == "none", (
        "what is dead takes no click"
    )
    assert tuner.locator(".js-plotly-plot").first.is_visible(), "what was drawn stays"
    page.screenshot(path=picture("restarted"))
    page.reload()
    page.locator(".jp-RenderedPlotly").first.wait_for()
    still = page.locator(".jp-RenderedPlotly").first
    still.get_by_text(f"θ {theta:g}", exact=True).wait_for()  # the last figure, not the first
    notes = page.get_by_text("The controls need a kernel")
    assert notes.first.is_visible()
    assert not page.get_by_text("Error displaying widget").first.is_visible()
    page.screenshot(path=picture("reopened"), full_page=True)


def test_buttons_of_an_explored_figure_are_off_once_the_kernel_was_shut_down(lab, browser):
    cells = [f"import dragin_lab as dl\n\nlab = dl.Lab()\ndl.explore(lab.ask({QUESTION!r}), lab)"]
    pages = Pages(browser)
    notebook = Notebook.open(pages(lab), lab, write_notebook(lab.root, "shut.ipynb", cells))
    assert [error for cell in notebook.run_all() for error in cell.errors] == []
    box = control(notebook, 0)
    box.locator(".js-plotly-plot .main-svg").first.wait_for()
    branch = box.get_by_role("button", name="write on with it")
    assert branch.evaluate("one => getComputedStyle(one).pointerEvents") == "auto"
    notebook.end()
    box.get_by_text("The kernel is gone").first.wait_for()
    assert branch.evaluate("one => getComputedStyle(one).pointerEvents") == "none"
    assert box.locator(".js-plotly-plot").first.is_visible(), "what was drawn stays"
    notebook.page.context.close()
