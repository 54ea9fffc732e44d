"""How long figures and pages of a long trace take, and how large they are.

The traces are made up (no model): drafts of 50 tokens, all judged, and one single draft. Times are medians, in
processor and wall-clock milliseconds. The budget of a figure is 2 s for 2,000 tokens.

    python benchmarks/views.py
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "views")]

from common import budget, machine, parser, write  # noqa: E402 - what follows needs the path
from view_samples import long_trace  # noqa: E402 - it lies beside the tests

from dragin_lab import views  # noqa: E402

VIEWS = {
    "trace": lambda trace: views.trace(trace).html,
    "text": views.trace_text,
    "heatmap": lambda trace: views.heatmap(trace).to_json(),
    "timeline": lambda trace: views.timeline(trace).to_json(),
    "comparison": lambda trace: views.compare([trace, trace]).html,
}


def measure(make: Callable[[], str], repeats: int) -> tuple[float, float, int]:
    """Median milliseconds by the wall clock and of the processor, and bytes of what was made."""
    made = make()  # reads the style sheet once
    wall, cpu = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        made = make()
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - used))
    return statistics.median(wall), statistics.median(cpu), len(made.encode())


def main() -> None:
    options = parser(__doc__, "views")
    options.add_argument("--repeats", type=int, default=15)
    args = options.parse_args()
    rows = []
    print(
        f"{'view':12} {'tokens':>7} {'drafts':>7} {'wall ms':>8} {'cpu ms':>8} {'kB':>7}   (median of {args.repeats})"
    )
    for tokens, per_draft in ((200, 50), (2000, 50), (2000, 2000), (5000, 50), (5000, 5000)):
        trace = long_trace(tokens, per_draft)
        for name, make in VIEWS.items():
            wall, cpu, size = measure(lambda make=make, trace=trace: make(trace), args.repeats)
            print(f"{name:12} {tokens:7,} {len(trace.steps):7} {wall:8.1f} {cpu:8.1f} {size / 1e3:7.0f}")
            row = {"view": name, "tokens": tokens, "drafts": len(trace.steps)}
            rows.append(row | {"wall_ms": wall, "cpu_ms": cpu, "kB": size / 1e3})
    heat = [row for row in rows if row["view"] == "heatmap" and row["tokens"] == 2000]
    budgets = [
        budget("heatmap of 2,000 tokens", max(row["wall_ms"] for row in heat), 2000, "ms"),
        budget("size of that heatmap", max(row["kB"] for row in heat) / 1e3, 2, "MB"),
    ]
    write(args.out, {"budgets": budgets, "views": rows, "machine": machine()})


if __name__ == "__main__":
    main()
