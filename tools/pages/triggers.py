"""Make docs/triggers.md: every trigger in one loop, at the same cost, and a fitted one that is meant to be better.

    python -m tools.pages.triggers --tables notebooks  960 test questions; resumed where it was stopped
    python -m tools.pages.triggers --part iirc         one benchmark, beside another process with another; then all
    python -m tools.pages.triggers --limit 3           a quick look: so many questions of each benchmark
    python -m tools.pages.triggers --confirm FOLDER    RIND and the fitted trigger on another model too; may be repeated

What is computed goes into runs/triggers/, in a folder for these weights and settings; what is there is not computed
again. Thresholds are found, and the trigger is fitted, on the development split; test is answered once.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the embedded model's threads would only wait for one another

from filelock import FileLock

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.almanac.facts import Labelled
from dragin_lab.core.budget import NEVER, Calibrated, Calibration
from dragin_lab.core.etc import EntropyTrend
from dragin_lab.core.method import Method, exchanged
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.trace import Trace
from dragin_lab.core.when_after import Probe
from dragin_lab.data import datasets
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import Benchmark, open_run
from dragin_lab.run.lines import Line
from dragin_lab.study import needs
from dragin_lab.study.fitting import LEAST, fit_trigger
from dragin_lab.study.frontier import Frontier, Point
from dragin_lab.study.headroom import Headroom
from dragin_lab.study.oracle import bounds
from dragin_lab.study.timing import Timing, timing
from tools.pages.base import DOCS, ROOT, RUNS, Row, kept_rows, parser, say
from tools.pages.triggers_page import HEADROOM_AT, Audit, Results, write_page, write_tables

FORMAT = 2  # of what is below runs/triggers; another number starts again
NEW_PIECES, TOP_N, TOP_K = 96, 25, 3  # as development has them (docs/almanac.md)
BUDGETS = (0.5, 1.0, 1.5, 2.0)
BLOCK = 50  # questions that all methods answer before the next ones, so that a draft that two share is written once
BYTE_LEVEL = str(ROOT / "tests" / "parity" / "models" / "almanac-prototype")
FIXED_THETA = 1.0  # what the Dynamic RAG Toolbox has for every model


def trend_in_one_loop() -> type[dl.When]:
    """ETC's formula as a trigger of DRAGIN's loop, where ``entropy-trend`` brings ETC's own."""

    @dl.when("trend", threshold=1.3, source="ETC §3 (arXiv 2511.09980), in DRAGIN's loop")
    def trend(draft: dl.Draft) -> Any:
        """Entropy's second difference turns (ETC's formula)."""
        return EntropyTrend().score(draft)

    return trend


@dataclass(frozen=True)
class Run:
    """One method over all questions: its name on the page, and its budget; NaN for what has none."""

    name: str
    budget: float
    method: Method


