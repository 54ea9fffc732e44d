"""The batch explorer in JupyterLab: filter and click."""

from __future__ import annotations

from lab import WIDE, write_notebook
from run_folders import write_run
from tidy import sideways

from dragin_lab.run.lines import Prediction, decode, encode

CELL = 'import dragin_lab as dl\n\ndl.browse("explored")'


def test_a_question_of_two_runs_is_found_and_opened(lab, open_notebook, picture):
    folder = write_run(lab.root / "explored", "dragin", "mine", [1.0, 0.0, 0.0])
    other = write_run(lab.root / "explored", "flare", "mine", [0.0, 1.0, 0.0])
    for lines in (folder / "predictions.jsonl", other / "predictions.jsonl"):
        found = [decode(raw, Prediction) for raw in lines.read_bytes().splitlines()]
        lines.write_bytes(encode([line | {"readable": True} for line in found]))
    notebook = open_notebook(write_notebook(lab.root, "browse.ipynb", [CELL]))
    notebook.resize(WIDE)
    (cell,) = notebook.run_all()
    assert cell.errors == []
    card = notebook.outputs(0)
    status = card.locator(".bar [role=status]")
    status.wait_for()
    assert status.inner_text() == "3 of 3 questions"
    card.get_by_label("outcome of dragin").select_option("wrong")
    card.get_by_label("outcome of flare").select_option("right")
    assert status.inner_text() == "1 of 3 questions"
    card.locator("tr[data-at]").click()
    assert "✗ wrong" in card.locator(".two").first.inner_text()
    notebook.page.keyboard.press("Escape")
    assert card.locator("tr[data-at]").is_visible()
    notebook.page.screenshot(path=picture("browse"))
    assert sideways(notebook.page) <= 0
    assert len(notebook.cells()) == 1  # JupyterLab took no key for its own
