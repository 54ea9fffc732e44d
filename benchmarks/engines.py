"""llama.cpp beside transformers on the same real prompts: processor time to read, to write, and for
whole episodes.

    python benchmarks/engines.py --questions 8

The model is SmolLM2-135M in Q4_1, which ``make real`` fetches, and in Q8_0, made of it.

``bare`` is llama.cpp by its own functions alone, fed the ids that the engine writes: reading in one
go, then a token at a time, flash attention as llama.cpp chooses. Engines take turns, so that a busy
machine slows all of them.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from common import begin, budget, interleaved, machine, parser, write

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.core.prompts import Exemplar
from dragin_lab.engines.llama_context import load_bindings
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.run.benchmark import benchmark as open_benchmark
from dragin_lab.trace.trace import Passage, Prompt
from tools import real

ROWS, NO_ROWS = 1.12, 1.03  # at most of bare llama.cpp
NO_ATTENTION = "llama.cpp Q4_1 without rows"
TOKENS = 64  # written after each prompt
SET = Path(__file__).parents[1] / "tests" / "parity" / "real" / "sets.json"


class Bare:
    """A GGUF file in llama.cpp, by its own functions alone."""

    def __init__(self, file: Path, threads: int) -> None:
        self.C = C = load_bindings()
        opening = C.llama_model_default_params()
        # as the engine does: some builds end the process with AMX (ggml-org/llama.cpp#20824)
        opening.use_extra_bufts = b"AMX_INT8 = 1" not in C.llama_print_system_info()
        self.model = C.llama_model_load_from_file(str(file).encode(), opening)
        parameters = C.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = 4096
        parameters.n_threads = parameters.n_threads_batch = threads
        self.context = C.llama_init_from_model(self.model, parameters)

    def write(self, prompt: list[int], ids: list[int]) -> None:
        """Read a prompt, then ids one by one, each after the logits before it."""
        self.C.llama_memory_clear(self.C.llama_get_memory(self.context), True)
        for piece in [prompt, *([i] for i in ids)]:
            array = (ctypes.c_int32 * len(piece))(*piece)  # a batch does not keep it
            assert (
                self.C.llama_decode(self.context, self.C.llama_batch_get_one(array, len(piece)))
                == 0
            )
            self.C.llama_get_logits_ith(self.context, -1)


def open_labs(file: Path, requantized: Path, threads: int) -> dict[str, dl.Lab]:
    """A lab of each engine, its model loaded."""
    recorded = json.loads(SET.read_text(encoding="utf-8"))["smol"]
    passages = Corpus.from_passages(
        [Passage(p["id"], p["title"], p["text"]) for p in recorded["passages"]]
    )
    exemplars = [Exemplar(**one) for one in recorded["exemplars"]]
    ways: dict[str, tuple[Path, dict[str, Any]]] = {
        "llama.cpp Q4_1": (file, {"engine": "llama.cpp", "threads": threads}),
        "llama.cpp Q8_0": (requantized, {"engine": "llama.cpp", "threads": threads}),
        NO_ATTENTION: (file, {"engine": "llama.cpp", "threads": threads, "attention": False}),
        "transformers bfloat16": (file, {"dtype": "bfloat16", "device": "cpu"}),
        "transformers float32": (file, {"dtype": "float32", "device": "cpu"}),
    }
    labs = {
        name: dl.Lab(path, passages, exemplars, **loading) for name, (path, loading) in ways.items()
    }
    for lab in labs.values():
        print(lab.model, file=sys.stderr)
    return labs


def requantize(file: Path, path: Path) -> Path:
    """The same weights in Q8_0."""
    if not path.is_file():
        C = load_bindings()
        parameters = C.llama_model_quantize_default_params()
        parameters.ftype, parameters.allow_requantize = C.LLAMA_FTYPE_MOSTLY_Q8_0, True
        assert (
            C.llama_model_quantize(str(file).encode(), str(path).encode(), ctypes.byref(parameters))
            == 0
        )
    return path


def forget(model: Any) -> None:
    """Drop what earlier prompts left, so that each is read whole."""
    if hasattr(model, "prefixes"):
        model.prefixes.clear()
    else:
        model.write(Write(Prompt("."), 1))


def processor(do: Callable[[], Any]) -> float:
    began = time.process_time()
    do()
    return time.process_time() - began


def measure_drafts(
    labs: dict[str, dl.Lab], bares: dict[str, Bare], prompts: list[Prompt]
) -> dict[str, Any]:
    """Processor seconds to read the prompts and write one token, and to write the others, for
    each way.
    """
    ways: dict[str, Callable[[Prompt, int], Any]] = {}
    for name, lab in labs.items():
        ways[name] = lambda prompt, n, lm=lab.model: lm.write(Write(prompt, n))
        if name in bares:
            ways[f"{name}, all rows kept"] = lambda prompt, n, lm=lab.model: lm.write(
                Write(prompt, n, attention=True)
            )
    for name, bare in bares.items():
        ids = {p.text: labs[name].model.write(Write(p, TOKENS)) for p in prompts}
        ways[f"bare {name}"] = lambda prompt, n, bare=bare, ids=ids: bare.write(
            ids[prompt.text].prompt_ids.tolist(), ids[prompt.text].ids.tolist()[:n]
        )
    for do in ways.values():  # the first to read a file's weights waits for the disk
        do(prompts[0], 1)
    totals = {name: {"read_s": 0.0, "all_s": 0.0} for name in ways}
    for prompt in prompts:
        for name, do in ways.items():
            for key, n in (("read_s", 1), ("all_s", TOKENS)):
                forget(labs[name.removeprefix("bare ").partition(",")[0]].model)
                totals[name][key] += processor(partial(do, prompt, n))
    some = next(iter(labs.values())).model
    read = sum(len(some.tokenizer.encode_prompt(prompt, "")[0]) for prompt in prompts)
    wrote = len(prompts) * (TOKENS - 1)
    return {
        name: one
        | {
            "read_ms": 1e3 * one["read_s"] / read,
            "write_ms": 1e3 * (one["all_s"] - one["read_s"]) / wrote,
        }
        for name, one in totals.items()
    }


def measure(questions: int, threads: int) -> dict[str, Any]:
    """Everything, as plain data."""
    file = real.language_model()
    asked = open_benchmark("hotpotqa", limit=questions).questions
    files = {
        "llama.cpp Q4_1": file,
        "llama.cpp Q8_0": requantize(file, Path("/tmp") / f"{file.stem}.Q8_0.gguf"),
    }
    labs = open_labs(*files.values(), threads)
    bares = {name: Bare(path, threads) for name, path in files.items()}
    template = labs["llama.cpp Q4_1"].template("dragin")
    passages = labs["llama.cpp Q4_1"].retriever.search(asked[0].text, 3)
    prompts = [template.render(one.text, "", passages) for one in asked]
    drafts = measure_drafts(labs, bares, prompts)
    episodes: dict[str, Any] = {}
    for method in ("dragin", "flare"):
        able = {
            name: lab for name, lab in labs.items() if method == "flare" or name != NO_ATTENTION
        }
        rounds = interleaved(
            {name: partial(ask, lab, asked, method) for name, lab in able.items()}, 1, warm=False
        )
        episodes[method] = {
            name: {"cpu_s": sum(rounds.processor[name]), **rounds.made[name]} for name in able
        }
    for name in (*files, NO_ATTENTION):
        labs[name].close()
    limits = {name: (name, "with rows", ROWS) for name in files}
    limits[NO_ATTENTION] = "llama.cpp Q4_1", "without rows", NO_ROWS
    ratios = {
        name: drafts[name]["all_s"] / drafts[f"bare {bare}"]["all_s"]
        for name, (bare, *_) in limits.items()
    }
    what = f"{len(prompts)} drafts of {TOKENS} tokens"
    budgets = [
        budget(f"{what} {rows}, {bare} / bare, processor time", ratios[name], most)
        for name, (bare, rows, most) in limits.items()
    ]
    return {
        "machine": machine(),
        "threads": threads,
        "model": file.name,
        "questions": len(asked),
        "llama_cpp_python": version("llama-cpp-python"),
        "drafts": drafts,
        "episodes": episodes,
        "budgets": budgets,
    }


def ask(lab: dl.Lab, asked: Any, method: str) -> dict[str, int]:
    """Every question; what was written and retrieved."""
    traces = list(lab.ask_many(asked, method, variant="paper"))
    return {
        "tokens": sum(trace.counters["generated"] for trace in traces),
        "read": sum(
            len(one.prompt_ids) - one.reused for trace in traces for one in trace.continuations
        ),
        "retrievals": sum(trace.retrievals_count for trace in traces),
    }


def main() -> None:
    args = parser(__doc__, "engines")
    args.add_argument("--questions", type=int, default=8)
    given = args.parse_args()
    begin(given)
    if not real.language_model().is_file():
        sys.exit("SmolLM2 is not here; make real fetches it")
    import torch

    write(given.out, measure(given.questions, given.threads or torch.get_num_threads()))


if __name__ == "__main__":
    main()