class Work:
    """A model, the questions and the folder of results."""

    def __init__(self, given: argparse.Namespace, model: str | None) -> None:
        self.given, self.pipeline = given, load_pipeline()
        self.lm = dl.LanguageModel.load(model)
        self.provenance = self.lm.provenance()
        self.retriever = dl.BM25(dl.Corpus.load())
        read = repr(
            (FORMAT, given.variant, given.dev_limit, TOP_N, TOP_K, NEW_PIECES, self.retriever.corpus.fingerprint)
        )
        key = f"{self.provenance['weights_sha256'][:12]}-{sha256(read.encode()).hexdigest()[:6]}"
        self.folder = given.output / key
        self.folder.mkdir(parents=True, exist_ok=True)

    def lab(self, benchmark: str) -> dl.Lab:
        """Almanac's prompt of a benchmark, with a cache of its own."""
        return dl.Lab(
            self.lm, retriever=self.retriever, exemplars=datasets.template(f"almanac/{benchmark}"), cache=True
        )

    def labels(self, split: str) -> list[Labelled]:
        """The labels of a split's questions, of all benchmarks."""
        return [one for name in datasets.BENCHMARKS for one in almanac.labels(name, split)]

    def drafts(self, method: Method, *, retrieving: bool = False) -> Iterator[Trace]:
        """Development's questions answered, benchmark by benchmark; without a retrieval where nobody asks for any."""
        asked = method if retrieving else exchanged(method, threshold=NEVER)
        for name in datasets.BENCHMARKS:
            questions = almanac.questions(name, "dev")[: self.given.dev_limit]
            traces = list(self._labs[name].ask_many(questions, asked, batch_size=self.given.batch_size))
            place = {question.id: i for i, question in enumerate(questions)}
            yield from sorted(traces, key=lambda trace: place[trace.question.id])

    @cached_property
    def _labs(self) -> dict[str, dl.Lab]:
        return {name: self.lab(name) for name in datasets.BENCHMARKS}

    # -- the triggers that are fitted ---------------------------------------------------------------------------------

    def fitted(self) -> dl.When:
        """The fitted trigger, from its file where it was fitted before."""
        return self._fit("fitted", self.method("rind"), None)

    def probe(self) -> dl.When:
        """The linear probe, fitted as the other one is, on hidden states alone."""
        silent = Probe(weights=(0.0,) * self.lm.model.config.hidden_size)  # so that the drafts keep their hidden states
        return self._fit("linear-probe", self.method(silent), ["hidden"])

    def _fit(self, name: str, method: Method, use: Sequence[str] | None) -> dl.When:
        path = self.folder / f"{name}.json"
        if path.exists():
            return dl.trigger(path)
        say(f"fit {name}: development's drafts")
        return fit_trigger(self.drafts(method), self.labels("dev"), name=name, use=use, output=path)

    # -- methods at budgets -------------------------------------------------------------------------------------------

    def method(self, when: Any, what: str = "qfs", name: str = "dragin", **settings: Any) -> Method:
        """A method with the settings that all of them share."""
        words = {"top_n": TOP_N} if what == "qfs" else {}
        shared = {"variant": self.given.variant, "max_new_tokens": NEW_PIECES, "top_k": TOP_K}
        return dl.method(name, when=when, what=what, **shared | words | settings)

    def methods(self, fitted: dl.When, probe: dl.When) -> dict[str, Method]:
        """Every trigger that has a threshold, by its name on the page."""
        trend_in_one_loop()
        in_one_loop = ("rind", "entropy", "margin", "attention", "trend", "probability", "capitalised", "random")
        found = {name: self.method(name) for name in in_one_loop}
        found |= {"probe": self.method(probe), "fitted": self.method(fitted)}
        found |= {name: self.method(name, "question", "targ") for name in ("prefix-margin", "prefix-entropy")}
        return found | {"etc": self.method("entropy-trend", "qfs-etc", "etc")}

    def calibrated(self, methods: Mapping[str, Method]) -> tuple[list[Run], list[str]]:
        """Every method at every budget that it can reach, and what cannot be reached."""

        def work(name: str) -> Row:
            say(f"calibrate: {name}")
            scores = Calibration.of(self.drafts(methods[name]), "almanac dev, all four")
            row: Row = {"name": name, "runs": [], "unreached": []}
            for amount in BUDGETS:
                try:
                    made = exchanged(methods[name], threshold=f"budget:{amount:g}", calibration=scores)
                    row["runs"].append({"budget": amount, "threshold": made.threshold, "from": asdict(made.calibrated)})
                except SettingError as error:
                    row["unreached"].append(f"{name}: {error}")
            return row

        rows = kept_rows(self.folder / "calibrated.jsonl", list(methods), work)
        runs = [
            Run(row["name"], one["budget"], self._at(methods[row["name"]], one)) for row in rows for one in row["runs"]
        ]
        return runs, [said for row in rows for said in row["unreached"]]

    @staticmethod
    def _at(method: Method, found: Row) -> Method:
        return replace(exchanged(method, threshold=found["threshold"]), calibrated=Calibrated(**found["from"]))

    # -- answers ------------------------------------------------------------------------------------------------------

    def answer(
        self, runs: Sequence[Run], benchmarks: Sequence[str] = datasets.BENCHMARKS
    ) -> tuple[list[list[Line]], Counter[str]]:
        """The prediction lines of each run over the benchmarks, and the CPU seconds they took, by name."""
        found: list[list[Line]] = [[] for _ in runs]
        seconds: Counter[str] = Counter()
        for name in benchmarks:
            timed = Timed(self.folder / f"seconds.{name}.json")
            questions = tuple(almanac.questions(name, "test")[: self.given.limit])
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
        return timing((Trace.load(path) for folder in folders for path in folder.iterdir()), self.labels("test"))

    def items(self) -> list[needs.Item]:
        """The facts of test's gold reasoning, scored by every trigger."""
        found = []
        for name in datasets.BENCHMARKS:
            say(f"areas: {name}")
            template = datasets.template(f"almanac/{name}")

            def work(one: Labelled, template: Any = template) -> Row:
                facts, _ = needs.forced_items(self.lm, one, template, self.pipeline)
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


