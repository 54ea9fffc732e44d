"""Questions answered on a Ray cluster: workers that open model and passages once each, and one
process that writes.

    with dl.Cluster("10.0.0.5:6379", Recipe(model="meta-llama/Llama-2-7b-chat-hf",
    corpus="/data/wiki")) as cluster:
        dl.Lab(cluster).run("hotpotqa", "dragin", output="runs/hotpotqa")

A cluster stands in the model's place. A worker gets a recipe, not objects; what it has loaded is
compared before it is asked anything. Ray's ``max_restarts`` and ``max_task_retries`` would tie a
question to its worker, which after the loss of a machine may never find room again.
"""

from __future__ import annotations

import copy
import math
import os
import socket
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

from dragin_lab.checks import check_text, count, instance, number, refuse_password
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar
from dragin_lab.errors import (
    MissingPackageError,
    RunError,
    SettingError,
    describe_error,
)
from dragin_lab.files import as_path
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.run.benchmark import record_episodes
from dragin_lab.run.episodes import refuse_question
from dragin_lab.run.rundir import Facts
from dragin_lab.run.runwriter import Finished, record_of
from dragin_lab.run.setup import (
    Setup,
    describe_library,
    describe_model,
    describe_retriever,
)
from dragin_lab.trace.frames import list_differing
from dragin_lab.trace.trace import Question
from dragin_lab.warning import warn

#: How often a question is asked whose worker was lost; how many workers in a row may be lost while
#: they load.
TRIES = 2
#: Batches that a worker is given at once, so that the next question is there when an episode ends.
AHEAD = 4


class Recipe:
    """What every worker opens, by the names of ``Lab``'s arguments; ``searches`` False opens no
    passages.

    ``loading`` are the arguments that the model is loaded with. A path is looked up on the
    worker's machine. A subclass may open something else, if workers can import it.
    """

    def __init__(
        self,
        model: str | None = None,
        corpus: str | None = None,
        retriever: str | None = None,
        *,
        searches: bool = True,
        fields: str | None = None,
        **loading: Any,
    ) -> None:
        self.model = model
        self.corpus = corpus
        self.retriever = retriever
        self.searches = searches
        self.fields = fields
        self.loading = loading
        for name, value in {**vars(self), **loading}.items():
            refuse_password(name, value)

    def __repr__(self) -> str:
        arguments = vars(self) | self.loading
        parts = []
        for name, value in arguments.items():
            if name not in ("loading", "token"):
                parts.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def open(self) -> Setup:
        """The model and, where ``searches``, the retriever. Raises as ``open_model`` and
        ``open_retriever``.
        """
        from dragin_lab.engines.load import open_model  # brings torch, once OMP_NUM_THREADS is set

        model = open_model(self.model, **self.loading)
        retriever = None
        if self.searches:
            retriever = open_retriever(self.retriever, self.corpus, self.fields)
        return Setup(model, retriever, retriever_spec=self.retriever)

    def absolute(self) -> Recipe:
        """The same with absolute paths where a relative one exists here: a worker has another
        working folder.
        """
        sent = copy.copy(self)
        sent.loading = dict(self.loading)
        sent.model = _make_absolute(self.model)
        sent.corpus = _make_absolute(self.corpus)
        for name in {"tokenizer", "offload_folder", "cache_dir"} & self.loading.keys():
            sent.loading[name] = _make_absolute(self.loading[name])
        return sent


def _make_absolute(name: Any) -> Any:
    if not isinstance(name, str | os.PathLike):
        return name
    path = as_path(name)
    return str(path.absolute()) if path.exists() else name


class WorkerReport(NamedTuple):
    """What a worker has loaded, as it tells: all of it that ``run.json`` records, and how it is
    shown to people.
    """

    worker: str
    recorded: Facts  # library, model, retriever; the same for all workers
    exemplars: Mapping[str, tuple[Exemplar, ...]]
    model: str
    retriever: str


