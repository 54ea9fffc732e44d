"""Write the figures of README.md, docs/measured.md, docs/corpora.md, docs/scaling.md and docs/how-to/served.md.

    python -m tools.pages.figures [--measured]

Runs the demo for README.md (not with --measured). The other pages show what benchmarks wrote into benchmarks/results/,
through the templates beside this file. How long things take stands in docs/performance.md (tools/pages/performance.py).
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from typing import Any

from dragin_lab.cli.app import status
from dragin_lab.core.method import PAPERS
from dragin_lab.data.paper import rows
from dragin_lab.study.runs import Runs
from tools.pages.base import DOCS, RESULTS, ROOT, bracketed, fill_blocks, fill_template, put_between

#: The pages with blocks of figures, by their template.
PAGES = {
    "corpora": DOCS / "corpora.md",
    "scaling": DOCS / "scaling.md",
    "served": DOCS / "how-to" / "served.md",
}


def read_results(name: str) -> Any:
    """A benchmark's figures; None where it was not run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_blocks(page: str, **results: Any) -> dict[str, str]:
    """The blocks of one of ``PAGES`` by their name; ``results`` replace what the benchmarks wrote."""
    files = {name: read_results(name) for name in ("real_questions", "corpus", "served", "cluster", "gpu")} | results
    ratios = {
        method: engines["llama.cpp Q4_1"]["cpu_s"] / engines["transformers float32"]["cpu_s"]
        for method, engines in files["served"]["methods"].items()
    }
    return fill_blocks(f"{page}.md.jinja", episodes=count_episodes(), duration=duration, ratios=ratios, **files)


def write_measured() -> str:
    """All of docs/measured.md."""
    return fill_template("measured.md.jinja", found=read_results("real_questions"), bracketed=bracketed)


def count_episodes() -> int:
    """One for each model, method, benchmark and question: Table 2's cells, and how many examples Table 8 gives each."""
    examples = next(row for row in rows(8) if row["setting"] == "#Examples")
    cells = {(row["llm"], row["method"], name.split(".")[0]) for row in rows(2) for name in row if "." in name}
    return sum(int(examples[benchmark]) for _, _, benchmark in cells)


def duration(seconds: float) -> str:
    """A length of time in the unit that fits it."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def demo_table() -> str:
    """The means of the demo's methods, in the order of the paper's Table 1."""
    with tempfile.TemporaryDirectory() as folder:
        if (code := status(["demo", "--output", folder])) != 0:
            sys.exit(code)
        runs = {record.config["method"]["name"]: record for record in Runs.load(folder).records}
        table = Runs([runs[name] for name in PAPERS]).table().choose(["mean"]).show()
    means = re.search(r"^method\n(.*?)\n\n", table, re.DOTALL | re.MULTILINE)
    heading = next(line for line in table.splitlines() if "retrievals" in line)
    assert means is not None
    return f"{heading}\n{means[1]}"


def main() -> None:
    if "--measured" not in sys.argv[1:]:
        put_between(ROOT / "README.md", "demo-table", f"```\n{demo_table().rstrip()}\n```\n")
    (DOCS / "measured.md").write_text(write_measured(), encoding="utf-8")
    print(DOCS / "measured.md")
    for page, path in PAGES.items():
        for name, text in write_blocks(page).items():
            put_between(path, name, text)


if __name__ == "__main__":
    main()
