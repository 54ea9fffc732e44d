"""The files that set the project up say the same thing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("notebooks", "corpora", "dense", "cluster", "dev")


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert match, requirement
    return match.group().lower().replace("_", "-")


def wanted() -> list[str]:
    extras = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *(r for extra in EXTRAS for r in extras[extra])]


def test_conda_environment_installs_what_pip_does() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    plain = [d for d in environment["dependencies"] if isinstance(d, str)]
    pip = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    assert f"python{PROJECT['requires-python']}" in plain
    assert sorted(r for r in pip if not r.startswith("-")) == sorted(wanted())
    assert "-c constraints.txt" in pip
    assert "-e ." in pip


def test_constraints_name_a_version_of_every_requirement() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    names = {name_of(name): version for name, version in pinned.items()}
    assert names["torch"] == "2.13.0"
    missing = [name_of(r) for r in wanted() if name_of(r) not in names]
    assert not missing


def test_makefile_installs_the_same_extras() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"EXTRAS := {','.join(EXTRAS)}\n" in makefile


@pytest.mark.parametrize("target", ["demo", "test", "lab", "bench", "lint", "clean"])
def test_makefile_has_target(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_version_stands_in_one_place_each() -> None:
    import dragin_lab

    assert PROJECT["version"] == dragin_lab.__version__
