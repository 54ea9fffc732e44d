"""The rooms of the house: one order of imports, a light ``import dragin_lab``, torch in its
places, and how much each of them carries.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import dragin_lab
from tools import stub, ways

PACKAGE = Path(dragin_lab.__file__).parent
HEAVY = {"torch", "transformers", "spacy", "pandas", "plotly", "ipywidgets"}

#: Syntax nodes that the package may have, and each room: it may only fall. Neither packing nor
#: unpacking changes them.
WEIGHT = {
    "trace": 10_971,
    "core": 28_428,
    "triggers": 2_974,
    "reference": 5_340,
    "catalog": 2_411,
    "almanac": 957,
    "data": 12_895,
    "engines": 39_042,
    "retrieval": 10_754,
    "run": 23_069,
    "study": 12_011,
    "results": 24_785,
    "views": 30_681,
    "widgets": 10_726,
    "cli": 7_075,
    "root": 6_707,
}
#: A function of so many lines or more is dense with more than so many nodes a line; none is.
LONG, MOST_NODES = 8, 16

#: From the ground up, a room imports from the rooms before it alone. The lab lives on the roof:
#: below the command line, and above the rooms that it hands out.
ROOMS = (
    "trace",
    "core",
    "triggers",
    "reference",
    "catalog",
    "almanac",
    "data",
    "engines",
    "retrieval",
    "run",
    "study",
    "results",
    "views",
    "widgets",
    "lab",
    "cli",
)
#: What any room may use; `__init__` and `__main__` open the doors and stand outside the order.
SHARED = ("text", "errors", "checks", "files", "progress", "drawn", "warning")
DOORS = ("dragin_lab", "dragin_lab.__main__")
LAZY = ("dragin_lab", "dragin_lab.views")  # whose public names load on first use
#: The doors that go up: what a trace, a sweep and runs draw by methods of their own, imported when
#: it is drawn.
UPWARD: set[tuple[str, str]] = set()
#: What may import torch or transformers at any depth.
TORCH = ("engines/", "retrieval/dense")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


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
    """Every module that a text in a file is the name of, or of something in it: of
    ``import_module`` and type hints.
    """
    texts = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {
        max(modules, key=len)
        for text in texts
        if (modules := [m for m in MODULES if f"{text}.".startswith(f"{m}.")])
    }


IMPORTS = {name: list_imports(tree) for name, tree in TREES.items()}


def room(module: str) -> str:
    return module.split(".")[1]


# -- the order -------------------------------------------------------------------------------------


def test_every_module_lives_in_a_room() -> None:
    homeless = [
        name for name in MODULES if name not in DOORS and room(name) not in (*ROOMS, *SHARED)
    ]
    assert homeless == [], f"put it into one of {', '.join(ROOMS)}"


def test_rooms_import_from_the_rooms_before_them() -> None:
    height = {name: place for place, name in enumerate((*SHARED, *ROOMS))}
    upward = {
        (name.removeprefix("dragin_lab."), target.removeprefix("dragin_lab."))
        for name in MODULES.keys() - set(DOORS)
        for target in IMPORTS[name] & MODULES.keys() - set(DOORS)
        if room(target) not in SHARED and height[room(target)] > height[room(name)]
    }
    assert upward == UPWARD


def test_modules_are_imported_by_statements() -> None:
    """What a text names, no reader and no tool can follow."""
    importing = [
        name
        for name, tree in TREES.items()
        if "import_module" in ast.dump(tree) and name not in LAZY
    ]
    assert {name: named for name in importing if (named := list_named(TREES[name]))} == {}


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
    """At any depth, functions too; only the doors that go up are left out."""
    inside = MODULES.keys() - set(DOORS)
    up = {(f"dragin_lab.{name}", f"dragin_lab.{target}") for name, target in UPWARD}
    graph = {
        name: {one for one in IMPORTS[name] & inside if (name, one) not in up} for name in inside
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
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
    assert dir(dragin_lab) == sorted([*dragin_lab.__all__, *dragin_lab._ROOMS, "__version__"])
    assert len(dragin_lab.__all__) <= 36
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dragin_lab.nothing


def test_type_checkers_see_the_public_names() -> None:
    assert stub.STUB.read_text(encoding="utf-8") == stub.write_stub(), "run python -m tools.stub"


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
        target.split(".")[0]
        for name in MODULES
        if name.startswith("dragin_lab.core.")
        for target in IMPORTS[name]
    }
    assert outside - set(sys.stdlib_module_names) - {"dragin_lab"} <= {
        "numpy",
        "spacy",
        "pandas",
        "safetensors",
    }


# -- the way of a question -------------------------------------------------------------------------

#: Files of a question before the model computes for the first time, and those of a whole answer.
FILES_TO_THE_FORWARD, FILES_OF_A_QUESTION = 20, 28
#: Lines of the first, without those that are empty or a comment alone.
LINES_TO_THE_FORWARD = 5_920


def count_lines(source: str) -> int:
    """Lines that are neither empty nor a comment alone."""
    stripped = [line.strip() for line in source.splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in stripped)


def test_a_question_enters_few_files() -> None:
    """Of an open lab that has answered before: what a reader of ``Lab.ask`` opens; a probe is
    none.
    """
    question = ways.record_ways().question
    forward = ways.record_ways().forward
    assert next(iter(question)) == "lab.py"
    assert set(forward) < set(question)
    assert len(forward) <= FILES_TO_THE_FORWARD, forward
    assert len(question) <= FILES_OF_A_QUESTION, question
    lines = {name: count_lines((PACKAGE / name).read_text(encoding="utf-8")) for name in forward}
    assert sum(lines.values()) <= LINES_TO_THE_FORWARD, lines


# -- weight and air ------------------------------------------------------------------------------


def strip_docstrings(tree: ast.AST) -> ast.AST:
    """The tree without the texts that say what a module, a class or a function is."""
    for node in ast.walk(tree):
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return tree


def weigh(tree: ast.AST) -> int:
    """How many syntax nodes a tree has."""
    return sum(1 for _ in ast.walk(tree))


def count_code_lines(source: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many lines of a function, stripped of its docstring, hold code: signature and body."""
    typed = [*ast.walk(function.args), *([function.returns] if function.returns else [])]
    head_end = max(
        [function.lineno, *(part.end_lineno for part in typed if hasattr(part, "lineno"))]
    )
    body = function.body[0].lineno if function.body else function.end_lineno + 1
    lines = source.splitlines()
    held = lines[function.lineno - 1 : head_end]
    held += lines[max(body, head_end + 1) - 1 : function.end_lineno]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in held)


