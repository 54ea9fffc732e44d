"""A wheel holds all that the package needs, and works from another folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from run_folders import write_run
from scripted import Say, drive
from test_repository import installed

import dragin_lab as dl

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dragin_lab"


def run(*args: object, cwd: Path, python: str | Path = sys.executable) -> str:
    """Standard output of a Python process that sees nothing of this repository."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [str(part) for part in (python, *args)],
        cwd=cwd,
        env=clean | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is installed from, so that the repository stays as it is."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("dragin_lab", "binder", "notebooks"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "runs")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(
        "-c",
        "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])",
        out,
        cwd=source,
    )
    (made,) = out.glob("*.whl")
    return made


def fresh(folder: Path, *installs: Sequence[object]) -> Path:
    """The Python of a new environment into which pip has installed these."""
    run("-m", "venv", folder, cwd=folder.parent)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    # the one that Python brings takes twice as long to resolve
    for wanted in (["--upgrade", "pip"], *installs):
        install(python, *wanted, cwd=folder)
    return python


def install(python: Path, *wanted: object, cwd: Path) -> None:
    """Have the environment's pip install these; skips where it reaches no index."""
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    command = [str(part) for part in (*pip, "--constraint", ROOT / "constraints.txt", *wanted)]
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0 and "connection" in done.stderr.lower():
        pytest.skip(f"pip reaches no package index: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-3000:]


def test_it_holds_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert wanted - held == set()
    kinds = {Path(name).suffix for name in wanted}
    assert {".py", ".typed", ".css", ".html", ".json", ".jsonl", ".safetensors"} <= kinds
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert not [
        name
        for name in held
        if name.startswith(("tests/", "tools/", "benchmarks/", "notebooks/", "corpora/"))
    ]


@pytest.mark.timeout(1800)  # installs torch
@pytest.mark.deep
def test_the_demo_runs_in_an_environment_of_its_own_and_the_tour_in_binders(
    wheel: Path, source: Path, tmp_path: Path
) -> None:
    python = fresh(tmp_path / "environment", [wheel])
    where = "import dragin_lab; print(dragin_lab.__file__)"
    assert Path(run("-c", where, cwd=tmp_path, python=python).strip()).is_relative_to(tmp_path)
    names = json.loads(run("-m", "pip", "list", "--format", "json", cwd=tmp_path, python=python))
    heavy = {
        "ray",
        "faiss-cpu",
        "pymilvus",
        "sentence-transformers",
        "playwright",
        "jupyterlab",
        "pytest",
    }
    assert not heavy & {one["name"].lower() for one in names}, "the demo needs none of these"
    command = python.with_name("dragin-lab")
    done = subprocess.run(
        [command, "demo", "--limit", "2"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "dragin" in done.stdout
    assert sorted(p.name for p in (tmp_path / "runs" / "demo").iterdir()) == [
        "almanac",
        "dragin.html",
    ]
    # the rest: torch is there already
    install(python, "-r", "binder/requirements.txt", "papermill", cwd=source)
    out = tmp_path / "out.ipynb"
    papermill = ("-m", "papermill", "--no-progress-bar", "--kernel", "python3")
    run(*papermill, source / "notebooks" / "00_tour.ipynb", out, cwd=tmp_path, python=python)
    cells = json.loads(out.read_text(encoding="utf-8"))["cells"]
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")


#: Shows a trace and the table of a folder of runs.
SHOWN = """
import sys
sys.path.append(sys.argv[3])
import dragin_lab as dl
assert dl.__file__.startswith(sys.argv[3])
trace = dl.Trace.load(sys.argv[1])
print(trace._repr_html_(), trace, len(trace.tokens), len(trace.retrievals))
print(dl.table(2, sys.argv[2]).show("markdown"))
assert not {"torch", "transformers", "spacy"} & set(sys.modules)
"""


@pytest.mark.slow
def test_traces_and_tables_are_shown_without_torch(wheel: Path, tmp_path: Path) -> None:
    """By the wheel and what these packages need, and nothing else that is installed here."""
    light = [
        "Jinja2",
        "filelock",
        "msgspec",
        "numpy",
        "pandas",
        "rich",
        "safetensors",
        "scipy",
        "tqdm",
        "wcwidth",
    ]
    alone = tmp_path / "alone"
    shutil.unpack_archive(wheel, alone, "zip")
    for name in filter(None, installed(light)):
        for top in {file.parts[0] for file in metadata.files(name) or ()} - {"..", "__pycache__"}:
            if not (alone / top).exists():
                (alone / top).symlink_to(metadata.distribution(name).locate_file(top))
    model = drive(
        dl.method("dragin"),
        Say(" It is by Bo Ek.", entropy={"Bo": 9.0}),
        Say(" So the answer is Li.\nHe"),
    )
    trace = model.trace.save(tmp_path / "a.trace")
    write_run(tmp_path / "runs")
    shown = run("-S", "-c", SHOWN, trace, tmp_path / "runs", alone, cwd=tmp_path)
    assert "<style>" in shown
    assert "⟦Bo⟧ Ek." in shown
    assert "| DRAGIN" in shown