class WorkersRetriever(NamedTuple):
    """What the workers search with, to be recorded and shown; they search for themselves."""

    recorded: Facts
    shown: str

    def provenance(self) -> Facts:
        return self.recorded

    def __repr__(self) -> str:
        return self.shown


class Worker:
    """A model and a retriever, and who answers with them, without Ray; ``threads`` of torch on a
    CPU.
    """

    def __init__(self, recipe: Recipe, threads: int = 1) -> None:
        # before torch is loaded, so that all workers sum alike
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self.recipe = recipe

    def load(self) -> WorkerReport:
        """Load the model and the retriever. Raises ``RunError``, which names this worker."""
        worker = f"the worker on {socket.gethostname()}, process {os.getpid()}"
        try:
            self.setup = self.recipe.open()
            lm = self.setup.model
            retriever = self.setup.retriever
        except Exception as error:
            raise RunError(f"{worker}: {describe_error(error)}", begun=True) from error
        model = describe_model(lm) | {package: version(package) for package in ("numpy", "spacy")}
        recorded = {
            "library": describe_library(),
            "model": model,
            "retriever": describe_retriever(retriever),
        }
        return WorkerReport(worker, recorded, lm.exemplars, repr(lm), repr(retriever))

    def answer(
        self,
        questions: Sequence[Question],
        method: Method,
        asking: Facts,
        options: Facts,
    ) -> Iterator[Finished]:
        """``benchmark.record_episodes`` over these questions, with ``asking`` of the setup
        exchanged.
        """
        yield from record_episodes(replace(self.setup, **asking), method, questions, **options)


