"""Questions answered on a Ray cluster: a pool of workers that load the model once each, and one process that writes.

    with dl.Cluster("10.0.0.5:6379", Recipe(model="meta-llama/Llama-2-7b-chat-hf", corpus="/data/wiki")) as cluster:
        dl.Lab(cluster).run("hotpotqa", "dragin", output="runs/hotpotqa")

A cluster stands in the model's place. A worker gets a recipe, not objects; what it has loaded is compared before it is
asked anything. Ray's own ``max_restarts`` and ``max_task_retries`` are not used: they tie a question to its worker, and
after the loss of a machine that worker may never find room again.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from dragin_lab.checks import count, instance, number, shown, text
from dragin_lab.core.method import Method
from dragin_lab.errors import MissingPackageError, SettingError
from dragin_lab.run.runwriter import Finished, record_of
from dragin_lab.run.serving import describe_error, refuse_question
from dragin_lab.run.worker import ClusterError, Identity, Recipe, Worker, describe_library
from dragin_lab.trace.frames import differences
from dragin_lab.trace.trace import Question

#: How often a question is asked whose worker was lost; how many workers in a row may be lost while they load.
TRIES = 3
#: Batches that a worker is given at once, so that the next question is there when an episode ends.
AHEAD = 4


@dataclass(eq=False)
class _Actor:
    """A worker of the pool."""

    handle: Any
    task: Any  # what it is doing; None where it waits for questions
    identity: Identity | None = None  # None while it loads
    questions: dict[str, Question] = field(default_factory=dict)  # sent to it and not answered


@dataclass(frozen=True)
class RemoteRetriever:
    """Stands for the retriever of a cluster's workers, which search for themselves."""

    recorded: dict[str, Any]
    shown: str

    def provenance(self) -> dict[str, Any]:
        """As the workers' retriever."""
        return self.recorded

    def __repr__(self) -> str:
        return self.shown


