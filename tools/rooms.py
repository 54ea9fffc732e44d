"""Draw the rooms of docs/architecture.md from the code: what each is for, which rooms it imports,
its files; and the ways through them (``tools.ways``).

python -m tools.rooms
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from tools.base import DOCS, ROOT
from tools.ways import record_ways

PACKAGE = ROOT / "dragin_lab"
PAGE = DOCS / "architecture.md"
MARKS = re.compile(
    r"(<!-- (rooms|question|run|figure|files): .*? -->\n).*?(<!-- end -->)", re.DOTALL
)
#: What lives in each room, in the order of imports.
ROOMS = {
    "trace": "records, the trace and its branches, their files, tables and differences",
    "core": (
        "the method: sentences, equations, the paper's triggers and formulators, budgets, prompts,"
        " answers, loop"
    ),
    "triggers": "what came after DRAGIN: later triggers, and models that ask by themselves",
    "reference": "the authors' released code, to the letter",
    "catalog": "methods by name",
    "almanac": "the embedded world: model, passages, questions, labels",
    "data": "benchmarks, your own questions, exemplars, presets, the papers' tables, downloads",
    "engines": (
        "what writes and measures: transformers, llama.cpp, servers; loading, checks, `dl.capture`"
    ),
    "retrieval": "corpora and indexes; any object with `search`",
    "run": "setups, episodes, batches, run directories, the cache, sweeps, branches, the cluster",
    "study": "one trace, looked into: replays under other settings, attribution, the other way",
    "results": "results over many episodes: runs, tables, tests, causes, curves",
    "views": "figures and pages",
    "widgets": "live controls",
    "cli": "the command line",
}


def imported_rooms(room: str) -> list[str]:
    """The rooms that the files of a room import from, in their order."""
    names = set()
    for path in (PACKAGE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dragin_lab"):
                names |= {f"{node.module}.{alias.name}".split(".")[1] for alias in node.names}
    return [name for name in ROOMS if name in names - {room}]


def table() -> str:
    """A row for each room."""
    rows = "".join(
        f"| `{room}/` | {about} | {', '.join(imported_rooms(room)) or '–'} |\n"
        for room, about in ROOMS.items()
    )
    return f"| room | what lives there | imports |\n|---|---|---|\n{rows}"


def describe(path: Path) -> str:
    """The first paragraph of a file's docstring, in Markdown."""
    about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    line = " ".join(about.split("\n\n")[0].split())
    return line.replace("``", "`").replace("|", "\\|")


def files() -> str:
    """A row for each file."""
    rows = ""
    for room in ("", *ROOMS):
        for path in sorted((PACKAGE / room).glob("*.py")):
            if not path.stem.startswith("__"):
                rows += f"| `{path.relative_to(ROOT).as_posix()}` | {describe(path)} |\n"
    return f"| file | what it holds |\n|---|---|\n{rows}"


def way(entered: Mapping[str, str], first: int = 1) -> str:
    """A row for each file that is entered, numbered from ``first``."""
    rows = ""
    for number, (name, entrance) in enumerate(entered.items(), first):
        rows += f"| {number} | `{name}` | `{entrance}` | {describe(PACKAGE / name)} |\n"
    return f"| | file | entered by | what it holds |\n|---|---|---|---|\n{rows}"


def leave_out(entered: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """What is entered of files that are not known yet."""
    return {name: entrance for name, entrance in entered.items() if name not in known}


def question_way() -> str:
    """A question's files up to the first forward, and those after it."""
    ways = record_ways()
    after = leave_out(ways.question, ways.forward)
    return (
        f"{way(ways.forward)}\nHere the model computes for the first time. After it:\n\n"
        f"{way(after, len(ways.forward) + 1)}"
    )


def run_way() -> str:
    """The files of a run that are not on the way of a question."""
    ways = record_ways()
    return way(leave_out(ways.run, ways.question))


def figure_way() -> str:
    """The files of a figure."""
    return way(record_ways().figure)


def drawn(page: str) -> str:
    """The page with the tables between their marks."""
    tables = {
        "rooms": table,
        "question": question_way,
        "run": run_way,
        "figure": figure_way,
        "files": files,
    }
    return MARKS.sub(lambda marks: f"{marks[1]}\n{tables[marks[2]]()}\n{marks[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE)
