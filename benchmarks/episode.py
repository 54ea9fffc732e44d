"""What an episode costs: against the same episode by a naive driver, and against writing the kept text only.

Interleaved, one question after another, ratios within a question:

- ours: ``dl.run`` on an empty cache; exemplars are then kept from draft to draft;
- naive: the same episode as the authors' released code would serve it (``benchmarks/naive.py``). Its answers have to be
  the same, or the run fails;
- plain: one ``generate`` of as many pieces as the answer has, behind the first prompt.

    python benchmarks/episode.py --out benchmarks/results/episode.json
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from naive import Naive

import dragin_lab as dl
from dragin_lab import datasets
from dragin_lab.exemplars import load_exemplars
from dragin_lab.lm.load import LanguageModel
from dragin_lab.trace import Question, Trace

BUDGETS = {"reference": {"naive": 0.6, "plain": 5.0}, "paper": {"naive": 0.25, "plain": 2.0}}
EXEMPLARS = 8


def kept_pieces(lm: LanguageModel, trace: Trace) -> int:
    """Pieces of the answer's text."""
    return max(1, len(lm.tokenizer.encode(trace.text, special=False)))


@torch.inference_mode()
def plain(lm: LanguageModel, trace: Trace) -> None:
    """``generate`` as many pieces as were kept, behind the prompt that the episode began with."""
    first = next(prompt for step in trace.steps for prompt in (step.prompt, step.passages_prompt) if prompt is not None)
    ids = torch.tensor([lm.prompt(first.text)[0]], device=lm.device)
    n = kept_pieces(lm, trace)
    lm.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=n,
        min_new_tokens=n,
        do_sample=False,
        pad_token_id=0,
    )


def measure(method: Any, lm: LanguageModel, retriever: Any, questions: list[Question], template: Any) -> dict[str, Any]:
    """Seconds of each way of answering, question by question, and what was generated."""
    naive = Naive(lm)
    seconds: dict[str, list[float]] = {"ours": [], "naive": [], "plain": []}
    drafted = kept = retrievals = 0
    for place, question in enumerate(questions):
        found: dict[str, Trace] = {}
        for way in ("ours", "naive")[:: 1 if place % 2 else -1]:
            lm.forget()
            gc.collect()
            began = time.perf_counter()
            found[way] = dl.run(method, lm if way == "ours" else naive, retriever, question, prompt=template)
            seconds[way].append(time.perf_counter() - began)
        if found["ours"].text != found["naive"].text:
            raise SystemExit(
                f"{method.name} ({method.variant}), {question.id}: other answers\n"
                f"  ours:  {found['ours'].text!r}\n  naive: {found['naive'].text!r}"
            )
        began = time.perf_counter()
        plain(lm, found["ours"])
        seconds["plain"].append(time.perf_counter() - began)
        drafted += found["ours"].counters["generated"]
        retrievals += found["ours"].counters["retrievals"]
        kept += kept_pieces(lm, found["ours"])
    return {
        "method": method.name,
        "variant": method.variant,
        "questions": len(questions),
        "median_s": {way: statistics.median(took) for way, took in seconds.items()},
        "ours_over": {
            way: statistics.median(a / b for a, b in zip(seconds["ours"], seconds[way], strict=True))
            for way in ("naive", "plain")
        },
        "naive_over_plain": statistics.median(a / b for a, b in zip(seconds["naive"], seconds["plain"], strict=True)),
        "retrievals": retrievals / len(questions),
        "pieces_kept": kept / len(questions),
        "pieces_generated": drafted / len(questions),
        "pieces_generated_naive": naive.generated / len(questions),
    }


def show(result: dict[str, Any]) -> None:
    """One method for people."""
    budget = BUDGETS[result["variant"]]
    over = result["ours_over"]
    print(f"{result['method']}, {result['variant']} variant, {result['questions']} questions")
    print(
        f"  ours / naive {over['naive']:.2f} (budget {budget['naive']}), "
        f"ours / plain {over['plain']:.2f} (budget {budget['plain']}), naive / plain {result['naive_over_plain']:.2f}"
    )
    print(
        f"  pieces a question: {result['pieces_kept']:.0f} kept, {result['pieces_generated']:.0f} generated, "
        f"{result['pieces_generated_naive']:.0f} by the naive driver; {result['retrievals']:.2f} retrievals"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("episode.json"))
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--model", help="a folder or an id; default: the embedded model")
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0 leaves torch's own choice")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    lm, retriever = LanguageModel.load(args.model), dl.BM25(dl.Corpus.load())
    folder = datasets.almanac_folder() / "exemplars"
    shots = [one for name in datasets.BENCHMARKS for one in load_exemplars(folder / f"{name}.json")][:EXEMPLARS]
    template = dl.PromptTemplate(tuple(shots))
    questions = list(datasets.load("almanac/2wikimultihopqa", split="dev"))[: args.questions]
    results = []
    for name, variant in (("dragin", "reference"), ("dragin", "paper")):
        method = dl.method(name, variant=variant, max_new_tokens=args.max_new_tokens)
        measure(method, lm, retriever, questions[:2], template)  # warms up
        results.append(measure(method, lm, retriever, questions, template))
        show(results[-1])
    machine = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "device": str(lm.device),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    args.out.write_text(json.dumps({"exemplars": len(shots), "episodes": results, "machine": machine}, indent=1) + "\n")
    print(f"written: {args.out}")


if __name__ == "__main__":
    main()
