"""What capture costs: time against the same loop without it and against ``generate``.

Medians of interleaved runs, as ratios within one round, so that a busy machine disturbs all ways alike:

- bare: our loop, nothing measured and nothing tapped, only the likeliest token taken;
- untapped: our loop with entropy, log-probability and alternatives, without attention;
- capture: our loop with everything, the rows kept in full;
- generate: ``transformers``' ``generate`` without any capture.

Processor time is given beside it: with ``--threads 1`` it hardly depends on what else the machine does.

    python benchmarks/capture.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from common import begin, budget, interleaved, machine, parser, plain, random_llama, words, write
from dragin_lab.engines.caches import Prefix

from dragin_lab.core.episode import Write
from dragin_lab.engines import decode
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Prompt

LOOP, GENERATE = 1.05, (1.0, 1.03)  # budgets; those against `generate` of the embedded model and of the large one
PASSAGE = (
    "Question: When was the city where the director of film Gewair Lantern was born founded?\n"
    "Answer: The film Gewair Lantern was directed by Graizond Loththaimpan. So the answer is 1450.\n"
)


def half_billion() -> LanguageModel:
    """A Llama of about 0.5 billion random parameters."""
    return random_llama(layers=22, heads=20, hidden=1280, ffn=3456)


@torch.inference_mode()
def bare(lm: LanguageModel, ids: list[int], n: int) -> list[int]:
    """The decode loop with nothing but the choice of the likeliest token; as many forwards as ``generate`` makes."""
    prefix = Prefix(lm.model.config)
    made: list[int] = []
    fed = ids
    for _ in range(n):
        logits = decode.feed_tokens(lm, prefix, fed, None)
        made.append(int(logits.argmax()))
        fed = made[-1:]
    return made


def compare(lm: LanguageModel, text: str, n: int, runs: int) -> dict[str, Any]:
    """Median seconds of each variant over interleaved rounds, and medians of their ratios within a round."""
    lm.eos = frozenset()
    ids, _ = lm.prompt(Prompt(text))

    def ours(capture: bool) -> list[int]:
        lm.forget()
        made = decode.finish_stream(
            decode.stream(lm, Write(Prompt(text), n, attention=capture), every=False, capture=capture)
        )
        return list(made.ids)

    ways: dict[str, Callable[[], list[int]]] = {
        "bare": lambda: bare(lm, ids, n),
        "untapped": lambda: ours(False),
        "capture": lambda: ours(True),
        "generate": lambda: plain(lm, [ids], n)[0],
    }
    expected = ways["generate"]()

    def check(way: str, made: list[int]) -> None:
        if made != expected:
            raise SystemExit(f"{way} made other tokens than generate()")

    return {
        "model": lm.name,
        "parameters": sum(p.numel() for p in lm.model.parameters()),
        "prompt": len(ids),
        "tokens": n,
        **interleaved(ways, runs, check=check).summary("capture"),
    }


def show(results: list[dict[str, Any]]) -> None:
    """The table for people."""
    for r, limit in zip(results, GENERATE, strict=False):
        size = f"{r['parameters'] / 1e6:.1f} M parameters, {r['prompt']} + {r['tokens']} tokens"
        print(f"{r['model']}: {size}, medians of {r['rounds']} rounds")
        for name, took in r["median_s"].items():
            line = f"  {name:9}{took * 1000:10.1f} ms"
            if name in r["over"]:
                line += f"   capture / {name} = {r['over'][name]:.3f} (processor time {r['over_cpu'][name]:.3f})"
            print(line)
        print(f"  budgets: capture / the loop without {LOOP}, capture / generate {limit}")


def main() -> None:
    options = parser(__doc__, "capture")
    options.add_argument("--runs", type=int, default=15, help="rounds on the embedded model")
    options.add_argument("--large-runs", type=int, default=5, help="rounds on 0.5 billion parameters; 0 for none")
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--large-tokens", type=int, default=24)
    args = options.parse_args()
    begin(args)
    results = [compare(LanguageModel.load(), PASSAGE * 8 + PASSAGE[:96], args.tokens, args.runs)]
    if args.large_runs:
        results.append(compare(half_billion(), words(1024), args.large_tokens, args.large_runs))
    show(results)
    budgets = []
    for one, limit in zip(results, GENERATE, strict=False):
        size = f"{one['parameters'] / 1e6:.1f} M parameters"
        budgets += [
            budget(f"decoding with capture / the same loop without, {size}", one["over"]["untapped"], LOOP),
            budget(f"decoding with capture / `generate` without any capture, {size}", one["over"]["generate"], limit),
        ]
    write(args.out, {"budgets": budgets, "decoding": results, "machine": machine()})


if __name__ == "__main__":
    main()
