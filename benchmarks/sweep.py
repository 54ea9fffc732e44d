"""What a sweep over five thresholds costs: with a cache and without, against one threshold alone.

Interleaved, one round after another, ratios within a round:

- one: the middle threshold by itself, without a cache;
- kept: all five with a new cache in memory;
- anew: all five without one. Its predictions have to be the same as with the cache, or the run
  fails.

A second part is the exact curve (``lab.curve``) against one run: all θ from LOWEST up, both without
a cache of their own from before. It is measured on SmolLM2 too, with HotpotQA's questions, where
``python -m tools.real`` has fetched it and DRAGIN_LAB_DATA has these.

The thresholds are Table 5's, and Table 5's times what makes its middle the one that the embedded
model's methods use.

    python benchmarks/sweep.py
    python benchmarks/sweep.py --only curve
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import CHOSEN, begin, budget, interleaved, machine, parser, write

import dragin_lab as dl
from dragin_lab.engines.load import LanguageModel
from dragin_lab.results.sweeps import Sweep
from dragin_lab.run.benchmark import Benchmark
from dragin_lab.run.benchmark import benchmark as open_benchmark
from tools.base import ROOT
from tools.real import language_model

BUDGET = 1.6
#: The curve of the paper variant: down to which θ, of how many questions, and what it may cost in
#: runs.
LOWEST, CURVE_QUESTIONS, CURVE_BUDGET = 0.1, 12, 4.0
#: θ of the paper's Table 5, on the released code's scale of RIND scores.
TABLE_5 = (1.0, 1.1, 1.2, 1.3, 1.4)
MIDDLE = 1.2


def measure(
    variant: str,
    thetas: list[float],
    top_n: int,
    lm: LanguageModel,
    retriever: Any,
    asked: Benchmark,
    rounds: int,
) -> dict[str, Any]:
    """Seconds of each way over interleaved rounds, and what was generated and served."""
    middle = thetas[len(thetas) // 2]
    method = dl.method("dragin", variant=variant, top_n=top_n)

    def sweep(values: list[float], cache: bool) -> Sweep:
        return dl.Lab(lm, retriever=retriever, cache=cache).sweep(
            asked, method, threshold=values, progress=False
        )

    ways = {
        "one": lambda: sweep([middle], False),
        "kept": lambda: sweep(thetas, True),
        "anew": lambda: sweep(thetas, False),
    }
    timed = interleaved(ways, rounds, before=lm.prefixes.clear, warm=False)
    found: dict[str, Sweep] = timed.made
    check(found["kept"], found["anew"])
    tokens = {
        way: sum(line["tokens"] for run in found[way].records for line in run.predictions)
        for way in ways
    }
    return {
        "method": "dragin",
        "variant": variant,
        "thresholds": thetas,
        "one": middle,
        "questions": len(asked.questions),
        **timed.summary("kept"),
        "tokens_in_predictions": tokens,
        "stored": asdict(found["kept"].counts),
        "tokens_made_over_one": found["kept"].counts.tokens_made / tokens["one"],
    }


def measure_curve(
    lab: dl.Lab, method: dl.Method, asked: Benchmark, rounds: int, *, warm: bool = True
) -> dict[str, Any]:
    """Seconds of a curve and of one run at the method's own θ, over interleaved rounds."""
    ways = {
        "one": lambda: lab.replace(cache=False).sweep(
            asked, method, threshold=[method.threshold], progress=False
        ),
        "curve": lambda: lab.curve(asked, method, lowest=LOWEST, progress=False),
    }
    timed = interleaved(ways, rounds, before=lab.model.prefixes.clear, warm=warm)
    curve = timed.made["curve"]
    table = curve.table[["value", "em", "f1", "retrievals", "tokens"]]
    return {
        "model": lab.model.name,
        "lowest": LOWEST,
        "questions": len(asked.questions),
        **timed.summary("curve"),
        "pieces_a_question": len(curve.pieces) / len(asked.questions),
        "every_theta": table.round(4).to_dict("records"),
    }


