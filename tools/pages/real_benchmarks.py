"""Every method of the paper's Table 1 with SmolLM2 on the paper's four benchmarks, for docs/real-model.md.

    python -m tools.pages.real_benchmarks                       100 questions each; resumed where it was stopped
    python -m tools.pages.real_benchmarks --part hotpotqa       one benchmark only; two may run side by side
    python -m tools.pages.real_benchmarks --questions 20
    python -m tools.pages.real_benchmarks --page                write the section from what is answered so far

Questions and passages are those of ``DRAGIN_LAB_DATA``, the model that of ``make real``. Every run is a run directory
``OUTPUT/<benchmark>/<method>``. All methods answer ``BLOCK`` questions before the next ones, so that a run that was
stopped has answered the same questions with each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import spacy

import dragin_lab as dl
from dragin_lab.core.method import Method
from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.data import datasets
from dragin_lab.run.benchmark import Benchmark, open_benchmark, open_run
from dragin_lab.run.cache import Cache
from dragin_lab.run.lines import MEASURES, Line, interval_of, summary
from dragin_lab.run.rundir import read_run
from dragin_lab.served.opening import open_model
from dragin_lab.study.comparisons import paired
from dragin_lab.trace.trace import Passage
from tools import real
from tools.pages.base import DOCS, RUNS, Row, bracketed, fill_template, markdown_table, parser, put_between, say

OUTPUT = RUNS / "real" / "benchmarks"
QUESTIONS = 100  # of each benchmark
BLOCK = 10  # as many are written side by side
DTYPE = "bfloat16"  # what the model was trained in; half of float32's time where the processor has it
TABLE_1 = ("wo-rag", "sr-rag", "fl-rag", "fs-rag", "flare", "dragin")
CEILING = "gold"
END_MARK = "<|im_end|>"  # of the model's chat template; the released code decodes it into the text
CACHED = 2**28  # bytes of drafts and attention maps
MOST_GOLD = 25  # passages; a question of StrategyQA has up to 23
TITLES = {
    "2wikimultihopqa": "2WikiMultihopQA",
    "hotpotqa": "HotpotQA",
    "strategyqa": "StrategyQA",
    "iirc": "IIRC",
}


# -- the methods ------------------------------------------------------------------------------------------------------


def label_of(name: str, variant: str) -> str:
    """What a method's runs and rows are called."""
    return name if variant == "paper" else f"{name}, {variant}"


def methods(pipeline: Pipeline | None = None) -> dict[str, Method]:
    """All methods by their label, with the package's own settings; the ceiling is SR-RAG that finds gold passages."""
    every = {
        label_of(name, variant): dl.method(name, variant=variant, nlp=pipeline)
        for name in TABLE_1
        for variant in ("paper", "reference")
    }
    return every | {CEILING: dl.method("sr-rag", variant="paper", top_k=MOST_GOLD, nlp=pipeline)}


class GoldPassages:
    """A retriever that answers a question with the passages that support its answer, and anything else with none.

    IIRC's questions are asked about a passage, and its gold evidence lies in others, so both are in the answer.
    """

    def __init__(self, benchmark: str, questions: Sequence[dl.Question], corpus: dl.Corpus) -> None:
        lines = (datasets.data_folder() / "passages" / "gold.jsonl").read_text(encoding="utf-8").splitlines()
        ids = {row["id"]: row["passages"] for row in map(json.loads, lines) if row["dataset"] == benchmark}
        asked_about = dict(_passages_of_iirc()) if benchmark == "iirc" else {}
        self.by_question = {
            question.text: asked_about.get(question.id, []) + [corpus.get(name) for name in ids[question.id]]
            for question in questions
        }

    def search(self, query: str, k: int) -> list[Passage]:
        """The gold passages of a question."""
        return self.by_question.get(query, [])[:k]

    def provenance(self) -> dict[str, str]:
        """What tells it from other gold passages."""
        found = [[question, [p.text for p in passages]] for question, passages in sorted(self.by_question.items())]
        return {"kind": "gold passages", "sha256": sha256(json.dumps(found).encode()).hexdigest()}


