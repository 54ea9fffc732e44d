"""What docs/triggers.md computes with one model: thresholds, answers, and the scores of facts.

Everything is kept in a folder for these weights, settings and passages, and what is there is not computed again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.almanac.facts import Labelled
from dragin_lab.catalog.budget import NEVER, Calibrated, Calibration
from dragin_lab.catalog.methods import exchange_settings
from dragin_lab.catalog.need import REGRESSIONS
from dragin_lab.core.method import Method
from dragin_lab.core.scores import doubts
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.data import datasets
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import Benchmark, open_run
from dragin_lab.run.lines import Line
from dragin_lab.study import needs
from dragin_lab.study.budgets import BUDGETS, Frontier, Point, label_calibration
from dragin_lab.study.fitting import fit_trigger, label_drafts
from dragin_lab.study.reliability import Reliability, measure_reliability
from dragin_lab.study.truth import Timing, count_timing, find_labels
from dragin_lab.trace.records import fingerprint
from dragin_lab.trace.trace import Trace
from dragin_lab.triggers.probe import Probe
from tools.pages.base import Row, kept_rows, say
from tools.pages.support import TrainingCounts, choose_labels, measure_question, score_consulting
from tools.pages.transfer import ALMANAC, ELSEWHERE, REAL, fit_sets, halves, real_answers

FORMAT = 2  # of what is below runs/triggers; another number starts again
NEW_TOKENS, TOP_N, TOP_K = 96, 25, 3  # as development has them (docs/almanac.md)
#: Triggers of DRAGIN's loop, by the names that they are registered under.
IN_ONE_LOOP = (
    "rind", "entropy", "margin", "attention", "capitalised", "random", "max-probability", "perplexity",
    "rauq", "renyi-2", "fisher-rao", "self-certainty", "attention-score", "corpus", "search-risk",
)  # fmt: skip
BEFORE_THE_ANSWER = ("prefix-margin", "prefix-entropy", "corpus-question")
FITS = "transfer"  # the folder of the fitted triggers
SUPPORT_LABELS = 60  # test questions with a changed fact, and as many without one
BLOCK = 50  # questions that all methods answer before the next ones, so that a draft that two share is written once


def probability_in_one_loop() -> type[dl.Trigger]:
    """FLARE's score as a trigger of DRAGIN's loop, where ``probability`` brings FLARE's own."""

    @dl.when("improbable", threshold=0.2, source="FLARE §3.2, in DRAGIN's loop")
    def improbable(draft: dl.Draft) -> Any:
        """A token is improbable: 1 - p."""
        return doubts(draft.logprob)

    return improbable


@dataclass(frozen=True)
class Run:
    """One method over all questions: its name on the page, and its budget; NaN for what has none."""

    name: str
    budget: float
    method: Method


