"""The rooms of the house: one order of imports, a light ``import dragin_lab``, torch in its
places, and a size each.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

import dragin_lab
from tools import stub

PACKAGE = Path(dragin_lab.__file__).parent
HEAVY = {"torch", "transformers", "spacy", "pandas", "plotly", "ipywidgets"}

#: Rooms -> lines that they may have.
LINES = {
    "trace": 1150,
    "core catalog": 3050,
    "triggers": 500,
    "reference": 650,
    "almanac": 160,
    "data": 1220,
    "engines": 3300,
    "retrieval": 1400,
    "run": 2750,
    "study": 2900,
    "views": 2500,
    "widgets": 650,
    "cli": 1080,
    "root": 850,
}
#: Beside the package: lines of Python.
BESIDE = {"tests": 19_500, "tools": 1000, "benchmarks": 1250}
PACKAGE_LINES, PACKAGE_FILES = 22_200, 125
#: What is above these numbers, as it is: it may only fall.
ABOVE = {
    "core catalog": 3670,
    "engines": 4090,
    "data": 1500,
    "trace": 1370,
    "widgets": 930,
    "run": 3200,
    "study": 3560,
    "views": 2910,
    "root": 1080,
    "tests": 23_300,
    "benchmarks": 2010,
    "package": 26_120,
    "files": 143,
}
LONGER = {
    "core/answers.py": 357,
    "core/loop.py": 429,
    "engines/tokenizer.py": 352,
    "engines/transformers.py": 388,
    "lab.py": 470,
    "trace/draft.py": 351,
    "views/results.py": 362,
}
AIR = 1.05  # what a change may add before somebody has to look for what can go
#: Lines of a file. Doors, and what is made to be read one small thing at a time, may be shorter.
SHORTEST, LONGEST = 60, 350
SMALL = ("__init__.py", "__main__.py", "triggers/", "core/", "almanac/", "progress.py")
#: What counts: every text file of the package that is no data. Nothing formats the others than
#: Python's to a length, so each 120 characters of theirs are a line.
TEXTS, WIDTH = {".py", ".js", ".css", ".html", ".txt"}, 120

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
    "views",
    "widgets",
    "lab",
    "cli",
)
#: What any room may use; `__init__` and `__main__` open the doors and stand outside the order.
SHARED = ("text", "errors", "checks", "files", "progress")
DOORS = ("dragin_lab", "dragin_lab.__main__")
LAZY = ("dragin_lab", "dragin_lab.views")  # whose public names load on first use
#: The doors that go up: what a trace, a sweep and runs draw by methods of their own, imported when
#: it is drawn.
UPWARD = {
    ("trace.trace", "views.rows"),
    ("trace.trace", "views.episodes"),
    ("trace.trace", "views.overview_page"),
    ("trace.trace", "views.trace_page"),
    ("run.sweeps", "views.results"),
    ("run.sweeps", "study.differing"),
    ("run.sweeps", "study.runs"),
    ("study.differing", "views.comparing"),
    ("study.differing", "views.differing"),
    ("study.runs", "views.results"),
    ("study.attribution", "views.attribution"),
    ("study.attribution", "views.attribution_figures"),
    ("study.runs", "views.attribution_figures"),
}
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

FILES_TO_THE_FORWARD = 31  # 20 is what it should be


def test_a_question_enters_few_files_before_its_first_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of an open lab that has answered before: what a reader of ``Lab.ask`` opens; a probe is
    none.
    """
    lab, entered = dragin_lab.Lab(), dict[str, str]()
    question = "In which town was the director of The Ashen Rooftop born?"
    lab.ask(question, max_new_tokens=4)
    monkeypatch.setattr(
        lab.model, "probe", functools.partial(lambda probe: probe, lab.model.probe())
    )

    class ForwardError(BaseException):
        pass

    def stop(*_: object) -> None:
        sys.setprofile(None)
        raise ForwardError

    def enter(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            entered.setdefault(path.relative_to(PACKAGE).as_posix(), frame.f_code.co_name)

    hook = lab.model.model.register_forward_pre_hook(stop)
    sys.setprofile(enter)
    try:
        with pytest.raises(ForwardError):
            lab.ask(question)
    finally:
        sys.setprofile(None)
        hook.remove()
    assert len(entered) <= FILES_TO_THE_FORWARD, entered


# -- the size --------------------------------------------------------------------------------------


FILES = sorted(path for path in PACKAGE.rglob("*") if path.suffix in TEXTS)


def count_lines(path: Path) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return (
        len(lines)
        if path.suffix == ".py"
        else sum(1 + max(len(line) - 1, 0) // WIDTH for line in lines)
    )


@pytest.mark.parametrize("name", LINES)
def test_rooms_stay_in_their_budgets(name: str) -> None:
    rooms = [
        path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "root" for path in FILES
    ]
    lines = sum(
        count_lines(path) for path, room in zip(FILES, rooms, strict=True) if room in name.split()
    )
    assert lines <= max(LINES[name] * AIR, ABOVE.get(name, 0))


def test_the_package_stays_small() -> None:
    assert sum(map(count_lines, FILES)) <= max(PACKAGE_LINES * AIR, ABOVE["package"])
    assert len([path for path in FILES if path.suffix == ".py"]) <= max(
        PACKAGE_FILES * AIR, ABOVE["files"]
    )


def test_files_can_be_read_at_one_sitting() -> None:
    lengths = {path.relative_to(PACKAGE).as_posix(): count_lines(path) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > LONGER.get(name, LONGEST)} == {}
    python = {
        name: n
        for name, n in lengths.items()
        if name.endswith(".py") and not any(one in name for one in SMALL)
    }
    assert {name: n for name, n in python.items() if n < SHORTEST} == {}


@pytest.mark.parametrize("folder", BESIDE)
def test_what_stands_beside_the_package_stays_small(folder: str) -> None:
    """A folder that a source archive leaves out has no lines."""
    paths = list((PACKAGE.parent / folder).rglob("*.py"))
    assert sum(map(count_lines, paths)) <= max(BESIDE[folder] * AIR, ABOVE.get(folder, 0))
