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
HEAVY = {"torch", "transformers", "spacy", "pandas", "plotly", "ipywidgets"}

#: From the ground up, a room imports from the rooms before it alone: room -> lines and files that it has. A number may
#: only fall.
BUDGETS = {
    "trace": (1260, 7),
    "core": (2941, 15),
    "triggers": (631, 8),
    "reference": (651, 3),
    "catalog": (317, 2),
    "almanac": (159, 2),
    "data": (1140, 8),
    "engines": (3822, 18),
    "retrieval": (1417, 9),
    "run": (3166, 13),
    "study": (2740, 12),
    "views": (2426, 14),
    "widgets": (685, 4),
    "cli": (1130, 7),
}
ROOMS = tuple(BUDGETS)
ROOT = (557, 7)  # the same for the modules of the root
#: What counts: every text file of the package that is no data. Nothing formats the others than Python's to a length, so
#: each 120 characters of theirs are a line.
TEXTS, WIDTH = {".py", ".js", ".css", ".html", ".txt"}, 120
FILE_LINES = 350
#: Files that are longer, which may only fall.
LONGER = {"run/lab.py": 368}
#: Lines of Python beside the package.
BESIDE = {"tests": 22728, "tools": 997, "benchmarks": 1223}

#: What any room may use; `__init__` and `__main__` open the doors and stand outside the order.
SHARED = ("text", "errors", "checks", "files", "progress")
DOORS = ("dragin_lab", "dragin_lab.__main__")
#: Imports by name, when a user calls for it, that go up: pictures of a trace, and what `Lab` gives to look at.
UPWARD = {
    ("trace.trace", "views"),
    ("run.sweeps", "views"),
    ("study.runs", "views"),
    ("run.lab", "study.runs"),
    ("run.lab", "study.spans"),
    ("run.lab", "widgets.exploring"),
    ("run.lab", "widgets.tuning"),
}
#: What may import torch or transformers at any depth.
TORCH = ("engines/", "retrieval/dense")


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
        "from dragin_lab.views.pages import escape",
        "from dragin_lab.views import pages",
        "if TYPE_CHECKING:\n    import dragin_lab.views.pages",
        "def draw():\n    return import_module('dragin_lab.views.pages')",
        "def draw(page: 'dragin_lab.views.pages.Page'): ...",
    ],
)
def test_every_way_to_import_is_seen(source: str) -> None:
    tree = ast.parse(source)
    assert "dragin_lab.views.pages" in list_imports(tree) | list_named(tree)


def test_no_files_import_each_other_in_a_circle() -> None:
    """By statements; what is imported by name when it is called for is not in one."""
    inside = MODULES.keys() - set(DOORS)  # which import for type checkers alone
    try:
        graphlib.TopologicalSorter({name: IMPORTS[name] & inside for name in inside}).prepare()
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
        if name != "capture":
            assert getattr(dragin_lab, name).__name__.lower() == name.lower()
    assert set(dragin_lab.__all__) <= set(dir(dragin_lab))
    assert len(dragin_lab.__all__) <= 32
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dragin_lab.nothing


def test_type_checkers_see_the_public_names() -> None:
    imported = [node for node in ast.walk(TREES["dragin_lab"]) if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imported if node.level == 0 for alias in node.names}
    stated = {name: f"dragin_lab.{module}" for name, module in dragin_lab._WHERE.items()}
    stated |= dict.fromkeys(dragin_lab._ROOMS, "dragin_lab")
    assert {name: module for name, module in seen.items() if str(module).startswith("dragin_lab")} == stated


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


FILES = sorted(path for path in PACKAGE.rglob("*") if path.suffix in TEXTS)


def count_lines(path: Path) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return len(lines) if path.suffix == ".py" else sum(1 + max(len(line) - 1, 0) // WIDTH for line in lines)


@pytest.mark.parametrize(("name", "lines", "files"), [("", *ROOT), *((name, *most) for name, most in BUDGETS.items())])
def test_rooms_stay_in_their_budgets(name: str, lines: int, files: int) -> None:
    inside = [path for path in FILES if path.parent == PACKAGE] if not name else []
    inside = inside or [path for path in FILES if path.is_relative_to(PACKAGE / name)]
    counted = sum(map(count_lines, inside)), len(inside)
    assert (counted[0] <= lines, counted[1] <= files) == (True, True), counted


def test_no_file_is_long() -> None:
    lengths = {path.relative_to(PACKAGE).as_posix(): count_lines(path) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > LONGER.get(name, FILE_LINES)} == {}


@pytest.mark.parametrize("folder", BESIDE)
def test_what_stands_beside_the_package_stays_small(folder: str) -> None:
    """A folder that a source archive leaves out has no lines."""
    root = PACKAGE.parent / folder
    assert sum(count_lines(path) for path in root.rglob("*.py")) <= BESIDE[folder]
