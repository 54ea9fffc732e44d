"""The files that set the project up say the same thing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import dragin_lab
from tools import make_constraints

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PROJECT = make_constraints.project()
CONSTRAINTS = make_constraints.CONSTRAINTS.read_text(encoding="utf-8")


def installed(requirements: list[str]) -> dict[str, str]:
    """Versions by canonical name of all that these requirements pull in here; "" for what is not
    there.
    """
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        name = str(canonicalize_name(requirement.name))
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            found[name] = Version(metadata.version(name)).public
        except metadata.PackageNotFoundError:
            found[name] = ""
            continue
        for wanted in {"", *requirement.extras}:
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting += [(Requirement(text), wanted) for text in metadata.requires(name) or ()]
    return found


def test_constraints_are_what_is_installed() -> None:
    pinned = make_constraints.pins(CONSTRAINTS)
    here = installed(make_constraints.requirements(PROJECT))
    beside = make_constraints.requirements(PROJECT, make_constraints.BESIDE)
    for name in {str(canonicalize_name(Requirement(text).name)) for text in beside}:
        if not here[name]:  # installed where it is asked for
            del here[name]
    assert {"torch", "jupyterlab", "ray", "mpmath"} <= here.keys()
    differ = {
        name: (pinned.get(name), version)
        for name, version in here.items()
        if pinned.get(name) != version
    }
    assert not differ, (
        "(constraints.txt, installed): install with -c constraints.txt, or run"
        " tools/make_constraints.py"
    )


def test_constraints_are_written_as_the_script_writes_them() -> None:
    versions = dict(
        line.split("==") for line in CONSTRAINTS.splitlines() if not line.startswith("#")
    )
    # Line by line after the first, which says on which Python they were resolved.
    assert (
        CONSTRAINTS.splitlines()[1:] == make_constraints.constraints_text(versions).splitlines()[1:]
    )


def test_the_conda_environment_is_the_notebooks_at_the_tested_versions() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, requirements = environment["dependencies"]
    assert requirements["pip"] == ["-c constraints.txt", "-e .[notebooks]", "nbmake"]
    tested = re.findall(r"Python :: 3\.(\d+)", "\n".join(PROJECT["classifiers"]))
    newest = max(int(minor) for minor in tested)
    assert python == f"python{PROJECT['requires-python']},<3.{newest + 1}"
    assert pip == "pip"


def test_every_base_dependency_says_what_it_is_for() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## What it stands on")[1].split("\n## ")[0]
    rows = [row.strip("|").split("|") for row in section.splitlines() if row.startswith("| ")][1:]
    assert all(reason.strip() for _, reason in rows)
    said = [name.strip() for names, _ in rows for name in names.split(",")]
    assert sorted(said) == sorted(Requirement(text).name for text in PROJECT["dependencies"])


def test_makefile_installs_the_same_extras() -> None:
    assert f"EXTRAS := {','.join(make_constraints.EXTRAS)}\n" in MAKEFILE


def test_make_help_names_every_target() -> None:
    targets = re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)
    assert {"demo", "lab", "test", "docs-site", "dist"} <= set(targets)
    assert [name for name in targets if name != "help" and f'"make {name} ' not in MAKEFILE] == []


def test_every_corpus_has_a_line_on_what_it_is_where_it_is_from_and_its_licence() -> None:
    page = (ROOT / "corpora" / "README.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in page.splitlines()
        if row.startswith("| `")
    ]
    tracked = {path.name for path in (ROOT / "corpora").iterdir() if path.is_file()} - {
        "README.md"
    } | {"real_traces"}
    assert {row[0].strip("`/") for row in rows} == tracked
    assert all(len(row) == 4 and all(row) for row in rows)


def test_version_stands_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "dragin_lab.__version__"}
    assert Version(dragin_lab.__version__)
    assert (
        f"{dragin_lab.__version__} will be" in CHANGELOG
        or f"## [{dragin_lab.__version__}]" in CHANGELOG
    )


def test_workflows_run_what_a_person_would() -> None:
    for path in (ROOT / ".github").rglob("*.yml"):
        text = path.read_text(encoding="utf-8")
        assert yaml.safe_load(text)
        assert not [
            name for name in re.findall(r"make ([\w-]+)", text) if f"\n{name}:" not in MAKEFILE
        ]
    assert "run: .ci/run\n" in (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("beside", [(), ("data",), ("data", "models")])
def test_ci_uses_the_real_data_beside_the_checkout(tmp_path: Path, beside: tuple[str, ...]) -> None:
    (tmp_path / "project" / ".ci").mkdir(parents=True)
    run = shutil.copy(ROOT / ".ci" / "run", tmp_path / "project" / ".ci")
    for name in beside:
        (tmp_path / "shared" / name).mkdir(parents=True)
    for name, does in (("make", 'echo "$DRAGIN_LAB_DATA,$DRAGIN_LAB_MODELS"'), ("chromium", ":")):
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        command.chmod(0o755)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("DRAGIN_LAB_")
    }
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    printed = subprocess.run(
        [run], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert printed == ",".join(
        str(tmp_path / "shared" / n) if n in beside else "" for n in ("data", "models")
    )
