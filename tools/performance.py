"""Write docs/performance.md: the budgets that the benchmarks wrote into benchmarks/results/, each
with a verdict.

python -m tools.performance
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.base import DOCS, RESULTS

PAGE = DOCS / "performance.md"
HEAD = """# Performance

Written by `tools/performance.py` from `benchmarks/results/`, which `make bench` writes. Times are
medians of rounds that alternate, as ratios within a round. [All tables](results/performance.md)
were recorded once; none is of a GPU.

| what | at most | measured | | script |
| --- | --- | --- | --- | --- |
"""


def page(results: Path = RESULTS) -> str:
    """The whole page: a row for each entry of a file's ``budgets``, then why a budget is missed."""
    budgets = [
        (path.stem, line)
        for path in sorted(results.glob("*.json"))
        for line in json.loads(path.read_text(encoding="utf-8")).get("budgets") or ()
    ]
    rows, missed = [], []
    for script, line in budgets:
        measured, most, unit = line["measured"], line["at_most"], line["unit"]
        verdict = "held" if measured <= most else f"missed by {measured / most - 1:.0%}"
        rows.append(
            f"| {line['what']} | {most:g} {unit} | {measured:.3g} {unit} | {verdict} |"
            f" `{script}` |\n"
        )
        if verdict != "held" and line["note"]:
            missed.append(f"- {line['what']}: {line['note']}.\n")
    return (
        HEAD
        + "".join(rows)
        + ("\nWhere a budget is missed:\n\n" + "".join(missed) if missed else "")
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
