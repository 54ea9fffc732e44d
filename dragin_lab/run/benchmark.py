"""Benchmarks: a method over a set of questions, recorded in a run directory that can be completed later."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dragin_lab import __version__
from dragin_lab.core.episode import Retriever
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.core.trace import Question
from dragin_lab.data import datasets
from dragin_lab.data.formats import PLAIN
from dragin_lab.data.templates import template_for
from dragin_lab.errors import SettingError
from dragin_lab.progress import Progress
from dragin_lab.run.drivers import run_many
from dragin_lab.run.lines import Finished, Line, record_of
from dragin_lab.run.rundir import CONFIG, FORMAT, RunRecord, read_run
from dragin_lab.run.runwriter import RunFolder, RunInMemory, check_settings
from dragin_lab.run.serving import described

if TYPE_CHECKING:
    from dragin_lab.model.load import LanguageModel
    from dragin_lab.run.cache import Cache

_SPLITS = ("train", "dev", "test")


@runtime_checkable
class Elsewhere(Protocol):
    """Answers questions somewhere else (``cluster.Cluster``)."""

    @property
    def embedded(self) -> bool:
        """Whether its model is the one that the package brings."""

    def provenance(self) -> dict[str, Any]:
        """As ``LanguageModel.provenance``."""

    def finish(
        self, method: Method, retriever: Any, questions: Iterable[Question], prompt: PromptTemplate,
        options: dict[str, Any],
    ) -> Iterator[Finished]:  # fmt: skip
        """What is recorded of each episode as it ends; ``options`` are those of ``finished``."""


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
        return self.fingerprint_of(len(self.questions))

    def fingerprint_of(self, first: int) -> str:
        """The fingerprint of the first so many questions."""
        digest = sha256()
        for q in self.questions[:first]:
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
    traces: bool | None = None,
    cache: Cache | None = None,
    progress: bool | str = True,
) -> RunRecord:
    """Answer every question with a method, and record each answer in a run directory as soon as it is known.

    A folder that holds a part of this very run is completed, also one of fewer questions (``limit``); what failed is
    tried again. An interrupt loses the
    episodes under way and nothing else.

    Args:
        questions: a ``Benchmark``, what ``open_benchmark`` takes, or questions (texts get their place as id).
        folder: the run directory (see ``rundir``).
        prompt: default the benchmark's, else the model's own.
        limit: take only the first so many questions, where ``questions`` is not a ``Benchmark``.
        seed: of sampled decoding.
        batch_size: episodes side by side (``run_many``).
        traces: None keeps slim traces in ``folder/traces`` up to ``runwriter.TRACE_SPACE`` bytes; True keeps every
            one, in full, those of a finished run too, which are then answered again (from the cache where it has them);
            False keeps none.
        cache: serves what was written before; the predictions are the same bytes without one.
        progress: a bar on a terminal or in a notebook, plain lines elsewhere; a text is its title.

    Raises:
        RunError: the folder holds another run, or another process writes it; two questions have one id.
        NotWrittenError, TraceFileError: it cannot be written; what was finished before is in it.
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
    folder: str | Path | None,
    *,
    prompt: PromptTemplate | None = None,
    seed: int = 0,
    batch_size: int = 1,
    traces: bool | None = None,
    cache: Cache | None = None,
    title: str = "",
) -> Iterator[Callable[[int | None], list[Line]]]:
    """A run under way: call what this yields with n to answer the first n questions, with None for all.

    It returns the predictions so far, in the order of the questions. ``folder`` None records them in memory alone.
    Progress is shown under ``title``, and not without one. For the rest see ``run_benchmark``.
    """
    template = template_for(method, lm, prompt or asked.template)
    options: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "cache": cache}
    qids = [q.id for q in asked.questions]

    def answer(upto: int | None) -> list[Line]:
        todo = [q for q in asked.questions[:upto] if q.id not in run.done or run.lacks_trace(q.id)]
        earlier = list(run.done.values())
        ended = finished(method, lm, retriever, todo, template, traces=traces, **options)
        for one in _shown(ended, title if todo else "", len(qids), earlier):
            run.add(*one)
        run.finish()
        return [run.done[qid] for qid in qids if qid in run.done]

    run: RunInMemory | RunFolder = RunInMemory(qids)
    if folder is not None:
        config = run_config(method, lm, retriever, asked, template, seed=seed, traces=traces)
        run = RunFolder(folder, config, qids, traces=traces, grown=asked.fingerprint_of)
    with run:
        yield answer


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
    traces: bool | None = None,
) -> None:
    """Raise ``RunError`` where the folder holds a run of other settings; nothing is written."""
    if (Path(folder).expanduser() / CONFIG).exists():
        template = template_for(method, lm, prompt or asked.template)
        config = run_config(method, lm, retriever, asked, template, seed=seed, traces=traces)
        check_settings(folder, config, asked.fingerprint_of)


def run_config(
    method: Method,
    lm: LanguageModel | Elsewhere,
    retriever: Any,
    asked: Benchmark,
    template: PromptTemplate,
    *,
    seed: int = 0,
    traces: bool | None = None,
) -> dict[str, Any]:
    """What ``run.json`` says: everything needed to repeat a run, as plain data."""
    retriever = retriever if method.retrieves else None
    model = dict(lm.provenance())
    # A cluster's workers name all libraries that they compute with; the process that writes may have others.
    computed_with = ("python", "torch", "transformers", "numpy", "spacy")
    versions = {key: model.pop(key) for key in computed_with if key in model}
    return {
        "format": FORMAT,
        "method": method.settings,
        "model": model,
        "retriever": described(retriever),
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
    traces: bool | None = None,
    **options: Any,
) -> Iterator[Finished]:
    """What is recorded of each episode as it ends: here (by ``run_many``), or wherever ``lm`` answers."""
    if isinstance(lm, Elsewhere):
        if options.pop("cache", None) is not None:
            raise SettingError("a cache serves one process, and a cluster has many; leave the cache out")
        return lm.finish(method, retriever, questions, prompt, {"traces": traces} | options)
    found = run_many(method, lm, retriever, questions, prompt=prompt, **options)
    return (record_of(trace, traces) for trace in found)


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
