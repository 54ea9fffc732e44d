"""Write the figures of docs/scaling.md: what the paper's Table 2 costs, from the rates in benchmarks/results/.

    python -m tools.pages.scaling

What was not measured is not shown: without ``cluster.json`` (``python benchmarks/cluster.py``) or ``gpu.json``
(``python benchmarks/gpu.py``) the page says so and leaves the formula to the reader's own rate.
"""

from __future__ import annotations

import json
from typing import Any

from dragin_lab.data.paper import rows
from tools.pages.base import DOCS, RESULTS
from tools.pages.figures import put_between

PAGE = DOCS / "scaling.md"
#: Rates for which the page shows what they come to, where the reader measures one.
EXAMPLES = (0.1, 1.0, 10.0)
MACHINES = (1, 8, 64)


def episodes_of_table_2() -> int:
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


def cpu_section(found: dict[str, Any] | None, episodes: int) -> str:
    """One process and workers on one machine's cores, on the embedded model."""
    if found is None:
        return "Nothing was measured: `python benchmarks/cluster.py --out benchmarks/results/cluster.json` does.\n"
    machine, one = found["machine"], found["one_median_s"] / found["episodes"]
    lines = [
        f"Measured with the model `{machine['model']}` on {machine['device']}, {machine['cores']} cores "
        f"({machine['machine']}, ray {machine['ray']}, torch {machine['torch']}, Python {machine['python']}), over "
        f"{found['episodes']} episodes of Table 2's six methods.\n",
        f"| | time / one process | episodes a second | {episodes:,} episodes | ready after | the same bytes |",
        "|---|---|---|---|---|---|",
        f"| one process | 1 | {1 / one:.2f} | {duration(episodes * one)} | | |",
    ]
    for row in found["actors"]:
        each = row["median_s"] / found["episodes"]
        lines.append(
            f"| `--ray local --actors {row['actors']}` | {row['over_one']:.2f} | {1 / each:.2f} "
            f"| {duration(episodes * each)} | {row['ready_s']:.0f} s | {'yes' if row['same_bytes'] else '**no**'} |"
        )
    mean = found["an_episode"]
    return "\n".join(lines) + (
        f"\n\nAn episode had {mean['drafts']:.1f} drafts, {mean['retrievals']:.1f} retrievals and {mean['tokens']:.0f} "
        "generated tokens on average.\n"
    )


def gpu_section(found: dict[str, Any] | None, mean: dict[str, float] | None, episodes: int) -> str:
    """A GPU: measured drafts, and what they come to for as many drafts an episode as the embedded model needs."""
    if found is None:
        return (
            "No figure was measured: `python benchmarks/gpu.py` does on a machine with a GPU. Without it, use the "
            "formula above with a rate of your own.\n"
        )
    shape, first = found["shape"], found["decoding"][0]
    lines = [
        f"Measured on {found['machine']['device']}, {shape['dtype']}, random weights in the shape of "
        f"{shape['layers']} layers of {shape['hidden']}: drafts of {first['tokens']} tokens after prompts of "
        f"{first['prompt']}, which are read again each time, with attention captured.\n",
        "| drafts side by side (`--batch-size`) | seconds a draft |"
        + (f" {episodes:,} episodes of {mean['drafts']:.1f} drafts |" if mean else ""),
        "|---|---|" + ("---|" if mean else ""),
    ]
    for row in found["decoding"]:
        each = row["median_s"]["capture"] / row["episodes"]
        cost = f" {duration(episodes * mean['drafts'] * each)} |" if mean else ""
        lines.append(f"| {row['episodes']} | {each:.3f} |{cost}")
    return "\n".join(lines) + (
        "\n\nThe number of drafts is the embedded model's; a real one may need more or fewer, and reads most of a "
        "prompt from its cache.\n"
    )


def formula_section(episodes: int) -> str:
    """What any rate comes to on any number of workers."""
    head = " | ".join(f"{n} worker{'s' * (n > 1)}" for n in MACHINES)
    lines = [
        f"Table 2 has {episodes:,} episodes: its models, methods and benchmarks, and Table 8's examples of each. "
        "With *r* episodes a second a worker, *n* workers and *t* seconds until they have loaded, it takes "
        f"{episodes:,} / (*r* × *n*) + *t* seconds. *r* is what the progress of a run shows with one worker.\n",
        f"| episodes a second a worker | {head} |",
        "|---|" + "---|" * len(MACHINES),
    ]
    for rate in EXAMPLES:
        lines.append(f"| {rate:g} | " + " | ".join(duration(episodes / (rate * n)) for n in MACHINES) + " |")
    return "\n".join(lines) + "\n\nThe rates of this table are examples to read it by, not measurements.\n"


def read(name: str) -> dict[str, Any] | None:
    """A benchmark's figures; None where it was not run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def main() -> None:
    episodes, cpu, gpu = episodes_of_table_2(), read("cluster"), read("gpu")
    put_between(PAGE, "formula", formula_section(episodes))
    put_between(PAGE, "one-machine", cpu_section(cpu, episodes))
    put_between(PAGE, "gpu", gpu_section(gpu, None if cpu is None else cpu["an_episode"], episodes))


if __name__ == "__main__":
    main()
