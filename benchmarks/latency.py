"""How long a person waits for ``ask`` in a warm process: until the first token, and until the answer.

Interleaved, question by question, ratios within a question. Each way begins behind the same episode of another
question, so the exemplars have been read (``warm``), or on an empty cache (``cold``); plain is ``generate`` behind the
prompt that the episode begins with: one token, and as many as the answer has. The first run of all, which loads what is
loaded once, stands apart. So does ``import dragin_lab``, in processes of its own.

    python benchmarks/latency.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

from common import begin, budget, machine, parser, plain, write

import dragin_lab as dl
from dragin_lab.data import datasets
from dragin_lab.engines.load import LanguageModel
from dragin_lab.run.drivers import Decided, TokenWritten
from dragin_lab.trace.trace import Question, Trace

WAYS = ("warm", "cold")


def ask(method: Any, lm: LanguageModel, retriever: Any, question: Question) -> tuple[dict[str, float], Trace]:
    """Seconds until the first token, the first decision and the answer of a streamed episode."""
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    events = dl.Lab(lm, retriever=retriever).stream(question, method)
    for event in events:
        for kind, name in ((TokenWritten, "token"), (Decided, "decision")):
            if isinstance(event, kind):
                seconds.setdefault(name, time.perf_counter() - began)
    seconds["answer"] = time.perf_counter() - began
    return seconds, events.trace


def generated(lm: LanguageModel, trace: Trace) -> dict[str, float]:
    """Seconds of plain ``generate`` behind the episode's first prompt: one token, and the tokens of the answer."""
    prompt = next(p for step in trace.steps for p in (step.prompt, step.passages_prompt) if p is not None)
    ids = lm.prompt(prompt)[0]
    seconds = {}
    for name, n in (("token", 1), ("answer", max(1, len(lm.tokenizer.encode(trace.text, special=False))))):
        began = time.perf_counter()
        plain(lm, [ids], n)
        seconds[name] = time.perf_counter() - began
    return seconds


def measure(method: Any, lm: LanguageModel, retriever: Any, questions: list[Question]) -> dict[str, Any]:
    took: dict[str, list[dict[str, float]]] = {"warm": [], "cold": [], "plain": []}
    before, *rest = questions
    first, _ = ask(method, lm, retriever, before)
    for place, question in enumerate(rest):
        trace: Trace | None = None
        for way in WAYS[:: 1 if place % 2 else -1]:
            lm.forget()
            if way == "warm":
                dl.Lab(lm, retriever=retriever).ask(before, method)
            seconds, trace = ask(method, lm, retriever, question)
            took[way].append(seconds)
        assert trace is not None
        took["plain"].append(generated(lm, trace))

    def over(way: str, name: str) -> float:
        return statistics.median(a[name] / b[name] for a, b in zip(took[way], took["plain"], strict=True))

    return {
        "method": method.name,
        "variant": method.variant,
        "questions": len(rest),
        "first_run_s": first,
        "median_ms": {
            way: {name: 1e3 * statistics.median(one[name] for one in of) for name in of[0]} for way, of in took.items()
        },
        "over_plain": {way: {name: over(way, name) for name in ("token", "answer")} for way in WAYS},
    }


def import_seconds(processes: int) -> list[float]:
    """Seconds of ``import dragin_lab`` in fresh processes."""
    code = "import time; began = time.perf_counter(); import dragin_lab; print(time.perf_counter() - began)"
    return [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(processes)]


def show(result: dict[str, Any]) -> None:
    print(f"{result['method']}, {result['variant']} variant, {result['questions']} questions")
    for way in WAYS:
        ms, over = result["median_ms"][way], result["over_plain"][way]
        print(
            f"  {way}: first token {ms['token']:.0f} ms ({over['token']:.2f} x plain), first decision "
            f"{ms['decision']:.0f} ms, answer {ms['answer']:.0f} ms ({over['answer']:.2f} x plain)"
        )
    print(f"  the first of all: {result['first_run_s']['token'] * 1e3:.0f} ms to its first token")


def main() -> None:
    options = parser(__doc__, "latency")
    options.add_argument("--questions", type=int, default=20)
    options.add_argument("--imports", type=int, default=5, help="processes that import dragin_lab")
    options.add_argument("--model", help="a folder or an id; default: the embedded model")
    args = options.parse_args()
    begin(args)
    began = time.perf_counter()
    lm, retriever = LanguageModel.load(args.model), dl.BM25(dl.Corpus.load())
    loaded = time.perf_counter() - began
    questions = list(datasets.load("almanac/2wikimultihopqa", split="dev"))[: args.questions + 1]
    results = []
    for name, variant in (("dragin", "reference"), ("dragin", "paper"), ("flare", "paper")):
        results.append(measure(dl.method(name, variant=variant), lm, retriever, questions))
        show(results[-1])
    imports = import_seconds(args.imports)
    found = {
        "budgets": [budget("`import dragin_lab`", statistics.median(imports), 0.5, "s")],
        "import_s": imports,
        "load_s": loaded,
        "asked": results,
        "machine": machine(lm.device, lm.model.dtype),
    }
    write(args.out, found)


if __name__ == "__main__":
    main()