def _passages_of_iirc() -> Iterator[tuple[str, list[Passage]]]:
    """Question id -> the passage that the question is about."""
    for row in json.loads((datasets.data_folder() / "iirc" / "dev.json").read_text(encoding="utf-8")):
        for question in row["questions"]:
            yield question["qid"], [Passage(row["pid"], "", " ".join(row["text"].split()))]


# -- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """The model, the passages and where the runs are."""

    output: Path
    engine: str

    @cached_property
    def lab(self) -> dl.Lab:
        """The model over all passages. A draft that two methods share in a block is written once."""
        loading: dict[str, Any] = {"engine": "llama.cpp"} if self.engine == "llama.cpp" else {"dtype": DTYPE}
        corpus = dl.Corpus.load(datasets.data_folder() / "passages" / "psgs_w100.tsv.gz")
        model = open_model(str(real.language_model()), **loading)  # before any lab is made of this one: all share it
        return dl.Lab(model, retriever=dl.BM25(corpus), cache=Cache(limit=CACHED))

    def lab_for(self, label: str, asked: Benchmark) -> dl.Lab:
        """The lab with the benchmark's prompt, and for the ceiling with its gold passages."""
        lab = self.lab.replace(exemplars=asked.template)
        if label != CEILING:
            return lab
        return lab.replace(retriever=GoldPassages(asked.name, asked.questions, self.lab.retriever.corpus))

    def answer(self, benchmarks: Sequence[str], questions: int) -> None:
        """Answer the questions by every method, block by block."""
        pipeline = load_pipeline(spacy.load(real.ENGLISH.folder))
        with ExitStack() as stack:
            stack.callback(self.lab.close)
            runs = []
            for name in benchmarks:
                asked = open_benchmark(name, limit=questions)
                for label, method in methods(pipeline).items():
                    folder = self.output / name / label.replace(", ", "-")
                    lab = self.lab_for(label, asked)
                    run = stack.enter_context(open_run(lab, method, asked, folder, batch_size=BLOCK))
                    runs.append((name, label, run))
            for upto in [*range(BLOCK, questions, BLOCK), questions]:
                begun = time.monotonic()
                for name, label, run in runs:
                    lines = run(upto)
                    failed = sum(line["ended"] == "error" for line in lines)
                    say(f"{name} {label}: {len(lines)} answered" + f", {failed} failed" * (failed > 0))
                say(f"{upto} questions of each, the last {BLOCK} in {(time.monotonic() - begun) / 60:.0f} minutes")


# -- the section ------------------------------------------------------------------------------------------------------


def read_lines(output: Path) -> dict[str, dict[str, list[Line]]]:
    """Benchmark -> method -> its lines on the questions that every method has answered, in one order."""
    answered = {}
    for name in TITLES:
        folders = {label: output / name / label.replace(", ", "-") for label in methods()}
        if not all((folder / "run.json").is_file() for folder in folders.values()):
            continue
        lines = {label: {x["qid"]: x for x in read_run(folder).predictions} for label, folder in folders.items()}
        shared = set.intersection(*(set(of) for of in lines.values()))
        if shared:
            answered[name] = {label: [of[qid] for qid in sorted(shared)] for label, of in lines.items()}
    return answered


def result_table(lines: Mapping[str, Sequence[Line]]) -> str:
    """One benchmark: a row a method."""
    rows = []
    for label, of in lines.items():
        means = summary(of)
        cells = [bracketed(means[m], means[f"{m}_low"], means[f"{m}_high"], digits=2) for m in MEASURES[:3]]
        rows.append((f"`{label}`", *cells, f"{means['tokens']:.0f}"))
    return markdown_table(("method", "EM", "F1", "retrievals", "tokens"), rows)


def pool(answered: Mapping[str, Mapping[str, Sequence[Line]]], label: str, measure: str) -> list[float]:
    """A measure of a method over all questions of all benchmarks, in one order."""
    return [line[measure] for lines in answered.values() for line in lines[label]]


