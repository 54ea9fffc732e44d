"""The rooms of the house: one order of imports, a light ``import dragin_lab``, torch in its places, and a size each."""

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

#: From the ground up, a room imports from the rooms before it alone: room -> lines and files that it may have.
BUDGETS = {
    "trace": (1400, 7),
    "core": (3320, 19),
    "triggers": (1240, 18),
    "reference": (1100, 5),
    "catalog": (630, 5),
    "almanac": (250, 2),
    "data": (1750, 12),
    "model": (3720, 15),
    "served": (1900, 12),
    "retrieval": (2680, 14),
    "run": (4180, 19),
    "study": (4220, 20),
    "views": (3880, 22),
    "widgets": (1250, 8),
    "cli": (2050, 12),
}
ROOMS = tuple(BUDGETS)
ROOT = (650, 7)  # the same for the modules of the root
LINES, FILE_LINES = 33_820, 400  # of the package, and of one file

#: What any room may use; `__init__` and `__main__` open the doors and stand outside the order.
SHARED = ("text", "errors", "checks", "files", "progress")
DOORS = ("dragin_lab", "dragin_lab.__main__")
#: Imports by name, when a user calls for it, that go up: pictures of a trace, and what `Lab` gives to look at.
UPWARD = {
    ("trace.trace", "views"),
    ("run.lab", "study.runs"),
    ("run.lab", "widgets"),
}
#: What may import torch or transformers at any depth.
TORCH = ("model/", "served/endpoint", "retrieval/dense")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def list_imports(tree: ast.Module) -> set[str]:
    """Every module that a file's import statements name, at any depth, under TYPE_CHECKING too."""
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            imported |= whole & MODULES.keys() or {node.module}
    return imported


def list_named(tree: ast.Module) -> set[str]:
    """Every module that a text in a file is the name of, or of something in it: of ``import_module`` and type hints."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {
        max(modules, key=len) for text in texts if (modules := [m for m in MODULES if f"{text}.".startswith(f"{m}.")])
    }


IMPORTS = {name: list_imports(tree) for name, tree in TREES.items()}


def room(module: str) -> str:
    return module.split(".")[1]


# -- the order --------------------------------------------------------------------------------------------------------


def test_every_module_lives_in_a_room() -> None:
    homeless = [name for name in MODULES if name not in DOORS and room(name) not in (*ROOMS, *SHARED)]
    assert homeless == [], f"put it into one of {', '.join(ROOMS)}"


def test_rooms_import_from_the_rooms_before_them() -> None:
    height = {name: place for place, name in enumerate((*SHARED, *ROOMS))}
    upward = {
        (name.removeprefix("dragin_lab."), target.removeprefix("dragin_lab."))
        for name in MODULES.keys() - set(DOORS)
        for target in (IMPORTS[name] | list_named(TREES[name])) & MODULES.keys() - set(DOORS)
        if room(target) not in SHARED and height[room(target)] > height[room(name)]
    }
    assert upward == UPWARD


@pytest.mark.parametrize(
    "source",
    [
        "from dragin_lab.views.html import escape",
        "from dragin_lab.views import html",
        "if TYPE_CHECKING:\n    import dragin_lab.views.html",
        "def draw():\n    return import_module('dragin_lab.views.html')",
        "def draw(page: 'dragin_lab.views.html.Page'): ...",
    ],
)
def test_every_way_to_import_is_seen(source: str) -> None:
    tree = ast.parse(source)
    assert "dragin_lab.views.html" in list_imports(tree) | list_named(tree)


def test_no_files_import_each_other_in_a_circle() -> None:
    """By statements; what is imported by name when it is called for is not in one."""
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


# -- the size ---------------------------------------------------------------------------------------------------------


def count_lines(*modules: str) -> int:
    return sum(len(MODULES[name].read_text(encoding="utf-8").splitlines()) for name in modules)


@pytest.mark.parametrize(("name", "lines", "files"), [("", *ROOT), *((name, *most) for name, most in BUDGETS.items())])
def test_rooms_stay_in_their_budgets(name: str, lines: int, files: int) -> None:
    inside = [module for module in MODULES if module not in DOORS and room(module) == name]
    if not name:
        inside = [module for module in MODULES if module in DOORS or room(module) in SHARED]
    assert (count_lines(*inside) <= lines, len(inside) <= files) == (True, True), (count_lines(*inside), len(inside))


def test_no_file_is_long_and_the_whole_is_small() -> None:
    assert [name for name in MODULES if count_lines(name) > FILE_LINES] == []
    assert count_lines(*MODULES) <= LINES
