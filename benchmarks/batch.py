"""What episodes side by side save: the same questions in one batch and one after another, with the
same answers.

Medians of interleaved rounds, as ratios within a round: on a CPU of processor time, which hardly
depends on what else the machine does, on a GPU by the clock. Another model takes minutes, so it
answers once each way. Every place where a batch wrote something else is listed, and the script
fails unless the two likeliest tokens lie within 1e-4 nats of one another there (a batch sums in
another order).

    python benchmarks/batch.py --model SmolLM2-135M-Instruct.Q4_1.gguf
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np
from common import begin, budget, interleaved, machine, parser, write

import dragin_lab as dl
from dragin_lab.core.method import VARIANTS
from dragin_lab.data import datasets
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Question, Trace

BUDGETS = {"cpu": 0.5, "cuda": 0.1}
OTHER = 0.6  # for a model besides the embedded one
CLOSE = 1e-4  # nats


def differences(alone: dict[str, Trace], side: dict[str, Trace]) -> list[dict[str, Any]]:
    """Where the two ways wrote something else; ``allowed`` where the two likeliest tokens were
    equal to rounding.
    """
    found = []
    for key, one in alone.items():
        place = first_difference(one, side[key])
        if place is not None:
            where, gap = place
            found.append(
                {
                    "question": key,
                    "where": where,
                    "gap": gap,
                    "allowed": gap is not None and gap <= CLOSE,
                }
            )
        elif (one.text, one.answer, one.queries, one.ended) != (
            side[key].text,
            side[key].answer,
            side[key].queries,
            side[key].ended,
        ):
            found.append(
                {
                    "question": key,
                    "where": "the same drafts, another outcome",
                    "gap": None,
                    "allowed": False,
                }
            )
    return found


def first_difference(alone: Trace, side: Trace) -> tuple[str, float | None] | None:
    """Where two traces first wrote something else, and how much likelier the likeliest token was
    there, in nats.

    None for that where they do not differ by the choice of a token, and for all where they wrote
    the same.
    """
    for i, (x, y) in enumerate(zip_longest(alone.continuations, side.continuations)):
        if x is None or y is None or x.prompt_ids.tolist() != y.prompt_ids.tolist():
            return f"draft {i}: another prompt, or only one of them has it", None
        for t, (a, b) in enumerate(zip(x.ids, y.ids, strict=False)):
            if a != b:
                first, second = np.log(x.alternative_probs[t, :2].astype(float))
                return f"draft {i}, token {t}: {x.tokens[t]!r} or {y.tokens[t]!r}", float(
                    first - second
                )
        if len(x) != len(y):
            return (
                f"draft {i} ends after {len(x)} tokens ({x.stopped}) and {len(y)} ({y.stopped})",
                None,
            )
    return None


def measure(
    method: Any,
    lm: LanguageModel,
    retriever: Any,
    questions: list[Question],
    size: int,
    rounds: int,
) -> dict[str, Any]:
    """Seconds of both ways over interleaved rounds, what was generated, and where the two
    differ.
    """

    def answer(at_once: int) -> dict[str, Trace]:
        found = {}
        for trace in dl.Lab(lm, retriever=retriever).ask_many(
            questions, method, batch_size=at_once
        ):
            if trace.ended == "error":  # what ends early writes little, and the same both ways
                raise SystemExit(
                    f"{method.name} ({method.variant}), {trace.question.id}: {trace.error}"
                )
            found[trace.question.id] = trace
            for made in trace.continuations:
                made.rows = None  # hundreds of traces are kept, and this is most of each
        return found

    ways = {"alone": lambda: answer(1), "side": lambda: answer(size)}
    timed = interleaved(ways, rounds, before=lm.prefixes.clear, warm=False)
    found: dict[str, dict[str, Trace]] = timed.made
    traces = list(found["side"].values())
    drafts = [c for trace in traces for c in trace.continuations]
    read = sum(len(draft.prompt_ids) - draft.reused for draft in drafts)
    return {
        "model": lm.name.rpartition("/")[2],
        "method": method.name,
        "variant": method.variant,
        "questions": len(questions),
        "batch": max(traces, key=lambda t: len(t.provenance["batch"]["notes"])).provenance["batch"],
        **timed.summary("side"),
        "read": read,
        "generated": sum(map(len, drafts)),
        "retrievals": sum(trace.counters["retrievals"] for trace in traces),
        "differences": differences(found["alone"], found["side"]),
    }


def main() -> None:
    options = parser(__doc__, "batch")
    options.add_argument("--questions", type=int, default=16)
    options.add_argument("--batch-size", type=int, default=16)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--model", help="another model besides the embedded one")
    args = options.parse_args()
    begin(args)
    retriever = dl.BM25(dl.Corpus.load())
    questions = list(datasets.load_questions("almanac/2wikimultihopqa", split="dev"))[
        : args.questions
    ]
    methods = [dl.method("dragin", variant=variant) for variant in VARIANTS]
    results, budgets = [], []
    for source, rounds in [(None, args.rounds), *([(args.model, 1)] if args.model else [])]:
        lm = LanguageModel.load(source)
        on, at_most = lm.device.type, OTHER if source else BUDGETS[lm.device.type]
        list(dl.Lab(lm).ask_many(questions[:2], dl.method("wo-rag"), batch_size=2))  # warms up
        for method in methods:
            found = measure(method, lm, retriever, questions, args.batch_size, rounds)
            what = (
                f"{args.batch_size} episodes side by side / one after another, dragin,"
                f" {method.variant} variant"
            )
            over = found["over_cpu" if on == "cpu" else "over"]["alone"]
            note = (
                f"forwards are shared by the {found['generated']:,} tokens that are written;"
                f" {found['read']:,} of prompts are read either way"
            )
            budgets.append(budget(f"{what}, {found['model']}", over, at_most, note=note))
            results.append(found)
    write(args.out, {"budgets": budgets, "batch": results, "machine": machine()})
    if any(not one["allowed"] for result in results for one in result["differences"]):
        raise SystemExit(
            "a batch wrote something else where no two tokens were equally likely; see"
            f" {args.out.name}"
        )


if __name__ == "__main__":
    main()
