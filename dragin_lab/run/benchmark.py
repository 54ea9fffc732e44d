"""Benchmarks: a method over a set of questions, recorded in a run directory that can be
completed later.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from importlib.metadata import version
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from dragin_lab import __version__, almanac
from dragin_lab.checks import EMBEDDED, count, several, shown
from dragin_lab.core.fingerprint import digest, say_unknown
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.data import datasets
from dragin_lab.data.benchmarks import is_own
from dragin_lab.data.exemplars import among_exemplars, say_among
from dragin_lab.data.questions import PLAIN
from dragin_lab.data.tabular import HUB
from dragin_lab.errors import RunError, SettingError, explain
from dragin_lab.files import as_path
from dragin_lab.progress import Progress
from dragin_lab.run.batches import ask_many
from dragin_lab.run.rundir import CONFIG, FORMAT, Facts, Folder, Line, read_config
from dragin_lab.run.runwriter import Finished, RunFolder, check_settings, record_of
from dragin_lab.run.setup import Setup, describe_model, describe_retriever
from dragin_lab.text import facts_html
from dragin_lab.trace.records import hash_questions
from dragin_lab.trace.trace import Question
from dragin_lab.warning import warn

_QUESTIONS = (
    "give a benchmark, or a list of texts, of Question or of dictionaries with question and answer"
)
_SPLITS = ("train", "dev", "test")
#: Questions in a row whose search fails with the same error before a run stops.
EQUAL_FAILURES = 5


@dataclass(frozen=True)
class Benchmark:
    """Questions with a name and the prompt they are asked with.

    The name is part of the path of a run, so it may hold "/" and may not lead out of a folder.
    ``template`` None is the model's own default. ``kind`` is which benchmark's format they have
    (``datasets.BENCHMARKS``, or "plain").
    """

    name: str
    questions: tuple[Question, ...]
    template: PromptTemplate | None = None
    split: str | None = None
    limit: int | None = None
    sample: int | None = None
    kind: str = PLAIN

    def __post_init__(self) -> None:
        path = PurePosixPath(self.name)
        if (
            not self.name.strip("./ ")
            or path.is_absolute()
            or ".." in path.parts
            or set(self.name) & set("\\\0")
        ):
            raise SettingError(
                f"a benchmark cannot be called {self.name!r}; the name is part of the path of its"
                " runs"
            )

    def fingerprint(self, first: int | None = None) -> str:
        """SHA-256 (hex) over ids, texts and gold answers, in order, of the first questions or
        all.
        """
        return hash_questions(self.questions[:first])

    def among(self, exemplars: Iterable[Exemplar]) -> list[str]:
        """The ids of its questions that are asked in worked examples too."""
        return among_exemplars(
            ((q.id, q.text) for q in self.questions), (exemplar.question for exemplar in exemplars)
        )

    def __repr__(self) -> str:
        return f"Benchmark({self.name}, {len(self.questions):,} questions)"

    def _repr_html_(self) -> str:
        first = " · ".join(question.text for question in self.questions[:3])
        return facts_html(repr(self), {"begins with": first})


def benchmark(
    source: Any,
    *,
    exemplars: Iterable[Exemplar] | str | Path | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    split: str | None = None,
    fields: str | Mapping[str, str] | None = None,
) -> Benchmark:
    """A benchmark with the paper's prompt for it; arguments and errors as for
    ``datasets.load_questions`` and ``.build_template``.

    A file is called by its name, with its folder's where that says nothing ("dev"); rows that are
    in no file, and lists of texts, are called "questions". Your own questions are asked with the
    model's own default prompt, where no ``exemplars`` are given.
    """
    questions = datasets.load_questions(
        source, limit, split=split, sample=sample, seed=seed, fields=fields
    )
    kind = datasets.name_benchmark(source, split)
    name, in_split = (
        _name_source(str(source), split) if isinstance(source, str | Path) else ("questions", None)
    )
    template = None
    if kind != PLAIN or exemplars is not None:
        template = datasets.build_template(
            str(source) if name.startswith("almanac/") else kind, exemplars
        )
    return Benchmark(name, tuple(questions), template, in_split, limit, sample, kind)


def as_benchmark(
    questions: Any, limit: int | None = None, fields: str | Mapping[str, str] | None = None
) -> Benchmark:
    """Whatever stands for questions, as a ``Benchmark``: what ``benchmark`` takes, texts or
    ``Question`` objects.

    Texts get their place, from 1, as id. Raises ``SettingError`` for ``fields`` of what has none.
    """
    limit = None if limit is None else count("limit", limit)
    # A DataFrame or data set would iterate into something else.
    tables = ("columns", "column_names", "__arrow_c_stream__")
    rows = isinstance(questions, str | Path) or any(hasattr(questions, name) for name in tables)
    if not (rows or isinstance(questions, Benchmark)):
        if limit is not None and isinstance(questions, Iterator):  # it may have no end
            questions = islice(questions, limit)
        questions = several("questions", questions, str | Question | Mapping, _QUESTIONS)
        rows = bool(questions) and isinstance(questions[0], Mapping)
    if rows:
        return benchmark(questions, limit=limit, fields=fields)
    if fields is not None:
        remedy = "leave it out, or give rows or a file"
        raise SettingError(f"fields={shown(fields)}: these questions have no columns; {remedy}")
    if isinstance(questions, Benchmark):
        if limit is None:
            return questions
        return replace(questions, questions=questions.questions[:limit], limit=limit)
    several("questions", questions, str | Question, _QUESTIONS)
    asked = []
    for place, item in enumerate(questions[:limit], 1):
        asked.append(item if isinstance(item, Question) else Question(str(place), item))
    if not asked:
        raise SettingError("there are no questions; give at least one")
    return Benchmark("questions", tuple(asked), limit=limit)


@contextmanager
def open_run(
    setup: Setup,
    method: Method,
    asked: Benchmark,
    folder: Folder,
    *,
    batch_size: int = 1,
    traces: bool | None = None,
    title: str = "",
) -> Iterator[Callable[[int | None], list[Line]]]:
    """A run under way: call what this yields with n to answer the first n questions, with None for
    all.

    It returns the predictions so far, in the order of the questions. ``folder`` None records them
    in memory alone. Progress is shown under ``title``, and not without one. ``RunError``
    where every search fails.
    """
    setup = take_day(setup, folder)
    template = setup.template(method, asked.template)
    method = replace(method, looked=method.described)  # once, not at each question
    template = replace(template, looked=template.described)
    for line in say_unknown({**method.described, **template.described}):
        warn(f"{line}; a run that goes on cannot tell it from another")
    asking = replace(setup, prompt=template)
    if among := asked.among(template.exemplars):
        warn(f"{say_among(among)}: {', '.join(among)[:80]}")
    ids = [q.id for q in asked.questions]
    server = getattr(getattr(setup.model, "server", None), "address", None)

    def answer(upto: int | None) -> list[Line]:
        todo = [q for q in asked.questions[:upto] if q.id not in run.done or run.lacks_trace(q.id)]
        ended = record_episodes(asking, method, todo, traces=traces, batch_size=batch_size)
        bar: Any = nullcontext()
        if title and todo and len(run.done) < len(ids):
            bar = Progress(title, len(ids), run.done.values())
        with bar as progress:
            for finished in _while_servers_answer(ended, len(todo), server):
                run.add(*finished)
                if progress is not None:
                    progress.add(finished.line)
        run.finish()
        return [run.done[id] for id in ids if id in run.done]

    config = {} if folder is None else run_config(asking, method, asked, traces=traces)
    with RunFolder(folder, config, ids, traces=traces, grown=asked.fingerprint) as run:
        try:
            yield answer
        except KeyboardInterrupt as interrupt:
            kept = "nothing is kept, as no folder was given"
            if folder is not None:
                kept = (
                    f"{len(run.done):,} of {len(ids):,} answers are kept in {folder}; the same"
                    " call goes on from there"
                )
            interrupt.kept = (*getattr(interrupt, "kept", ()), kept)  # type: ignore[attr-defined]  # of several runs
            explain(interrupt, "\n".join(dict.fromkeys(interrupt.kept)))  # type: ignore[attr-defined]
            raise


def _while_servers_answer(
    ended: Iterable[Finished], count: int, server: str | None
) -> Iterator[Finished]:
    """The ``count`` episodes; ``RunError`` once ``EQUAL_FAILURES`` in a row failed alike.

    That is in a search, or by an error that names the address of the model ``server``.
    """
    last: deque[str | None] = deque(maxlen=EQUAL_FAILURES)
    for number, finished in enumerate(ended, 1):
        yield finished
        passages = finished.line["passages"]
        error = finished.line.get("error")
        if not (passages and not passages[-1]) and not (server and server in (error or "")):
            error = None  # the question's own, not a server's
        last.append(error)
        if error is not None and last.count(error) == EQUAL_FAILURES and number < count:
            raise RunError(
                f"stopped, as the last {EQUAL_FAILURES} questions failed with the same error:"
                f" {error}; what was answered is kept; run it again when the server answers",
                begun=True,
            )


def run_label(method: Method, retriever: str | None = None) -> str:
    """The label, and after it the retriever that was asked for by name, where it is not plain
    BM25 and is searched.
    """
    if retriever in (None, "bm25") or not method.retrieves:
        return method.label
    assert retriever is not None
    kind, _, address = retriever.partition(":")
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", address.rstrip("/").rpartition("/")[2]).strip("-")
    return "-".join([method.label, kind] + [short] * bool(short))


def find_folders(
    setup: Setup,
    methods: Sequence[Method],
    asked: Benchmark,
    output: str | Path,
    traces: bool | None = None,
) -> list[Path]:
    """Where each method's run is kept below ``output``: by the name of its questions, then by what
    it is called.

    Raises ``RunError`` where a folder holds a run of other settings; nothing is written.
    """
    labels = [run_label(method, setup.retriever_spec) for method in methods]
    folders = [as_path(output, local=True) / asked.name / label for label in labels]
    for method, folder in zip(methods, folders, strict=True):
        if (folder / CONFIG).exists():
            config = run_config(take_day(setup, folder), method, asked, traces=traces)
            check_settings(folder, config, asked.fingerprint)
    return folders


def take_day(setup: Setup, folder: Folder) -> Setup:
    """The setup with the day that a run in this folder was begun on, where its prompts write
    one.
    """
    path = None if folder is None else as_path(folder, local=True)
    if path is None or not (path / CONFIG).exists():
        return setup
    day = read_config(path)["template"].get("day")
    return replace(setup, day=day) if day else setup


def finds_nothing(setup: Setup, asked: Benchmark) -> bool:
    """Whether Almanac's passages are searched for questions of a benchmark that are not
    Almanac's.
    """
    if asked.kind == PLAIN or describe_retriever(setup.retriever).get("corpus") != EMBEDDED:  # type: ignore[union-attr]
        return False
    texts = {q.text for split in _SPLITS for q in almanac.questions(asked.kind, split)}
    return not any(q.text in texts for q in asked.questions)


def run_config(
    setup: Setup, method: Method, asked: Benchmark, *, traces: bool | None = None
) -> Facts:
    """What ``run.json`` says: everything needed to repeat a run, as plain data."""
    model = describe_model(setup.model)
    template = setup.template(method, asked.template)
    retriever: Any = setup.retriever_for(method)
    described = {**method.described, **template.described}
    not_known = say_unknown(described)
    searched = describe_retriever(retriever)
    if index := getattr(retriever, "described", ""):
        described[f"retriever {retriever.name}"] = index
        searched = {**(searched or {}), "defined": digest(index)}
        not_known.append(f"retriever {retriever.name}: what its index holds is not known")
    # A cluster's workers name all libraries that they compute with; the process that writes may
    # have others.
    computed_with = ("python", "torch", "transformers", "numpy", "spacy")
    chat = model.pop("chat_template", "")
    versions = {key: model.pop(key) for key in computed_with if key in model}
    return {
        "format": FORMAT,
        "method": method.settings,
        "model": model,
        "retriever": searched,
        "template": (
            {f.name: getattr(template, f.name) for f in fields(template) if f.compare}
            | template.settings
            | {"exemplars": [asdict(exemplar) for exemplar in template.exemplars]}
            | ({"chat_template": chat} if template.layout == "chat" or template.shape.task else {})
            | ({"chosen": template.chosen} if template.chosen else {})
        ),
        "dataset": {
            "name": asked.name,
            "split": asked.split,
            "kind": asked.kind,
            "questions": len(asked.questions),
            "fingerprint": asked.fingerprint(),
        },
        "given": described,
        "not_known": not_known,
        "among_exemplars": asked.among(template.exemplars),
        "seed": setup.seed,
        "limit": asked.limit,
        "sample": asked.sample,
        "traces": traces,
        "begun": date.today().isoformat(),
        "device": model.pop("device", None),
        "versions": {
            "dragin_lab": __version__,
            "numpy": version("numpy"),
            "spacy": version("spacy"),
            **versions,
        },
    }


def record_episodes(
    setup: Setup,
    method: Method,
    questions: Iterable[Question],
    *,
    traces: bool | None = None,
    batch_size: int = 1,
) -> Iterator[Finished]:
    """What is recorded of each episode as it ends: here, or wherever the model answers."""
    if setup.elsewhere:
        if setup.cache is not None:
            raise SettingError(
                "a cache serves one process, and a cluster has many; leave the cache out"
            )
        options = {"traces": traces, "batch_size": batch_size}
        asking = {name: getattr(setup, name) for name in ("prompt", "layout", "seed", "day")}
        return setup.model.finish(questions, method, asking, options)
    return (record_of(trace, traces) for trace in ask_many(setup, questions, method, batch_size))


def _name_source(source: str, split: str | None) -> tuple[str, str | None]:
    """What a source is called in tables and paths, and which split it is where that is known."""
    if source.startswith("almanac/") and source.removeprefix("almanac/") in datasets.BENCHMARKS:
        name = f"{source}-{split}" if split else source
        return name, split or "test"
    if is_own(source):
        path = Path(source.removeprefix(HUB).partition("#")[0])
    else:
        path = datasets.find_benchmark(source, split)
    named = [word for word in re.split(r"[^a-z]+", path.stem.lower()) if word in _SPLITS]
    part = named[0] if named else None
    if source in datasets.BENCHMARKS:
        return source, part
    name = path.name.split(".")[0]
    if name in _SPLITS:
        name = f"{path.resolve().parent.name}-{name}"
    return name, part
