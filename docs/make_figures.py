"""Write the figures that README.md and docs/measured.md show.

    python docs/make_figures.py [--measured]

Runs the demo for README.md (not with --measured); docs/measured.md holds what the benchmarks wrote into
benchmarks/results/, for instance
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


def capture_section(found: dict) -> str:
    """What ``benchmarks/capture.py`` wrote, as a table; ratios are wall time, processor time in brackets."""
    machine = found["machine"]
    lines = [
        f"torch {machine['torch']}, transformers {machine['transformers']}, {machine['machine']}, "
        f"{machine['threads']} thread(s), Python {machine['python']}.\n",
        "| model | parameters | prompt + pieces | rounds | capture / bare loop | / without attention | / `generate` |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["decoding"]:
        wall, cpu = row["capture_over"], row["capture_over_cpu"]
        ratios = " | ".join(f"{wall[k]:.3f} ({cpu[k]:.3f})" for k in ("bare", "untapped", "generate"))
        size = f"{row['parameters'] / 1e6:.1f} M | {row['prompt']} + {row['pieces']} | {row['runs']}"
        lines.append(f"| {row['model']} | {size} | {ratios} |")
    memory = found["memory"]
    kept = f"p = {memory['p']}, n = {memory['n']}, {memory['h']} heads: {memory['MiB']:.1f} MiB"
    return "\n".join([*lines, "", f"Attention of one layer kept in full, {kept}.", ""])


SECTIONS = {"capture": capture_section}


def measured() -> str:
    """Every benchmark's file as a section."""
    parts = [
        "# Measured\n\nWritten by `docs/make_figures.py` from `benchmarks/results/`. Times are medians of interleaved "
        "runs, as ratios within one run.\n"
    ]
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        write = SECTIONS.get(path.stem, lambda value: f"```json\n{json.dumps(value, indent=1)}\n```\n")
        parts.append(f"\n## {path.stem}\n\n`python benchmarks/{path.stem}.py`\n\n{write(found)}")
    return "".join(parts)


def main() -> None:
    if "--measured" not in sys.argv[1:]:
        put_demo_table()
    if RESULTS.is_dir():
        (ROOT / "docs" / "measured.md").write_text(measured(), encoding="utf-8")
        print(ROOT / "docs" / "measured.md")


def put_demo_table() -> None:
    put_between(ROOT / "README.md", "demo-table", f"```\n{demo_table().rstrip()}\n```\n")


if __name__ == "__main__":
    main()
