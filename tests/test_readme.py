"""What the README and the tutorial tell a person to type works as it stands, and what they say
of it is true.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from dragin_lab.cli.app import status
from dragin_lab.core.method import PAPERS
from tools import rooms
from tools.pictures import mended_trace

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_runs_in_ten_lines_and_each_cell_shows_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(cells) == 4
    assert len([line for cell in cells for line in cell.splitlines() if line]) <= 10
    names: dict = {}
    for cell in cells:
        *body, last = ast.parse(cell.replace("limit=5", "limit=2")).body
        exec(compile(ast.Module(body, []), "README.md", "exec"), names)
        assert isinstance(last, ast.Expr)
        shown = eval(compile(ast.Expression(last.value), "README.md", "eval"), names)
        assert hasattr(shown, "_repr_html_") or hasattr(shown, "_repr_mimebundle_")
    assert names["trace"].ended == "answered"
    assert (
        names["trace"].steps[0].query.chosen.sum() == 5 < len(names["trace"].steps[0].query.words)
    )
    assert set(names["runs"].names) == {"wo-rag", "flare", "dragin"}


def test_what_the_picture_of_smollm2_is_said_to_show_is_in_its_trace() -> None:
    trace = mended_trace()
    step = trace.steps[0]
    fired = step.words.text[int(step.words.hit.argmax())].strip()
    chosen = step.query.chosen
    assert f"its draft says {fired.rstrip('.')}, RIND fires there" in README
    assert f"the query takes {chosen.sum()} of {len(chosen)} words" in README
    assert trace.question.golds == ("Milan",)
    assert trace.answer in step.passages[0].text
    assert trace.answer not in step.draft.text
    assert "answer becomes Milan" in README
    assert trace.scores["em"]
    assert (len(step.passages), trace.retrievals_count) == (1, 1)


def test_the_table_of_limits_counts_what_smollm2_was_asked() -> None:
    page = (ROOT / "docs" / "results" / "real-model.md").read_text(encoding="utf-8")
    asked = re.search(r"Over all (\d+) questions", page)
    assert asked
    assert (
        f"; {asked[1]} questions of the paper's four benchmarks (`docs/results/real-model.md`) |"
        in README
    )


def test_the_tutorial_runs_and_what_it_says_of_its_figures_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "tutorials" / "first-question.md").read_text(encoding="utf-8")
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    trace, strict, released = (names[name] for name in ("trace", "strict", "released"))
    words = [step.words for step in trace.steps]
    assert all((of.score[of.stop] == 0).all() and not of.hit[of.stop].any() for of in words), (
        "a stop word scores 0"
    )
    scores = released.steps[0].words
    assert (scores.score[scores.stop] > 1.2).any(), (
        "the released code compares stop words with θ, too"
    )
    assert not scores.hit[scores.stop].any()
    assert trace.counters["retrievals"] > 0
    assert trace.steps[0].query.chosen.sum() == 5 < len(trace.steps[0].query.words), (
        "the picture shows a selection"
    )
    assert strict.counters["retrievals"] == 0
    assert strict.answer != trace.answer


def test_a_newcomer_is_told_how_to_get_it_with_commands_that_are_there() -> None:
    assert README.index("Clone the repository") < README.index("make demo")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    installed = re.findall(r"pip install '?\.(?:\[([\w,-]+)\])?", README)
    assert "notebooks" in installed
    assert {name for names in installed for name in names.split(",") if name} <= set(extras)
    targets = re.findall(
        r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(re.findall(r"(?:^|`)make ([\w-]+)", README, re.MULTILINE)) <= set(targets)


def fresh_make(target: str, folder: Path) -> list[str]:
    """What ``make`` would run for a target in a fresh checkout."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    own = {
        key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))
    }
    command = ["make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(command, cwd=folder, env=own, check=True, capture_output=True, text=True)
    return done.stdout.replace("\\\n", " ").splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_each_of_the_first_commands_sets_up_a_fresh_machine_and_ci_runs_what_they_test(
    tmp_path: Path,
) -> None:
    first = re.search(r"```\n(.*?)```", README, re.DOTALL)
    assert first
    does = {"demo": "dragin-lab demo", "lab": "jupyter lab notebooks/", "test": "notebooks tests"}
    assert re.findall(r"^make (\w+) +#", first[1], re.MULTILINE) == list(does)
    for target, ends in does.items():
        *sets_up, last = fresh_make(target, tmp_path)
        assert last.endswith(ends)
        assert [text for text in ("-m venv", "pip install") if text not in "\n".join(sets_up)] == []
    (ran,) = [line for line in fresh_make("ci", tmp_path) if line.endswith(does["test"])]
    assert "--nbmake" in last
    assert "--nbmake" in ran
    assert "--tier all" in ran
    assert "\nmake ci\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_commands_below_them_find_every_notebook_and_an_environment_for_them() -> None:
    assert re.findall(r"`pytest (--nbmake [^`]+)`", README) == ["--nbmake notebooks/"]
    (file,) = re.findall(r"`conda env create -f ([\w.]+)`", README)
    pip = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["dependencies"][-1]["pip"]
    assert {"-e .[notebooks]", "nbmake"} <= set(pip)
    assert [one for one in pip if one.startswith("llama-cpp")] == [], "it needs a compiler"


def test_the_rooms_of_the_page_on_architecture_are_drawn_from_the_code() -> None:
    page = rooms.PAGE.read_text(encoding="utf-8")
    assert page == rooms.drawn(page), "run python -m tools.rooms"


@pytest.mark.deep
def test_the_commands_that_reproduce_a_table_run_on_almanac(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "reproduce.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if re.match(r"dragin-lab (run|table) ", line)]
    assert {line.split()[2] for line in lines if line.startswith("dragin-lab table")} == {
        "2",
        "3",
        "5",
        "6",
        "7",
    }
    for line in lines:
        model = re.search(r"Llama-2-(\w+)-chat", line)
        line = re.sub(r"--(model|corpus|exemplars) \S+ ", "", line)
        line = re.sub(
            r"--dataset (\S+)",
            lambda of: "--dataset " + ",".join(f"almanac/{n}" for n in of[1].split(",")),
            line,
        )
        line = re.sub(
            r"--preset (\w+)", rf"--preset llama2-{model[1]}-chat:\1" if model else "", line
        )
        line = line.replace("--limit 1000", "--limit 1").replace("runs/", f"{tmp_path}/")
        assert status(re.sub(r"dense:\S+", "dense:almanac", line).split()[1:]) == 0, line


def test_what_the_page_on_architecture_names_is_in_the_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "dragin_lab"
    files = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    whole = "\n".join(files.values())
    # at the top of a module
    defined = set(re.findall(r"^(?:def|class) (\w+)", whole, re.MULTILINE))
    named = {
        "dl",
        *re.findall(r"[\w-]+", whole),
        *(part for path in files for part in (path.stem, path.parent.name)),
    }
    blocks = [ast.parse(block) for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
    called = {
        node.func.id
        for block in blocks
        for node in ast.walk(block)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called - defined == set()
    quoted = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    paths = [text for text in quoted if "/" in text]
    assert [
        path for path in paths if not ((package / path).exists() or (ROOT / path).exists())
    ] == []
    texts = [re.sub(r"[(=].*", "", text) for text in quoted if "/" not in text and " " not in text]
    assert [
        text for text in texts if text not in named and not set(re.findall(r"\w+", text)) <= named
    ] == []


def test_the_page_on_extending_runs_from_top_to_bottom() -> None:
    from dragin_lab.core.formulators import FORMULATORS
    from dragin_lab.core.trigger import TRIGGERS

    before = dict(TRIGGERS._parts), dict(FORMULATORS._parts)
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    names: dict = {}
    try:
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(block, names)
            assert names["trace"].ended in ("answered", "length")
    finally:
        TRIGGERS._parts, FORMULATORS._parts = before
    assert names["traces"][0].scores.keys() >= {"em", "within_ten_years"}


def test_what_it_points_to_is_there() -> None:
    files = re.findall(r"(?:docs|notebooks|corpora|dragin_lab|tests|benchmarks)/[\w./-]*", README)
    assert files
    assert not [name for name in files if not (ROOT / name).exists()]


def test_the_demo_table_is_written() -> None:
    block = re.search(r"<!-- demo-table[^>]*-->\n(.*?)<!-- end -->", README, re.DOTALL)
    assert block
    rows = [
        line.split()[0]
        for line in block[1].splitlines()
        if line and not line.startswith(("`", " "))
    ]
    assert rows == list(PAPERS)


def test_it_is_short_and_its_links_work_on_a_package_index() -> None:
    assert len(README.splitlines()) <= 140
    links = re.findall(r"\]\(([^)]+)\)|^\[[^\]]+\]: (.+)$", README, re.MULTILINE)
    shown = [link for pair in links for link in pair if link]
    # shown where the repository is read
    notebooks = {link for link in shown if link.startswith("notebooks/")}
    assert [
        link for link in shown if not link.startswith("https://") and link not in notebooks
    ] == []
    assert notebooks == {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