def pooled_table(answered: Mapping[str, Mapping[str, Sequence[Line]]]) -> str:
    """Over all benchmarks: F1, and what of it is more than without a retrieval in the same variant."""
    rows = []
    for label in methods():
        alone = label_of("wo-rag", "reference" if label.endswith("reference") else "paper")
        scores, base = pool(answered, label, "f1"), pool(answered, alone, "f1")
        mean, more = interval_of("f1", scores), paired(scores, base, scores=True)
        against = "" if label == alone else bracketed(more.difference, more.low, more.high, sign=True)
        retrievals = sum(pool(answered, label, "retrievals")) / len(scores)
        rows.append((f"`{label}`", bracketed(mean.mean, mean.low, mean.high), against, f"{retrievals:.2f}"))
    return markdown_table(("method", "F1", "more than `wo-rag`", "retrievals"), rows)


def compare(answered: Mapping[str, Mapping[str, Sequence[Line]]], first: str, second: str) -> str:
    """What two methods' F1 says of their order over all questions."""
    test = paired(pool(answered, first, "f1"), pool(answered, second, "f1"), scores=True)
    clear = test.low > 0 or test.high < 0
    said = ("ahead of" if test.difference > 0 else "behind") if clear else "not clearly apart from"
    return f"`{first}` is {said} `{second}` (F1 {bracketed(test.difference, test.low, test.high, sign=True)})"


def count_marks(answered: Mapping[str, Mapping[str, Sequence[Line]]], label: str) -> str:
    """In how many of a method's texts a chat's end mark stands."""
    texts = [line["text"] for lines in answered.values() for line in lines[label]]
    return f"{sum(END_MARK in text for text in texts)} of {len(texts)} texts of `{label}`"


#: Whose F1 is compared in a sentence.
PAIRS = (
    (CEILING, "wo-rag"), (CEILING, "dragin"), ("dragin", "sr-rag"), ("dragin", "fs-rag"),
    ("dragin", "dragin, reference"), ("flare", "flare, reference"),
)  # fmt: skip


def write_section(answered: Mapping[str, Mapping[str, Sequence[Line]]], engine: str) -> str:
    """The section of docs/real-model.md, with all of its sentences."""
    if not answered:
        return "\nNo question has been answered by every method yet; `python -m tools.pages.real_benchmarks` does.\n\n"
    counts: Row = {name: len(lines[CEILING]) for name, lines in answered.items()}
    section = fill_template(
        "real_benchmarks.md.jinja",
        engine=engine,
        dtype=DTYPE,
        counts=", ".join(f"{count} of {TITLES[name]}" for name, count in counts.items()),
        planned=QUESTIONS,
        complete=len(counts) == len(TITLES) and min(counts.values()) >= QUESTIONS,
        total=sum(counts.values()),
        pooled=pooled_table(answered),
        findings=[compare(answered, *pair) for pair in PAIRS],
        end_mark=END_MARK,
        marked=[count_marks(answered, label) for label in ("dragin, reference", "dragin")],
        ceilings={TITLES[name]: summary(lines[CEILING])["em"] for name, lines in answered.items()},
        alone={TITLES[name]: summary(lines["wo-rag"])["em"] for name, lines in answered.items()},
        tables={TITLES[name]: result_table(lines) for name, lines in answered.items()},
    )
    return f"{section}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--questions", type=int, default=QUESTIONS, help="of each benchmark")
    options.add_argument("--part", nargs="+", choices=list(TITLES), default=list(TITLES), help="these benchmarks only")
    options.add_argument("--engine", choices=("transformers", "llama.cpp"), default="transformers")
    options.add_argument("--output", type=Path, default=OUTPUT)
    options.add_argument("--page", action="store_true", help="write the section from what is answered so far")
    given = options.parse_args(arguments)
    if given.page:
        put_between(DOCS / "real-model.md", "benchmarks", write_section(read_lines(given.output), given.engine))
    else:
        Asked(given.output, given.engine).answer(given.part, given.questions)


if __name__ == "__main__":
    main()
