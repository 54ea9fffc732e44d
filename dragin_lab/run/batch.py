"""Benchmarks: a method over a set of questions, recorded in a run directory that goes on by itself where it stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab import __version__
from dragin_lab.core.episode import Retriever
from dragin_lab.core.intervals import bootstrap
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.core.trace import Question, Trace
from dragin_lab.data import datasets
from dragin_lab.data.formats import PLAIN
from dragin_lab.data.templates import template_for
from dragin_lab.errors import SettingError
from dragin_lab.progress import Progress
from dragin_lab.run.drivers import run_many
from dragin_lab.run.endings import Elsewhere, Finished
from dragin_lab.run.rundir import CONFIG, FORMAT, Line, RunError, RunRecord, find_runs, finished_runs, read_run
from dragin_lab.run.runwriter import RunFolder, check_settings, refuse_duplicates

if TYPE_CHECKING:
    from dragin_lab.model.load import LanguageModel
    from dragin_lab.run.cache import Cache

__all__ = [
    "Benchmark",
    "RunError",
    "RunRecord",
    "find_runs",
    "finished_runs",
    "open_benchmark",
    "run_benchmark",
    "summary",
]

#: What ``summary`` gives the mean of.
MEASURES = ("em", "f1", "retrievals", "pieces")
_SPLITS = ("train", "dev", "test")
_SCORES = ("em", "f1", "precision", "recall")


@dataclass(frozen=True)
class Benchmark:
    """Questions with a name and the prompt they are asked with.

    ``template`` None is the model's own default. ``split``, ``limit`` and ``sample`` say how the questions were chosen.
    """

    name: str
    questions: tuple[Question, ...]
    template: PromptTemplate | None = None
    split: str | None = None
    limit: int | None = None
    sample: int | None = None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over ids, texts and gold answers, in order."""
        digest = sha256()
        for q in self.questions:
            digest.update(json.dumps([q.id, q.text, q.golds]).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"Benchmark({self.name}, {len(self.questions):,} questions)"


def open_benchmark(
    source: str | Path,
    *,
    exemplars: Iterable[Exemplar] | str | Path | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    split: str | None = None,
    layout: str = "dragin",
) -> Benchmark:
    """A benchmark with the paper's prompt for it; arguments and errors as for ``datasets.load`` and ``.template``.

    A file is called by its name, with its folder's where that says nothing ("dev"). One's own questions are asked with
    the model's own default prompt, where no ``exemplars`` are given. ``layout`` is one of ``prompts.LAYOUTS``.
    """
    questions = datasets.load(source, limit, split=split, sample=sample, seed=seed)
    kind = datasets.benchmark(source, split)
    name, part = _name(str(source), split)
    template = None
    if kind != PLAIN or exemplars is not None or layout != "dragin":
        template = datasets.template(str(source) if name.startswith("almanac/") else kind, exemplars)
        template = replace(template, layout=layout)
    return Benchmark(name, tuple(questions), template, part, limit, sample)


def as_benchmark(questions: Benchmark | str | Path | Iterable[str | Question], limit: int | None = None) -> Benchmark:
    """Whatever stands for questions, as a ``Benchmark``. Texts get their place, from 1, as id."""
    if isinstance(questions, Benchmark):
        return questions
    if isinstance(questions, str | Path):
        return open_benchmark(questions, limit=limit)
    asked = [q if isinstance(q, Question) else Question(str(i), q) for i, q in enumerate(questions, 1)][:limit]
    if not asked:
        raise SettingError("there are no questions; give at least one")
    return Benchmark("questions", tuple(asked), limit=limit)


def run_benchmark(
    method: Method,
    lm: LanguageModel | Elsewhere,
    retriever: Retriever | None,
    questions: Benchmark | str | Path | Iterable[str | Question],
    folder: str | Path,
    *,
    prompt: PromptTemplate | None = None,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 1,
    traces: bool = False,
    cache: Cache | None = None,
    progress: bool | str = True,
) -> RunRecord:
    """Answer every question with a method, and record each answer in a run directory as it is there.

    A folder that holds a part of this very run is taken up where it stopped; what failed is tried again. Interrupting
    loses the episodes under way and nothing else.

    Args:
        questions: a ``Benchmark``, what ``open_benchmark`` takes, or questions (texts get their place as id).
        folder: the run directory (see ``rundir``).
        prompt: default the benchmark's, else the model's own.
        limit: take the first so many questions only, where ``questions`` is no ``Benchmark``.
        seed: of sampled decoding.
        batch_size: episodes side by side (``run_many``).
        traces: keep every trace, in ``folder/traces``.
        cache: keeps what is written and serves it again (``cache``); the predictions are the same bytes without one.
        progress: a bar on a terminal or in a notebook, plain lines elsewhere; a text is its title.

    Raises:
        RunError: the folder holds another run, or another process writes it; two questions have one id.
        NotWrittenError, TraceFileError: it cannot be written; what was finished before is kept.
        SettingError: a method that retrieves without a retriever, a batch size that cannot be had.
    """
    asked = as_benchmark(questions, limit)
    title = progress if isinstance(progress, str) else f"{asked.name} {method.name}" if progress else ""
    options: dict[str, Any] = {"prompt": prompt, "seed": seed, "batch_size": batch_size, "cache": cache}
    with open_run(method, lm, retriever, asked, folder, title=title, traces=traces, **options) as answer:
        answer(None)
    return read_run(folder)


@contextmanager
def open_run(
    method: Method,
    lm: LanguageModel | Elsewhere,
    retriever: Retriever | None,
    asked: Benchmark,
    folder: str | Path,
    *,
    prompt: PromptTemplate | None = None,
    seed: int = 0,
    batch_size: int = 1,
    traces: bool = False,
    cache: Cache | None = None,
    title: str = "",
) -> Iterator[Callable[[int | None], None]]:
    """A run directory under way: call what it gives with n to answer the first n questions, with None for all.

    ``title`` is that of the progress, which is not shown without. For the rest see ``run_benchmark``.
    """
    template = template_for(method, lm, prompt or asked.template)
    config = run_config(method, lm, retriever, asked, template, seed=seed, traces=traces)
    options: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "cache": cache}

    def answer(upto: int | None) -> None:
        todo = [q for q in asked.questions[:upto] if q.id not in kept.done]
        earlier = list(kept.done.values())
        ended = finished(method, lm, retriever, todo, template, traces=traces, **options)
        for one in _shown(ended, title if todo else "", len(asked.questions), earlier):
            kept.add(*one)
        kept.finish()

    with RunFolder(folder, config, [q.id for q in asked.questions]) as kept:
        yield answer


