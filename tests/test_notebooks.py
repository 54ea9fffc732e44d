"""The committed notebooks: of one form, with outputs that belong to their code, and settings in
a cell of their own.
"""

from __future__ import annotations

import ast
import base64
import io
import re
from pathlib import Path
from typing import Any
from unicodedata import normalize

import nbformat
import numpy as np
import papermill
import pytest
from PIL import Image, ImageColor

import dragin_lab as dl
from dragin_lab.core.method import PAPERS
from dragin_lab.retrieval import analysis
from dragin_lab.trace.trace import Trace
from dragin_lab.widgets.control import PLOTLY
from tools import record, runs
from tools.gallery import MOST, ONE_RUN, WIDGET, marks

BOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
NAMES = (
    "00_tour",
    "01_rind_heatmap",
    "02_qfs_selections",
    "03_threshold_sweep",
    "04_benchmarks",
    "05_your_model_and_passages",
    "06_your_own_trigger",
    "07_when_was_it_needed",
    "08_a_real_model",
    "09_was_it_used",
)
CELL_LINES, BOOK_LINES, IMPORTS = 12, 45, 2
each = pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parse(source: str) -> ast.Module:
    """A cell's Python, without the lines that are IPython's (``%run …``)."""
    lines = [line for line in source.splitlines() if not line.startswith("%")]
    return ast.parse("\n".join(lines))


def parameters(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]


def test_they_are_all_there() -> None:
    assert tuple(path.stem for path in BOOKS) == NAMES


