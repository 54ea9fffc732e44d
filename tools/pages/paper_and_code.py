"""Make docs/paper-and-code.md: what each difference between the paper and the released code does, swapped alone.

    python -m tools.pages.paper_and_code               on Almanac; a quarter of an hour on two cores, resumed if stopped
    python -m tools.pages.paper_and_code --limit 2     a quick look
    python -m tools.pages.paper_and_code --model ID --corpus psgs_w100.tsv.gz --dataset hotpotqa --exemplars FILE

What is computed goes line by line into runs/paper-and-code/, in a folder for these weights and questions; what is there
is not computed again. *When* and *what* need Almanac's labels; without them whole episodes are compared.
DRAGIN's θ is chosen on Almanac's development split, for each way to score by itself; nothing is chosen on test.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process a benchmark uses the cores better

import numpy as np

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.almanac.facts import Labelled
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.data import datasets
from dragin_lab.run.cached import cached
from dragin_lab.study import needs
from dragin_lab.study.needs_query import ask_at, place_of
from dragin_lab.study.ranking import best_threshold
from dragin_lab.trace.trace import Question, Trace
from tools.pages.almanac import NEW_TOKENS, prediction
from tools.pages.base import DOCS, HERE, RUNS, Row, kept_rows, parser, say
from tools.pages.paper_and_code_page import Results, write_page
from tools.pages.variants_rind import BASES, TRIGGERS
from tools.pages.variants_swaps import SWAPPED, Run, WhatSwap, whats

PAGE = DOCS / "paper-and-code.md"
TEMPLATE = HERE / "paper-and-code.template.md"
FORMAT = 1  # of the lines below runs/paper-and-code; another number starts anew
CHUNK = 5  # questions for every method before the next ones, so that a draft that two share is written once

#: name of a way to score -> what it is; FLARE's two are read off ``needs.score_tokens``.
SCORES = {**BASES, **{f"{swap.base}: {swap.label}": swap.rind for swap in TRIGGERS}}
FLARE_SCORES = {"flare": "probability-sentence", "flare: any token": "probability"}


class Bench:
    """The model, the passages and one benchmark's questions."""

    def __init__(self, given: argparse.Namespace, source: str) -> None:
        self.given, self.source = given, source
        self.lm = dl.LanguageModel.load(given.model)
        self.cache = dl.Cache()
        self.cached = cached(self.lm, self.cache)
        self.pipeline = load_pipeline()
        self.kind = datasets.benchmark(source)
        ours = source.startswith("almanac/")
        self.retriever = dl.BM25(dl.Corpus.load(given.corpus))
        template = datasets.template(source if ours else self.kind, given.exemplars)
        self.template = replace(template, exemplars=template.exemplars[: given.shots])
        self.labels: dict[str, list[Labelled]] = {"dev": [], "test": []}
        questions = datasets.load(source, split="test" if ours else None)
        if ours:
            self.labels = {s: almanac.labels(self.kind, s) for s in self.labels}
            by_id = {question.id: question for question in questions}
            questions = [by_id[one.qid] for one in self.labels["test"]]
        weights = self.lm.provenance()["weights_sha256"]
        read = repr((FORMAT, weights, self.retriever.provenance(), self.template, questions, self.labels))
        self.questions: list[Question] = questions[: given.limit]
        self.labels = {"dev": self.labels["dev"][: given.dev_limit], "test": self.labels["test"][: given.limit]}
        self.folder = given.output / f"{self.kind}-{sha256(read.encode()).hexdigest()[:12]}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def rows(self, name: str, settings: object, items: Sequence[Any], work: Callable[[Any], Row]) -> list[Row]:
        key = sha256(repr(settings).encode()).hexdigest()[:8]
        return kept_rows(self.folder / f"{name}.{key}.jsonl", items, work)

    # -- when ---------------------------------------------------------------------------------------------------------

    def when(self, split: str) -> list[Row]:
        if not self.labels[split]:
            return []
        say(f"{self.source}: {len(SCORES)} ways to score {len(self.labels[split])} {split} questions")
        return self.rows(f"when.{split}", (SCORES, FLARE_SCORES), self.labels[split], self._forced)

    def _forced(self, one: Labelled) -> Row:
        """Every way to score on the gold reasoning: the largest of each fact's value and of each sentence."""
        text = f" {one.reasoning} So the answer is {one.answer}."
        made = self.lm.score(self.template.render(one.question), text, attention=True)
        ids = made.ids.tolist()
        alone, marker = self.lm.attend(ids), self.lm.tokenizer.marker
        decoded = [self.lm.tokenizer.decode([i], special=True) for i in ids]
        by_token = needs.score_tokens(made, alone, marker, decoded, self.pipeline)
        scores = {name: by_token[trigger] for name, trigger in FLARE_SCORES.items()}
        scores |= {name: rind.scores(made, alone, marker, "</s>", self.pipeline) for name, rind in SCORES.items()}
        lead = made.text.find(one.reasoning)
        facts = [(needs.tokens_of(made, f.start + lead, f.end + lead), f.missing) for f in one.facts]
        sentences = [
            (needs.tokens_of(made, a, b), any(f.missing for f in one.facts if a <= f.start + lead < b))
            for a, b in self.pipeline.spans(made.text)
        ]
        plain = {
            key: [{"missing": missing, "scores": _largest(scores, at)} for at, missing in items]
            for key, items in (("facts", facts), ("sentences", sentences))
        }
        return {"qid": one.qid, **plain}

    # -- what ---------------------------------------------------------------------------------------------------------

    def what(self) -> dict[str, list[Row]]:
        swaps = whats()
        if not self.labels["test"]:
            return {swap.key: [] for swap in swaps}
        say(f"{self.source}: {len(swaps)} queries for each missing fact of {len(self.labels['test'])} test questions")
        settings = [(s.key, s.method.settings, s.place, s.model) for s in swaps]
        rows = self.rows("what", [(a, b, _name(c), _name(d)) for a, b, c, d in settings], self.labels["test"],
                         lambda one: self._asked(one, swaps))  # fmt: skip
        self.cache.clear()
        return {swap.key: [row for each in rows for row in each["asked"][swap.key]] for swap in swaps}

    def _asked(self, one: Labelled, swaps: Sequence[WhatSwap]) -> Row:
        asked: dict[str, list[Row]] = {swap.key: [] for swap in swaps}
        for fact in (fact for fact in one.facts if fact.missing):
            place = place_of(self.cached, one, fact, self.template, self.pipeline)
            for swap in swaps:
                there = swap.place(self.lm, place) if swap.place else place
                lm = swap.model(self.cached) if swap.model else self.cached
                found = ask_at(lm, self.retriever, one, fact, there, self.template, swap.method)
                asked[swap.key].append(
                    {"qid": one.qid, "recall": found.recall, "rr": found.reciprocal_rank, "query": found.query}
                )
        return {"qid": one.qid, "asked": asked}

    # -- whole episodes -----------------------------------------------------------------------------------------------

    def episodes(self, thetas: Mapping[str, float]) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for reach in [*range(CHUNK, len(self.questions), CHUNK), len(self.questions)]:
            for run in SWAPPED:
                found[run.key] = self._episodes(run, thetas, self.questions[:reach])
            self.cache.clear()
            say(f"{self.source}: {reach} of {len(self.questions)} questions by {len(SWAPPED)} methods")
        return found

    def _episodes(self, run: Run, thetas: Mapping[str, float], questions: Sequence[Question]) -> list[Row]:
        method = run.method(theta_of(run, thetas), self.given.max_new_tokens)
        template, lm = run.template(self.template), run.asked(self.cached)
        settings = (run.key, method.settings, run.layout, _name(run.model))

        def work(question: Question) -> Row:
            return self._row(dl.Lab(lm, retriever=self.retriever, exemplars=template).ask(question, method))

        return self.rows("episodes", settings, questions, work)

    def _row(self, trace: Trace) -> Row:
        queries = [step.query for step in trace.steps if step.query is not None]
        notes = [note for step in trace.steps for note in step.notes]
        lengths = [len(self.lm.tokenizer.encode(query.text, special=False)) for query in queries]
        return prediction(trace) | {
            "extraction": None if trace.extraction is None else trace.extraction.raw_text,
            "unflagged": sum("no flagged word is left" in query.note for query in queries),
            "long": sum(length > 64 for length in lengths),
            "short": sum("passages, found" in note for note in notes),
            "overrun": sum("more than the model's window" in note for note in notes),
        }