def compared(work: Work, given: argparse.Namespace) -> Results | None:
    """Everything that the page says of one model; None where only a part was asked for."""
    nothing = float("nan")
    with FileLock(work.folder / "calibrated.lock"):  # another process may answer another part
        methods = work.methods(work.fitted(), work.probe())
        runs, unreached = work.calibrated(methods)
    oracle, gold = bounds(work.labels("test"))
    own = {run.name: run for run in runs if run.budget == HEADROOM_AT}
    extra = [Run("wo-rag", nothing, dl.method("wo-rag", variant=given.variant, max_new_tokens=NEW_PIECES))]
    extra += [Run("oracle", nothing, work.method(oracle)), Run("oracle gold", nothing, work.method(oracle, gold))]
    extra += [
        Run(f"{name} gold", nothing, work.method(methods[name].when, gold, threshold=own[name].method.threshold))
        for name in ("rind", "fitted")
        if name in own
    ]
    runs += extra
    if given.part:
        work.answer(runs, given.part)
        return None
    lines, seconds = work.answer(runs)
    by_name = {run.name: (run, part) for run, part in zip(runs, lines, strict=True) if run.budget in (HEADROOM_AT,)}
    single = {run.name: (run, part) for run, part in zip(runs, lines, strict=True) if run.budget != run.budget}
    headrooms = {}
    for name in ("rind", "fitted"):
        if name in by_name:
            four = [by_name[name], single["oracle"], single[f"{name} gold"], single["oracle gold"]]
            headrooms[name] = Headroom(tuple(r.method for r, _ in four), tuple(part for _, part in four))
    items = work.items()
    return Results(
        model=work.provenance,
        variant=given.variant,
        pipeline=work.pipeline.name,
        questions=len(lines[0]),
        dev_questions=given.dev_limit * len(datasets.BENCHMARKS),
        methods={name: methods[name].when for name in methods},
        frontier=work.frontier(runs, lines, unreached),
        without=single["wo-rag"][1],
        oracle=single["oracle"][1],
        timings={name: work.timing(run) for name, (run, _) in by_name.items()},
        at_budget={name: part for name, (_, part) in by_name.items()},
        headrooms=headrooms,
        facts=items,
        record=json.loads((work.folder / "fitted.json").read_text()),
        seconds=dict(seconds),
    )


# -- the audit --------------------------------------------------------------------------------------------------------


