"""What episodes side by side save: the same questions in one batch and one after another, with the same answers.

Medians of interleaved rounds, as ratios within a round; processor time is given beside them, because it hardly depends
on what else the machine does. Every place where a batch wrote something else is listed, and the script fails unless the
two likeliest tokens lie within 1e-4 nats of one another there (a batch sums in another order). A method whose
settings this model or pipeline cannot serve is left out, and the file says why.

    python benchmarks/batch.py
    python benchmarks/batch.py --methods all --questions 200 --rounds 1 --out benchmarks/results/same.json
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np
from common import begin, budget, interleaved, machine, parser, write

import dragin_lab as dl
from dragin_lab.core.method import METHODS, VARIANTS
from dragin_lab.data import datasets
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Question, Trace

BUDGETS = {"cpu": 0.5, "cuda": 0.1}
SECONDS = {"median_s", "median_cpu_s", "over", "over_cpu"}
CLOSE = 1e-4  # nats


def differences(alone: dict[str, Trace], side: dict[str, Trace]) -> list[dict[str, Any]]:
    """Where the two ways wrote something else; ``allowed`` where the two likeliest tokens were equal to rounding."""
    found = []
    for key, one in alone.items():
        place = first_difference(one, side[key])
        if place is not None:
            where, gap = place
            found.append({"question": key, "where": where, "gap": gap, "allowed": gap is not None and gap <= CLOSE})
        elif (one.text, one.answer, one.queries, one.ended) != (
            side[key].text,
            side[key].answer,
            side[key].queries,
            side[key].ended,
        ):
            found.append({"question": key, "where": "the same drafts, another outcome", "gap": None, "allowed": False})
    return found


def first_difference(alone: Trace, side: Trace) -> tuple[str, float | None] | None:
    """Where two traces first wrote something else, and how much likelier the likeliest token was there, in nats.

    None for that where they do not differ by the choice of a token, and for all where they wrote the same.
    """
    for i, (x, y) in enumerate(zip_longest(alone.continuations, side.continuations)):
        if x is None or y is None or x.prompt_ids.tolist() != y.prompt_ids.tolist():
            return f"draft {i}: another prompt, or only one of them has it", None
        for t, (a, b) in enumerate(zip(x.ids, y.ids, strict=False)):
            if a != b:
                first, second = np.log(x.alternative_probs[t, :2].astype(float))
                return f"draft {i}, token {t}: {x.tokens[t]!r} or {y.tokens[t]!r}", float(first - second)
        if len(x) != len(y):
            return f"draft {i} ends after {len(x)} tokens ({x.stopped}) and {len(y)} ({y.stopped})", None
    return None


def measure(
    method: Any, lm: LanguageModel, retriever: Any, questions: list[Question], size: int, rounds: int
) -> dict[str, Any]:
    """Seconds of both ways over interleaved rounds, what was generated, and where the two differ."""

    def answer(at_once: int) -> dict[str, Trace]:
        found = {}
        for trace in dl.Lab(lm, retriever=retriever).ask_many(questions, method, batch_size=at_once):
            if trace.ended == "error":  # what ends early writes little, and the same both ways
                raise SystemExit(f"{method.name} ({method.variant}), {trace.question.id}: {trace.error}")
            found[trace.question.id] = trace
            for made in trace.continuations:
                made.rows = None  # hundreds of traces are kept, and this is most of each
        return found

    ways = {"alone": lambda: answer(1), "side": lambda: answer(size)}
    timed = interleaved(ways, rounds, before=lm.forget, warm=False)
    found: dict[str, dict[str, Trace]] = timed.made
    traces = list(found["side"].values())
    drafts = [c for trace in traces for c in trace.continuations]
    return {
        "method": method.name,
        "variant": method.variant,
        "questions": len(questions),
        "batch": max(traces, key=lambda t: len(t.provenance["batch"]["notes"])).provenance["batch"],
        **timed.summary("side"),
        "prompt_tokens": sum(len(c.prompt_ids) for c in drafts),
        "prompt_tokens_reused": {
            way: sum(trace.counters["reused"] for trace in found[way].values()) for way in ("alone", "side")
        },
        "generated": sum(map(len, drafts)),
        "retrievals": sum(trace.counters["retrievals"] for trace in traces),
        "differences": differences(found["alone"], found["side"]),
    }


def some(count: int) -> list[Question]:
    """Questions of Almanac's benchmarks in turn, the first of each split first."""
    found: list[Question] = []
    for split in ("dev", "test"):
        each = [list(datasets.load(f"almanac/{name}", split=split)) for name in datasets.BENCHMARKS]
        found += [one for row in zip_longest(*each) for one in row if one is not None]
    if count > len(found):
        raise SystemExit(f"--questions {count}: there are {len(found)}")
    return found[:count]


def show(result: dict[str, Any], budget: float) -> None:
    """One method for people."""
    reused = {way: n / result["prompt_tokens"] for way, n in result["prompt_tokens_reused"].items()}
    print(
        f"{result['method']}, {result['variant']} variant, {result['questions']} questions: side by side / alone "
        f"{result['over']['alone']:.2f} (processor time {result['over_cpu']['alone']:.2f}, budget {budget}); "
        f"prompts from cache {reused['alone']:.0%} alone, {reused['side']:.0%} side by side; "
        f"{len(result['differences'])} differences",
        flush=True,
    )
    for note in result["batch"]["notes"]:
        print(f"  {note}")
    for one in result["differences"]:
        print(f"  {'allowed' if one['allowed'] else 'NOT ALLOWED'}: {one['question']}: {one['where']}")


def main() -> None:
    options = parser(__doc__, "batch")
    options.add_argument("--questions", type=int, default=16)
    options.add_argument("--batch-size", type=int, default=16)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--methods", default="dragin", help='names with commas between them, or "all"')
    options.add_argument("--variants", default=",".join(VARIANTS))
    options.add_argument("--model", help="a folder or an id; default: the embedded model")
    args = options.parse_args()
    begin(args)
    lm, retriever = LanguageModel.load(args.model), dl.BM25(dl.Corpus.load())
    questions = some(args.questions)
    names = list(METHODS) if args.methods == "all" else args.methods.split(",")
    list(dl.Lab(lm).ask_many(questions[:2], dl.method("wo-rag"), batch_size=2))  # warms up
    results, left_out = [], {}
    for name in names:
        for variant in args.variants.split(","):
            method = dl.method(name, variant=variant)
            try:
                dl.Lab(lm).template(method)
            except SettingError as error:
                left_out[f"{name}, {variant}"] = str(error)
                print(f"{name}, {variant} variant, left out: {error}", flush=True)
                continue
            results.append(measure(method, lm, retriever, questions, args.batch_size, args.rounds))
            show(results[-1], BUDGETS[lm.device.type])
    limit = BUDGETS[lm.device.type]
    budgets = [
        budget(
            f"{args.batch_size} episodes side by side / one after another, {one['method']}, {one['variant']} variant",
            one["over"]["alone"],
            limit,
        )
        for one in results
    ]
    if args.rounds == 1:  # for what is written, not for how long it takes: one round's seconds are left out
        budgets = []
        results = [{key: value for key, value in one.items() if key not in SECONDS} for one in results]
    host = machine(lm.device, lm.model.dtype)
    write(args.out, {"budgets": budgets, "batch": results, "left_out": left_out, "machine": host})
    if any(not one["allowed"] for result in results for one in result["differences"]):
        raise SystemExit("a batch wrote something else where no two tokens were equally likely; see above")


if __name__ == "__main__":
    main()