def predict(
    method: Method,
    lm: LanguageModel | Elsewhere,
    retriever: Retriever | None,
    asked: Benchmark,
    *,
    prompt: PromptTemplate | None = None,
    seed: int = 0,
    batch_size: int = 1,
    cache: Cache | None = None,
    progress: bool | str = True,
) -> list[Line]:
    """The predictions of a run that no folder keeps, in the order of the questions; as ``run_benchmark``."""
    refuse_duplicates([q.id for q in asked.questions])
    template = template_for(method, lm, prompt or asked.template)
    options: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "cache": cache}
    ended = finished(method, lm, retriever, asked.questions, template, **options)
    title = progress if isinstance(progress, str) else f"{asked.name} {method.name}"
    lines = {one.line["qid"]: one.line for one in _shown(ended, title if progress else "", len(asked.questions))}
    return [lines[q.id] for q in asked.questions]


def _shown(ended: Iterable[Finished], title: str, total: int, earlier: Sequence[Line] = ()) -> Iterator[Finished]:
    """Every episode; progress is shown where there is a title, and something left to do."""
    if not title or len(earlier) == total:
        yield from ended
        return
    with Progress(title, total, earlier) as progress:
        for one in ended:
            yield one
            progress.add(one.line)


def check_run(
    method: Method,
    lm: LanguageModel | Elsewhere,
    retriever: Retriever | None,
    asked: Benchmark,
    folder: str | Path,
    *,
    prompt: PromptTemplate | None = None,
    seed: int = 0,
    traces: bool = False,
) -> None:
    """Raise ``RunError`` where the folder holds a run of other settings; nothing is written."""
    if (Path(folder).expanduser() / CONFIG).exists():
        template = template_for(method, lm, prompt or asked.template)
        check_settings(folder, run_config(method, lm, retriever, asked, template, seed=seed, traces=traces))


