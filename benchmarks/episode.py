"""What an episode costs: against the same episode by a naive driver, and against writing the kept
text only.

Interleaved, one question after another, ratios within a question:

- ours: ``Lab.ask`` after an episode of another question, so that the exemplars have been read, as
  for every question of a benchmark but its first;
- first: ``Lab.ask`` on an empty cache;
- naive: the same episode as the authors' released code would serve it (``Naive``). Its answers have
  to be the same, or the run fails;
- plain: one ``generate`` of as many tokens as the answer has, behind the first prompt.

Seconds depend on the machine; the tokens that each way feeds to a model, in how many forwards, do
not, and stand beside them. The settings are the defaults and those that Almanac's development
questions chose.

    python benchmarks/episode.py
"""

from __future__ import annotations

import copy
import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from common import CHOSEN, begin, budget, machine, parser, write
from common import plain as generate
from torch import Tensor
from transformers import AutoModelForCausalLM

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.core.episode import Stop, Write
from dragin_lab.core.scores import entropy
from dragin_lab.data import datasets
from dragin_lab.engines.load import LanguageModel
from dragin_lab.engines.writing import Writing
from dragin_lab.run.cache import replay_stop
from dragin_lab.trace.trace import Draft, Question, Trace

BUDGETS = {"reference": {"naive": 0.6, "plain": 5.0}, "paper": {"naive": 0.25, "plain": 2.0}}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    variant: {"default": {}, "tuned": methods["dragin"]} for variant, methods in CHOSEN.items()
}
EXEMPLARS = 8
WAYS = ("ours", "first", "naive", "plain")


class Naive:
    """A model served as the released code serves it: ``generate``, whole drafts, nothing reused,
    second passes.

    It answers the same requests as ``LanguageModel``, so every method works on it unchanged.
    Attention comes from forwards with ``output_attentions`` and eager attention. Greedy decoding.
    """

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        config = copy.deepcopy(lm.model.config)
        model: Any = AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=lm.model.dtype
        )
        model.load_state_dict(lm.model.state_dict())
        model.generation_config = lm.model.generation_config
        self.model = model.to(lm.device).eval()
        self.generated = 0  # tokens, those thrown away too

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    @torch.inference_mode()
    def write(self, request: Write, seed: int | None = None, *, watch: Any = None) -> Draft:
        """The draft, made whole and cut where its stop is reached."""
        lm = self.lm
        prompt_ids, prompt_offsets = lm.tokenizer.encode_prompt(request.prompt)
        p = len(prompt_ids)
        inputs = torch.tensor([prompt_ids], device=lm.device)
        out = self.model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        ids = out.sequences[0, p:].tolist()
        self.generated += len(ids)
        logs = torch.cat(out.logits).float().log_softmax(-1)  # (n, V)
        best, which = (part.cpu().numpy() for part in logs.exp().topk(lm.alternatives, -1))
        spread, chosen = entropy(logs.exp(), logs).tolist(), logs[range(len(ids)), ids].tolist()
        rows: Any = None
        if request.attention:
            # (h, n + 1, p + n)
            rows = self._map(out.sequences[0].tolist())[0, :, p - 1 :].cpu().numpy()
        writing = Writing(
            lm, replace(request, stop=Stop(), among=True), prompt=(prompt_ids, prompt_offsets)
        )
        for r in range(len(ids) + 1):
            if rows is not None:
                writing.add_row(rows[:, r, : p + r].mean(0), rows[:, r, : p + r])
            if r < len(ids):
                writing.add_token(ids[r], (spread[r], chosen[r], which[r], best[r]))
        return replay_stop(writing.finish(), request, lm.tokenizer, watch) or writing.finish()

    @torch.inference_mode()
    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """The attention map of some ids by themselves, (h, n, n) float32."""
        found: np.ndarray = self._map(list(ids))[0].float().cpu().numpy()
        return found

    def _map(self, ids: list[int]) -> Tensor:
        """Weights of the captured layer, (1, h, n, n), by a forward that returns those of all
        layers.
        """
        out = self.model(
            torch.tensor([ids], device=self.lm.device), output_attentions=True, use_cache=False
        )
        weights: Tensor = out.attentions[self.lm.layer]
        return weights


def kept_tokens(lm: LanguageModel, trace: Trace) -> int:
    """Tokens of the answer's text."""
    return max(1, len(lm.tokenizer.encode(trace.text, special=False)))


def plain(lm: LanguageModel, trace: Trace) -> None:
    """``generate`` as many tokens as were kept, behind the prompt that the episode began with."""
    first = next(
        prompt
        for step in trace.steps
        for prompt in (step.prompt, step.passages_prompt)
        if prompt is not None
    )
    generate(lm, [lm.tokenizer.encode_prompt(first)[0]], kept_tokens(lm, trace))


@contextmanager
def counted(*models: Any) -> Iterator[Counter[str]]:
    """Counts the forwards of models and the tokens that they are fed."""
    counts: Counter[str] = Counter()

    def count(module: Any, args: Any, kwargs: Any) -> None:
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        counts["fed"] += ids.numel()
        counts["forwards"] += 1

    # On the inner model, which a forward that stops behind the captured layer goes through too.
    hooks = [
        model.base_model.register_forward_pre_hook(count, with_kwargs=True) for model in models
    ]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()


