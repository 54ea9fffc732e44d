"""Questions answered on a Ray cluster: workers that load the model once each, and one process that writes the run.

    with dl.Cluster("10.0.0.5:6379", dl.Recipe(model="meta-llama/Llama-2-7b-chat-hf", corpus="/data/wiki")) as cluster:
        dl.Lab(cluster).run("hotpotqa", "dragin", output="runs/hotpotqa")

A cluster stands in the model's place wherever benchmarks are run. A worker gets a recipe for its model and retriever,
not the objects; what each has loaded is compared before it is asked anything. Workers send finished lines back. A
worker that is lost is replaced, and what it had not finished is asked again, ``TRIES`` times at most. Only a cluster
that is opened imports ray.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dragin_lab.core.frames import differences
from dragin_lab.core.method import Method
from dragin_lab.core.trace import Question
from dragin_lab.errors import MissingPackageError, SettingError
from dragin_lab.run.benchmark import Asking
from dragin_lab.run.cluster_worker import ClusterError, Identity, Recipe, Worker, library
from dragin_lab.run.lines import Finished, record_of
from dragin_lab.run.serving import refused, what_happened

#: How often a question is asked whose worker was lost; how many workers in a row may end before they are ready.
TRIES = 3
#: Batches that a worker is given at once: when an episode ends, the next question should be there.
AHEAD = 4
#: Seconds until a warning says that no worker has room.
PATIENCE = 10.0
#: Seconds that an address is given to answer.
ANSWERS_WITHIN = 5.0
_TICK = 1.0


@dataclass(eq=False)
class _Member:
    """A worker of the pool. ``task`` is what it was asked for, None where it has nothing to do."""

    actor: Any
    begun: Any  # ready once it has room
    task: Any
    identity: Identity | None = None  # once it has loaded
    questions: dict[str, Question] = field(default_factory=dict)  # given to it and not answered

    def __str__(self) -> str:
        return f"the worker on {self.identity.name}" if self.identity else "a worker"


class _LostError(Exception):
    """A worker that is gone, in one sentence of Ray's."""


@dataclass(frozen=True)
class RemoteRetriever:
    """The retriever of a cluster's workers; to be given with the cluster."""

    description: dict[str, Any]
    shown: str

    def provenance(self) -> dict[str, Any]:
        """As the workers' retriever."""
        return self.description

    def search(self, query: str, k: int) -> Any:
        """Not from here: ``SettingError``."""
        raise SettingError("the retriever of a cluster searches on its workers only; open one here to search yourself")

    def __repr__(self) -> str:
        return self.shown