def audit(given: argparse.Namespace) -> tuple[list[Audit], dict[str, str]]:
    """RIND as released with each model's own space marker, and with Llama-2's, at one θ; and the θ of a budget."""
    given = argparse.Namespace(**vars(given) | {"variant": "reference"})
    found, thetas = [], {}
    for folder in dict.fromkeys([given.model, *given.byte_level]):
        work = Work(given, folder)
        tokenizer, rind = work.lm.tokenizer, work.method("rind", threshold=FIXED_THETA)
        own = tokenizer.marker
        try:
            budget = exchanged(rind, threshold=f"budget:{HEADROOM_AT:g}", calibration=Calibration.of(work.drafts(rind)))
            thetas[work.lm.name] = f"{budget.threshold:.3g}"
        except SettingError as error:
            thetas[work.lm.name] = f"none ({error})"

        def measured(marker: str, work: Work = work, own: str = own, rind: Method = rind) -> Row:
            say(f"audit: {work.lm.name}, marker {marker}")
            work.lm.tokenizer.marker = marker
            return asdict(_audited(work.lm.name, own, marker, list(work.drafts(rind, retrieving=True))))

        rows = kept_rows(work.folder / "audit.jsonl", list(dict.fromkeys([own, "▁"])), measured)
        found += [Audit(**row) for row in rows]
        tokenizer.marker = own
    return found, thetas


def _audited(model: str, own: str, marker: str, traces: Sequence[Trace]) -> Audit:
    drafts = [s for t in traces for s in t.steps if s.draft is not None and s.decision is not None and len(s.words)]
    return Audit(
        model=model,
        marker=marker,
        right=marker == own,
        questions=len(traces),
        words=fmean(len(step.words) for step in drafts),
        written=fmean(len(step.draft.text.split()) for step in drafts if step.draft is not None),
        fired=fmean(bool(step.decision.retrieve) for step in drafts if step.decision is not None),
        retrievals=fmean(trace.retrievals_count for trace in traces),
        em=fmean(trace.scores["em"] for trace in traces),
    )


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    command = parser(__doc__)
    command.add_argument("--model", help="a folder or an id; default: the embedded model")
    command.add_argument("--confirm", action="append", default=[], metavar="FOLDER", help="another model")
    command.add_argument("--byte-level", nargs="*", default=[BYTE_LEVEL], help="the audit's further models")
    command.add_argument("--variant", choices=("reference", "paper"), default="reference")
    command.add_argument("--limit", type=int, default=240, help="test questions of each benchmark")
    command.add_argument("--needs-limit", type=int, default=240, help="of these, questions for the areas")
    command.add_argument(
        "--dev-limit", type=int, help="development questions of each (default: 80, with --limit fewer)"
    )
    command.add_argument("--part", nargs="+", choices=datasets.BENCHMARKS, help="answer these alone, and write no page")
    command.add_argument("--batch-size", type=int, default=16, help="questions side by side")
    command.add_argument("--output", type=Path, default=RUNS / "triggers")
    command.add_argument("--tables", type=Path, help="a folder for what notebook 10 reads, such as notebooks")
    command.add_argument("--page", type=Path, default=DOCS / "triggers.md")
    given = command.parse_args(arguments)
    # A trigger is fitted on twenty traces or more.
    given.dev_limit = given.dev_limit or min(80, max(LEAST // 2, given.limit))
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    work = Work(given, given.model)
    say(f"{work.lm!r}; results in {work.folder}")
    found = compared(work, given)
    if found is None:
        return
    others = {}
    for folder in given.confirm:
        other = Work(given, folder)
        say(f"confirm: {other.lm!r}; results in {other.folder}")
        methods = {
            name: method
            for name, method in work.methods(work.fitted(), work.probe()).items()
            if name in ("rind", "fitted")
        }
        runs, unreached = other.calibrated(methods)
        runs.append(Run("wo-rag", float("nan"), dl.method("wo-rag", variant=given.variant, max_new_tokens=NEW_PIECES)))
        others[other.lm.name] = other.frontier(runs, other.answer(runs)[0], unreached)
    audits, thetas = audit(given)
    if given.tables is not None:
        write_tables(given.tables / "almanac_triggers.json", found)
        copyfile(work.folder / "fitted.json", given.tables / "almanac_fitted.json")
    write_page(given.page, replace(found, confirmed=others, audits=audits, thetas=thetas))
    say(f"wrote {given.page}")


if __name__ == "__main__":
    main()
