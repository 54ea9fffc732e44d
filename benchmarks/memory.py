"""What capture costs in memory, and that it does not grow with the model's layers.

- peak: the most memory of a process that reads a long prompt and writes some tokens, with capture and the attention
  rows kept in full, over one that does the same with plain ``generate`` and SDPA attention. Every figure is of a
  process of its own (Linux), rounds are interleaved, medians; ``above`` counts only what comes on top of the loaded
  model;
- kept: bytes of one layer's attention as it is kept;
- layers: multiply-adds that capture adds to a draft and seconds a token it takes, for models of more and more layers.

    python benchmarks/memory.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

import torch
from common import MIB, begin, budget, child, forget_peak, interleaved, machine, parser, plain, random_llama, resident
from common import words as random_words
from common import write as write_json
from torch.utils.flop_counter import FlopCounterMode

from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Prompt

PEAK, KEPT_MIB = 1.05, 20.0  # budgets


def write(lm: LanguageModel, text: str, n: int, capture: bool) -> Any:
    """A draft of n tokens on an empty cache; without capture, plain ``generate`` of one more.

    Capture reads the last token too, as its row of attention is wanted: that is what one more token takes.
    """
    lm.forget()
    return (
        lm.write(Write(Prompt(text), n, attention=True)) if capture else plain(lm, [lm.prompt(Prompt(text))[0]], n + 1)
    )


# -- peak -------------------------------------------------------------------------------------------------------------


def peak(way: str, args: argparse.Namespace) -> dict[str, Any]:
    """In a process of its own: bytes resident with the model loaded, and the most while it writes."""
    lm = random_llama(layers=args.layers, heads=args.heads, hidden=args.hidden, ffn=args.ffn, positions=2 * args.prompt)
    text, n = random_words(args.prompt), args.tokens
    if way == "capture":
        write(lm, random_words(8), 2, True)  # loads what is loaded once
    else:
        plain(lm, [lm.prompt(Prompt(random_words(8)))[0]], 2)
    lm.forget()
    forget_peak()
    before = resident()
    kept = 0
    if way == "capture":
        made = write(lm, text, n, True)
        assert made.rows is not None
        kept, ids = made.rows.nbytes, made.ids.tolist()
    else:
        ids = plain(lm, [lm.prompt(Prompt(text))[0]], n)[0]
    parameters = sum(p.numel() for p in lm.model.parameters())
    return {"before": before, "peak": resident(peak=True), "kept": kept, "ids": ids, "parameters": parameters}


def peaks(args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, list[dict[str, Any]]] = {"capture": [], "generate": []}
    shape = [part for name in ("prompt", "tokens", "layers", "heads", "hidden", "ffn") for part in
             (f"--{name}", getattr(args, name))]  # fmt: skip
    for place in range(args.rounds):
        for way in ("capture", "generate")[:: 1 if place % 2 else -1]:
            found[way].append(child(__file__, "--child", way, *shape, "--threads", torch.get_num_threads()))
    if found["capture"][0]["ids"] != found["generate"][0]["ids"]:
        raise SystemExit("capture wrote other tokens than generate()")

    def ratio(of: Any) -> float:
        return statistics.median(of(a) / of(b) for a, b in zip(found["capture"], found["generate"], strict=True))

    return {
        "prompt": args.prompt,
        "tokens": args.tokens,
        "layers": args.layers,
        "heads": args.heads,
        "parameters": found["capture"][0]["parameters"],
        "rounds": args.rounds,
        "peak_MiB": {way: statistics.median(one["peak"] for one in of) / MIB for way, of in found.items()},
        "above_MiB": {
            way: statistics.median(one["peak"] - one["before"] for one in of) / MIB for way, of in found.items()
        },
        "kept_MiB": found["capture"][0]["kept"] / MIB,
        "over": ratio(lambda one: one["peak"]),
        "above_over": ratio(lambda one: max(one["peak"] - one["before"], 1)),  # a small one may fit into what is there
    }


# -- kept -------------------------------------------------------------------------------------------------------------


def kept(p: int = 2048, n: int = 128, h: int = 32) -> dict[str, Any]:
    """Bytes of the attention kept for one layer."""
    lm = random_llama(layers=1, heads=h, hidden=2 * h, ffn=8, vocab=64)
    attention = write(lm, random_words(p, 64), n, True).rows
    return {"p": p, "n": n, "h": h, "MiB": attention.nbytes / MIB}


# -- layers -----------------------------------------------------------------------------------------------------------


def layers(counts: list[int], args: argparse.Namespace) -> list[dict[str, Any]]:
    """What capture adds to models that differ in their number of layers alone."""
    found = []
    text, n = random_words(args.layers_prompt, 4096), args.layers_tokens
    for count in counts:
        lm = random_llama(layers=count, heads=8, hidden=256, ffn=688, vocab=4096)
        work = {}
        for capture in (True, False):
            with FlopCounterMode(display=False) as counter:
                write(lm, text, n, capture)
            work[capture] = counter.get_total_flops() // 2
        timed = interleaved(
            {"capture": lambda lm=lm: write(lm, text, n, True), "untapped": lambda lm=lm: write(lm, text, n, False)},
            args.rounds,
        )
        more = [(a - b) / n for a, b in zip(timed.processor["capture"], timed.processor["untapped"], strict=True)]
        found.append(
            {
                "layers": count,
                "multiply_adds": work[True],
                "added_multiply_adds": work[True] - work[False],
                "added_cpu_us_a_token": 1e6 * statistics.median(more),
                "over": timed.over("capture")["untapped"],
                "over_cpu": timed.over("capture", processor=True)["untapped"],
            }
        )
    return found


# -- all of it --------------------------------------------------------------------------------------------------------


def show(found: dict[str, Any]) -> None:
    one, held = found["peak"], found["kept"]
    print(
        f"{one['parameters'] / 1e6:.0f} M parameters, {one['prompt']} + {one['tokens']} tokens: peak with capture over "
        f"plain {one['over']:.3f} (budget {PEAK}), above the loaded model {one['above_over']:.3f}; "
        f"{one['peak_MiB']['capture']:.0f} and {one['peak_MiB']['generate']:.0f} MiB"
    )
    size = f"p={held['p']}, n={held['n']}, {held['h']} heads"
    print(f"attention kept, {size}: {held['MiB']:.1f} MiB (budget {KEPT_MIB:g})")
    for row in found["layers"]:
        print(
            f"{row['layers']:3} layers: capture adds {row['added_multiply_adds'] / 1e6:.1f} M multiply-adds to "
            f"{row['multiply_adds'] / 1e6:.0f} M, {row['added_cpu_us_a_token']:.0f} us a token; "
            f"capture / without {row['over']:.3f} (processor time {row['over_cpu']:.3f})"
        )


def main() -> None:
    options = parser(__doc__, "memory")
    options.add_argument("--prompt", type=int, default=4096)
    options.add_argument("--tokens", type=int, default=32)
    options.add_argument("--layers", type=int, default=12)
    options.add_argument("--heads", type=int, default=12)
    options.add_argument("--hidden", type=int, default=768)
    options.add_argument("--ffn", type=int, default=2048)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--layer-counts", type=int, nargs="+", default=[2, 4, 8, 16])
    options.add_argument("--layers-prompt", type=int, default=512)
    options.add_argument("--layers-tokens", type=int, default=64)
    options.add_argument("--child", choices=("capture", "generate"), help=argparse.SUPPRESS)
    args = options.parse_args()
    begin(args)
    if args.child:
        print(json.dumps(peak(args.child, args)))
        return
    one, held, rows = peaks(args), kept(), layers(args.layer_counts, args)
    added = [row["added_multiply_adds"] for row in rows]
    size = f"p = {held['p']:,}, n = {held['n']}, {held['h']} heads"
    ends = f"{rows[-1]['layers']} layers / {rows[0]['layers']}"
    found = {
        "budgets": [
            budget(f"peak memory of a {one['prompt']:,}-token prompt, capture / plain SDPA", one["over"], PEAK),
            budget(f"attention kept in full, one layer, {size}", held["MiB"], KEPT_MIB, "MiB"),
            budget(f"multiply-adds that capture adds, {ends}", added[-1] / added[0], 1.0),
        ],
        "peak": one,
        "kept": held,
        "layers": rows,
        "machine": machine(),
    }
    show(found)
    write_json(args.out, found)


if __name__ == "__main__":
    sys.exit(main())
