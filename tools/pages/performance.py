"""Write docs/performance.md from what the benchmarks wrote into benchmarks/results/.

    python -m tools.pages.performance [--check]

Every figure of the page comes from one of those files, through the template ``performance.md.jinja``. A file may have a
list ``budgets`` (``benchmarks/common.py``), whose lines stand in the first table with a verdict; a benchmark without a
file stands as "not measured" with its command. ``--check`` writes nothing and fails where the page is not what the
files give.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.pages.base import DOCS, RESULTS, Row, fill_template

PAGE = DOCS / "performance.md"
#: The benchmarks with a section of their own, in the order of the page.
SHOWN = (
    "capture", "episode", "batch", "same", "sweep", "memory", "growth", "latency", "views", "corpus", "served", "gpu",
)  # fmt: skip
#: Files that docs/measured.md shows: what was found, not how long it took.
ELSEWHERE = {"real_questions"}


def page(results: Path = RESULTS) -> str:
    """All of docs/performance.md."""
    files = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    others = [name for name in files if name not in (*SHOWN, *ELSEWHERE)]
    budgets = [(name, line) for name in (*SHOWN, *others) if name in files for line in files[name].get("budgets") or ()]
    missed = [line for _, line in budgets if line["measured"] > line["at_most"] and line["note"]]
    return fill_template(
        "performance.md.jinja", files=files, others=others, budgets=budgets, missed=missed, verdict=verdict,
        machine=describe_machine, numbers=list_numbers,
    )  # fmt: skip


def verdict(line: Row) -> str:
    """Whether a budget is held."""
    measured, most = line["measured"], line["at_most"]
    return "held" if measured <= most else f"missed by {measured / most - 1:.0%}"


def describe_machine(machine: Row) -> str:
    """The machine in a line; what an older file does not say is left out."""
    device = machine.get("device", "")
    parts = [
        machine.get("processor") or machine.get("machine", ""),
        f"{machine['cores']} cores" if "cores" in machine else "",
        f"{machine['memory_GiB']} GiB" if "memory_GiB" in machine else "",
        f"{machine['threads']} torch thread(s)" if "threads" in machine else "",
        device if device != "cpu" else "",
        machine.get("dtype", ""),
        f"Python {machine['python']}" if "python" in machine else "",
        *(f"{name} {machine[name]}" for name in ("torch", "transformers", "numpy") if name in machine),
    ]
    return ", ".join(part for part in parts if part) + "."


def list_numbers(found: Row) -> list[tuple[str, str]]:
    """Every number of a file without a section of its own, with the names that lead to it."""
    return list(_list_numbers({key: value for key, value in found.items() if key not in ("machine", "budgets")}))


def _list_numbers(value: Any, name: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _list_numbers(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _list_numbers(one, f"{name}[{place}]")
    elif isinstance(value, bool | str):
        yield name, str(value)
    elif isinstance(value, int | float):
        yield name, f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit(f"{PAGE.name} is not what the files give; run python -m tools.pages.performance")
        return
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
