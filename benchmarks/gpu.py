"""A model of Llama-2-7B's shape on a GPU: bare ``generate``, drafts without and with attention, 16
of them, a probe.

    python benchmarks/gpu.py           # random weights in bfloat16, under 4 minutes
    python benchmarks/gpu.py --tiny    # on a processor, in float32, to try the script

One line of JSON each, by the wall clock: medians of rounds that alternate, without kept prefixes.
The weights are random, so nothing reaches DRAGIN's threshold: it reads every row and judges every
token, and never searches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from common import interleaved, machine, plain, random_llama, words

import dragin_lab as dl

SHAPE = {"layers": 32, "heads": 32, "hidden": 4096, "ffn": 11008}
TINY = {"layers": 2, "heads": 4, "hidden": 64, "ffn": 96}
NEVER, BESIDE, PROMPT = 1e9, 16, 800


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--tiny", action="store_true")
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    if not (args.tiny or torch.cuda.is_available()):
        raise SystemExit("there is no GPU here; --tiny tries the script on the processor")
    began = time.perf_counter()
    where = (
        {"device": "cpu", "dtype": torch.float32}
        if args.tiny
        else {"device": "cuda", "dtype": torch.bfloat16}
    )
    lm = random_llama(**TINY if args.tiny else SHAPE, **where)
    say(
        what="built",
        seconds=time.perf_counter() - began,
        parameters=lm.model.num_parameters(),
        **machine(),
    )
    lab = dl.Lab(lm, [{"id": "a", "title": "w1", "text": "w2 w3"}])
    methods = {
        "wo-rag": dl.method("wo-rag", variant="paper", max_new_tokens=args.tokens),
        "dragin": dl.method("dragin", variant="paper", max_new_tokens=args.tokens, threshold=NEVER),
    }
    questions = [f"{words(PROMPT)} w{number}" for number in range(3, 3 + BESIDE)]
    ids = lab.ask(questions[0], methods["wo-rag"]).continuations[0].prompt_ids.tolist()

    def ask(method: str, n: int) -> int:
        return sum(
            trace.counters["generated"]
            for trace in lab.ask_many(questions[:n], methods[method], batch_size=n)
        )

    ways: dict[str, Callable[[], int]] = {
        "generate": lambda: len(plain(lm, [ids], args.tokens)[0]),
        "wo-rag": lambda: ask("wo-rag", 1),
        "dragin": lambda: ask("dragin", 1),
        f"dragin, {BESIDE} side by side": lambda: ask("dragin", BESIDE),
        "probe": lambda: len(lm.probe()) and 0,
    }
    found = interleaved(ways, args.rounds, before=lm.prefixes.clear)
    each = {way: statistics.median(took) for way, took in found.seconds.items()}
    for way, tokens in found.made.items():
        over = found.over(way).get("generate", 1.0) * args.tokens / (tokens or args.tokens)
        say(what=way, seconds=each[way], prompt=len(ids), tokens=tokens, over_generate_a_token=over)
    if not args.tiny:
        say(
            what="memory",
            peak_GiB=torch.cuda.max_memory_allocated() / 2**30,
            device=torch.cuda.get_device_name(),
        )


def say(**facts: Any) -> None:
    rounded = {
        name: round(fact, 4) if isinstance(fact, float) else fact for name, fact in facts.items()
    }
    print(json.dumps(rounded), flush=True)


if __name__ == "__main__":
    main()
