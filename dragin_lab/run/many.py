"""Many episodes side by side: their drafts in one batch, their searches in a thread beside it.

An episode that ends, or that waits for passages, gives its place in the forward to the next draft, so none waits for
the slowest. What an episode asks and records is what it does alone.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from dragin_lab.core.episode import Retriever, Search, Write
from dragin_lab.core.method import Method
from dragin_lab.errors import explain
from dragin_lab.run.lab import Lab
from dragin_lab.run.serving import Found, Running, opened, refused, search_all
from dragin_lab.trace.trace import Question, Trace

T = TypeVar("T")


def side_by_side(lab: Lab, questions: Iterable[str | Question], method: Method, batch_size: int) -> Iterator[Trace]:
    """Answer questions, at most ``batch_size`` at once, yielding each trace as its episode ends.

    ``trace.provenance["batch"]`` has the size asked for, the size when the episode ended and, where it is smaller, why;
    a warning says so when it happens. Seconds are wall-clock time, so those of episodes side by side overlap.
    """
    driver = _SideBySide(lab, method, batch_size)
    try:
        yield from driver.answer(questions)
    except KeyboardInterrupt as interrupt:
        given_up = driver.cancel()
        interrupt.traces = given_up  # type: ignore[attr-defined]
        explain(
            interrupt,
            f"{driver.ended} questions have their trace; {len(given_up)} under way were cancelled. Run again with the "
            "questions that are left.",
        )
        raise
    finally:
        driver.cancel()


class _SideBySide:
    """The episodes under way and who serves them."""

    def __init__(self, lab: Lab, method: Method, batch_size: int) -> None:
        self.lab = lab
        self.method = method
        self.batch = lab.writer.batch(batch_size)
        self.searches = _Searches(lab.retriever_for(method))
        self.running: list[Running] = []
        self.ended = 0  # episodes whose trace was handed out
        self.told = 0  # notes of the batch that a warning has told

    def answer(self, questions: Iterable[str | Question]) -> Iterator[Trace]:
        """Serve all episodes until the last one has ended."""
        waiting: Iterator[str | Question] | None = iter(questions)
        broken: Exception | None = None
        while waiting is not None or self.running:
            while waiting is not None and len(self.running) < self.batch.size:
                try:
                    question = next(waiting)
                except StopIteration:
                    waiting = None
                except Exception as error:  # noqa: BLE001 - raised when those under way have ended
                    waiting, broken = None, error
                else:
                    yield from self._open(question)
            for running, found in self.searches.answers(wait=not len(self.batch)):
                yield from self._go_on(running, found)
            ended = self.batch.step()
            self._tell()
            for running, made in ended:
                yield from self._go_on(running, made)
        if broken is not None:
            raise broken

    def _tell(self) -> None:
        notes = self.batch.describe()["notes"]
        for note in notes[self.told :]:
            warnings.warn(note, stacklevel=2)
        self.told = len(notes)

    def _open(self, question: str | Question) -> Iterator[Trace]:
        try:
            running = opened(self.lab, self.method, question, self.batch)
        except Exception as error:  # noqa: BLE001 - the other questions are still answered
            yield refused(question, self.method, error)
            return
        self.running.append(running)
        yield from self._go_on(running, None)

    def _go_on(self, running: Running, answer: Any) -> Iterator[Trace]:
        """Give an episode its answer, or what it failed with, and pass on what it asks for next."""
        running.go_on(answer)
        request, trace = running.request, running.trace
        if isinstance(request, Write):
            self.batch.ask(running, request, running.draft_seed)
        elif isinstance(request, Search):
            self.searches.ask(running, request)
        else:
            self.running.remove(running)
            trace.provenance["batch"] = self.batch.describe()
            self.ended += 1
            yield trace

    def cancel(self) -> list[Trace]:
        """Give up what is under way, and say what that was."""
        given_up, self.running = self.running, []
        for running in given_up:
            running.trace.ended = "cancelled"
            running.trace.provenance["batch"] = self.batch.describe()
            running.close()
        self.searches.close()
        self.batch.close()
        return [running.trace for running in given_up]


class _Searches:
    """Searches in a thread of their own. What is asked for while one is under way goes out together after it."""

    def __init__(self, retriever: Retriever | None) -> None:
        self._retriever = retriever
        self._waiting: list[tuple[Running, Search]] = []
        self._under_way: tuple[list[Running], Future[list[Found]]] | None = None

    def ask(self, running: Running, request: Search) -> None:
        self._waiting.append((running, request))

    def answers(self, *, wait: bool) -> list[tuple[Running, Found]]:
        """What was found since the last call; ``wait`` for it where nothing else is to be done."""
        self._send()
        found: list[tuple[Running, Found]] = []
        if self._under_way is not None and (wait or self._under_way[1].done()):
            who, future = self._under_way
            found = list(zip(who, future.result(), strict=True))
            self._under_way = None
            self._send()
        return found

    def _send(self) -> None:
        if self._waiting and self._under_way is None:
            who, requests = zip(*self._waiting, strict=True)
            self._waiting = []
            self._under_way = list(who), _begin(search_all, self._retriever, requests)

    def close(self) -> None:
        self._waiting = []


def _begin(work: Callable[..., T], *values: Any) -> Future[T]:
    """Work in a thread that does not hold the process when it ends, as those of concurrent.futures do."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work(*values))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name="dragin-lab-search", daemon=True).start()
    return future