class Cluster(AbstractContextManager["Cluster"]):
    """Workers on a Ray cluster; a context manager that ends them.

    Args:
        address: "local" to start Ray on this machine, the head's "HOST:PORT", or "auto" for the cluster that this
            machine belongs to.
        recipe: how each worker makes its model and retriever.
        actors: how many workers; default as many as the cluster has room for.
        gpus_per_actor: a fraction lets several share a GPU; default 1 where the cluster has GPUs and the recipe does
            not say "cpu", else 0.
        cpus_per_actor: also how many threads torch computes with on a CPU.

    Raises:
        SettingError: an address or number that cannot be; a cluster without room for one worker.
        MissingPackageError: ray is not installed.
        ClusterError: no answer from there; workers that differ from one another, or fail to load.
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
        self.address, self.recipe = address, recipe.absolute()
        self._actors: list[_Actor] = []
        self._first: Identity | None = None
        self._lost_loading = 0  # workers in a row
        self._connected_here = not self._ray.is_initialized()
        if not self._connected_here and address != "auto":
            raise ClusterError("this process is connected to Ray already; give 'auto', or call ray.shutdown() first")
        if self._connected_here:
            cpus = max(os.cpu_count() or 1, math.ceil((actors or 1) * cpus_per_actor))
            local = {"num_cpus": cpus, "include_dashboard": False} if address == "local" else {}
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
            except Exception as error:  # whatever Ray raises here, it has no class of its own
                self.close()
                why = " ".join(str(error).split())[:600]
                raise ClusterError(f"no connection to Ray at {address!r}: {why}") from error
        total = self._ray.cluster_resources()
        if gpus_per_actor is None:
            gpus_per_actor = 0.0 if self.recipe.device == "cpu" else min(1.0, total.get("GPU", 0.0))
        self._need = {"CPU": cpus_per_actor, "GPU": gpus_per_actor}
        room = min(int(total.get(name, 0) // amount) for name, amount in self._need.items() if amount)
        if not room:
            self.close()
            raise SettingError(
                f"a worker takes {_write_resources(self._need)}, and the cluster has {_write_resources(total)}"
            )
        self._wanted = actors or room
        self._new = self._ray.remote(Worker).options(num_cpus=cpus_per_actor, num_gpus=gpus_per_actor)

    # -- what stands in a model's place -------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        """What the workers have loaded; waits for the first of them."""
        while self._first is None:
            self._start_workers(self._wanted)
            for actor in self._wait():
                try:
                    self._admit(actor)
                except self._ray.exceptions.RayError as error:
                    self._drop(actor, error)
        return self._first

    @property
    def embedded(self) -> bool:
        """Whether the model is Almanac's."""
        return self.identity.embedded

    @property
    def retriever(self) -> RemoteRetriever:
        """What the workers search with. Raises ``SettingError`` where the recipe opens none."""
        if (recorded := self.identity.recorded["retriever"]) is None:
            raise SettingError("the cluster's Recipe opens no passages; give it searches=True")
        return RemoteRetriever(recorded, self.identity.shown[1])

    def provenance(self) -> dict[str, Any]:
        """As the workers' model."""
        model: dict[str, Any] = self.identity.recorded["model"]
        return model

    def finish(
        self, questions: Iterable[Question], method: Method, asking: dict[str, Any], options: dict[str, Any]
    ) -> Iterator[Finished]:
        """What is recorded of each episode, as they end.

        ``asking`` are arguments of the workers' ``Lab``, ``options`` those of ``benchmark.record_episodes``.

        A question whose worker was lost ``TRIES`` times ends as an error. Whatever is under way when this ends is lost.
        """
        for module in {type(part).__module__ for part in (method.trigger, method.formulator) if part.fingerprint}:
            if module != "__main__":  # which Ray sends whole as it is
                self._ray.cloudpickle.register_pickle_by_value(sys.modules[module])
        waiting, losses = deque(questions), Counter[str]()
        try:
            while waiting or any(actor.questions for actor in self._actors):
                self._start_workers(len(waiting) + sum(len(actor.questions) for actor in self._actors))
                for actor in self._actors:
                    if waiting and actor.task is None:
                        share = self._take_share(waiting, losses, options["batch_size"])
                        actor.questions = {question.id: question for question in share}
                        actor.task = actor.handle.answer.remote(share, method, asking, options)
                for actor in self._wait():
                    try:
                        if actor.identity is None:
                            self._admit(actor)
                        elif (reference := next(actor.task, None)) is None:  # it has sent all of them
                            actor.task = None
                        else:
                            answer: Finished = self._get(reference)
                            del actor.questions[answer.line["qid"]]
                            yield answer
                    except self._ray.exceptions.RayError as error:
                        reason = self._drop(actor, error)
                        losses.update(actor.questions.keys())
                        for question in reversed(actor.questions.values()):
                            if losses[question.id] < TRIES:
                                waiting.appendleft(question)
                            else:
                                why = f"the worker that answered it was lost {TRIES} times: {reason}"
                                yield record_of(refuse_question(question, method, ClusterError(why)))
        finally:
            for actor in [actor for actor in self._actors if actor.questions]:
                self._end(actor)

    def close(self) -> None:
        """End all workers, and leave the cluster."""
        for actor in list(self._actors):
            self._end(actor)
        if self._connected_here:
            self._ray.shutdown()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        model = self._first.shown[0] if self._first else "not loaded yet"
        return f"Cluster({self.address}, {self._wanted} × {_write_resources(self._need)}, {model})"

    # -- workers ------------------------------------------------------------------------------------------------------

    def _start_workers(self, questions: int) -> None:
        """Start the workers that are missing, no more than there are questions."""
        while len(self._actors) < min(self._wanted, questions):
            handle = self._new.remote(self.recipe, max(1, int(self._need["CPU"])))
            self._actors.append(_Actor(handle, handle.load.remote()))

    def _take_share(self, waiting: deque[Question], losses: Counter[str], batch_size: int) -> list[Question]:
        """The next questions for one worker. One that lost its worker is asked alone, as it may be to blame."""
        alone = batch_size == 1 or losses[waiting[0].id]
        count = 1 if alone else min(AHEAD * batch_size, math.ceil(len(waiting) / len(self._actors)))
        return [waiting.popleft() for _ in range(count)]

    def _wait(self) -> list[_Actor]:
        """The workers that have something to report, at most one second later."""
        tasks = {actor.task: actor for actor in self._actors if actor.task is not None}
        ready, _ = self._ray.wait(list(tasks), num_returns=1, timeout=1.0)
        return [tasks[task] for task in ready]

    def _get(self, reference: Any) -> Any:
        """The value of a reference. Raises ``ClusterError`` where the worker failed, ``RayError`` where it is gone."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            failed = isinstance(error.cause, ClusterError)
            raise error.cause if failed else ClusterError(f"a worker failed: {describe_error(error.cause)}") from error

    def _admit(self, actor: _Actor) -> None:
        """A worker has loaded: it must have this process's library and the first worker's model and passages."""
        identity: Identity = self._get(actor.task)
        expected = (self._first or identity).recorded | {"library": describe_library()}
        if unlike := differences(expected, identity.recorded):
            raise ClusterError(
                f"{identity.worker} differs from the others (expected → its own): {'; '.join(unlike[:5])}. "
                "All machines need the same model, passages and libraries"
            )
        self._first, self._lost_loading = self._first or identity, 0
        actor.identity, actor.task = identity, None

    def _drop(self, actor: _Actor, error: Exception) -> str:
        """Let a lost worker go, with a warning; the sentence of Ray's pages on it that says what happened.

        Raises ``ClusterError`` where ``TRIES`` in a row were lost while they loaded.
        """
        self._end(actor)
        reason = (
            str(error).rpartition("The actor is dead because ")[2].partition(" Some common causes")[0].strip()[:300]
        )
        if actor.identity is not None:
            warnings.warn(f"{actor.identity.worker} was lost ({reason}); its questions are asked again", stacklevel=3)
            return reason
        self._lost_loading += 1
        if self._lost_loading == TRIES:
            raise ClusterError(f"{TRIES} workers in a row were lost before they were ready: {reason}") from error
        warnings.warn(f"a worker was lost before it was ready ({reason})", stacklevel=3)
        return reason

    def _end(self, actor: _Actor) -> None:
        self._actors.remove(actor)
        self._ray.kill(actor.handle)


# -- checks -----------------------------------------------------------------------------------------------------------


def prepare_ray(
    address: str, actors: int | None = None, gpus_per_actor: float | None = None, cpus_per_actor: float = 1.0
) -> Any:
    """Check what a cluster is described by, and import ray; raises as ``Cluster``, before anything is started."""
    text("address", address)
    count("actors", 1 if actors is None else actors)
    for name, amount, least in (("gpus_per_actor", gpus_per_actor or 0, 0), ("cpus_per_actor", cpus_per_actor, 0.01)):
        if number(name, amount, least) > 1 and amount % 1:
            raise SettingError(f"{name}={amount:g}: give a whole number, or a fraction below 1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    if address == "local":  # Ray then listens on 127.0.0.1 alone; it reads this when it is imported
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError("a cluster needs ray; pip install 'dragin_lab[cluster]'") from error
    if address not in ("local", "auto"):
        host, _, port = address.rpartition(":")
        if "://" in address or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            remedy = "give the head's HOST:PORT, as 10.0.0.5:6379, 'auto' or 'local'"
            raise SettingError(f"address {shown(address)}: {remedy}")
        try:  # Ray itself tries for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
        except OSError as error:
            start = f"start a cluster there ('ray start --head --port={port}'), or give the address that it printed"
            raise ClusterError(f"no answer from {address}; {start}") from error
    return ray


def _write_resources(resources: dict[str, float]) -> str:
    return f"{resources.get('CPU', 0.0):g} CPU and {resources.get('GPU', 0.0):g} GPU"
