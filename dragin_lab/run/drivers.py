"""Drivers: serve an episode's requests with a model and a retriever, one question at a time, streamed or many."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dragin_lab.checks import several, shown
from dragin_lab.core.episode import Retriever, Search, Write
from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError, explain
from dragin_lab.run.lab import Lab
from dragin_lab.run.many import side_by_side
from dragin_lab.run.serving import Found, Running, opened, refused, search_all
from dragin_lab.trace.trace import Continuation, Decision, Passage, Question, Step, Trace


@dataclass(frozen=True)
class TokenWritten:
    """The model wrote one token; ``kind`` is "draft" (before a decision), "continuation" or "answer" (extraction)."""

    step: int
    kind: str
    index: int
    text: str  # what the token added to the text
    entropy: float  # nats
    logprob: float  # nats


@dataclass(frozen=True)
class Decided:
    """The method has decided whether to retrieve, before it searches or goes on."""

    step: int
    decision: Decision


@dataclass(frozen=True)
class Retrieved:
    """Passages were fetched."""

    step: int
    query: str
    passages: tuple[Passage, ...]


@dataclass(frozen=True)
class StepDone:
    """A turn of the loop has ended; the step is complete."""

    step: Step


@dataclass(frozen=True)
class Ended:
    """The episode has ended."""

    trace: Trace


Event = TokenWritten | Decided | Retrieved | StepDone | Ended


class Stream:
    """An episode under way: iterate for its events; ``trace`` is valid at any moment; ``close()`` cancels it."""

    def __init__(self, events: Generator[Event, None, None], trace: Trace) -> None:
        self.trace, self._events = trace, events

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        """Stop generating now. What was done stays in ``trace``, which says ``cancelled``."""
        self._events.close()
        if self.trace.ended == "running":
            self.trace.ended = "cancelled"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stream(lab: Lab, question: str | Question, method: Method, gold: str | Iterable[str] | None = None) -> Stream:
    """``Lab.stream``. Each draft draws from a seed made of the lab's and of its place in the episode."""
    running = opened(lab, method, question, lab.writer, gold)
    return Stream(serve(running, lab.retriever_for(method)), running.trace)


def ask(lab: Lab, question: str | Question, method: Method, gold: str | Iterable[str] | None = None) -> Trace:
    """``Lab.ask``."""
    events = stream(lab, question, method, gold)
    try:
        for _ in events:
            pass
    except BaseException as error:
        events.close()
        error.trace = events.trace  # type: ignore[attr-defined]
        if isinstance(error, KeyboardInterrupt):
            done = events.trace.counters
            explain(
                error,
                f"Interrupted; retrievals so far: {done['retrievals']}, tokens: {done['generated']}. What was done is "
                "the exception's trace: in a notebook, sys.last_value.trace.",
            )
        raise
    return events.trace


def ask_many(lab: Lab, questions: Iterable[str | Question], method: Method, batch_size: int = 1) -> Iterator[Trace]:
    """``Lab.ask_many``. What the cache serves takes no place in the batch."""
    if not isinstance(questions, Iterator):  # what is all there is looked at before anything is asked
        remedy = "give a list of texts or of Question; Lab.run takes dictionaries and tables"
        questions = several("questions", questions, str | Question, remedy)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise SettingError(f"batch_size={shown(batch_size)}: give a whole number of at least 1 (1: one after another)")
    if batch_size == 1:
        return _one_by_one(lab, questions, method)
    return side_by_side(lab, questions, method, int(batch_size))


def _one_by_one(lab: Lab, questions: Iterable[str | Question], method: Method) -> Iterator[Trace]:
    for question in questions:
        try:
            trace = ask(lab, question, method)
        except Exception as error:  # noqa: BLE001 - the other questions are still answered
            trace = getattr(error, "trace", None) or refused(question, method, error)
        yield trace


def serve(running: Running, retriever: Retriever | None) -> Generator[Event, None, None]:
    """Answer the episode's requests until it ends; a request that fails is thrown into it."""
    trace = running.trace
    news = _News(trace)
    answer: Continuation | Found
    try:
        running.go_on()
        while (request := running.request) is not None:
            yield from news.of_steps(trace.steps[:-1])
            step = trace.steps[-1].index if trace.steps else 0
            if isinstance(request, Write):
                answer = yield from _write(running, request, step)
            else:
                assert isinstance(request, Search)
                (answer,) = search_all(retriever, [request])
                if not isinstance(answer, Exception):
                    yield Retrieved(step, request.query, tuple(answer))
            running.go_on(answer)
        if running.failed is not None:
            raise running.failed
        yield from news.of_steps(trace.steps)
        yield Ended(trace)
    except GeneratorExit:
        trace.ended = "cancelled" if trace.ended == "running" else trace.ended
        raise
    except KeyboardInterrupt:
        trace.ended = "cancelled"
        raise
    finally:
        running.close()


@dataclass
class _News:
    """What of a trace has been announced already."""

    trace: Trace
    decided: int = 0  # steps whose decision was announced
    done: int = 0  # steps whose end was announced

    def of_steps(self, ended: Sequence[Step]) -> Iterator[Event]:
        """Decisions taken and steps ended since the last call; ``ended`` are the steps that nothing is added to."""
        for step in self.trace.steps[self.done :]:
            if step.decision is not None and step.index >= self.decided:
                self.decided = step.index + 1
                yield Decided(step.index, step.decision)
            if step.index < len(ended):
                self.done += 1
                yield StepDone(step)


def _write(running: Running, request: Write, step: int) -> Generator[Event, None, Continuation | Exception]:
    kind = _kind(request, running.trace)
    try:
        tokens = running.model.stream(request, seed=running.draft_seed)
        while True:
            token = next(tokens)
            yield TokenWritten(step, kind, token.index, token.delta, token.entropy, token.logprob)
    except StopIteration as end:
        continuation: Continuation = end.value
        return continuation
    except Exception as error:  # noqa: BLE001 - whatever a model raises belongs to the episode
        return error


def _kind(request: Write, trace: Trace) -> str:
    if request.prompt is trace.extraction_prompt:
        return "answer"
    return "continuation" if trace.steps and request.prompt is trace.steps[-1].passages_prompt else "draft"