def _largest(scores: Mapping[str, np.ndarray], tokens: np.ndarray) -> dict[str, float]:
    return {name: float(values[tokens].max()) for name, values in scores.items()}


def _name(function: Any) -> str:
    return "" if function is None else function.__name__


def theta_of(run: Run, thetas: Mapping[str, float]) -> float | None:
    """The θ that was chosen for the way in which a run scores; else the one it names, or None for its own default."""
    name = next((name for name, rind in SCORES.items() if rind == run.rind), None)
    return run.threshold if name is None else thetas.get(name, run.threshold)


def choose_thetas(rows: Sequence[Row]) -> dict[str, float]:
    """For each way to score: θ with the best F1 on development's facts, as docs/almanac.md takes it."""
    facts = [fact for row in rows for fact in row["facts"]]
    if not any(fact["missing"] for fact in facts):
        return {}
    missing = np.array([fact["missing"] for fact in facts], dtype=bool)  # (m,)
    return {name: best_threshold(np.array([fact["scores"][name] for fact in facts]), missing) for name in SCORES}


def development(given: argparse.Namespace, source: str) -> list[Row]:
    return Bench(given, source).when("dev")


def measured(given: argparse.Namespace, thetas: Mapping[str, float], source: str) -> dict[str, Any]:
    """Everything about one benchmark."""
    bench = Bench(given, source)
    found = {"when": bench.when("test"), "what": bench.what(), "runs": bench.episodes(thetas)}
    about = {"passages": len(bench.retriever.corpus), "corpus": bench.retriever.corpus.name}
    about |= {"shots": len(bench.template.exemplars), "pipeline": bench.pipeline.name, "model": bench.lm.provenance()}
    return found | {
        "source": source,
        "kind": bench.template.answer_rule,
        "about": about | {"embedded": bench.lm.embedded},
    }


