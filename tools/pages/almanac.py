"""Make docs/almanac.md: on Almanac, did each method retrieve at the right moment, and did it ask the right thing?

    python -m tools.pages.almanac                     everything; hours on two cores, resumed where it was stopped
    python -m tools.pages.almanac --limit 5           a quick look

What is computed goes line by line into runs/almanac/, in a folder for these weights and questions; what is there is
not computed again. Thresholds and query lengths are chosen on the development split.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.almanac.facts import Labelled
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.data import datasets
from dragin_lab.errors import DraginLabError
from dragin_lab.reference.rules import REFERENCE_METHODS
from dragin_lab.study import needs
from dragin_lab.trace.trace import Question, Trace
from tools.pages.almanac_page import SPARING, Results, write_page
from tools.pages.base import DOCS, RUNS, Row, kept_rows, parser, say
from tools.pages.queries import Asked, ask, formulators

FORMAT = 3  # of the lines below runs/almanac; another number starts anew
SHOTS = 2  # exemplars in a prompt: the model's context is short
NEW_TOKENS = 96
CHUNK = 20  # questions side by side, of one benchmark for every method, before the next ones: a stopped run is balanced
VARIANTS = ("reference", "paper")
TOP_NS = (5, 10, 15, 25)
THETAS = {
    "dragin": (0.5, 1.0, 1.5, 2.0, 2.5, 2.6, 2.7, 2.8, 2.9, 3.0, 3.5, 4.0),
    "dragin-paper": (0.1, 0.2, 0.4, 0.8, 1.2),
    "flare": (0.05, 0.1, 0.2, 0.4, 0.6),
    "flare-paper": (0.1, 0.2, 0.4, 0.6, 0.8),
}
WORDS_AT = {"dragin": 2.0, "dragin-paper": 0.4}  # θ at which lengths of QFS's queries are compared in DRAGIN's loop
METHODS = ("wo-rag", "sr-rag", "fl-rag", "fs-rag", "flare", "dragin", "dragin-sparing", "dragin-paper", "flare-paper")

TopN = dict[str, dict[str, int]]  # variant -> what -> words or tokens of a query
Tried = dict[Any, tuple[float, float]]  # setting -> exact match and retrievals on development


class Work:
    """The model, the passages and the folder of results."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.lm = dl.LanguageModel.load(given.model)
        self.cache = dl.Cache()
        self.given = given
        self.pipeline = load_pipeline()
        self.provenance = self.lm.provenance()
        self.retriever = dl.BM25(dl.Corpus.load())
        self.templates: dict[str, PromptTemplate] = {}
        self.labels: dict[tuple[str, str], list[Labelled]] = {}
        self.questions: dict[tuple[str, str], list[Question]] = {}
        for name in datasets.BENCHMARKS:
            shots = almanac.exemplars(name)[:SHOTS]
            self.templates[name] = datasets.template(name, shots)
            for split in ("dev", "test"):
                labelled = almanac.labels(name, split)
                asked = {q.id: q for q in datasets.load(f"almanac/{name}", split=split)}
                self.labels[name, split] = labelled
                self.questions[name, split] = [asked[one.qid] for one in labelled]
        read = repr((FORMAT, self.labels, self.templates, self.retriever.corpus.fingerprint)).encode()
        self.folder = given.output / f"{self.provenance['weights_sha256'][:12]}-{sha256(read).hexdigest()[:6]}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def each(self, name: str, items: Sequence[Any], work: Callable[[Any], Row]) -> list[Row]:
        """A row for each item; those that are in the file ``name`` are read, the others added to it."""
        return kept_rows(self.folder / f"{name}.jsonl", items, work)

    # -- when and what --------------------------------------------------------------------------------------------

    def when(self, split: str, limit: int) -> list[Row]:
        rows = []
        for name in datasets.BENCHMARKS:
            say(f"when: {name}, {split}, {limit} questions")
            template = self.templates[name]

            def work(one: Labelled, template: PromptTemplate = template) -> Row:
                facts, sentences = needs.forced_items(self.lm, one, template, self.pipeline)
                free, ended = needs.free_items(
                    self.lm, one, template, self.pipeline, almanac.wordings(), max_new_tokens=NEW_TOKENS
                )
                groups = {"facts": facts, "sentences": sentences, "free": free}
                plain = {key: [asdict(item) for item in items] for key, items in groups.items()}
                return {"qid": one.qid, "ended": ended, **plain}

            rows += self.each(f"when.{split}.{name}", self.labels[name, split][:limit], work)
        return rows

    def what(self, split: str, limit: int, methods: dict[str, Method], tag: str) -> list[Row]:
        rows = []
        for name in datasets.BENCHMARKS:
            say(f"what: {name}, {split}, {limit} questions")
            lab = dl.Lab(self.lm, retriever=self.retriever, exemplars=self.templates[name])

            def work(one: Labelled, lab: dl.Lab = lab) -> Row:
                found = ask(lab, one, methods)
                return {"qid": one.qid, "asked": {key: [asdict(a) for a in asked] for key, asked in found.items()}}

            rows += self.each(f"what.{split}.{tag}.{name}", self.labels[name, split][:limit], work)
        return rows

    def choose_top_n(self) -> TopN:
        """Words of a QFS query and tokens of last-n's, by variant: the best recall@3, then MRR, on development."""
        sized = ("qfs", "last-n")
        tried = {
            f"{variant} {what} {n}": formulators(variant, {what: n})[what]
            for variant in VARIANTS
            for what in sized
            for n in TOP_NS
        }
        rows = self.what("dev", self.given.dev_limit, tried, "top-n")
        values = {}
        for key in tried:
            asked = [Asked(**a) for row in rows for a in row["asked"][key]]
            values[key] = (fmean(a.recall for a in asked), fmean(a.reciprocal_rank for a in asked))
        return {
            v: {what: max(TOP_NS, key=lambda n, at=f"{v} {what}": (values[f"{at} {n}"], -n)) for what in sized}
            for v in VARIANTS
        }

    # -- methods --------------------------------------------------------------------------------------------------

    def method(self, key: str, theta: float | None, words: dict[str, int]) -> Method:
        name = key.removesuffix("-paper").removesuffix("-sparing")
        variant = "paper" if key.endswith("-paper") or name not in REFERENCE_METHODS else "reference"
        top_n = words.get(key.removesuffix("-sparing"))
        return dl.method(name, variant=variant, threshold=theta, top_n=top_n, max_new_tokens=NEW_TOKENS, top_k=3)

    def episodes(self, split: str, benchmark: str, limit: int, key: str, method: Method) -> list[Row]:
        lab = dl.Lab(self.lm, retriever=self.retriever, exemplars=self.templates[benchmark], cache=self.cache)
        asked = self.questions[benchmark, split][:limit]
        ahead: dict[str, Row] = {}  # answered side by side, and not yet kept

        def work(question: Question) -> Row:
            if question.id not in ahead:
                start = asked.index(question)
                traces = lab.ask_many(asked[start : start + CHUNK], method, batch_size=CHUNK)
                ahead.update((trace.question.id, prediction(trace)) for trace in traces)
            return ahead.pop(question.id)

        theta = "" if method.threshold is None else f".theta{method.threshold:g}"
        words = "" if method.formulator.name != "qfs" else f".n{method.top_n}"
        name = f"episodes.{split}.{benchmark}.{key}{theta}{words}"
        return self.each(name, asked, work)

    def on_development(self, key: str, methods: dict[Any, Method]) -> Tried:
        """Exact match and retrievals per question over all four development splits, by what is tried."""
        tried = {}
        self.cache.clear()
        for setting, method in methods.items():
            say(f"dev: {key}, θ {method.threshold:g}, {method.top_n} words")
            rows = [r for b in datasets.BENCHMARKS for r in self.episodes("dev", b, self.given.dev_limit, key, method)]
            tried[setting] = (fmean(r["em"] for r in rows), fmean(r["retrievals"] for r in rows))
        return tried

    def choose_words(self) -> dict[str, int]:
        """Words of DRAGIN's queries, by variant. What its loop asks at wordings counts too, unlike in ``what``."""
        lengths = {
            key: {n: self.method(key, theta, {key: n}) for n in TOP_NS} for key, theta in WORDS_AT.items()
        }  # fmt: skip
        return {key: best(self.on_development(key, methods)) for key, methods in lengths.items()}

    def test(self, methods: dict[str, Method]) -> dict[str, dict[str, list[Row]]]:
        """benchmark -> method -> rows."""
        limit = self.given.limit
        for reach in [*range(CHUNK, limit, CHUNK), limit]:
            for benchmark in datasets.BENCHMARKS:
                for key, method in methods.items():
                    self.episodes("test", benchmark, reach, key, method)
                say(f"test: {benchmark}, up to question {reach}")
                self.cache.clear()
        return {
            benchmark: {key: self.episodes("test", benchmark, limit, key, method) for key, method in methods.items()}
            for benchmark in datasets.BENCHMARKS
        }