def measure_real_curve(questions: int) -> dict[str, Any] | None:
    """The same on SmolLM2 and HotpotQA, in one round; None where these are not there."""
    model, data = language_model(), os.environ.get("DRAGIN_LAB_DATA")
    if not model.exists() or data is None:
        return None
    passages = Path(data) / "passages" / "psgs_w100.tsv.gz"
    lab = dl.Lab(str(model), passages, ROOT / "corpora" / "real_exemplars.yaml")
    asked = dl.benchmark("hotpotqa", limit=questions)
    return measure_curve(lab, dl.method("dragin"), asked, 1, warm=False)


def check(kept: Sweep, anew: Sweep) -> None:
    """Both have the same predictions, to the byte."""
    for value, run, other_run in zip(kept.values, kept.records, anew.records, strict=True):
        for line, other in zip(run.predictions, other_run.predictions, strict=True):
            if json.dumps(line) != json.dumps(other):
                raise SystemExit(
                    f"θ {value}, {line['id']}: other answers\n  kept: {line}\n  anew: {other}"
                )


def budgets(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of the table."""
    lines = []
    for curve in found["curves"]:
        every = (
            f"all θ from {LOWEST:g} up / one, paper variant, {curve['questions']} questions on"
            f" {curve['model']}"
        )
        asked = f"{curve['pieces_a_question']:.2f} answers a question"
        lines.append(budget(every, curve["over_cpu"]["one"], CURVE_BUDGET, note=asked))
    for swept in found["sweeps"]:
        low, *_, high = swept["thresholds"]
        what = f"five thresholds / one, {swept['variant']} variant, θ {low:g} to {high:g}"
        note = (
            f"the episodes part here, so that {swept['tokens_made_over_one']:.2f} times the tokens"
            " have to be made"
        )
        lines.append(budget(what, swept["over"]["one"], BUDGET, note=note))
    return lines


def main(given: Sequence[str] | None = None) -> None:
    options = parser(__doc__, "sweep")
    options.set_defaults(threads=1)
    options.add_argument("--questions", type=int, default=20)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--variants", default="reference,paper")
    options.add_argument("--thresholds", help="such as .1,.2,.3,.4,.5; default: Table 5's, twice")
    options.add_argument("--dataset", default="almanac/2wikimultihopqa")
    options.add_argument("--only", choices=("curve", "sweeps"), help="measure this alone")
    options.add_argument("--model", help="a folder or an id; default: the embedded model")
    args = options.parse_args(given)
    begin(args)
    lm, retriever = LanguageModel.load(args.model), dl.BM25(dl.Corpus.load())
    asked = open_benchmark(args.dataset, split="dev", limit=args.questions)
    dl.Lab(lm, retriever=retriever).sweep(
        open_benchmark(args.dataset, split="dev", limit=1), "dragin", threshold=[1], progress=False
    )
    found = json.loads(args.out.read_text(encoding="utf-8")) if args.only else {}
    if args.only != "curve":
        found["sweeps"] = measure_sweeps(args, lm, retriever, asked)
    if args.only != "sweeps":
        few = open_benchmark("almanac/hotpotqa", limit=min(CURVE_QUESTIONS, args.questions))
        method = dl.method("dragin", top_n=CHOSEN["paper"]["dragin"]["top_n"])
        lab = dl.Lab(lm, retriever=retriever)
        curves = [measure_curve(lab, method, few, args.rounds)]
        curves += filter(None, [measure_real_curve(len(few.questions))])
        found["curves"] = curves
        found.pop("curve", None)
    found |= {"budgets": budgets(found), "machine": machine()}
    write(args.out, found)


def measure_sweeps(
    args: argparse.Namespace, lm: LanguageModel, retriever: Any, asked: Benchmark
) -> list[dict[str, Any]]:
    """``measure`` of each variant, at Table 5's θ, and at these around what the variant uses."""
    results = []
    for variant in args.variants.split(","):
        chosen = CHOSEN[variant]["dragin"]
        if args.thresholds:
            tried = [[float(theta) for theta in args.thresholds.split(",")]]
        else:
            scales = (chosen["threshold"] / MIDDLE, 1.0)
            tried = [[round(scale * theta, 3) for theta in TABLE_5] for scale in scales]
        for thetas in tried:
            results.append(
                measure(variant, thetas, chosen["top_n"], lm, retriever, asked, args.rounds)
            )
    return results


if __name__ == "__main__":
    main()
