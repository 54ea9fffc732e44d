"""The rooms of the house: each imports from those before it, `import dragin_lab` stays light, torch has its places."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import dragin_lab

PACKAGE = Path(dragin_lab.__file__).parent
HEAVY = {"torch", "transformers", "spacy", "pandas", "matplotlib"}

#: From the ground up: a room imports from the rooms before it, type hints included.
ROOMS = (
    "trace",
    "core",
    "triggers",
    "reference",
    "catalog",
    "almanac",
    "data",
    "model",
    "served",
    "retrieval",
    "run",
    "study",
    "views",
    "widgets",
    "cli",
)
#: What any room may use; `__init__` and `__main__` open the doors and stand outside the order.
SHARED = ("text", "errors", "checks", "files", "progress")
DOORS = ("dragin_lab", "dragin_lab.__main__")
#: What may import torch or transformers at any depth.
TORCH = ("model/", "served/endpoint", "retrieval/dense")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at any depth, under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= whole & MODULES.keys() or {node.module}
    return found


IMPORTS = {name: imports(path) for name, path in MODULES.items()}


def room(module: str) -> str:
    return module.split(".")[1]


def test_every_module_lives_in_a_room() -> None:
    homeless = [name for name in MODULES if name not in DOORS and room(name) not in (*ROOMS, *SHARED)]
    assert homeless == [], f"put it into one of {', '.join(ROOMS)}"


def test_rooms_import_from_the_rooms_before_them() -> None:
    height = {name: place for place, name in enumerate((*SHARED, *ROOMS))}
    wrong = [
        f"{name} imports {target}"
        for name in MODULES.keys() - set(DOORS)
        for target in IMPORTS[name] & MODULES.keys() - set(DOORS)
        if room(target) not in SHARED and height[room(target)] > height[room(name)]
    ]
    assert sorted(set(wrong)) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    """``core.trace`` finds the views by name, and so is not in one."""
    try:
        graphlib.TopologicalSorter({name: IMPORTS[name] & MODULES.keys() for name in MODULES}).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_import_is_light() -> None:
    code = "import sys, dragin_lab; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    ).stdout.split()
    assert "dragin_lab" in loaded
    assert not HEAVY & set(loaded)


def test_public_names_load_on_first_use_and_no_others() -> None:
    for name in dragin_lab.__all__:
        if name not in ("LanguageModel", "capture"):
            assert getattr(dragin_lab, name).__name__.lower() == name.lower()
    assert set(dragin_lab.__all__) <= set(dir(dragin_lab))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dragin_lab.nothing


def test_public_names_are_not_hidden_by_rooms() -> None:
    hidden = {name for name in dragin_lab.__all__ if f"dragin_lab.{name}" in MODULES}
    assert not hidden, "importing such a module would put itself in the place of the public name"


def test_only_the_room_of_models_and_dense_retrieval_import_torch() -> None:
    users = {
        MODULES[name].relative_to(PACKAGE).as_posix()
        for name, targets in IMPORTS.items()
        if {target.split(".")[0] for target in targets} & {"torch", "transformers"}
    }
    assert users
    assert [user for user in sorted(users) if not user.startswith(TORCH)] == []


def test_the_method_needs_numpy_and_spacy_alone() -> None:
    outside = {
        target.split(".")[0] for name in MODULES if name.startswith("dragin_lab.core.") for target in IMPORTS[name]
    }
    assert outside - set(sys.stdlib_module_names) - {"dragin_lab"} <= {"numpy", "spacy", "pandas", "safetensors"}
