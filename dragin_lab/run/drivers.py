"""Ask one question, stream its events, or ask many side by side: three ways around one ``serving.Server``."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dragin_lab.checks import several, shown
from dragin_lab.core.episode import Search, Write
from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError, explain
from dragin_lab.run.lab import Lab
from dragin_lab.run.serving import Answer, Running, Server, open_episode, refuse_question
from dragin_lab.trace.trace import Decision, Passage, Question, Step, Trace


@dataclass(frozen=True)
class TokenWritten:
    """The model wrote one token; ``kind`` is "draft" (before a decision), "continuation" or "answer" (extraction).

    ``step``, as in every event, is the step's position in ``trace.steps``.
    """

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


# -- one question -----------------------------------------------------------------------------------------------------


def stream(lab: Lab, question: str | Question, method: Method, gold: str | Iterable[str] | None = None) -> Stream:
    """``Lab.stream``. Each draft draws from a seed made of the lab's and of its place in the episode."""
    return begin_stream(lab, open_episode(lab, method, question, gold), method, watched=True)


def begin_stream(lab: Lab, running: Running, method: Method, *, watched: bool) -> Stream:
    """An episode's events, its tokens among them where it is ``watched``."""
    return Stream(serve(running, Server(lab.writer, lab.retriever_for(method), watched=watched)), running.trace)


def ask(lab: Lab, question: str | Question, method: Method, gold: str | Iterable[str] | None = None) -> Trace:
    """``Lab.ask``."""
    return finish_stream(begin_stream(lab, open_episode(lab, method, question, gold), method, watched=False))


def finish_stream(events: Stream) -> Trace:
    """Run an episode to its end; what is raised carries the trace so far as ``trace``."""
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


def serve(running: Running, server: Server) -> Generator[Event, None, None]:
    """The events of one episode until it ends; a request that fails is thrown into it."""
    trace, news = running.trace, _News(running.trace)
    try:
        under_way = server.go_on(running)
        while under_way:
            yield from news.of_steps(len(trace.steps) - 1)
            step = trace.steps[-1].index if trace.steps else 0
            request = running.request
            shown = 0  # characters of the draft
            while not (answers := server.answers()):
                if isinstance(request, Write) and (draft := server.token) is not None:
                    new, shown = draft.text[shown:], len(draft.text)
                    entropy, logprob = float(draft.entropy[-1]), float(draft.logprob[-1])
                    yield TokenWritten(step, kind_of(request, trace), len(draft) - 1, new, entropy, logprob)
            ((_, answer),) = answers
            searched = request if isinstance(request, Search) else None
            under_way = server.go_on(running, answer)  # first, so that the trace of one who leaves now has them
            if searched is not None and isinstance(answer, list):
                yield Retrieved(step, searched.query, tuple(answer))
        if running.failed is not None:
            raise running.failed
        yield from news.of_steps(len(trace.steps))
        yield Ended(trace)
    except GeneratorExit:
        trace.ended = "cancelled" if trace.ended == "running" else trace.ended
        raise
    except KeyboardInterrupt:
        trace.ended = "cancelled"
        raise
    finally:
        running.close()
        server.close()


@dataclass
class _News:
    """What of a trace has been announced already."""

    trace: Trace
    decided: int = 0  # steps whose decision was announced
    done: int = 0  # steps whose end was announced

    def of_steps(self, ended: int) -> Iterator[Event]:
        """Decisions taken and steps ended since the last call; nothing is added to the first ``ended`` steps."""
        for step in self.trace.steps[self.done :]:
            if step.decision is not None and step.index >= self.decided:
                self.decided = step.index + 1
                yield Decided(step.index, step.decision)
            if step.index < ended:
                self.done += 1
                yield StepDone(step)


def kind_of(request: Write, trace: Trace) -> str:
    """Which of an episode's texts a draft is: "draft", "continuation" or "answer" (the extraction)."""
    if request.prompt is trace.extraction_prompt:
        return "answer"
    return "continuation" if trace.steps and request.prompt is trace.steps[-1].passages_prompt else "draft"


# -- many -------------------------------------------------------------------------------------------------------------