def best(tried: Tried) -> Any:
    """The setting with the best exact match, then with the fewest retrievals."""
    return max(tried, key=lambda setting: (tried[setting][0], -tried[setting][1]))


def prediction(trace: Trace) -> Row:
    if trace.ended == "error":
        raise DraginLabError(f"question {trace.question.id} failed: {trace.error}")
    count = trace.counters
    return {
        "qid": trace.question.id,
        "question": trace.question.text,
        "text": trace.text,
        "answer": trace.answer,
        "gold": list(trace.question.golds),
        **trace.scores,
        "retrievals": count["retrievals"],
        "queries": trace.queries,
        "passages": [[p.id for p in s.passages] for s in trace.steps if s.query is not None],
        "drafts": count["drafts"],
        "tokens": count["generated"],
        "ended": trace.ended,
    }


def main() -> None:
    command = parser(__doc__)
    command.add_argument("--model", help="a folder or an id; default: the embedded model")
    command.add_argument("--limit", type=int, default=240, help="test questions a benchmark for the methods")
    command.add_argument(
        "--needs-limit", type=int, help="test questions a benchmark for when and what (default: --limit)"
    )
    command.add_argument(
        "--dev-limit", type=int, help="development questions a benchmark (default: 40, at most --limit)"
    )
    command.add_argument("--output", type=Path, default=RUNS / "almanac")
    command.add_argument("--page", type=Path, default=DOCS / "almanac.md")
    command.add_argument("--part", choices=("needs", "methods"), help="compute this part only, and write no page")
    given = command.parse_args()
    given.needs_limit = given.needs_limit or given.limit
    given.dev_limit = given.dev_limit or min(40, given.limit)

    work = Work(given)
    say(f"{work.lm!r}; results in {work.folder}")
    if given.part != "methods":
        dev_items = _items(work.when("dev", given.dev_limit), "facts")
        test_rows = work.when("test", given.needs_limit)
        top_n = work.choose_top_n()
        methods_of = {f"{v} {w}": m for v in top_n for w, m in formulators(v, top_n[v]).items()}
        asked = work.what(
            "test",
            given.needs_limit,
            methods_of,
            "all-" + "-".join(str(n) for of in top_n.values() for n in of.values()),
        )
    if given.part != "needs":
        words = work.choose_words()
        tried = {
            key: work.on_development(key, {theta: work.method(key, theta, words) for theta in grid})
            for key, grid in THETAS.items()
        }
        thetas = {key: best(found) for key, found in tried.items()}
        thetas["dragin-sparing"] = best({t: found for t, found in tried["dragin"].items() if found[1] <= SPARING})
        answered = work.test({key: work.method(key, thetas.get(key), words) for key in METHODS})
    if given.part is not None:
        return
    write_page(
        given.page,
        Results(
            model=work.provenance,
            passages=len(work.retriever.corpus),
            pipeline=work.pipeline.name,
            dev_limit=given.dev_limit,
            best=needs.best_thresholds(dev_items),
            facts=_items(test_rows, "facts"),
            sentences=_items(test_rows, "sentences"),
            free=_items(test_rows, "free"),
            ends=[row["ended"] for row in test_rows],
            lost=sum(len(row["free"]) for row in test_rows if row["ended"] == "lost"),
            asked={key: [Asked(**a) for row in asked for a in row["asked"][key]] for key in methods_of},
            top_n=top_n,
            words=words,
            thetas=thetas,
            tried=tried,
            answered=answered,
            labels={one.qid: one for (_, split), of in work.labels.items() if split == "test" for one in of},
        ),
    )
    say(f"wrote {given.page}")


def _items(rows: Sequence[Row], group: str) -> list[needs.Item]:
    return [needs.Item(**item) for row in rows for item in row[group]]


if __name__ == "__main__":
    main()
