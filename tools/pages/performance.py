"""Write docs/performance.md from what the benchmarks wrote into benchmarks/results/.

    python -m tools.pages.performance [--check]

Every figure of the page comes from one of those files. A file may have a list ``budgets`` (``benchmarks/common.py``),
whose lines stand in the first table with a verdict; a benchmark without a file stands as "not measured" with its
command. ``--check`` writes nothing and fails where the page is not what the files give.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tools.pages.base import DOCS, RESULTS
from tools.pages.performance_sections import (
    Found,
    show_anything,
    show_batch,
    show_capture,
    show_corpus,
    show_episode,
    show_gpu,
    show_growth,
    show_latency,
    show_memory,
    show_same,
    show_served,
    show_sweep,
    show_views,
    table,
)

PAGE = DOCS / "performance.md"


@dataclass(frozen=True)
class Benchmark:
    """One script: what it is for, what it is held to while it has not run, and how its file is shown."""

    name: str
    title: str
    held_to: tuple[tuple[str, str], ...] = ()  # what, at most
    show: Callable[[Found], list[str]] | None = None
    command: str = ""  # where it is more than the script's name


BENCHMARKS = (
    Benchmark(
        "capture",
        "What capture costs",
        (
            ("decoding with capture / the same loop without", "1.05 x"),
            ("decoding with capture / `generate`, embedded model; 0.5 billion parameters", "1.0 x; 1.03 x"),
        ),
        show_capture,
    ),
    Benchmark(
        "episode",
        "An episode",
        (
            ("an episode / a naive driver, reference; paper variant", "0.6 x; 0.25 x"),
            ("an episode / plain `generate` of what is kept, reference; paper variant", "5 x; 2 x"),
        ),
        show_episode,
    ),
    Benchmark(
        "batch", "Side by side", (("16 episodes side by side / one after another", "0.5 x on 2 cores"),), show_batch
    ),
    Benchmark(
        "same",
        "The same text side by side",
        show=show_same,
        command="python benchmarks/batch.py --methods all --questions 200 --rounds 1 --threads 1 "
        "--out benchmarks/results/same.json",
    ),
    Benchmark("sweep", "Five thresholds", (("five thresholds / one", "1.6 x"),), show_sweep),
    Benchmark(
        "memory",
        "Memory",
        (
            ("attention kept in full, one layer, p = 2,048, n = 128, 32 heads", "20 MiB"),
            ("peak memory of a 4,096-token prompt, capture / plain SDPA", "1.05 x"),
        ),
        show_memory,
    ),
    Benchmark("growth", "How it grows", show=show_growth),
    Benchmark("latency", "The first result", (("`import dragin_lab`", "0.5 s"),), show_latency),
    Benchmark("views", "Views", (("static heatmap of 2,000 tokens", "150 ms, 1.5 MB"),), show_views),
    Benchmark(
        "corpus",
        "A corpus",
        (
            ("corpus of 1 million passages, built / bare tantivy", "1.3 x"),
            ("peak memory while building it", "1,024 MiB"),
            ("resident memory while searching it", "300 MiB"),
            ("a query of 25 words / bare tantivy's, median", "2 x"),
        ),
        show_corpus,
    ),
    Benchmark(
        "served",
        "Behind a server",
        (("questions by FLARE, llama.cpp Q4_1 / transformers float32, processor time", "0.2 x"),),
        show_served,
    ),
    Benchmark("gpu", "On a GPU", (("16 episodes side by side / one after another, on a GPU", "0.1 x"),), show_gpu),
)
#: Files that docs/measured.md shows: what was found, not how long it took.
ELSEWHERE = {"real_questions"}


# -- the page ---------------------------------------------------------------------------------------------------------


@dataclass
class Page:
    """The lines of the first table and of the sections."""

    budgets: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sections: list[str] = field(default_factory=list)

    def add(self, benchmark: Benchmark, found: Found | None) -> None:
        command = benchmark.command or f"python benchmarks/{benchmark.name}.py"
        self.sections += [f"## {benchmark.title}", "", f"`{command}`", ""]
        if found is None:
            self.sections += ["Not measured.", ""]
        else:
            self.sections += [described(found.get("machine", {})), "", *(benchmark.show or show_anything)(found)]
        held = found.get("budgets") if found is not None else None
        if held is None:
            why = "not measured" if found is None else "see below"
            self.budgets += [(what, most, why, "", f"`{benchmark.name}`") for what, most in benchmark.held_to]
            return
        for line in held:
            self.budgets.append((line["what"], *verdict(line), f"`{benchmark.name}`"))
            if line["measured"] > line["at_most"] and line["note"]:
                self.notes.append(f"- {line['what']}: {line['note']}.")


def verdict(line: Found) -> tuple[str, str, str]:
    """At most, measured, and whether that holds."""
    unit, measured, most = line["unit"], line["measured"], line["at_most"]
    held = "held" if measured <= most else f"missed by {measured / most - 1:.0%}"
    return f"{most:g} {unit}", f"{measured:.3g} {unit}", held


def described(machine: Found) -> str:
    """The machine in a line; what an older file does not say is left out."""
    cores = f"{machine['cores']} cores" if "cores" in machine else ""
    memory = f"{machine['memory_GiB']} GiB" if "memory_GiB" in machine else ""
    threads = f"{machine['threads']} torch thread(s)" if "threads" in machine else ""
    versions = [f"{name} {machine[name]}" for name in ("torch", "transformers", "numpy") if name in machine]
    python = f"Python {machine['python']}" if "python" in machine else ""
    who = machine.get("processor") or machine.get("machine", "")
    device = machine.get("device", "")
    parts = [
        who,
        cores,
        memory,
        threads,
        device if device != "cpu" else "",
        machine.get("dtype", ""),
        python,
        *versions,
    ]
    return ", ".join(part for part in parts if part) + "."


def page(results: Path = RESULTS) -> str:
    """All of docs/performance.md."""
    made = Page()
    files = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    for benchmark in BENCHMARKS:
        made.add(benchmark, files.pop(benchmark.name, None))
    for name, found in files.items():
        if name not in ELSEWHERE:
            made.add(Benchmark(name, name.replace("_", " ").capitalize()), found)
    missed = ["Where a budget is missed:", "", *made.notes, ""] if made.notes else []
    return "\n".join(
        [
            "# Performance",
            "",
            "Written by `tools/pages/performance.py` from `benchmarks/results/`. Times are medians of interleaved "
            "rounds, as ratios within a round; `make bench` repeats them, each section has its command. What the "
            "methods find and answer stands in [measured.md](measured.md) and [almanac.md](almanac.md).",
            "",
            *table(("what", "at most", "measured", "", "script"), made.budgets),
            *missed,
            *([] if (results / "gpu.json").is_file() else CLOSING),
            *made.sections,
        ]
    )


CLOSING = [
    "No GPU was at hand, so nothing here was measured on one. `benchmarks/gpu.py` measures a model of the shape of "
    "Llama-2-7B with random weights on any CUDA device, without a download. What can be counted without one "
    "(`tests/model/test_lm_waits.py`): a draft waits for the device once a token, to learn which token it is; a "
    "trigger that looks at scores gets them in the same transfer; a batch waits once a step, and once more where "
    "transformers looks whether its mask masks anything. A static cache, CUDA graphs and `torch.compile` are not used, "
    "because whether they pay can only be measured there. Never run on a GPU, either: a model spread over several "
    "devices (`device_map`), which is tested with weights that stay on disk (`tests/model/test_large.py`), and weights "
    "that bitsandbytes quantizes, which it does on a GPU alone.",
    "",
]


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
