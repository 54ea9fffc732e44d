"""Tokens per second on a GPU: 1, 8 and 32 episodes side by side, with capture and without, against ``generate``.

The model has the shape of Llama-2-7B and random weights, made on the device, so nothing is downloaded. All prompts have
one length and every draft gets as many tokens as were asked for. The time of one token, which is mostly that of
reading the prompts, is taken off, so what stands here is decoding:

- capture: our batch with everything measured and the attention rows kept in full;
- untapped: our batch without the rows kept in full;
- generate: ``transformers``' ``generate`` of the same batch, nothing measured.

Beside them stands the limit that the memory sets: every step reads all weights once, and the keys and values of every
text, at the bandwidth that a large copy on the same device reaches.

It writes benchmarks/results/gpu.json and, from it, the sections of docs/performance.md and docs/scaling.md; where there
is no GPU it says so and changes nothing.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --device cpu --dtype float32 --layers 2 --heads 4 --hidden 64 --ffn 128 --vocab 500 \\
        --prompt 32 --tokens 8 --sizes 1 2 --rounds 1 --copy-mib 8 --out gpu-tried.json    # tries the script
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from common import MIB, begin, interleaved, machine, parser, plain, random_llama, words, write

from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Draft, Prompt


def settle(device: torch.device) -> None:
    """Wait for all that is under way on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bandwidth(device: torch.device, mib: int, rounds: int = 10) -> float:
    """Bytes a second, read and written, of a copy within the device's memory."""
    source = torch.ones(mib * MIB // 2, dtype=torch.float16, device=device)
    target = torch.empty_like(source)
    took = []
    for _ in range(rounds):
        settle(device)
        began = time.perf_counter()
        target.copy_(source)
        settle(device)
        took.append(time.perf_counter() - began)
    return 2 * source.nbytes / statistics.median(took[1:])


def batch(lm: LanguageModel, texts: list[str], n: int, capture: bool) -> list[list[int]]:
    """Drafts of n tokens side by side, each prompt read again."""
    lm.forget()
    rows = lm.batch(len(texts))
    for i, text in enumerate(texts):
        rows.ask(i, Write(Prompt(text), n, attention=capture))
    found: dict[int, Draft | Exception] = {}
    while len(rows):
        found |= dict(rows.step())
    if rows.notes and len(texts) > 1:
        raise SystemExit(f"{len(texts)} side by side: {'; '.join(rows.notes)}; shorten --prompt")
    rows.close()
    settle(lm.device)
    made = []
    for i in range(len(texts)):
        one = found[i]
        if isinstance(one, Exception):
            raise one
        made.append(one.ids.tolist())
    return made


def generate(lm: LanguageModel, texts: list[str], n: int) -> list[list[int]]:
    made = plain(lm, [lm.prompt(Prompt(text))[0] for text in texts], n)
    settle(lm.device)
    return made


def measure(lm: LanguageModel, size: int, rate: float, args: argparse.Namespace) -> dict[str, Any]:
    """One number of episodes; ``rate`` is the bandwidth in bytes a second."""
    n = args.tokens
    texts = [words(args.prompt, args.vocab, seed) for seed in range(size)]
    ways: dict[str, Any] = {
        "capture": lambda n: batch(lm, texts, n, True),
        "untapped": lambda n: batch(lm, texts, n, False),
        "generate": lambda n: generate(lm, texts, n),
    }
    steps = {way: lambda make=make: make(n) for way, make in ways.items()}
    firsts = {f"{way} 1": lambda make=make: make(1) for way, make in ways.items()}
    if lm.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(lm.device)
    timed = interleaved(steps | firsts, args.rounds, before=lm.forget)
    decoding = {
        way: [whole - first for whole, first in zip(timed.seconds[way], timed.seconds[f"{way} 1"], strict=True)]
        for way in ways
    }
    weights = sum(p.nbytes for p in lm.model.parameters()) - _looked_up(lm)
    config = lm.model.config
    head = config.hidden_size // config.num_attention_heads
    states = 2 * config.num_hidden_layers * config.num_key_value_heads * head * lm.model.dtype.itemsize
    read = weights + size * states * (args.prompt + n / 2)
    same = sum(a == b for a, b in zip(timed.made["capture"], timed.made["generate"], strict=True))
    return {
        "episodes": size,
        "prompt": args.prompt,
        "tokens": n,
        "rounds": args.rounds,
        "median_s": timed.medians(),
        "tokens_a_second": {
            way: statistics.median(size * (n - 1) / max(took, 1e-9) for took in of) for way, of in decoding.items()
        },
        "capture_over": {
            way: statistics.median(a / b for a, b in zip(decoding["capture"], decoding[way], strict=True))
            for way in ("untapped", "generate")
        },
        "limit_tokens_a_second": {"weights": size * rate / weights, "weights and cache": size * rate / read},
        "same_text_as_generate": same,
        "peak_GiB": torch.cuda.max_memory_allocated(lm.device) / 2**30 if lm.device.type == "cuda" else None,
    }


def _looked_up(lm: LanguageModel) -> int:
    """Bytes of the embedding table, of which a step reads a row a text; 0 where it is the output layer too."""
    table, output = lm.model.get_input_embeddings().weight, lm.model.get_output_embeddings().weight
    return 0 if table.data_ptr() == output.data_ptr() else table.nbytes


def show(row: dict[str, Any]) -> None:
    rates, limit = row["tokens_a_second"], row["limit_tokens_a_second"]["weights and cache"]
    print(
        f"{row['episodes']:3} side by side: "
        + ", ".join(f"{way} {rate:.1f} tokens/s ({rate / limit:.0%} of the limit)" for way, rate in rates.items())
        + "; capture over "
        + ", ".join(f"{way} {ratio:.2f}" for way, ratio in row["capture_over"].items()),
        flush=True,
    )


def main() -> None:
    options = parser(__doc__, "gpu")
    options.add_argument("--device", default="cuda")
    options.add_argument("--dtype", default="bfloat16")
    options.add_argument("--layers", type=int, default=32)
    options.add_argument("--heads", type=int, default=32)
    options.add_argument("--hidden", type=int, default=4096)
    options.add_argument("--ffn", type=int, default=11008)
    options.add_argument("--vocab", type=int, default=32_000)
    options.add_argument("--prompt", type=int, default=1024)
    options.add_argument("--tokens", type=int, default=128)
    options.add_argument("--sizes", type=int, nargs="+", default=[1, 8, 32])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--copy-mib", type=int, default=1024)
    args = options.parse_args()
    begin(args)
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        options.exit(0, "torch finds no CUDA device here: nothing is measured. --device cpu and a small shape try it\n")
    device = torch.device(args.device)
    rate = bandwidth(device, args.copy_mib)
    shape = {name: getattr(args, name) for name in ("layers", "heads", "hidden", "ffn", "vocab", "dtype")}
    lm = random_llama(**shape, positions=max(4096, args.prompt + args.tokens), tied=False, device=args.device)
    print(f"{machine(device)['device']}: {rate / 1e9:.0f} GB/s")
    found = []
    for size in args.sizes:
        found.append(measure(lm, size, rate, args))
        show(found[-1])
    write(
        args.out,
        {
            "shape": shape,
            "bandwidth_bytes_a_second": rate,
            "decoding": found,
            "machine": machine(device, lm.model.dtype),
        },
    )


if __name__ == "__main__":
    main()