class Work:
    """A model, the variant of its methods, and the folder of results."""

    def __init__(self, given: argparse.Namespace, model: str | None, variant: str = "paper") -> None:
        self.given, self.pipeline, self.variant = given, load_pipeline(), variant
        self.lm = dl.LanguageModel.load(model)
        self.provenance = self.lm.provenance()
        self.retriever = dl.BM25(dl.Corpus.load())
        asked = fingerprint(one for name in datasets.BENCHMARKS for one in self._dev(name))
        shared = (FORMAT, variant, TOP_N, TOP_K, NEW_TOKENS, self.retriever.corpus.fingerprint, asked)
        key = f"{self.provenance['weights_sha256'][:12]}-{sha256(repr(shared).encode()).hexdigest()[:6]}"
        self.folder = given.output / key
        self.folder.mkdir(parents=True, exist_ok=True)

    def lab(self, benchmark: str) -> dl.Lab:
        """The prompt of a benchmark, with a cache of its own."""
        return dl.Lab(
            self.lm, retriever=self.retriever, exemplars=datasets.template(f"almanac/{benchmark}"), cache=True
        )

    def labels(self, split: str) -> list[Labelled]:
        """The labels of a split of Almanac's questions, of all benchmarks."""
        return [one for name in datasets.BENCHMARKS for one in almanac.labels(name, split)]

    def drafts(self, method: Method, *, retrieving: bool = False, split: str = "dev") -> Iterator[Trace]:
        """Questions of a split answered, benchmark by benchmark; without a retrieval where nobody asks for any."""
        asked = method if retrieving else exchange_settings(method, threshold=NEVER)
        for name in datasets.BENCHMARKS:
            questions = self._dev(name) if split == "dev" else self._test(name)
            traces = list(self._labs[name].ask_many(questions, asked, batch_size=self.given.batch_size))
            place = {question.id: i for i, question in enumerate(questions)}
            yield from sorted(traces, key=lambda trace: place[trace.question.id])

    def _dev(self, name: str) -> Sequence[dl.Question]:
        return almanac.questions(name, "dev")[: self.given.dev_limit]

    def _test(self, name: str) -> Sequence[dl.Question]:
        return almanac.questions(name, "test")[: self.given.limit]

    @cached_property
    def _labs(self) -> dict[str, dl.Lab]:
        return {name: self.lab(name) for name in datasets.BENCHMARKS}

    # -- the triggers that are fitted ---------------------------------------------------------------------------------

    def transferred(self) -> dict[str, dict[str, dl.Trigger]]:
        """Triggers by the model they were fitted on and by their features: Almanac's drafts, SmolLM2's answers."""
        known = self.labels("dev")
        pairs = [(trace, find_labels(trace, known)) for trace in self.drafts(self.method("rind"))]
        drafts = [draft for trace, own in pairs if own is not None for draft in label_drafts(trace, own, None)]
        fit, _ = halves(real_answers())
        return {
            ALMANAC: fit_sets(ALMANAC, drafts, self.folder / FITS),
            REAL: fit_sets(REAL, [answer.label() for answer in fit], self.folder / FITS),
        }

    def probe(self) -> dl.Trigger:
        """A linear probe, fitted on development's hidden states alone, from its file where it was fitted before."""
        path = self.folder / "linear-probe.json"
        if path.exists():
            return dl.trigger(path)
        silent = Probe(weights=(0.0,) * self.lm.model.config.hidden_size)  # so that the drafts keep their hidden states
        drafts = self.drafts(self.method(silent))
        return fit_trigger(drafts, self.labels("dev"), name="linear-probe", use=["hidden"], output=path)

    # -- methods at budgets -------------------------------------------------------------------------------------------

    def method(self, when: Any, what: str = "qfs", name: str = "dragin", **settings: Any) -> Method:
        """A method with the settings that all of them share."""
        words = {"top_n": TOP_N} if what == "qfs" else {}
        shared = {"variant": self.variant, "max_new_tokens": NEW_TOKENS, "top_k": TOP_K}
        return dl.method(name, when=when, what=what, **shared | words | settings)

    def methods(self, fitted: dl.Trigger, probe: dl.Trigger, elsewhere: dl.Trigger) -> dict[str, Method]:
        """Every trigger that has a threshold, by its name on the page."""
        found = {name: self.method(name) for name in IN_ONE_LOOP}
        found |= {"probability": self.method(probability_in_one_loop())}
        found |= {"probe": self.method(probe), "fitted": self.method(fitted), ELSEWHERE: self.method(elsewhere)}
        found |= {name: self.method(name, "question", "targ") for name in BEFORE_THE_ANSWER}
        return found | {"etc": self.method("entropy-trend", "qfs-etc", "etc")}

    def calibrated(self, methods: Mapping[str, Method]) -> tuple[list[Run], list[str]]:
        """Every method at every budget that it can reach, and what cannot be reached."""

        def work(name: str) -> Row:
            say(f"calibrate: {name}")
            scores = Calibration.of(self.drafts(methods[name]), "almanac dev")
            row: Row = {"name": name, "runs": [], "unreached": []}
            for amount in BUDGETS:
                try:
                    made = exchange_settings(methods[name], threshold=f"budget:{amount:g}", calibration=scores)
                    row["runs"].append({"budget": amount, "threshold": made.threshold, "from": asdict(made.calibrated)})
                except SettingError as error:
                    row["unreached"].append(f"{name}: {error}")
            return row

        folder = self.folder / "calibrated"
        folder.mkdir(exist_ok=True)
        rows = [row for name in methods for row in kept_rows(folder / f"{name}.jsonl", [name], work)]
        runs = [
            Run(row["name"], one["budget"], self._at(methods[row["name"]], one)) for row in rows for one in row["runs"]
        ]
        return runs, [said for row in rows for said in row["unreached"]]

    @staticmethod
    def _at(method: Method, found: Row) -> Method:
        return replace(exchange_settings(method, threshold=found["threshold"]), calibrated=Calibrated(**found["from"]))

    # -- answers ------------------------------------------------------------------------------------------------------

    def answer(
        self, runs: Sequence[Run], benchmarks: Sequence[str] | None = None
    ) -> tuple[list[list[Line]], Counter[str]]:
        """The prediction lines of each run over the benchmarks, and the CPU seconds they took, by name."""
        found: list[list[Line]] = [[] for _ in runs]
        seconds: Counter[str] = Counter()
        for name in benchmarks or datasets.BENCHMARKS:
            timed = Timed(self.folder / f"seconds.{name}.json")
            questions = tuple(self._test(name))
            asked = Benchmark(f"almanac/{name}", questions, split="test", limit=self.given.limit)
            lab, folder = self.lab(name), self.folder / "test" / name
            with ExitStack() as stack:
                options = {"batch_size": self.given.batch_size, "traces": None}
                under_way = [
                    stack.enter_context(open_run(lab, run.method, asked, folder / _folder(run), **options))
                    for run in runs
                ]
                lines: list[list[Line]] = [[] for _ in runs]
                for upto in [*range(BLOCK, len(questions), BLOCK), len(questions)]:
                    for i, run in enumerate(runs):
                        with timed.of(run.name):
                            lines[i] = under_way[i](upto)
                    say(f"test: {name}, {upto} questions, {len(runs)} runs")
            for i, part in enumerate(lines):
                found[i] += part
            seconds += timed.seconds
        return found, seconds

    def timing(self, run: Run) -> Timing:
        """Whether a run's retrievals came in time, by the traces that it kept."""
        folders = [self.folder / "test" / name / _folder(run) / "traces" for name in datasets.BENCHMARKS]
        return count_timing((Trace.load(path) for folder in folders for path in folder.iterdir()), self.labels("test"))

    def probabilities(self, method: Method) -> dict[str, tuple[Method, Reliability]]:
        """By regression, fitted on development: the method at ``p:0.5``, and how right probabilities are on test."""
        fit, test = (
            label_calibration(list(self.drafts(method, split=split)), self.labels(split), f"almanac {split}")
            for split in ("dev", "test")
        )
        results = {}
        for regression in REGRESSIONS:
            scores = replace(fit, regression=regression)
            even = exchange_settings(method, threshold="p:0.5", calibration=scores)
            assert even.calibrated is not None
            assert even.calibrated.need is not None
            results[regression] = even, measure_reliability(even.calibrated.need, test)
        return results

    def support(self) -> tuple[list[needs.Item], list[needs.Item]]:
        """The facts of gold reasonings and of the model's own texts, half of them of questions with a changed fact."""

        def work(labelled: Labelled) -> Row:
            forced, written = measure_question(self.lm, labelled, self.consulting)
            return {"forced": [asdict(item) for item in forced], "written": [asdict(item) for item in written]}

        labels = choose_labels(min(SUPPORT_LABELS, self.given.limit))
        rows = kept_rows(self.folder / "support.jsonl", labels, work)
        return tuple([needs.Item(**item) for row in rows for item in row[kind]] for kind in ("forced", "written"))

    @cached_property
    def consulting(self) -> needs.More:
        """The scores of the triggers that ask the retriever."""
        return partial(score_consulting, retriever=self.retriever, training=TrainingCounts.load())

    def items(self) -> list[needs.Item]:
        """The facts of test's gold reasoning, scored by every trigger."""
        found = []
        for name in datasets.BENCHMARKS:
            say(f"areas: {name}")
            prompt = datasets.template(f"almanac/{name}")

            def work(one: Labelled, template: Any = prompt) -> Row:
                facts, _ = needs.forced_items(self.lm, one, template, self.pipeline, more=self.consulting)
                return {"facts": [asdict(item) for item in facts]}

            labels = almanac.labels(name, "test", min(self.given.needs_limit, self.given.limit))
            found += kept_rows(self.folder / f"needs.{name}.jsonl", labels, work)
        return [needs.Item(**item) for row in found for item in row["facts"]]

    def frontier(self, runs: Sequence[Run], lines: Sequence[list[Line]], unreached: Sequence[str]) -> Frontier:
        """The methods with a budget; without any retrieval all are alike."""
        alone = next(part for run, part in zip(runs, lines, strict=True) if run.name == "wo-rag")
        names = dict.fromkeys(run.name for run in runs if run.budget == run.budget)
        points = [Point(name, 0.0, None, alone) for name in names]
        for run, part in zip(runs, lines, strict=True):
            if run.budget == run.budget:
                points.append(Point(run.name, run.budget, run.method.threshold, part))
        return Frontier(tuple(points), tuple(unreached))


class Timed:
    """CPU seconds by name, added up over starts of the script."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: Counter[str] = Counter(json.loads(path.read_text()) if path.exists() else {})

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """What is done inside counts for ``name``."""
        begun = time.process_time()
        yield
        self.seconds[name] += time.process_time() - begun
        self.path.write_text(json.dumps(self.seconds))


def _folder(run: Run) -> str:
    return run.name.replace(" ", "-") + ("" if run.budget != run.budget else f"-{run.budget:g}")
