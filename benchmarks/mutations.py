"""Do the tests see it? Lines of the package broken at random, one at a time, in a copy; the quick
tests that name the file first, then those of its room, then the others.

``python benchmarks/mutations.py [--count 60] [--seed 63] [--first 0] [--workers 0] [--room-only]``
"""

from __future__ import annotations

import argparse
import ast
import copy
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".real", ".*_cache", ".hypothesis", "__pycache__", "site", "dist"
)
OTHER = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
#: The tests of what has no folder of its own.
TESTS = {
    "catalog": "core",
    "lab.py": "run",
    "text.py": "cli",
    "files.py": "run",
    "checks.py": "core",
}
LONGEST = 1800  # seconds; what then still runs has been broken into an endless loop


def broken(node: ast.AST) -> ast.AST | None:
    """The node with its meaning changed, where it is one that can be."""
    new = copy.copy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in OTHER:
            new.ops = [OTHER[type(op)]()]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OTHER:
            new.op = OTHER[type(op)]()
        case ast.UnaryOp(op=ast.Not()):
            return new.operand
        case ast.Constant(value=bool() as value):
            new.value = not value
        case ast.Constant(value=int() | float() as value):
            new.value = value + 1
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            new.value = ast.Constant(None)
        case _:
            return None
    return new


class Way(NamedTuple):
    """One way to break a line: what stands in the file's bytes a to b, and what comes there
    instead.
    """

    path: Path
    line: int
    a: int
    b: int
    old: str
    new: str


def list_ways() -> Iterator[Way]:
    for path in sorted((ROOT / "dragin_lab").rglob("*.py")):
        raw = path.read_bytes()
        starts = [0, *itertools.accumulate(len(line) for line in raw.split(b"\n"))]
        tree = ast.parse(raw)
        # Their places are not told, or nothing reads them.
        whole = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.arguments)
        ]
        inside = {id(one) for node in whole for one in ast.walk(node)}
        for node in ast.walk(tree):
            new = None if id(node) in inside else broken(node)
            if new is None:
                continue
            line, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
            # a newline a line
            a = starts[line] + line + node.col_offset  # type: ignore[attr-defined]
            b = starts[last] + last + node.end_col_offset  # type: ignore[attr-defined]
            text = ast.unparse(new) if isinstance(new, ast.stmt) else f"({ast.unparse(new)})"
            yield Way(path.relative_to(ROOT), line + 1, a, b, raw[a:b].decode(), text)


def draw(count: int, seed: int) -> list[Way]:
    """So many lines, each with one of the ways to break it."""
    by_line: dict[tuple[Path, int], list[Way]] = {}
    for way in list_ways():
        by_line.setdefault((way.path, way.line), []).append(way)
    chosen = random.Random(seed)
    return [chosen.choice(by_line[at]) for at in chosen.sample(sorted(by_line), count)]


def name_tests(copied: Path, path: Path) -> list[str]:
    """The test files that import a file of the package by its name."""
    name = ".".join(path.with_suffix("").parts)
    found = (
        one
        for one in (copied / "tests").rglob("test_*.py")
        if f"{name} " in one.read_text(encoding="utf-8")
    )
    return sorted(str(one.relative_to(copied)) for one in found if "browser" not in one.parts)


def see(copied: Path, tests: list[str], workers: int) -> str:
    """The first test that fails, or nothing."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-rfE",
        "-p",
        "no:cacheprovider",
        "-n",
        str(workers),
        *tests,
    ]
    environment = os.environ | {"PYTHONPATH": str(copied), "OMP_NUM_THREADS": "1"}
    try:
        ran = subprocess.run(
            command,
            cwd=copied,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it never ends"
    failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (
        failed[0][:160]
        if failed
        else f"pytest ended with {ran.returncode}"
        if ran.returncode not in (0, 5)
        else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("count", 60), ("seed", 63), ("first", 0), ("workers", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--room-only", action="store_true", help="not the tests of other rooms")
    asked = parser.parse_args()
    seen, ways = 0, draw(asked.count, asked.seed)[asked.first :]
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "copy"
        shutil.copytree(ROOT, copied, ignore=LEFT_OUT)
        for number, (path, line, a, b, old, new) in enumerate(ways, asked.first + 1):
            raw = (ROOT / path).read_bytes()
            (copied / path).write_bytes(raw[:a] + new.encode() + raw[b:])
            room = TESTS.get(path.parts[1], path.parts[1])
            own = [f"tests/{room}"] if (copied / "tests" / room).is_dir() else ["tests/laws"]
            found = see(copied, near, asked.workers) if (near := name_tests(copied, path)) else ""
            found = found or see(copied, own, asked.workers)
            if not found and not asked.room_only:
                found = see(copied, ["tests", f"--ignore={own[0]}"], asked.workers)
            (copied / path).write_bytes(raw)
            seen += bool(found)
            change = f"{old!r:.60} -> {new!r:.60}"
            print(f"{number:3} {path}:{line} {change}: {found or 'NOT SEEN'}", flush=True)
    print(f"{seen} of {len(ways)} seen")


if __name__ == "__main__":
    main()