@each
def test_what_stands_below_a_cell_was_made_by_the_code_above_it(path: Path) -> None:
    """`make gallery` writes the outputs, and into each cell a mark of the code that made them."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    stale = [cell.source for cell, mark in marks(notebook) if cell.metadata.get("made_by") != mark]
    assert not stale, f"run make gallery: {stale[0]!r} was made by other code"
    numbers = [cell.execution_count for cell in code(notebook)]
    assert numbers == list(range(1, len(numbers) + 1))
    for cell in code(notebook):
        assert cell.outputs or not isinstance(parse(cell.source).body[-1], ast.Expr), cell.source


@each
def test_a_picture_has_the_colours_of_its_figures_points(path: Path) -> None:
    outputs = [
        output for cell in code(nbformat.read(path, as_version=4)) for output in cell.outputs
    ]
    for data in [one.data for one in outputs if PLOTLY in one.get("data", ())]:
        picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
        there = np.array([colour for _, colour in picture.getcolors(1 << 20)])  # (colours, 3)
        points = [one for one in data[PLOTLY]["data"] if "markers" in (one.get("mode") or "")]
        for one in points:
            colour = one["marker"].get("color")
            if isinstance(colour, str) and colour.startswith("#") and len(one["x"]):
                apart = np.abs(there - ImageColor.getrgb(colour)).max(axis=1).min()
                assert apart <= 8, f"run make gallery: {one.get('name')!r} has lost its {colour}"


@each
def test_every_figure_has_a_picture_and_nothing_is_of_one_run_or_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) <= MOST
    assert not ONE_RUN.search(text)
    outputs = [
        output for cell in code(nbformat.read(path, as_version=4)) for output in cell.outputs
    ]
    assert not [one for one in outputs if one.output_type == "error" or one.get("name") == "stderr"]
    datas = [one.data for one in outputs if "data" in one]
    assert all("image/png" in data for data in datas if "application/vnd.plotly.v1+json" in data)
    assert all(
        "tabular" in data["text/latex"]
        for data in datas
        if data.get("text/plain", "").startswith("Table(")
    )
    assert not [data for data in datas if WIDGET in data or "<script" in data.get("text/html", "")]


@each
def test_it_runs_in_the_kernel_that_everybody_has(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@each
def test_it_is_what_a_person_would_type(path: Path) -> None:
    cells = [
        [line for line in cell.source.splitlines() if line.strip()]
        for cell in code(nbformat.read(path, 4))
    ]
    assert max(map(len, cells)) <= CELL_LINES
    assert sum(map(len, cells)) <= BOOK_LINES
    assert max(len(line) for cell in cells for line in cell) <= 120
    nodes = [node for cell in cells for node in ast.walk(parse("\n".join(cell)))]
    imports = [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    assert "import dragin_lab as dl" in imports
    assert len(imports) <= IMPORTS
    assert not [line for line in imports if "dragin_lab." in line or "from dragin_lab" in line], (
        "only dl. names"
    )
    assert not [
        node for node in nodes if isinstance(node, ast.Attribute) and node.attr.startswith("_")
    ]


@each
def test_a_control_comes_after_a_figure_or_a_page(path: Path) -> None:
    last = [cell.source.splitlines()[-1] for cell in code(nbformat.read(path, 4))]
    controls = [
        i
        for i, line in enumerate(last)
        if re.search(r"\b(dl|lab|asking)\.(tune|explore|browse)\(", line)
    ]
    shown = [
        i
        for i, line in enumerate(last)
        if re.search(r"\.(heatmap|plot|overview|selections)\(|dl\.compare\(", line)
    ]
    assert all(shown and shown[0] < control for control in controls)


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
        for node in ast.walk(parse(cell.source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert any("question" in ast.unparse(call) for call in calls)


@each
def test_what_may_change_stands_in_one_cell_that_papermill_reads(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    (cell,) = parameters(notebook)
    assert notebook.cells.index(cell) == 1
    for statement in parse(cell.source).body:
        assert isinstance(statement, ast.Assign), "papermill replaces plain assignments only"
        ast.literal_eval(statement.value)
    names = {name for line in parse(cell.source).body for t in line.targets for name in _names(t)}  # type: ignore[attr-defined]
    assert names == set(papermill.inspect_notebook(path))
    used = {
        node.id
        for other in code(notebook)
        for node in ast.walk(parse(other.source))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert names <= used, "a parameter that nothing reads"


def _names(target: ast.expr) -> list[str]:
    return [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]


@each
def test_a_threshold_stands_beside_its_variant(path: Path) -> None:
    """A θ of one variant means nothing to the other, so no notebook leaves it to the default."""
    for cell in code(nbformat.read(path, as_version=4)):
        for node in ast.walk(parse(cell.source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                names = {word.arg for word in node.keywords}  # None: **settings
                if node.func.attr in ("ask", "method", "explore") and "threshold" in names:
                    assert names & {"variant", None}, ast.unparse(node)


def test_the_recorded_traces_are_of_todays_format_and_of_the_engine_that_the_text_names() -> None:
    real = next(path for path in BOOKS if path.stem == "08_a_real_model")
    (cell,) = parameters(nbformat.read(real, as_version=4))
    given = {line.targets[0].id: ast.literal_eval(line.value) for line in parse(cell.source).body}  # type: ignore[attr-defined]
    paths = sorted((real.parent / given["recorded"]).iterdir())
    assert {path.stem for path in paths} == set(record.RECORDED)
    for path in paths:
        # of another format: an error
        trace, (question, _, settings) = Trace.load(path), record.RECORDED[path.stem]
        assert trace.question.text == question
        assert {
            name: trace.method[name] for name in (record.BASE | settings)
        } == record.BASE | settings
        known = trace.provenance
        if known["retriever"]["analysis"] != analysis.NAME:
            # the next analysis folds compatibility forms, of which these texts have none
            assert known["retriever"]["analysis"] == "english-4"
            texts = trace.queries + [hit.text for step in trace.steps for hit in step.passages]
            assert [one for one in texts if normalize("NFKC", one) != normalize("NFC", one)] == []
        assert ("llama_cpp_python" in known, "torch" in known) == (
            path.stem == "mended-served",
            path.stem != "mended-served",
        )
        assert known["model"] == record.MODEL.name
        assert list(known["template"]["until"]) == record.UNTIL == given["until"]
        assert trace.method["max_new_tokens"] == given["new_tokens"]


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
    assert not re.search(r"https?://", path.read_text(encoding="utf-8"))


def test_the_finished_runs_are_of_all_methods_and_say_their_variant() -> None:
    names = [method.name for method in runs.TABLES["methods"][1]]
    assert set(names) == set(PAPERS)
    assert (names.count("flare"), names.count("dragin")) == (2, 2)
    for table, (benchmarks, methods) in runs.TABLES.items():
        packed = dl.Runs.load(runs.CORPORA / f"almanac_{table}.zip")
        assert set(packed.names) == {method.label for method in methods}
        assert set(packed.datasets) == {f"almanac/{name}" for name in benchmarks}
    assert all(
        name.endswith((" paper", " reference"))
        for name in dl.Runs.load(runs.CORPORA / "almanac_methods.zip").names
    )
