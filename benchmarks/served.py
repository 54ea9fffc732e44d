"""A quantized model in llama.cpp beside the same in transformers: time for questions by FLARE, and what it writes.

    python benchmarks/served.py                # SmolLM2-135M Q4_1, which `make real` fetches
    python benchmarks/served.py --questions 8

Three engines answer the same real questions, over the passages and with the exemplars of tests/parity/real, one after
another for each question: transformers in float32 and in bfloat16, which unpack the weights, and llama.cpp, which
computes on them as they are. llama.cpp rounds activations too, so texts may part. A draft counts as decided alike where
two engines wrote the same tokens of it and the trigger did the same.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from common import begin, budget, interleaved, machine, parser, write

import dragin_lab as dl
from dragin_lab.catalog.methods import method as make
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.run.benchmark import open_benchmark
from dragin_lab.trace.trace import Passage, Question, Trace
from tools import real

AT_MOST = 0.2  # of the time in float32
SET = Path(__file__).parents[1] / "tests" / "parity" / "real" / "sets.json"
ENGINES: dict[str, dict[str, Any]] = {
    "llama.cpp Q4_1": {"engine": "llama.cpp"},
    "transformers bfloat16": {"dtype": "bfloat16", "device": "cpu"},
    "transformers float32": {"dtype": "float32", "device": "cpu"},
}
SERVED, REFERENCE = "llama.cpp Q4_1", "transformers float32"
METHODS = ("wo-rag", "flare")  # a text as it is written, and one with passages to read again and again


def open_labs(threads: int) -> dict[str, dl.Lab]:
    """A lab of each engine, its model loaded."""
    recorded = json.loads(SET.read_text(encoding="utf-8"))["smol"]
    passages = Corpus.from_passages([Passage(p["id"], p["title"], p["text"]) for p in recorded["passages"]])
    exemplars = [Exemplar(**one) for one in recorded["exemplars"]]
    labs = {}
    for name, loading in ENGINES.items():
        options = loading | ({"threads": threads} if "engine" in loading else {})
        labs[name] = dl.Lab(real.language_model(), passages, exemplars, **options)
        print(labs[name].model, file=sys.stderr)
    return labs


def compare(ours: Trace, theirs: Trace) -> dict[str, int]:
    """Of the drafts up to the first that parts: how many there are, and how many have the same tokens and decision."""
    counted = {"drafts": 0, "alike": 0}
    for a, b in zip(ours.steps, theirs.steps, strict=False):
        if a.draft is None or b.draft is None or a.decision is None or b.decision is None:
            continue
        if a.draft.prompt_ids.tolist() != b.draft.prompt_ids.tolist():
            break
        counted["drafts"] += 1
        counted["alike"] += (a.draft.text, a.decision.retrieve) == (b.draft.text, b.decision.retrieve)
    return counted


def measure(questions: int, threads: int) -> dict[str, Any]:
    """Everything, as plain data."""
    asked = open_benchmark("hotpotqa", limit=questions).questions
    labs = open_labs(threads)
    methods = {name: ask_all(labs, asked, make(name, variant="paper")) for name in METHODS}
    labs[SERVED].close()
    flare = methods["flare"]
    return {
        "machine": machine(),
        "threads": threads,
        "model": real.language_model().name,
        "questions": len(asked),
        "xllamacpp": version("xllamacpp"),
        "methods": methods,
        "budgets": [
            budget(
                f"{len(asked)} questions by FLARE, {SERVED} / {REFERENCE}, processor time",
                flare[SERVED]["cpu_s"] / flare[REFERENCE]["cpu_s"],
                AT_MOST,
                note=f"for {flare[SERVED]['tokens']:,} tokens written {flare[SERVED]['read']:,} of prompts were read, "
                "and llama.cpp reads Q4_1 hardly faster than torch",
            )
        ],
    }


def ask_all(labs: dict[str, dl.Lab], asked: Sequence[Question], method: Method) -> dict[str, Any]:
    """Every question of every engine by one method; a summary for each engine."""
    took: dict[str, list[float]] = {name: [] for name in labs}
    computed: dict[str, list[float]] = {name: [] for name in labs}
    traces: dict[str, list[Trace]] = {name: [] for name in labs}
    for number, question in enumerate(asked, 1):
        rounds = interleaved(
            {name: partial(lab.ask, question, method) for name, lab in labs.items()}, 1, warm=number == 1
        )
        for name in labs:
            took[name] += rounds.seconds[name]
            computed[name] += rounds.processor[name]
            traces[name].append(rounds.made[name])
        done = {name: round(sum(computed[name])) for name in labs}
        print(f"{method} {number} of {len(asked)}", done, file=sys.stderr)
    return {name: summary(took[name], computed[name], traces[name], traces[REFERENCE]) for name in labs}


def summary(took: list[float], computed: list[float], traces: list[Trace], reference: list[Trace]) -> dict[str, Any]:
    """Of one engine: its time, what it wrote, and how far that is what float32 wrote."""
    written = [trace.counters["generated"] for trace in traces]
    alike = [compare(a, b) for a, b in zip(traces, reference, strict=True)]
    return {
        "seconds": sum(took),
        "cpu_s": sum(computed),
        "median_s": statistics.median(took),
        "tokens": sum(written),
        "read": sum(len(one.prompt_ids) - one.reused for trace in traces for one in trace.continuations),
        "tokens_per_cpu_s": sum(written) / sum(computed),
        "retrievals": sum(trace.retrievals_count for trace in traces),
        "asked_again": sum(trace.asked_again for trace in traces),
        "drafts": sum(one["drafts"] for one in alike),
        "drafts_alike": sum(one["alike"] for one in alike),
        "same_texts": sum(a.text == b.text for a, b in zip(traces, reference, strict=True)),
    }


def main() -> None:
    args = parser(__doc__, "served")
    args.add_argument("--questions", type=int, default=40)
    given = args.parse_args()
    begin(given)
    if not real.language_model().is_file():
        sys.exit("SmolLM2 is not here; make real fetches it")
    import torch

    write(given.out, measure(given.questions, given.threads or torch.get_num_threads()))


if __name__ == "__main__":
    main()
