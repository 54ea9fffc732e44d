"""Write the figures that README.md and docs/measured.md show.

    python docs/make_figures.py

Runs the demo for README.md; docs/measured.md holds what the benchmarks wrote into benchmarks/results/, for instance
``python benchmarks/capture.py --out benchmarks/results/capture.json``.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from dragin_lab.cli import status

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def put_between(path: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- NAME… -->`` and ``<!-- end -->`` in a file."""
    old = path.read_text(encoding="utf-8")
    block = re.compile(rf"(<!-- {name}[^>]*-->\n).*?(<!-- end -->)", re.DOTALL)
    if not block.search(old):
        sys.exit(f"{path} has no block <!-- {name} --> … <!-- end -->")
    path.write_text(block.sub(lambda m: f"{m[1]}{text}{m[2]}", old), encoding="utf-8")
    print(path)


def demo_table() -> str:
    with tempfile.TemporaryDirectory() as folder:
        if (code := status(["demo", "--output", folder])) != 0:
            sys.exit(code)
        return (Path(folder) / "table.txt").read_text(encoding="utf-8")


def measured() -> str:
    """Every benchmark's file as a section: what ran it, where, and its figures."""
    parts = [
        "# Measured\n\nWritten by `docs/make_figures.py` from `benchmarks/results/`. Times are medians of interleaved "
        "runs, as ratios within one run.\n"
    ]
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        parts.append(
            f"\n## {path.stem}\n\n`python benchmarks/{path.stem}.py`\n\n```json\n{json.dumps(found, indent=1)}\n```\n"
        )
    return "".join(parts)


def main() -> None:
    put_between(ROOT / "README.md", "demo-table", f"```\n{demo_table().rstrip()}\n```\n")
    if RESULTS.is_dir():
        (ROOT / "docs" / "measured.md").write_text(measured(), encoding="utf-8")
        print(ROOT / "docs" / "measured.md")


if __name__ == "__main__":
    main()
