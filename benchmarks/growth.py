"""How costs grow with the length of the context and with the number of questions.

- context: prompts of 256 to 8,192 random tokens on a random Llama, ``tokens`` written behind each: capture over
  ``generate``, capture over our loop without it, milliseconds a token (what is written less what one token takes) and
  MiB of attention kept;
- questions: DRAGIN over 1, 2, 4 … questions of Almanac, one after another and side by side: seconds a question over
  those of a single one, and the part of the prompts that was served from kept prefixes.

Medians of interleaved rounds.

    python benchmarks/growth.py
"""

from __future__ import annotations

import statistics
from typing import Any

from common import MIB, begin, interleaved, machine, parser, plain, random_llama, words, write

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.data import datasets
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Draft, Prompt, Question


def context(lm: LanguageModel, p: int, n: int, rounds: int) -> dict[str, Any]:
    """A prompt of p tokens and n behind it."""
    text = words(p, lm.model.config.vocab_size)
    ids = lm.prompt(Prompt(text))[0]

    def ours(tokens: int, capture: bool) -> Draft:
        lm.forget()
        return lm.write(Write(Prompt(text), tokens, attention=capture))

    timed = interleaved(
        {
            "capture": lambda: ours(n, True),
            "untapped": lambda: ours(n, False),
            "generate": lambda: plain(lm, [ids], n)[0],
            "first": lambda: ours(1, True),
        },
        rounds,
    )
    made = timed.made["capture"]
    if made.ids.tolist() != timed.made["generate"]:
        raise SystemExit(f"{p} tokens: capture wrote other tokens than generate()")
    more = zip(timed.seconds["capture"], timed.seconds["first"], strict=True)
    over, over_cpu = timed.over("capture"), timed.over("capture", processor=True)
    return {
        "prompt": p,
        "tokens": n,
        "median_s": timed.medians(),
        "capture_over_generate": over["generate"],
        "capture_over_generate_cpu": over_cpu["generate"],
        "capture_over_untapped": over["untapped"],
        "capture_over_untapped_cpu": over_cpu["untapped"],
        "ms_a_token": 1e3 * statistics.median((whole - first) / (n - 1) for whole, first in more),
        "kept_MiB": made.rows.nbytes / MIB,
    }


def asked(lm: LanguageModel, retriever: Any, counts: list[int], size: int, rounds: int) -> list[dict[str, Any]]:
    """DRAGIN over the first questions of a benchmark; every run begins on an empty cache."""
    method = dl.method("dragin")
    questions = list(datasets.load("almanac/2wikimultihopqa", split="dev"))

    def answer(count: int, at_once: int) -> float:
        traces = list(dl.Lab(lm, retriever=retriever).ask_many(questions[:count], method, batch_size=at_once))
        prompts = sum(len(made.prompt_ids) for trace in traces for made in trace.continuations)
        return sum(trace.counters["reused"] for trace in traces) / prompts

    def single(question: Question) -> None:
        lm.forget()
        dl.Lab(lm, retriever=retriever).ask(question, method)

    found = []
    for count in counts:
        timed = interleaved(
            {
                "alone": lambda count=count: answer(count, 1),
                "side": lambda count=count: answer(count, size),
                # the same questions, each as if it were the only one
                "single": lambda count=count: [single(question) for question in questions[:count]],
            },
            rounds,
            before=lm.forget,
            warm=not found,
        )
        row = {
            "questions": count,
            "seconds_a_question": {way: took / count for way, took in timed.medians().items()},
            "alone_over_single": timed.over("alone")["single"],
            "side_over_single": timed.over("side")["single"],
            "side_over_alone": timed.over("side")["alone"],
            "reused": {way: timed.made[way] for way in ("alone", "side")},
        }
        found.append(row)
    return found


def show(found: dict[str, Any]) -> None:
    for row in found["context"]:
        print(
            f"{row['prompt']:5} + {row['tokens']} tokens: capture / generate {row['capture_over_generate']:.3f} "
            f"(processor time {row['capture_over_generate_cpu']:.3f}), / without {row['capture_over_untapped']:.3f}, "
            f"{row['ms_a_token']:.1f} ms a token, {row['kept_MiB']:.1f} MiB kept"
        )
    for row in found["questions"]:
        print(
            f"{row['questions']:4} questions: one after another / each alone {row['alone_over_single']:.2f}, side by "
            f"side {row['side_over_single']:.2f}; prompts from cache {row['reused']['alone']:.0%}, "
            f"{row['reused']['side']:.0%}"
        )


def main() -> None:
    options = parser(__doc__, "growth")
    options.add_argument("--contexts", type=int, nargs="*", default=[256, 512, 1024, 2048, 4096, 8192])
    options.add_argument("--tokens", type=int, default=32)
    options.add_argument("--questions", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32])
    options.add_argument("--batch-size", type=int, default=16)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    begin(args)
    found: dict[str, Any] = {"batch_size": args.batch_size, "rounds": args.rounds, "context": [], "questions": []}
    if args.contexts:
        shape = {"layers": 4, "heads": 8, "hidden": 256, "ffn": 688}
        lm = random_llama(**shape, vocab=4096, positions=2 * max(args.contexts))
        found["shape"] = shape
        found["context"] = [context(lm, p, args.tokens, args.rounds) for p in args.contexts]
    if args.questions:
        embedded, retriever = LanguageModel.load(), dl.BM25(dl.Corpus.load())
        found["questions"] = asked(embedded, retriever, args.questions, args.batch_size, args.rounds)
    found["machine"] = machine()
    show(found)
    write(args.out, found)


if __name__ == "__main__":
    main()
