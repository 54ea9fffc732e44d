"""`import dragin_lab` stays light, and imports go down the floors of the house."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dragin_lab

PACKAGE = Path(dragin_lab.__file__).parent
HEAVY = {"torch", "transformers", "spacy", "pandas", "plotly"}

#: From the ground up. A module may import from its own floor and from those below; one that is listed nowhere stands
#: on the floor of its folder.
FLOORS = [
    {"errors", "files"},
    {"trace", "episode", "tracefile", "frames", "parting"},
    {
        "rind",
        "qfs",
        "words",
        "metrics",
        "prompts",
        "forms",
        "chat",
        "sentences",
        "confidence",
        "exemplars",
        "ranking",
        "intervals",
    },
    {"loop", "trigger", "reference_loop", "paper_loop", "methods", "calls", "call_loop", "settings"},
    {
        "almanac",
        "corpus",
        "corpora",
        "corpora.files",
        "corpora.lines",
        "corpora.store",
        "retrieval",
        "datasets",
        "datasets_formats",
        "labels",
        "presets",
    },
    {f"corpora.{part}" for part in ("build", "canaries", "check", "parse", "pool", "seen", "sources", "writer")}
    | {"retrieval.bm25s_build", "retrieval.bm25s_index"},
    {"download", "published", "fetch", "corpora.fetch"},
    {"lm", *(f"retrieval.{part}" for part in ("dense", "dense_encoders", "milvus", "milvus_fill", "choose"))},
    {"store", "store_disk", "remembering"},
    {"drivers", "serving", "batched", "templates", "rundir", "runwriter", "progress", "bench", "sweeps"}
    | {"endings", "cluster", "cluster_link", "cluster_worker"},
    {"needs", "needs_query", "tables", "paper", "replay", "replay_truth", "stored"},
    {"views", "widgets"},
    {
        "cli",
        "demo",
        "doctor",
        "__main__",
    },
]
#: What may import torch or transformers at any depth.
TORCH = ("lm/", "retrieval/dense", "almanac/train", "almanac/evaluate", "almanac/probe")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def floor(module: str) -> int:
    parts = module.split(".")[1:]
    heights = {name: height for height, names in enumerate(FLOORS) for name in names}
    return heights.get(".".join(parts[:2]), heights.get(parts[0], -1))


def imports(path: Path, *, top_level: bool = False) -> list[tuple[str, bool]]:
    """(module, whether it is for type checking only) of every import statement of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checking = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    found = []
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node in checking) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name if name in MODULES else node.module, node in checking) for name in whole]
    return found


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


def test_public_names_are_not_hidden_by_modules() -> None:
    code = "import dragin_lab as dl; dl.stream, dl.run_many, dl.method; assert callable(dl.run), dl.run"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)
    hidden = {name for name in dragin_lab.__all__ if f"dragin_lab.{name}" in MODULES}
    assert not hidden, "importing such a module would put itself in the place of the public name"


def test_every_module_stands_on_a_floor() -> None:
    assert [name for name in MODULES if name != "dragin_lab" and floor(name) < 0] == []


def test_imports_go_down() -> None:
    upward = []
    for name, path in MODULES.items():
        if name == "dragin_lab":
            continue
        for target, checking in imports(path):
            if target.startswith("dragin_lab.") and not checking and floor(target) > floor(name):
                upward.append((name, target))
    # A trace shows itself through its views; each method imports its own.
    assert {name for name, _ in upward} == {"dragin_lab.trace"}
    assert {target.rpartition(".")[0] for _, target in upward} == {"dragin_lab.views"}


def test_only_the_floor_of_models_imports_torch() -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES.values()
        for target, checking in imports(path)
        if target.split(".")[0] in ("torch", "transformers") and not checking
    }
    assert users
    assert [user for user in users if not user.startswith(TORCH)] == []


def test_a_trace_needs_numpy_only() -> None:
    outside = {target.split(".")[0] for target, _ in imports(MODULES["dragin_lab.trace"], top_level=True)}
    assert outside - set(sys.stdlib_module_names) == {"numpy"}


@pytest.mark.parametrize(
    "name", ["rind", "qfs", "words", "prompts", "metrics", "confidence", "episode", "loop", "intervals"]
)
def test_pure_modules_import_nothing_heavy_even_later(name: str) -> None:
    targets = {target.split(".")[0] for target, checking in imports(MODULES[f"dragin_lab.{name}"]) if not checking}
    assert not HEAVY & targets
