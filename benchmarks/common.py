"""What the benchmarks share: interleaved rounds, budgets, the machine in words, random models,
one JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for tools, which is not installed

from tools.base import CHOSEN, RESULTS  # noqa: F401

MIB = 2**20


@dataclass
class Rounds:
    """Seconds of several ways to do the same, one entry a round, by the wall clock and of the
    processor.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)  # what each way returned in the last round

    def over(self, way: str, *, processor: bool = False) -> dict[str, float]:
        """``way`` over each other way: the median of the ratios within a round."""
        times = self.processor if processor else self.seconds
        return {
            other: statistics.median(a / b for a, b in zip(times[way], took, strict=True))
            for other, took in times.items()
            if other != way
        }

    def summary(self, way: str) -> dict[str, Any]:
        """What goes into a file: medians, and ratios of ``way`` to the others, by both clocks."""
        return {
            "rounds": len(self.seconds[way]),
            "median_s": {name: statistics.median(took) for name, took in self.seconds.items()},
            "median_cpu_s": {
                name: statistics.median(took) for name, took in self.processor.items()
            },
            "over": self.over(way),
            "over_cpu": self.over(way, processor=True),
        }


def interleaved(
    ways: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    before: Callable[[], None] = lambda: None,
    check: Callable[[str, Any], None] = lambda way, made: None,
    warm: bool = True,
) -> Rounds:
    """Run all ways in turn, each round in the other direction; ``warm`` leaves a first round out of
    the figures.

    ``before`` each run and the ``check`` of what it made are not timed.
    """
    found = Rounds({way: [] for way in ways}, {way: [] for way in ways})
    for place in range(-warm, rounds):
        for way in list(ways)[:: 1 if place % 2 else -1]:
            before()
            gc.collect()
            began, began_cpu = time.perf_counter(), time.process_time()
            made = ways[way]()
            took, took_cpu = time.perf_counter() - began, time.process_time() - began_cpu
            check(way, made)
            found.made[way] = made
            if place >= 0:
                found.seconds[way].append(took)
                found.processor[way].append(took_cpu)
    return found


def budget(
    what: str, measured: float, at_most: float, unit: str = "x", note: str = ""
) -> dict[str, Any]:
    """A line of the table in docs/performance.md; ``note`` says what the limit is where it may
    be missed.
    """
    return {"what": what, "measured": measured, "at_most": at_most, "unit": unit, "note": note}


# -- the machine -----------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Processor, cores, memory, threads and versions. No names of hosts, no paths."""
    import torch

    info = Path("/proc/cpuinfo")
    lines = (
        info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    )
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": next(iter(names), platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "numpy")},
    }


# -- a script --------------------------------------------------------------------------------------


def parser(doc: str | None, name: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", type=Path, default=RESULTS / f"{name}.json")
    made.add_argument(
        "--threads", type=int, default=0, help="torch threads; 0 leaves torch's own choice"
    )
    return made


def begin(args: argparse.Namespace) -> None:
    """What ``parser``'s options ask for before anything is measured."""
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Print the budgets, and write one JSON."""
    for line in found.get("budgets", ()):
        print(f"{line['measured']:8.3f} {line['unit']} (at most {line['at_most']}): {line['what']}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"written: {path.name}")


def child(script: str, *arguments: object) -> dict[str, Any]:
    """What a script prints as JSON in a process of its own, for figures that a used process
    would blur.
    """
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    if done.returncode:
        raise SystemExit(
            f"{Path(script).name} {' '.join(map(str, arguments))}: ended with {done.returncode}"
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- models ----------------------------------------------------------------------------------------


def random_llama(
    *,
    layers: int,
    heads: int,
    hidden: int,
    ffn: int,
    vocab: int = 32_000,
    device: str = "cpu",
    dtype: Any = None,
) -> Any:
    """A ``LanguageModel`` of that shape with random weights, made on its device, and a tokenizer
    of as many words.
    """
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    from dragin_lab.engines.load import LanguageModel

    config = transformers.LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=dtype or torch.float32
        ).eval()
    words = ["<unk>", *(f"w{i}" for i in range(1, vocab))]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")
    made = LanguageModel(model, tokenizer, name="random Llama")
    made.eos = frozenset()  # every draft gets as many tokens as are asked for
    return made


def words(count: int) -> str:
    """A text of ``count`` tokens for ``random_llama``."""
    import numpy as np

    return " ".join(f"w{i}" for i in np.random.default_rng(0).integers(3, 32_000, count))


def plain(lm: Any, ids: Sequence[Sequence[int]], n: int) -> list[list[int]]:
    """``generate`` n tokens behind prompts of one length, greedily, as plain ``transformers``."""
    import torch

    inputs = torch.tensor(ids, device=lm.device)
    made = lm.model.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=n,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    found: list[list[int]] = made[:, inputs.shape[1] :].tolist()
    return found
