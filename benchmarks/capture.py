"""What capture costs: time against the same loop without it and against ``generate``, and bytes of attention kept.

Medians of interleaved runs, as ratios within one round, so that a busy machine disturbs all variants alike:

- bare: our loop, nothing measured and nothing tapped, only the likeliest piece taken;
- untapped: our loop with entropy, log-probability and alternatives, without attention;
- capture: our loop with everything, the rows kept in full;
- generate: ``transformers``' ``generate`` without any capture.

Processor time is given beside it: with ``--threads 1`` it hardly depends on what else the machine does.

    python benchmarks/capture.py --out capture.json
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from dragin_lab.episode import Draft
from dragin_lab.lm import decode
from dragin_lab.lm.load import LanguageModel
from dragin_lab.lm.measure import Recorder
from dragin_lab.lm.prefixes import Prefix
from dragin_lab.trace import Prompt

MIB = 2**20
PASSAGE = (
    "Question: When was the city where the director of film Gewair Lantern was born founded?\n"
    "Answer: The film Gewair Lantern was directed by Graizond Loththaimpan. So the answer is 1450.\n"
)


def half_billion() -> LanguageModel:
    """A Llama of about 0.5 billion random parameters, with a word-level tokenizer of as many words."""
    config = transformers.LlamaConfig(
        vocab_size=32_000,
        hidden_size=1280,
        intermediate_size=3456,
        num_hidden_layers=22,
        num_attention_heads=20,
        num_key_value_heads=20,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    words = ["<unk>", *(f"w{i}" for i in range(1, config.vocab_size))]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")
    return LanguageModel(model, tokenizer, name="random Llama")


@torch.inference_mode()
def bare(lm: LanguageModel, ids: list[int], n: int) -> list[int]:
    """The decode loop with nothing but the choice of the likeliest piece; as many forwards as ``generate`` makes."""
    prefix = Prefix(lm.model.config)
    made: list[int] = []
    fed = ids
    for _ in range(n):
        logits = decode.feed(lm, prefix, fed, None)
        made.append(int(logits.argmax()))
        fed = made[-1:]
    return made


def compare(lm: LanguageModel, text: str, n: int, runs: int) -> dict[str, Any]:
    """Median seconds of each variant over interleaved rounds, and medians of their ratios within a round."""
    lm.eos = frozenset()
    ids, _ = lm.prompt(Prompt(text))
    inputs = torch.tensor([ids])

    def ours(capture: bool) -> list[int]:
        lm.forget()
        made = decode.finish(decode.stream(lm, Draft(Prompt(text), n, attention=capture), every=False, capture=capture))
        return list(made.ids)

    def generate() -> list[int]:
        out = lm.model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=n,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        return list(out[0, len(ids) :].tolist())

    variants: dict[str, Callable[[], list[int]]] = {
        "bare": lambda: bare(lm, ids, n),
        "untapped": lambda: ours(False),
        "capture": lambda: ours(True),
        "generate": generate,
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    processor: dict[str, list[float]] = {name: [] for name in variants}
    expected = generate()
    for i in range(runs + 1):
        for name in list(variants)[:: 1 if i % 2 else -1]:
            gc.collect()
            began, began_cpu = time.perf_counter(), time.process_time()
            made = variants[name]()
            took, took_cpu = time.perf_counter() - began, time.process_time() - began_cpu
            if made != expected:
                raise SystemExit(f"{name} made other pieces than generate()")
            if i:  # the first round warms up
                seconds[name].append(took)
                processor[name].append(took_cpu)
    return {
        "model": lm.name,
        "parameters": sum(p.numel() for p in lm.model.parameters()),
        "prompt": len(ids),
        "pieces": n,
        "runs": runs,
        "median_s": {name: statistics.median(took) for name, took in seconds.items()},
        "capture_over": ratios(seconds),
        "median_cpu_s": {name: statistics.median(took) for name, took in processor.items()},
        "capture_over_cpu": ratios(processor),
    }


def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Capture over each other variant: the median of the ratios within a round."""
    capture = seconds["capture"]
    return {
        name: statistics.median(a / b for a, b in zip(capture, took, strict=True))
        for name, took in seconds.items()
        if name != "capture"
    }


def attention_bytes(p: int = 2048, n: int = 128, h: int = 32) -> dict[str, Any]:
    """Bytes of the attention kept for one layer."""
    recorder = Recorder(p, n, 5, True, torch.device("cpu"))
    for row in range(n + 1):
        recorder.looked_back(torch.full((1, h, 1, p + row), 1 / (p + row)))
    kept = recorder.kept_bytes()
    return {"p": p, "n": n, "h": h, "bytes": kept, "MiB": kept / MIB}


def show(results: list[dict[str, Any]], memory: dict[str, Any]) -> None:
    """The table for people."""
    for r, budget in zip(results, (1.0, 1.03), strict=False):
        size = f"{r['parameters'] / 1e6:.1f} M parameters, {r['prompt']} + {r['pieces']} pieces"
        print(f"{r['model']}: {size}, medians of {r['runs']} rounds")
        for name, took in r["median_s"].items():
            line = f"  {name:9}{took * 1000:10.1f} ms"
            if name in r["capture_over"]:
                cpu = r["capture_over_cpu"][name]
                line += f"   capture / {name} = {r['capture_over'][name]:.3f} (processor time {cpu:.3f})"
            print(line)
        print(f"  budgets: capture / the loop without 1.05, capture / generate {budget}")
    size = f"p={memory['p']}, n={memory['n']}, {memory['h']} heads"
    print(f"attention kept, {size}: {memory['MiB']:.1f} MiB (budget 20)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("capture.json"))
    parser.add_argument("--runs", type=int, default=15, help="rounds on the embedded model")
    parser.add_argument("--large-runs", type=int, default=5, help="rounds on 0.5 billion parameters; 0 for none")
    parser.add_argument("--pieces", type=int, default=64)
    parser.add_argument("--large-pieces", type=int, default=24)
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0 leaves torch's own choice")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    results = [compare(LanguageModel.load(), PASSAGE * 8 + PASSAGE[:96], args.pieces, args.runs)]
    if args.large_runs:
        words = np.random.default_rng(0).integers(3, 32_000, 1024)
        results.append(compare(half_billion(), " ".join(f"w{i}" for i in words), args.large_pieces, args.large_runs))
    memory = attention_bytes()
    show(results, memory)
    machine = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    args.out.write_text(json.dumps({"decoding": results, "memory": memory, "machine": machine}, indent=1) + "\n")
    print(f"written: {args.out}")


if __name__ == "__main__":
    main()