def each_source(given: argparse.Namespace, work: Callable[[str], Any]) -> list[Any]:
    """``work`` on every benchmark, ``--workers`` of them at a time, in order."""
    if given.workers == 1:
        return [work(source) for source in given.dataset]
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(work, given.dataset))


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    command = parser(__doc__)
    command.add_argument("--model", help="a folder or an id; default: the embedded model")
    command.add_argument("--corpus", help="a corpus file or folder; default: Almanac's passages")
    command.add_argument(
        "--dataset", nargs="+", default=["almanac"],
        help="almanac (all four, the default), almanac/NAME, a benchmark's name, a file of it or of your own questions",
    )  # fmt: skip
    command.add_argument(
        "--exemplars", help="a file of worked examples, or 'published'; default: the benchmark's own set"
    )
    command.add_argument("--shots", type=int, help="the first so many examples; default: all (Almanac: 2)")
    command.add_argument("--limit", type=int, default=20, help="questions a benchmark")
    command.add_argument("--dev-limit", type=int, help="development questions a benchmark, to choose θ on (20)")
    command.add_argument("--max-new-tokens", type=int, default=NEW_TOKENS)
    command.add_argument("--workers", type=int, default=2, help="benchmarks at a time")
    command.add_argument("--output", type=Path, default=RUNS / "paper-and-code")
    command.add_argument("--page", type=Path, help="default: docs/paper-and-code.md for the embedded model on Almanac")
    given = command.parse_args(arguments)
    if min(given.limit, given.workers, given.dev_limit or 1) < 1:
        command.error("--limit, --dev-limit and --workers take 1 or more")
    given.dev_limit = given.dev_limit or min(20, 4 * given.limit)
    usual = given.model is None and given.corpus is None and given.dataset == ["almanac"]
    given.page = given.page or (PAGE if usual else given.output / "paper-and-code.md")
    if given.dataset == ["almanac"]:
        given.dataset = [f"almanac/{name}" for name in datasets.BENCHMARKS]
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    thetas = choose_thetas([row for rows in each_source(given, partial(development, given)) for row in rows])
    for name, theta in thetas.items():
        say(f"θ {theta:.3g} for {name}")
    found = each_source(given, partial(measured, given, thetas))
    used = {run.key: run.method(theta_of(run, thetas), given.max_new_tokens).threshold for run in SWAPPED}
    write_page(
        given.page,
        TEMPLATE,
        Results(
            about=found[0]["about"],
            dev_limit=given.dev_limit if thetas else 0,
            thetas=used,
            when=[row for each in found for row in each["when"]],
            what={key: [row for each in found for row in each["what"][key]] for key in found[0]["what"]},
            runs={run.key: {each["source"]: each["runs"][run.key] for each in found} for run in SWAPPED},
            kinds={each["source"]: each["kind"] for each in found},
        ),
    )
    say(f"wrote {given.page}")


if __name__ == "__main__":
    main()