class Cluster(AbstractContextManager["Cluster"]):
    """Workers on a Ray cluster; a context manager that ends them.

    Args:
        address: "local" to start Ray on this machine, the head's "HOST:PORT", or "auto" for the
            cluster that this
            machine belongs to.
        recipe: how each worker makes its model and retriever. actors: how many workers; default as
            many as the cluster has room for. gpus_per_actor: a fraction lets several share a GPU;
            default 1 where the cluster has GPUs and the recipe does
            not say "cpu", else 0.
        cpus_per_actor: also how many threads torch computes with on a CPU.

    Raises ``SettingError`` for what cannot be and a cluster without room for one worker,
    ``MissingPackageError`` without ray, ``RunError`` where nothing answers, workers differ from
    one another, or fail to load.
    """

    def __init__(
        self,
        address: str = "local",
        recipe: Recipe | None = None,
        *,
        actors: int | None = None,
        gpus_per_actor: float | None = None,
        cpus_per_actor: float = 1.0,
    ) -> None:
        recipe = Recipe() if recipe is None else recipe
        instance("recipe", recipe, Recipe, "give a Recipe, such as Recipe(model='almanac')")
        self._ray = prepare_ray(address, actors, gpus_per_actor, cpus_per_actor)
        self.address = address
        self.recipe = recipe.absolute()
        self._idle: list[Any] = []
        #: By what a worker does: the worker, and the questions that it has not answered, or None
        #: where it loads.
        self._tasks: dict[Any, tuple[Any, dict[str, Question] | None]] = {}
        self._first: WorkerReport | None = None
        self._lost_loading = 0  # workers in a row
        self._connected_here = address != "auto" or not self._ray.is_initialized()
        if self._connected_here:
            cpus = max(os.cpu_count() or 1, math.ceil((actors or 1) * cpus_per_actor))
            local = {"num_cpus": cpus, "include_dashboard": False} if address == "local" else {}
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
            except Exception as error:  # whatever Ray raises here, it has no class of its own
                raise RunError(
                    f"no connection to Ray at {address!r}: {' '.join(str(error).split())}"
                ) from error
        total = self._ray.cluster_resources()
        if gpus_per_actor is None:
            on_cpu = "cpu" in map(self.recipe.loading.get, ("device", "device_map"))
            gpus_per_actor = 0.0 if on_cpu else min(1.0, total.get("GPU", 0.0))
        self._need = {"CPU": cpus_per_actor, "GPU": gpus_per_actor}
        room = min(
            int(total.get(name, 0) // amount) for name, amount in self._need.items() if amount
        )
        if not room:
            self.close()
            raise SettingError(
                f"a worker takes {_write_parts(self._need)}, and the cluster has"
                f" {_write_parts(total)}"
            )
        self._wanted = actors or room
        self._new = self._ray.remote(Worker).options(
            num_cpus=cpus_per_actor, num_gpus=gpus_per_actor
        )

    @property
    def report(self) -> WorkerReport:
        """What the workers have loaded; waits for the first of them."""
        while self._first is None:
            self._start_workers(self._wanted)
            self._wait_for_worker()
        return self._first

    @property
    def exemplars(self) -> Mapping[str, tuple[Exemplar, ...]]:
        return self.report.exemplars

    @property
    def retriever(self) -> WorkersRetriever:
        """What the workers search with. Raises ``SettingError`` where the recipe opens none."""
        if (recorded := self.report.recorded["retriever"]) is None:
            raise SettingError("the cluster's Recipe opens no passages; give it searches=True")
        return WorkersRetriever(recorded, self.report.retriever)

    def provenance(self) -> Facts:
        return dict(self.report.recorded["model"])

    def finish(
        self,
        questions: Iterable[Question],
        method: Method,
        asking: Facts,
        options: Facts,
    ) -> Iterator[Finished]:
        """What is recorded of each episode, as they end; of a question that lost its worker
        ``TRIES`` times, an error.

        ``asking`` is exchanged in the workers' ``Setup``, ``options`` those of
        ``benchmark.record_episodes``.
        """
        for part in (method.trigger, method.formulator):
            module = type(part).__module__
            if part.fingerprint and module != "__main__":  # which Ray sends whole as it is
                self._ray.cloudpickle.register_pickle_by_value(sys.modules[module])
        batch_size = options["batch_size"]
        waiting = deque(questions)
        losses = Counter[str]()
        try:
            while asked := len(waiting) + sum(
                len(share or ()) for _, share in self._tasks.values()
            ):
                self._start_workers(asked)
                # one that lost its worker is asked alone, as it may be to blame
                while waiting and self._idle:
                    size = min(AHEAD * batch_size, math.ceil(len(waiting) / self._wanted))
                    if batch_size == 1 or losses[waiting[0].id]:
                        size = 1
                    share = [waiting.popleft() for _ in range(size)]
                    worker = self._idle.pop()
                    task = worker.answer.remote(share, method, asking, options)
                    self._tasks[task] = worker, {question.id: question for question in share}
                answer, lost, why = self._wait_for_worker()
                if answer is not None:
                    yield answer
                losses.update(question.id for question in lost)
                for question in reversed(lost):
                    if losses[question.id] < TRIES:
                        waiting.appendleft(question)
                    else:
                        error = RunError(
                            f"the worker that answered it was lost {TRIES} times: {why}"
                        )
                        yield record_of(refuse_question(question, method, error))
        finally:
            for task in [task for task, (_, share) in self._tasks.items() if share]:
                self._end_worker(task)

    def close(self) -> None:
        """End all workers, and leave the cluster."""
        for task in list(self._tasks):
            self._end_worker(task)
        for worker in self._idle:
            self._ray.kill(worker)
        self._idle = []
        if self._connected_here:
            self._ray.shutdown()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        model = self._first.model if self._first else "not loaded yet"
        return f"Cluster({self.address}, {self._wanted} × {_write_parts(self._need)}, {model})"

    def _end_worker(self, task: Any) -> None:
        worker, _ = self._tasks.pop(task)
        self._ray.kill(worker)

    def _start_workers(self, questions: int) -> None:
        """Start the workers that are missing, no more than there are questions."""
        while len(self._idle) + len(self._tasks) < min(self._wanted, questions):
            worker = self._new.remote(self.recipe, max(1, int(self._need["CPU"])))
            self._tasks[worker.load.remote()] = worker, None

    def _wait_for_worker(self) -> tuple[Finished | None, list[Question], str]:
        """Wait for a worker: an answer, or the questions of a worker that was lost and why, or
        neither.
        """
        (task, *_), _ = self._ray.wait(list(self._tasks))
        share = self._tasks[task][1]
        try:
            reference = task if share is None else next(task, None)  # None: it has sent all of them
            result: Any = None if reference is None else self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RunError):
                raise error.cause from error
            why = describe_error(error.cause)
            raise RunError(f"a worker failed: {why}", begun=True) from error
        except self._ray.exceptions.RayError as error:
            self._end_worker(task)
            why = self._warn_of_loss(error, loading=share is None)
            return None, list((share or {}).values()), why
        if share is not None and reference is not None:
            del share[result.line["id"]]
            return result, [], ""
        if share is None:
            self._admit_worker(result)
        self._idle.append(self._tasks.pop(task)[0])
        return None, [], ""

    def _admit_worker(self, report: WorkerReport) -> None:
        """A worker has loaded: it must have this process's library and the first worker's model
        and passages.
        """
        expected = (self._first or report).recorded | {"library": describe_library()}
        if unlike := list_differing(expected, report.recorded):
            raise RunError(
                f"{report.worker} differs from the others (expected → its own):"
                f" {'; '.join(unlike[:5])}. All machines need the same model, passages and"
                " libraries",
                begun=True,
            )
        self._first = self._first or report
        self._lost_loading = 0

    def _warn_of_loss(self, error: Exception, *, loading: bool) -> str:
        """The sentence of Ray's pages that says what happened. Raises where ``TRIES`` in a row
        were lost loading.
        """
        message = str(error).rpartition("The actor is dead because ")[2]
        why = message.partition(" Some common causes")[0].strip()[:300]
        self._lost_loading += loading
        if self._lost_loading == TRIES:
            raise RunError(
                f"{TRIES} workers in a row were lost before they were ready: {why}",
                begun=True,
            ) from error
        then = (
            "before it was ready"
            if loading
            else f"and its questions are asked again, each {TRIES} times at most"
        )
        warn(f"a worker was lost ({why}), {then}")
        return why