def ask_many(lab: Lab, questions: Iterable[str | Question], method: Method, batch_size: int = 1) -> Iterator[Trace]:
    """``Lab.ask_many``. What the cache serves takes no place in the batch.

    With ``batch_size`` above 1, ``trace.provenance["batch"]`` has the size asked for, the size when the episode ended
    and, where it is smaller, why; a warning says so when it happens. Seconds are wall-clock time, so those of episodes
    side by side overlap.
    """
    if not isinstance(questions, Iterator):  # a list is checked before anything is asked
        remedy = "give a list of texts or of Question; Lab.run takes dictionaries and tables"
        questions = several("questions", questions, str | Question, remedy)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise SettingError(f"batch_size={shown(batch_size)}: give a whole number of at least 1 (1: one after another)")
    return serve_many(lab, method, map(partial(_open_or_refuse, lab, method), questions), int(batch_size))


def serve_many(lab: Lab, method: Method, episodes: Iterable[Running | Trace], batch_size: int) -> Iterator[Trace]:
    """The traces of episodes as they end, ``batch_size`` of them side by side; a trace among them is handed on."""
    return _Many(lab, method, batch_size).traces(episodes)


def _open_or_refuse(lab: Lab, method: Method, question: str | Question) -> Running | Trace:
    try:
        return open_episode(lab, method, question)
    except Exception as error:  # noqa: BLE001 - the other questions are still answered
        return refuse_question(question, method, error)


class _Many:
    """Episodes side by side, each of which asks and records what it does alone."""

    def __init__(self, lab: Lab, method: Method, batch_size: int) -> None:
        self.lab, self.method, self.batch_size = lab, method, batch_size
        self.running: list[Running] = []
        self.ended = 0  # episodes whose trace was handed out

    def traces(self, episodes: Iterable[Running | Trace]) -> Iterator[Trace]:
        """Each trace as its episode ends."""
        self.server = Server(self.lab.writer, self.lab.retriever_for(self.method), self.batch_size)
        try:
            yield from self._answer(iter(episodes))
        except KeyboardInterrupt as interrupt:
            cancelled = self._cancel()
            interrupt.traces = cancelled  # type: ignore[attr-defined]
            explain(
                interrupt,
                f"{self.ended} questions have their trace; {len(cancelled)} under way were cancelled. Run again with "
                "the questions that are left.",
            )
            raise
        finally:
            self._cancel()

    def _answer(self, episodes: Iterator[Running | Trace]) -> Iterator[Trace]:
        waiting, broken, notes = True, None, 0
        while waiting or self.running:
            while waiting and len(self.running) < self.server.drafts.size:
                try:
                    opened = next(episodes)
                except StopIteration:
                    waiting = False
                except Exception as error:  # noqa: BLE001 - raised when those under way have ended
                    waiting, broken = False, error
                else:
                    yield from self._begin(opened)
            for running, answer in self.server.answers():
                yield from self._go_on(running, answer)
            if self.batch_size > 1:
                new = self.server.drafts.describe()["notes"][notes:]
                for note in new:
                    warnings.warn(note, stacklevel=3)
                notes += len(new)
        if broken is not None:
            raise broken

    def _begin(self, opened: Running | Trace) -> Iterator[Trace]:
        if isinstance(opened, Trace):
            yield opened
            return
        self.running.append(opened)
        yield from self._go_on(opened, None)

    def _go_on(self, running: Running, answer: Answer | None) -> Iterator[Trace]:
        if not self.server.go_on(running, answer):
            self.running.remove(running)
            self._note_batch(running.trace)
            self.ended += 1
            yield running.trace

    def _cancel(self) -> list[Trace]:
        """Give up what is under way; the traces of it."""
        cancelled, self.running = self.running, []
        for running in cancelled:
            running.trace.ended = "cancelled"
            self._note_batch(running.trace)
            running.close()
        self.server.close()
        return [running.trace for running in cancelled]

    def _note_batch(self, trace: Trace) -> None:
        if self.batch_size > 1:
            trace.provenance["batch"] = self.server.drafts.describe()
