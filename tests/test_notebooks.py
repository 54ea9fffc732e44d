"""The committed notebooks: clean, of one form, and with everything one may want to change in a cell of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

from dragin_lab.trace.trace import Trace

BOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
NAMES = (
    "00_tour", "01_rind_heatmap", "02_qfs_selections", "03_threshold_sweep", "04_benchmarks",
    "05_your_model_and_passages", "06_your_own_trigger", "07_when_was_it_needed", "08_a_real_model",
    "09_was_it_used",
)  # fmt: skip
#: Committed with its outputs and pictures, which GitHub shows (tools/gallery.py).
EXECUTED = "00_tour"
CELL_LINES, BOOK_LINES, IMPORTS = 12, 45, 2
each = pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parameters(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]


def test_they_are_all_there() -> None:
    assert tuple(path.stem for path in BOOKS) == NAMES


@each
def test_nothing_that_was_run_is_in_it(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    for cell in code(notebook) if path.stem != EXECUTED else ():
        assert cell.outputs == []
        assert cell.execution_count is None
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert all(cell.source.strip() for cell in notebook.cells)


@each
def test_it_runs_in_the_kernel_that_everybody_has(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@each
def test_it_is_what_a_person_would_type(path: Path) -> None:
    cells = [[line for line in cell.source.splitlines() if line.strip()] for cell in code(nbformat.read(path, 4))]
    assert max(map(len, cells)) <= CELL_LINES
    assert sum(map(len, cells)) <= BOOK_LINES
    assert max(len(line) for cell in cells for line in cell) <= 120
    nodes = [node for cell in cells for node in ast.walk(ast.parse("\n".join(cell)))]
    imports = [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    assert "import dragin_lab as dl" in imports
    assert len(imports) <= IMPORTS
    assert not [line for line in imports if "dragin_lab." in line or "from dragin_lab" in line], "only dl. names"
    assert not [node for node in nodes if isinstance(node, ast.Attribute) and node.attr.startswith("_")]


@each
def test_a_control_comes_after_a_figure_or_a_page(path: Path) -> None:
    last = [cell.source.splitlines()[-1] for cell in code(nbformat.read(path, 4))]
    controls = [i for i, line in enumerate(last) if re.search(r"\b(dl|lab|asking)\.(tune|explore|browse)\(", line)]
    shown = [
        i for i, line in enumerate(last) if re.search(r"\.(heatmap|plot|overview|selections)\(|dl\.compare\(", line)
    ]
    assert all(shown and shown[0] < control for control in controls)


def test_the_executed_one_has_a_picture_of_every_figure() -> None:
    outputs = [output for cell in code(nbformat.read(BOOKS[0], 4)) for output in cell.outputs]
    drawn = [output.data for output in outputs if "application/vnd.plotly.v1+json" in output.get("data", ())]
    assert len(drawn) > 2
    assert all("image/png" in data for data in drawn)
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]


@each
def test_it_says_first_what_it_shows_and_costs(path: Path) -> None:
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert "*Cost*: " in first.source
    assert "*Mode*: " in first.source


@each
def test_it_prints_how_many_questions_it_asks(path: Path) -> None:
    calls = [
        node
        for cell in code(nbformat.read(path, as_version=4))
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert any("question" in ast.unparse(call) for call in calls)


@each
def test_what_may_change_stands_in_one_cell_that_papermill_reads(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    (cell,) = parameters(notebook)
    assert notebook.cells.index(cell) == 1
    for statement in ast.parse(cell.source).body:
        assert isinstance(statement, ast.Assign), "papermill replaces plain assignments only"
        ast.literal_eval(statement.value)
    names = {name for line in ast.parse(cell.source).body for t in line.targets for name in _names(t)}  # type: ignore[attr-defined]
    assert names == set(papermill.inspect_notebook(path))
    used = {node.id for other in code(notebook) for node in ast.walk(ast.parse(other.source))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}  # fmt: skip
    assert names <= used, "a parameter that nothing reads"


def _names(target: ast.expr) -> list[str]:
    return [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]


@each
def test_a_threshold_stands_beside_its_variant(path: Path) -> None:
    """A θ of one variant means nothing to the other, so no notebook leaves it to the default."""
    for cell in code(nbformat.read(path, as_version=4)):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                names = {word.arg for word in node.keywords}  # None: **settings
                if node.func.attr in ("ask", "method", "explore") and "threshold" in names:
                    assert names & {"variant", None}, ast.unparse(node)


def test_the_recorded_traces_are_answers_of_one_model_to_a_notebooks_question() -> None:
    real = next(path for path in BOOKS if path.stem == "08_a_real_model")
    (cell,) = parameters(nbformat.read(real, as_version=4))
    given = {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(cell.source).body}  # type: ignore[attr-defined]
    traces = [Trace.load(path) for path in (real.parent / given["recorded"]).iterdir()]
    assert given["question"] in {trace.question.text for trace in traces}
    assert {trace.method["max_new_tokens"] for trace in traces} == {given["new_tokens"]}
    assert len({trace.provenance["model"] for trace in traces}) == 1


def test_the_tour_leads_to_every_other_notebook() -> None:
    tour = "".join(cell.source for cell in nbformat.read(BOOKS[0], as_version=4).cells)
    assert [name for name in NAMES[1:] if f"]({name}.ipynb)" not in tour] == []


@each
def test_its_links_lead_somewhere(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            for link in re.findall(r"\]\(([^)]+)\)", cell.source):
                assert (path.parent / link).is_file()
            for named in re.findall(r"`(docs/[\w./-]+)`", cell.source):
                assert (path.parents[1] / named).is_file()


@each
def test_nothing_of_the_network_is_in_it(path: Path) -> None:
    assert "http" not in path.read_text(encoding="utf-8")
