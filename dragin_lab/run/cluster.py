"""Questions answered on a Ray cluster: workers that load the model once each, and one process that writes the run.

    with dl.Cluster("10.0.0.5:6379", dl.Recipe(model="meta-llama/Llama-2-7b-chat-hf", corpus="/data/wiki")) as cluster:
        dl.run_benchmark(dl.method("dragin"), cluster, cluster.retriever, "hotpotqa", "runs/hotpotqa")

A cluster stands in the model's place wherever benchmarks are run. Model and retriever reach a worker as a recipe, not
as objects; what each has loaded is compared before it is asked anything. Workers send finished lines back. A worker
that is lost is replaced, and what it had not finished is asked again, ``TRIES`` times at most.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dragin_lab.core.frames import differences
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.trace import Question
from dragin_lab.errors import SettingError
from dragin_lab.run.batch import kept_of
from dragin_lab.run.cluster_link import ClusterError, Link
from dragin_lab.run.cluster_worker import Identity, Recipe, Worker, library
from dragin_lab.run.endings import Finished
from dragin_lab.run.serving import refused, what_happened

#: How often a question is asked whose worker was lost; how many workers in a row may end before they are ready.
TRIES = 3
#: Batches that a worker is given at once: when an episode ends, the next question should be there.
AHEAD = 4
#: Seconds until a worker that has no room is mentioned, and between two such lines.
PATIENCE, AGAIN = 10.0, 60.0
_TICK = 1.0


@dataclass(eq=False)
class _Hand:
    """A worker as the cluster knows it. ``pending`` is what it was asked for, None where it has nothing to do."""

    actor: Any
    pending: Any
    state: str = "asked"  # then "loading", then "ready"
    name: str = "a machine not known yet"
    questions: dict[str, Question] = field(default_factory=dict)  # given to it and not answered


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
    """Workers on a Ray cluster; a context manager that lets them go.

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
        ClusterError: nobody answers there, or it goes away; workers that differ from one another, or fail to load.
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
        self.recipe = (recipe or Recipe()).whole_paths()
        self._need = {"CPU": cpus_per_actor, "GPU": gpus_per_actor or 0.0}
        self._link = Link(address, self._need, actors)
        self._hands: list[_Hand] = []
        self._identity: Identity | None = None
        self._failed = 0  # workers in a row that ended before they were ready
        self._reason = ""
        self._since, self._said = time.monotonic(), -math.inf
        try:
            self._make_room(actors, gpus_per_actor)
        except BaseException:
            self.close()
            raise

    def _make_room(self, actors: int | None, gpus: float | None) -> None:
        total, _ = self._link.resources()
        if gpus is None and self.recipe.device != "cpu":
            self._need["GPU"] = min(1.0, total["GPU"])
        short = [name for name, amount in self._need.items() if amount > total[name]]
        if short and self._link.local:
            raise SettingError(f"a worker takes {_amounts(self._need)}, and this machine has {_amounts(total)}")
        room = min((int(total[name] // amount) for name, amount in self._need.items() if amount), default=1)
        self._wanted = actors or max(1, room)
        remote = self._link.ray.remote(Worker)
        self._new = remote.options(
            num_cpus=self._need["CPU"], num_gpus=self._need["GPU"], max_restarts=0, max_task_retries=0
        )

    # -- what stands in a model's place -------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        """What the workers have loaded; waits for the first of them."""
        while self._identity is None:
            self._staff(self._wanted)
            for hand in self._news():
                self._start(hand)
        return self._identity

    @property
    def embedded(self) -> bool:
        """Whether the model is the one that the package brings."""
        return self.identity.embedded

    @property
    def retriever(self) -> RemoteRetriever | None:
        """What to give as retriever; None where the recipe opens none."""
        found = self.identity.retriever
        return None if found is None else RemoteRetriever(found, self.identity.shown[-1])

    def provenance(self) -> dict[str, Any]:
        """As the workers' model."""
        return self.identity.model

    def finish(
        self, method: Method, retriever: Any, questions: Iterable[Question], prompt: PromptTemplate,
        options: dict[str, Any],
    ) -> Iterator[Finished]:  # fmt: skip
        """What is kept of each episode, as they end; ``options`` as for ``bench.finished``.

        A question whose worker was lost ``TRIES`` times ends as an error. Whatever is under way when this ends is lost.
        """
        if method.retrieves and retriever != self.retriever:
            raise SettingError("a cluster searches with its own retriever; give cluster.retriever with the cluster")
        todo, lost = deque(questions), Counter[str]()
        try:
            while todo or any(hand.questions for hand in self._hands):
                self._staff(len(todo) + sum(len(hand.questions) for hand in self._hands))
                for hand in self._hands:
                    if hand.state == "ready" and hand.pending is None and todo:
                        some = self._share(todo, lost, options["batch_size"])
                        hand.questions = {q.id: q for q in some}
                        answer = hand.actor.answer.options(num_returns="streaming")
                        hand.pending = answer.remote(method, some, prompt, options)
                for hand in self._news():
                    if hand.state == "ready":
                        yield from self._collect(hand, method, todo, lost)
                    else:
                        self._start(hand)
        finally:
            for hand in [hand for hand in self._hands if hand.questions]:
                self._dismiss(hand)

    def close(self) -> None:
        """Let all workers go, and leave the cluster."""
        for hand in list(self._hands):
            self._dismiss(hand)
        self._link.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        workers = "1 worker" if self._wanted == 1 else f"{self._wanted} workers"
        return f"Cluster({self._link.address}, {workers} of {_amounts(self._need)}, {self.identity.shown[0]})"

    # -- workers ------------------------------------------------------------------------------------------------------

    def _staff(self, questions: int) -> None:
        """Ask for the workers that are missing, no more than there are questions."""
        if self._failed >= TRIES:
            if not self._hands:
                raise ClusterError(f"{self._failed} workers in a row ended before they were ready: {self._reason}")
            return  # those that are there go on
        while len(self._hands) < min(self._wanted, questions):
            actor = self._new.remote(self.recipe, max(1, int(self._need["CPU"])))
            self._hands.append(_Hand(actor, actor.hello.remote()))
            self._since, self._said = time.monotonic(), -math.inf

    def _news(self) -> list[_Hand]:
        """Wait a little for a worker that has something to say."""
        waiting = {hand.pending: hand for hand in self._hands if hand.pending is not None}
        ready, _ = self._link.ray.wait(list(waiting), num_returns=1, timeout=_TICK, fetch_local=False)
        self._link.watch()
        if not ready:
            self._say_what_is_waited_for()
        return [waiting[one] for one in ready]

    def _start(self, hand: _Hand) -> None:
        """A worker has come, or has loaded: compare it, then give it the next thing to do."""
        try:
            said = self._got(hand, hand.pending)
        except _LostError as error:
            self._failed, self._reason = self._failed + 1, str(error)
            self._dismiss(hand)
            if error.for_good:
                raise ClusterError(f"a worker cannot be made: {error}") from error
            warnings.warn(f"a worker ended before it was ready ({error})", stacklevel=2)
            return
        if hand.state == "asked":
            hand.name = said.pop("name")
            here = library()
            if said != here:
                raise ClusterError(
                    f"the worker on {hand.name} has another dragin_lab: version {said['version']}, source "
                    f"{said['source'][:12]}; here it is {here['version']}, {here['source'][:12]}. Install the"
                    " same there"
                )
            hand.state, hand.pending = "loading", hand.actor.load.remote()
            return
        if self._identity is None:
            self._identity = said
        elif found := _differences(self._identity, said):
            raise ClusterError(
                f"the worker on {hand.name} is not like the first (first → this one): {'; '.join(found[:5])}. "
                "All machines need the same model, passages and libraries"
            )
        hand.state, hand.pending, self._failed = "ready", None, 0

    def _collect(self, hand: _Hand, method: Method, todo: deque[Question], lost: Counter[str]) -> Iterator[Finished]:
        """Take the next answer of a worker; where it was lost, put what it had back in front of the queue."""
        try:
            reference = next(hand.pending, None)
            if reference is None:
                assert not hand.questions
                hand.pending = None
                return
            found = self._got(hand, reference)
        except _LostError as error:
            left = list(hand.questions.values())
            self._dismiss(hand)
            warnings.warn(
                f"the worker on {hand.name} was lost ({error}); "
                + (f"{len(left)} questions are asked again" if len(left) > 1 else "its question is asked again"),
                stacklevel=2,
            )
            for question in reversed(left):
                lost[question.id] += 1
                if lost[question.id] < TRIES:
                    todo.appendleft(question)
                else:
                    why = ClusterError(f"the worker that answered it was lost {TRIES} times: {error}")
                    yield kept_of(refused(question, method, why))
            return
        del hand.questions[found.line["qid"]]
        yield found

    def _got(self, hand: _Hand, reference: Any) -> Any:
        """The value of a reference; ``_LostError`` where the worker is gone, ``ClusterError`` for what it raised."""
        errors = self._link.ray.exceptions
        try:
            return self._link.ray.get(reference)
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            raise ClusterError(f"the worker on {hand.name}: {what_happened(cause)}") from error
        except errors.RayError as error:
            raise _LostError(error) from error

    def _share(self, todo: deque[Question], lost: Counter[str], batch_size: int) -> list[Question]:
        """The next questions for a worker; one alone where a worker was lost with it, as it may be to blame."""
        each = math.ceil(len(todo) / len(self._hands))
        most = 1 if batch_size == 1 or lost[todo[0].id] else min(AHEAD * batch_size, max(each, 1))
        return [todo.popleft() for _ in range(min(most, len(todo)))]

    def _dismiss(self, hand: _Hand) -> None:
        self._hands.remove(hand)
        self._link.ray.kill(hand.actor)

    def _say_what_is_waited_for(self) -> None:
        asked, now = [hand for hand in self._hands if hand.state == "asked"], time.monotonic()
        idle = len(asked) == len(self._hands)
        if not asked or now - self._since < PATIENCE or now - self._said < (AGAIN if idle else math.inf):
            return
        self._said = now
        total, free = self._link.resources()
        lacks = [name for name, amount in self._need.items() if amount > total[name]]
        warnings.warn(
            f"{len(asked)} of {len(self._hands)} workers have not begun after {now - self._since:.0f} seconds: each "
            f"takes {_amounts(self._need)}, and of {_amounts(total)} in the cluster {_amounts(free)} are free"
            + (f" (too few {' and '.join(lacks)}s, so a machine has to join)" if lacks else "")
            + ("; Ctrl-C ends the waiting" if idle else "; the others go on"),
            stacklevel=2,
        )


class _LostError(Exception):
    """A worker that is gone, in one sentence of Ray's; ``for_good`` where another one would fare no better."""

    def __init__(self, error: Exception) -> None:
        said = str(error)
        self.for_good = "creation task" in said and "Error:" in said
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith("The actor is dead because")]
        shown = lines[-1] if self.for_good else (told or lines or [type(error).__name__])[0]
        super().__init__(shown.split(" Some common causes")[0].removeprefix("The actor is dead because ")[:300])


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


def _differences(a: Identity, b: Identity) -> list[str]:
    return differences(*({"model": one.model, "retriever": one.retriever} for one in (a, b)))


def _amounts(of: dict[str, float]) -> str:
    return " and ".join(
        f"{amount:g} {name}{'s' * (amount != 1)}" for name, amount in of.items() if amount or name == "CPU"
    )