class Cluster:
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
        SettingError: an address or number that cannot be; a local cluster without room for one worker.
        MissingPackageError: ray is not installed.
        ClusterError: nobody answers there; workers that differ from one another, or fail to load.
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
        check_numbers(actors, gpus_per_actor, cpus_per_actor)
        self.address = check_address(address)
        self.recipe = (recipe or Recipe()).absolute()
        self._ray = import_ray(local=self.address == "local")
        self._members: list[_Member] = []
        self._first: Identity | None = None
        self._failed = 0  # workers in a row that ended before they were ready
        self._reason = ""  # of the last of them
        self._asked = math.inf  # when the first worker was asked for, until a warning says that none has begun
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._connect(max(os.cpu_count() or 1, math.ceil((actors or 1) * cpus_per_actor)))
        elif self.address != "auto":
            raise ClusterError(
                f"this process is connected to Ray already, so it cannot connect to {self.address!r}; give 'auto' "
                "for the cluster it is connected to, or call ray.shutdown() first"
            )
        try:
            total = self._ray.cluster_resources()
            if gpus_per_actor is None:
                gpus_per_actor = 0.0 if self.recipe.device == "cpu" else min(1.0, total.get("GPU", 0.0))
            self._need = {"CPU": cpus_per_actor, "GPU": gpus_per_actor}
            if self.address == "local" and any(amount > total.get(name, 0) for name, amount in self._need.items()):
                raise SettingError(f"a worker takes {_amounts(self._need)}, and this machine has {_amounts(total)}")
            room = min(int(total.get(name, 0) // amount) for name, amount in self._need.items() if amount)
            self._wanted = actors or max(1, room)
            self._new = self._ray.remote(Worker).options(num_cpus=cpus_per_actor, num_gpus=gpus_per_actor)
        except BaseException:
            self.close()
            raise

    def _connect(self, cpus: int) -> None:
        local = {"num_cpus": cpus, "include_dashboard": False} if self.address == "local" else {}
        try:
            self._ray.init(address=self.address, log_to_driver=False, logging_level="ERROR", **local)
        except Exception as error:  # whatever Ray raises here, it has no class of its own
            self.close()
            said = " ".join(str(error).split())[:600] or type(error).__name__
            raise ClusterError(
                f"no connection to Ray at {self.address!r}: {said} (a machine joins a cluster by 'ray start "
                "--address=HEAD:PORT --num-cpus=0')"
            ) from error

    # -- what stands in a model's place -------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        """What the workers have loaded; waits for the first of them."""
        while self._first is None:
            self._fill(self._wanted)
            for member in self._wait():
                self._admit(member)
        return self._first

    @property
    def embedded(self) -> bool:
        """Whether the model is the one that the package brings."""
        return self.identity.embedded

    @property
    def retriever(self) -> RemoteRetriever | None:
        """What the workers search with; None where the recipe opens none."""
        found = self.identity.retriever
        return None if found is None else RemoteRetriever(found, self.identity.shown[-1])

    def provenance(self) -> dict[str, Any]:
        """As the workers' model."""
        return self.identity.model

    def finish(
        self, questions: Iterable[Question], method: Method, asked_with: Asking, options: dict[str, Any]
    ) -> Iterator[Finished]:
        """What is recorded of each episode, as they end; ``options`` as for ``benchmark.finished``.

        A question whose worker was lost ``TRIES`` times ends as an error. Whatever is under way when this ends is lost.
        """
        for module in {type(part).__module__ for part in (method.when, method.what) if part.fingerprint}:
            if module != "__main__":  # which Ray sends whole as it is
                self._ray.cloudpickle.register_pickle_by_value(sys.modules[module])
        todo, lost = deque(questions), Counter[str]()
        try:
            while todo or any(member.questions for member in self._members):
                self._fill(len(todo) + sum(len(member.questions) for member in self._members))
                for member in self._members:
                    if member.identity and member.task is None and todo:
                        some = self._share(todo, lost, options["batch_size"])
                        member.questions = {q.id: q for q in some}
                        member.task = member.actor.answer.remote(some, method, asked_with, options)
                for member in self._wait():
                    if member.identity:
                        yield from self._collect(member, method, todo, lost)
                    else:
                        self._admit(member)
        finally:
            for member in [member for member in self._members if member.questions]:
                self._dismiss(member)

    def close(self) -> None:
        """End all workers, and leave the cluster."""
        for member in list(self._members):
            self._dismiss(member)
        if self._ours:
            self._ray.shutdown()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        workers = "1 worker" if self._wanted == 1 else f"{self._wanted} workers"
        shown = self._first.shown[0] if self._first else "not loaded yet"
        return f"Cluster({self.address}, {workers} of {_amounts(self._need)}, {shown})"

    # -- workers ------------------------------------------------------------------------------------------------------

    def _fill(self, questions: int) -> None:
        """Ask for the workers that are missing, no more than there are questions."""
        if self._failed >= TRIES and not self._members:
            raise ClusterError(f"{self._failed} workers in a row ended before they were ready: {self._reason}")
        while self._failed < TRIES and len(self._members) < min(self._wanted, questions):
            actor = self._new.remote(self.recipe, max(1, int(self._need["CPU"])))
            self._members.append(_Member(actor, actor.begin.remote(), actor.load.remote(library())))
            self._asked = min(self._asked, time.monotonic())

    def _wait(self) -> list[_Member]:
        """Wait a little for a worker that has something to say."""
        waiting = {member.task: member for member in self._members if member.task is not None}
        ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=_TICK, fetch_local=False)
        if not ready and time.monotonic() - self._asked >= PATIENCE:
            self._asked = math.inf
            self._say_what_is_waited_for()
        return [waiting[one] for one in ready]

    def _say_what_is_waited_for(self) -> None:
        begun, _ = self._ray.wait([member.begun for member in self._members], timeout=0)
        if not begun:
            total, free = self._ray.cluster_resources(), self._ray.available_resources()
            warnings.warn(
                f"no worker has begun after {PATIENCE:g} seconds: each takes {_amounts(self._need)}, and of "
                f"{_amounts(total)} in the cluster {_amounts(free)} are free. A machine has to join, or something else "
                "to end there; Ctrl-C ends the waiting",
                stacklevel=3,
            )

    def _admit(self, member: _Member) -> None:
        """A worker has loaded: it must be like the first one."""
        try:
            member.identity, member.task = self._got(member, member.task), None
        except _LostError as error:
            self._failed, self._reason = self._failed + 1, str(error)
            self._dismiss(member)
            warnings.warn(f"a worker ended before it was ready ({error})", stacklevel=2)
            return
        self._first = self._first or member.identity
        self._failed = 0
        a, b = ({"model": one.model, "retriever": one.retriever} for one in (self._first, member.identity))
        if found := differences(a, b):
            raise ClusterError(
                f"{member} is not like the first (first → this one): {'; '.join(found[:5])}. "
                "All machines need the same model, passages and libraries"
            )

    def _collect(
        self, member: _Member, method: Method, todo: deque[Question], lost: Counter[str]
    ) -> Iterator[Finished]:
        """Take the next answer of a worker; where it was lost, put what it had back in front of the queue."""
        try:
            reference = next(member.task, None)
            if reference is None:
                member.task = None
                return
            found = self._got(member, reference)
        except _LostError as error:
            left = list(member.questions.values())
            self._dismiss(member)
            again = "its question is asked again" if len(left) == 1 else f"{len(left)} questions are asked again"
            warnings.warn(f"{member} was lost ({error}); {again}", stacklevel=2)
            for question in reversed(left):
                lost[question.id] += 1
                if lost[question.id] < TRIES:
                    todo.appendleft(question)
                else:
                    why = ClusterError(f"the worker that answered it was lost {TRIES} times: {error}")
                    yield record_of(refused(question, method, why))
            return
        del member.questions[found.line["qid"]]
        yield found

    def _got(self, member: _Member, reference: Any) -> Any:
        """The value of a reference; ``_LostError`` where the worker is gone, ``ClusterError`` for what it raised."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            raise ClusterError(
                str(cause) if isinstance(cause, ClusterError) else f"{member}: {what_happened(cause)}"
            ) from error
        except errors.RayError as error:
            raise _LostError(_in_one_sentence(str(error)) or type(error).__name__) from error

    def _share(self, todo: deque[Question], lost: Counter[str], batch_size: int) -> list[Question]:
        """The next questions for a worker; one alone where a worker was lost with it, as it may be to blame."""
        each = math.ceil(len(todo) / len(self._members))
        most = 1 if batch_size == 1 or lost[todo[0].id] else min(AHEAD * batch_size, each)
        return [todo.popleft() for _ in range(most)]

    def _dismiss(self, member: _Member) -> None:
        self._members.remove(member)
        self._ray.kill(member.actor)


# -- checks -----------------------------------------------------------------------------------------------------------


def import_ray(*, local: bool) -> Any:
    """Ray, for a cluster on this machine or another; ``MissingPackageError`` where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    if local:  # Ray then listens on 127.0.0.1 alone; it reads this when it is imported
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError("a cluster needs ray; pip install 'dragin_lab[cluster]'") from error
    return ray


def check_numbers(actors: int | None, gpus_per_actor: float | None, cpus_per_actor: float) -> None:
    """Raise ``SettingError`` for what no worker can be made of."""
    if actors is not None and (isinstance(actors, bool) or actors != int(actors) or actors < 1):
        raise SettingError(
            f"actors={actors}: give a whole number of at least 1, or leave it out for all there is room for"
        )
    if gpus_per_actor is not None and (
        not gpus_per_actor >= 0 or (gpus_per_actor > 1 and gpus_per_actor != int(gpus_per_actor))
    ):
        raise SettingError(f"gpus_per_actor={gpus_per_actor:g}: give 0, a fraction such as 0.5, or a whole number")
    if not 0 < cpus_per_actor < math.inf or (cpus_per_actor > 1 and cpus_per_actor != int(cpus_per_actor)):
        raise SettingError(f"cpus_per_actor={cpus_per_actor:g}: give a whole number, or a fraction above 0")


def check_address(given: str) -> str:
    """The address; raises at once where nothing can be there, as Ray itself tries for minutes."""
    address = given.strip()
    if address in ("local", "auto"):
        return address
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SettingError(
            f"address {address!r}: give the head's HOST:PORT, such as 10.0.0.5:6379, from a machine of the cluster "
            "(or send the command there with 'ray job submit'), 'auto' for the cluster of this machine, or 'local' to "
            "start one here"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_WITHIN).close()
    except OSError as error:
        raise ClusterError(
            f"nobody answers at {address}; start a cluster there ('ray start --head --port={port}'), or give the "
            "address that 'ray start' printed"
        ) from error
    return address


def _in_one_sentence(said: str) -> str:
    """What Ray says of a lost worker: pages with a traceback, of which one line tells what happened."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    dead = "The actor is dead because "
    told = [line for line in lines if line.startswith(dead)] or lines[-1 if "creation task" in said else 0 :]
    return told[0].removeprefix(dead).split(" Some common causes")[0][:300] if told else ""


def _amounts(of: dict[str, float]) -> str:
    shown = {name: of.get(name, 0.0) for name in ("CPU", "GPU")}
    return " and ".join(
        f"{amount:g} {name}{'s' * (amount != 1)}" for name, amount in shown.items() if amount or name == "CPU"
    )
