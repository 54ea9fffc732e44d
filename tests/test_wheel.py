"""A wheel holds all that the package needs, and works from another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dragin_lab"


def run(*args: object, cwd: Path, **environment: str) -> str:
    """Standard output of a Python process that sees nothing of this repository."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [sys.executable, *(str(arg) for arg in args)], cwd=cwd, env=clean | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the repository, which stays as it is."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(PACKAGE, source / "dragin_lab", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    run("-c", "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])", out, cwd=source)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel unpacked."""
    target = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


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
    assert {".py", ".typed", ".css", ".json", ".jsonl", ".safetensors"} <= kinds
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/", "notebooks/"))]


def test_it_declares_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("entry_points.txt"))
        assert "dragin-lab = dragin_lab.cli:main" in archive.read(name).decode()


def test_the_demo_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    where = "import dragin_lab; print(dragin_lab.__file__)"
    assert Path(run("-c", where, cwd=tmp_path, PYTHONPATH=str(installed)).strip()).is_relative_to(installed)
    said = run("-m", "dragin_lab", "demo", "--limit", 2, cwd=tmp_path, PYTHONPATH=str(installed))
    assert "dragin" in said
    assert sorted(p.name for p in (tmp_path / "runs" / "demo").iterdir()) == [
        "dragin.html",
        "dragin.trace",
        "table.txt",
    ]