def list_dense(source: str) -> list[str]:
    """The functions of a file that carry too much a line."""
    dense = []
    for node in ast.walk(strip_docstrings(ast.parse(source))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = count_code_lines(source, node)
            if lines >= LONG and weigh(node) > MOST_NODES * lines:
                dense.append(node.name)
    return dense


def measure_rooms() -> dict[str, int]:
    """The weight of each room; the files of the package's own folder are its root."""
    weights = dict.fromkeys(WEIGHT, 0)
    for path in MODULES.values():
        name = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "root"
        weights[name] += weigh(strip_docstrings(ast.parse(path.read_text(encoding="utf-8"))))
    return weights


def test_rooms_do_not_grow_heavier() -> None:
    heavier = {name: n for name, n in measure_rooms().items() if n > WEIGHT[name]}
    assert heavier == {}, "what can go? Else raise WEIGHT, and say in the commit what for"


def test_no_function_is_packed() -> None:
    dense = {}
    for path in MODULES.values():
        if names := list_dense(path.read_text(encoding="utf-8")):
            dense[path.relative_to(PACKAGE).as_posix()] = names
    assert dense == {}, f"more than {MOST_NODES} nodes a line: give a middle step a name"


def test_weight_is_neither_packed_nor_unpacked() -> None:
    packed = 'def add(a: int) -> int:\n    """Add."""\n    return a + sum(n for n in (a, a))\n'
    unpacked = packed.replace(
        "sum(n for n in (a, a))", "sum(\n        n\n        for n in (a, a)\n    )"
    )
    without = packed.replace('    """Add."""\n', "")
    trees = [strip_docstrings(ast.parse(text)) for text in (packed, unpacked, without)]
    assert len({weigh(tree) for tree in trees}) == 1


def test_a_packed_function_is_seen() -> None:
    packed = "def f(a):\n" + "    a = [n + 1 for n in a if n and n < 3] if a else [a, a, a]\n" * 8
    assert list_dense(packed) == ["f"]
    assert list_dense("def f(a):\n" + "    a = a + 1\n" * 8) == []
    assert list_dense("\n".join(packed.splitlines()[:4])) == []  # a short one is read at once


# -- what stays as it is ---------------------------------------------------------------------------

#: The dataclasses that are written over: records of an episode, which grow, and helpers.
GROWING = {
    "trace": {"Branches", "Decision", "Draft", "Query", "Step", "Trace", "Words"},
    "core": {"BaseLoop", "ClockLoop", "DraginLoop", "FlareLoop", "Loop", "SentenceLoop", "_Part"},
    "triggers": {"CallLoop", "PrefixLoop"},
    "engines": {"Computed", "_Recorder"},
    "run": {"Counts", "_Branching"},
    "results": {"CauseFinder", "Making", "Pieces", "Table"},
    "views": {"Line", "Sentence"},
}


def test_what_is_found_cannot_be_written_over() -> None:
    """What is handed out and shared is frozen, so that no user of it changes another's."""
    written_over: dict[str, set[str]] = {}
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and is_written_over(node):
                written_over.setdefault(room(name), set()).add(node.name)
    assert written_over == GROWING


def is_written_over(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass that is not frozen."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    made = [text for text in decorators if text.partition("(")[0] == "dataclass"]
    return any("frozen=True" not in text for text in made)


@pytest.mark.parametrize("folder", ["dragin_lab", "tests", "tools", "benchmarks"])
def test_no_line_is_wider_than_100_columns(folder: str) -> None:
    """Width and format are ruff's, by pyproject.toml: it lets a line pass that only its pragma
    makes wider, or that has no space to break at. A source archive leaves folders out.
    """
    pytest.importorskip("ruff", reason="ruff, of the extra dev, measures the width of lines")
    if not (PACKAGE.parent / folder).is_dir():
        pytest.skip(f"{folder}/ is not here")
    for check in (["check", "--select", "E501"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *check, "--no-cache", folder]
        done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