def measure(
    method: Any, lm: LanguageModel, retriever: Any, questions: list[Question], template: Any
) -> dict[str, Any]:
    """Seconds and tokens of each way of answering, question by question."""
    naive = Naive(lm)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    fed: dict[str, Counter[str]] = {way: Counter() for way in WAYS}
    totals: Counter[str] = Counter()
    # Around all of it, as a model whose hooks change forgets what it has read.
    with counted(lm.model, naive.model) as counts:
        for place, question in enumerate(questions):
            found: dict[str, Trace] = {}

            def answer(
                way: str, question: Question = question, found: dict[str, Trace] = found
            ) -> None:
                served = naive if way == "naive" else lm
                found[way] = dl.Lab(served, retriever=retriever, exemplars=template).ask(
                    question, method
                )

            ways: dict[str, Callable[[], None]] = {
                way: lambda way=way: answer(way) for way in WAYS[:3]
            }
            ways["plain"] = lambda found=found: plain(lm, found["first"])
            order = [*WAYS[:3][:: 1 if place % 2 else -1], "plain"]
            for way in order:
                lm.prefixes.clear()
                if way == "ours":
                    dl.Lab(lm, retriever=retriever, exemplars=template).ask(
                        questions[place - 1], method
                    )
                gc.collect()
                counts.clear()
                began = time.perf_counter()
                ways[way]()
                seconds[way].append(time.perf_counter() - began)
                fed[way] += counts
            for way in ("ours", "naive"):
                if found[way].text != found["first"].text:
                    raise SystemExit(
                        f"{method.name} ({method.variant}), {question.id}: other answers\n"
                        f"  first: {found['first'].text!r}\n  {way}: {found[way].text!r}"
                    )
            totals += Counter(found["ours"].counters) + Counter(kept=kept_tokens(lm, found["ours"]))
    n = len(questions)
    return {
        "method": method.name,
        "variant": method.variant,
        "threshold": method.threshold,
        "top_n": method.top_n,
        "questions": n,
        "median_s": {way: statistics.median(took) for way, took in seconds.items()},
        "over": {
            one: {other: _ratio(seconds[one], seconds[other]) for other in WAYS if other != one}
            for one in WAYS[:3]
        },
        "fed": {way: counts["fed"] / n for way, counts in fed.items()},
        "forwards": {way: counts["forwards"] / n for way, counts in fed.items()},
        "retrievals": totals["retrievals"] / n,
        "tokens_kept": totals["kept"] / n,
        "tokens_generated": totals["generated"] / n,
        "tokens_generated_naive": naive.generated / n,
    }


def _ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def budgets(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of the table, and what the forwards allow."""
    found = []
    for one in results:
        name = f"DRAGIN, {one['variant']} variant, {one['settings']} settings"
        forwards, limits = one["forwards"], BUDGETS[one["variant"]]
        note = (
            f"the naive driver makes {forwards['naive']:.0f} forwards a question, ours"
            f" {forwards['ours']:.0f}; one for each token kept would be"
            f" {one['tokens_kept'] / forwards['naive']:.2f} of the naive driver's"
        )
        found += [
            budget(
                f"{name}: episode / naive driver",
                one["over"]["ours"]["naive"],
                limits["naive"],
                note=note,
            ),
            budget(
                f"{name}: episode / plain `generate` of what is kept",
                one["over"]["ours"]["plain"],
                limits["plain"],
                note=(
                    f"{one['tokens_generated']:.0f} tokens are written for"
                    f" {one['tokens_kept']:.0f} that are kept"
                ),
            ),
        ]
    return found


def main() -> None:
    options = parser(__doc__, "episode")
    options.add_argument("--questions", type=int, default=20)
    options.add_argument("--max-new-tokens", type=int, default=64)
    options.add_argument("--settings", default="default,tuned")
    options.add_argument("--model", help="a folder or an id; default: the embedded model")
    args = options.parse_args()
    begin(args)
    lm, retriever = LanguageModel.load(args.model), dl.BM25(dl.Corpus.load())
    shots = [one for name in datasets.BENCHMARKS for one in almanac.exemplars(name)][:EXEMPLARS]
    template = dl.PromptTemplate(tuple(shots))
    questions = list(datasets.load_questions("almanac/2wikimultihopqa", split="dev"))[
        : args.questions
    ]
    results = []
    for variant, settings in SETTINGS.items():
        for kind in args.settings.split(","):
            method = dl.method(
                "dragin", variant=variant, max_new_tokens=args.max_new_tokens, **settings[kind]
            )
            if not results:
                measure(method, lm, retriever, questions[:2], template)  # warms up
            results.append(
                {"settings": kind, **measure(method, lm, retriever, questions, template)}
            )
    found = {
        "exemplars": len(shots),
        "max_new_tokens": args.max_new_tokens,
        "budgets": budgets(results),
        "episodes": results,
        "machine": machine(),
    }
    write(args.out, found)


if __name__ == "__main__":
    main()