def prepare_ray(
    address: str, actors: int | None, gpus_per_actor: float | None, cpus_per_actor: float
) -> Any:
    """Check what a cluster is described by, and import ray; raises as ``Cluster``, before
    anything is started.
    """
    refuse_password("address", check_text("address", address))
    count("actors", 1 if actors is None else actors)
    number("gpus_per_actor", gpus_per_actor or 0)
    number("cpus_per_actor", cpus_per_actor, 0.01)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    if address == "local":  # Ray then listens on 127.0.0.1 alone; it reads this when it is imported
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError(
            "a cluster needs ray; pip install 'dragin_lab[cluster]'"
        ) from error
    if address not in ("local", "auto"):
        refuse_silent(address)
    return ray


def refuse_silent(address: str) -> None:
    """Raise ``RunError`` where nothing answers at HOST:PORT. Ray itself tries for five minutes,
    and then ends the process.
    """
    host, _, port = address.rpartition(":")  # a number in a text is a port
    try:
        socket.create_connection((host.strip("[]"), port), timeout=5.0).close()
    except OSError as error:
        raise RunError(
            f"no answer from {address} ({error}); give the HOST:PORT that 'ray start --head'"
            " printed, such as 10.0.0.5:6379, 'auto' or 'local'"
        ) from error


def _write_parts(resources: dict[str, float]) -> str:
    return f"{resources.get('CPU', 0.0):g} CPU and {resources.get('GPU', 0.0):g} GPU"
