"""Measure where the paper variant's default thresholds are from, and write docs/explanation/thresholds.md.

    python -m tools.pages.thresholds --model MODEL --corpus PASSAGES    # with a real model and real questions; minutes
    python -m tools.pages.thresholds                               # the page alone, from the result that is kept

Each trigger's θ is found at one budget of retrievals a question (``dl.calibrate``) on two models: Almanac's, on its
development questions, and a real one, on real questions.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import dragin_lab as dl
from dragin_lab.catalog.methods import method
from dragin_lab.data.datasets import FILES
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import open_benchmark
from dragin_lab.study.budgets import calibrate
from tools.pages.base import DOCS, fill_template, markdown_table

RESULT, PAGE = Path(__file__).with_suffix(".json"), DOCS / "explanation" / "thresholds.md"
BUDGET = "budget:1.25"
#: The triggers that compare the score of a word with θ, in the written form.
TRIGGERS = ("rind", "rind(scale='sentence')", "entropy", "margin", "attention", "entropy-trend")
#: θ of DRAGIN that are tried as they are, on Almanac's development questions.
GRID = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
#: θ around the default that a sweep goes over: the first retrieves more than twice as often as the last.
EQUATIONS = (0.1, 0.2, 0.25, 0.3, 0.5)
REAL = ("2wikimultihopqa", "hotpotqa")


def measure(lab: dl.Lab, model: str, names: tuple[str, ...], limit: int, **where: Any) -> dict[str, Any]:
    """θ of every trigger at the budget, averaged over benchmarks, and what DRAGIN scores over the grid."""
    thetas: dict[str, list[float | None]] = {trigger: [] for trigger in TRIGGERS}
    grid: dict[float, list[tuple[float, int]]] = {theta: [] for theta in GRID}
    peaks: list[float] = []
    for name in names:
        benchmark = open_benchmark(name, limit=limit, **where)
        asking = lab.replace(exemplars=benchmark.template)
        for trigger in TRIGGERS:
            chosen = method("dragin", variant="paper", when=trigger, what="qfs", threshold=1.0)
            try:
                calibrated = calibrate(asking, benchmark, chosen, BUDGET)
                thetas[trigger].append(calibrated.threshold)
            except SettingError as error:  # a budget that this trigger cannot reach on these texts
                print(f"{name} {trigger}: {error}")
                thetas[trigger].append(None)
        for theta in GRID:
            traces = list(asking.ask_many(benchmark.questions, "dragin", variant="paper", threshold=theta))
            grid[theta] += [(trace.scores["em"], trace.retrievals_count) for trace in traces if trace.scores]
            if theta == GRID[-1]:
                peaks += [float(s.words.score.max()) for t in traces for s in t.steps[:1] if len(s.words)]
        print(name, {trigger: values[-1] for trigger, values in thetas.items()}, flush=True)
    rows = {
        f"{theta:g}": [sum(column) / len(column) for column in zip(*pairs, strict=True)]
        for theta, pairs in grid.items()
    }
    return {"model": model, "questions": limit * len(names), "thetas": thetas, "grid": rows, "peaks": peaks}


def default_of(trigger: str) -> float:
    """θ of the paper variant where none is given."""
    return method("dragin", variant="paper", when=trigger, what="qfs").threshold or 0.0


def page(found: list[dict[str, Any]]) -> str:
    """The whole page."""
    names = [one["model"] for one in found]
    rows = []
    for trigger in TRIGGERS:
        cells = [trigger.replace("'", ""), f"{default_of(trigger):g}"]
        for one in found:
            values = [value for value in one["thetas"][trigger] if value is not None]
            missing = len(one["thetas"][trigger]) - len(values)
            cells.append(
                (f"{min(values):.2f} to {max(values):.2f}" if values else "–")
                + f" ({missing} out of reach)" * bool(missing)
            )
        rows.append(cells)
    grids = [[theta, *(f"{cell:.2f}" for one in found for cell in one["grid"][theta])] for theta in found[0]["grid"]]
    head = [f"{label}, {name}" for name in names for label in ("exact match", "retrievals")]
    return fill_template(
        "thresholds.md.jinja",
        budget=BUDGET.partition(":")[2],
        models=" and ".join(f"{one['questions']} questions on {one['model']}" for one in found),
        thetas=markdown_table(["trigger", "default θ", *names], rows),
        grid=markdown_table(["θ", *head], grids),
        above="\n".join(
            f"- {one['model']}: {sum(peak > 1.2 for peak in one['peaks'])} of {len(one['peaks'])} first drafts hold a "
            f"word above 1.2; the median of their highest scores is {sorted(one['peaks'])[len(one['peaks']) // 2]:.2f}."
            for one in found
        ),
        rind=f"{default_of('rind'):g}",
        sweep=", ".join(f"{theta:g}" for theta in EQUATIONS),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a real model: an id, a folder or a GGUF file")
    parser.add_argument("--name", default="SmolLM2-135M-Instruct", help="what the page calls it")
    parser.add_argument("--corpus", type=Path, help="its passages")
    parser.add_argument("--limit", type=int, default=8, help="questions of each real benchmark (default: 8)")
    given = parser.parse_args()
    if given.model is not None:
        found = [
            measure(dl.Lab(cache=True), "Almanac's model", tuple(f"almanac/{name}" for name in FILES), 10, split="dev"),
            measure(dl.Lab(given.model, given.corpus, cache=True), given.name, REAL, given.limit),
        ]
        RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(json.loads(RESULT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