def run_config(
    method: Method,
    lm: LanguageModel | Elsewhere,
    retriever: Any,
    asked: Benchmark,
    template: PromptTemplate,
    *,
    seed: int = 0,
    traces: bool = False,
) -> dict[str, Any]:
    """What ``run.json`` says: everything needed to repeat a run, as plain data."""
    retriever = retriever if method.when != "never" else None
    model = dict(lm.provenance())
    # A cluster's workers name all libraries that they compute with; the process that writes may have others.
    computed_with = ("python", "torch", "transformers", "numpy", "spacy")
    versions = {key: model.pop(key) for key in computed_with if key in model}
    describe = getattr(retriever, "provenance", None)
    return {
        "format": FORMAT,
        "method": method.settings,
        "model": model,
        "retriever": None if retriever is None else describe() if describe else {"kind": type(retriever).__name__},
        "template": {f.name: getattr(template, f.name) for f in fields(template) if f.compare}
        | {"exemplars": [asdict(exemplar) for exemplar in template.exemplars]},
        "dataset": {
            "name": asked.name,
            "split": asked.split,
            "questions": len(asked.questions),
            "fingerprint": asked.fingerprint,
        },
        "seed": seed,
        "limit": asked.limit,
        "sample": asked.sample,
        "traces": traces,
        "device": model.pop("device", None),
        "versions": {"dragin_lab": __version__, "numpy": version("numpy"), "spacy": version("spacy")} | versions,
    }


def finished(
    method: Method,
    lm: LanguageModel | Elsewhere,
    retriever: Retriever | None,
    questions: Iterable[Question],
    prompt: PromptTemplate,
    *,
    traces: bool = False,
    **options: Any,
) -> Iterator[Finished]:
    """What is kept of each episode as it ends, here (``run_many`` with these options) or wherever ``lm`` answers."""
    if isinstance(lm, Elsewhere):
        if options.pop("cache", None) is not None:
            raise SettingError("a cache serves one process, and a cluster has many; leave the cache out")
        return lm.finish(method, retriever, questions, prompt, {"traces": traces} | options)
    found = run_many(method, lm, retriever, questions, prompt=prompt, **options)
    return (kept_of(trace, traces) for trace in found)


# -- lines ------------------------------------------------------------------------------------------------------------


def kept_of(trace: Trace, traces: bool = False) -> Finished:
    """What is kept of a trace: its lines, and itself with ``traces``."""
    return Finished(prediction(trace), timing(trace), trace if traces else None)


def prediction(trace: Trace) -> Line:
    """The line of ``predictions.jsonl``: what was answered and what it took, and nothing that changes from run to run.

    ``passages`` holds the ids found by each retrieval, ``pieces`` counts all that were generated. The scores are None
    without a gold answer and where the episode failed; ``error`` is there only then.
    """
    count = trace.counters
    line = {
        "qid": trace.question.id,
        "question": trace.question.text,
        "text": trace.text,
        "answer": trace.answer,
        "gold": list(trace.question.golds),
        **{name: trace.scores.get(name) for name in _SCORES},
        "retrievals": count["retrievals"],
        "queries": trace.queries,
        "passages": [[p.id for p in step.passages] for step in trace.steps if step.query is not None],
        "drafts": count["drafts"],
        "pieces": count["generated"],
        "ended": trace.ended,
    }
    return line | ({"error": trace.error} if trace.ended == "error" else {})


def timing(trace: Trace) -> Line:
    """The line of ``timings.jsonl``: seconds in all and by kind of request, and what did not have to be made anew.

    ``reused`` counts prompt pieces; ``stored_drafts`` and ``stored_pieces`` count what a cache served.
    """
    spent = {kind: sum(step.seconds.get(kind, 0.0) for step in trace.steps) for kind in ("draft", "attend", "search")}
    stored = {f"stored_{name}": count for name, count in trace.stored.items()}
    return {"qid": trace.question.id, "seconds": trace.seconds, **spent, "reused": trace.counters["reused"], **stored}


def summary(predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means of ``MEASURES`` with their 95 % intervals: ``n``, ``em``, ``em_low``, ``em_high`` and so on.

    ``n`` counts the episodes that did not fail; em and f1 are over those of them that have gold answers. NaN where
    there is nothing to take the mean of.
    """
    sound = [line for line in predictions if line["ended"] != "error"]
    found: dict[str, float] = {"n": len(sound)}
    for name in MEASURES:
        values = [line[name] for line in sound if line[name] is not None]
        mean = bootstrap(values) if values else None
        for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high")):
            found[name + suffix] = float("nan") if mean is None else getattr(mean, part)
    return found


# -- small things -----------------------------------------------------------------------------------------------------


def _name(source: str, split: str | None) -> tuple[str, str | None]:
    """What a source is called in tables and paths, and which split it is where that is known."""
    if source.startswith("almanac/") and source.removeprefix("almanac/") in datasets.BENCHMARKS:
        return source + (f"-{split}" if split else ""), split or "test"
    path = datasets.find(source, split)
    part = next((part for part in re.split(r"[^a-z]+", path.stem.lower()) if part in _SPLITS), None)
    if source in datasets.BENCHMARKS:
        return source, part
    stem = path.name.split(".")[0]
    return (f"{path.resolve().parent.name}-{stem}" if stem in _SPLITS else stem), part
