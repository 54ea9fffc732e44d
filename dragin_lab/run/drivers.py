"""Ask one question, stream its events, or ask many side by side."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from dragin_lab.checks import count, several
from dragin_lab.core.episode import Attend, Search, Write
from dragin_lab.core.method import Method
from dragin_lab.engines.engine import stream_draft
from dragin_lab.errors import explain
from dragin_lab.run.serving import Answer, Running, Server, open_episode, refuse_question, search_all
from dragin_lab.run.setup import Setup
from dragin_lab.trace.trace import Decision, Draft, Passage, Question, Step, Trace


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


class Stream(Iterator[Event], AbstractContextManager["Stream"]):
    """An episode under way: iterate for its events; ``trace`` is valid at any moment; ``close()`` cancels it.

    Its tokens are among the events where it is ``watched``.
    """

    def __init__(self, setup: Setup, running: Running, method: Method, *, watched: bool) -> None:
        self.trace = running.trace
        self._events = _events(running, setup.writer, setup.retriever_for(method), watched)

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        """Stop generating now. What was done stays in ``trace``, which says ``cancelled``."""
        self._events.close()
        if self.trace.ended == "running":  # its first event was never asked for
            self.trace.ended = "cancelled"

    def __exit__(self, *_: object) -> None:
        self.close()


# -- one question -----------------------------------------------------------------------------------------------------


def stream(
    setup: Setup,
    question: str | Question,
    method: Method,
    gold: str | Iterable[str] | None = None,
    *,
    watched: bool = True,
) -> Stream:
    """``Lab.stream``. Each draft draws from a seed made of the setup's and of its place in the episode."""
    return Stream(setup, open_episode(setup, method, question, gold), method, watched=watched)


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


def _events(running: Running, model: Any, retriever: Any, watched: bool) -> Generator[Event, None, None]:
    """The events of an episode until it ends; a request that fails is thrown into it."""
    trace, decided, done = running.trace, 0, 0  # steps whose decision, and whose end, were announced
    try:
        running.send(None)
        while True:
            request = running.request
            if running.failed is not None:
                raise running.failed
            for step in trace.steps[done:]:
                if step.decision is not None and step.index >= decided:
                    decided = step.index + 1
                    yield Decided(step.index, step.decision)
                if request is None or step is not trace.steps[-1]:  # nothing is added to it any more
                    done += 1
                    yield StepDone(step)
            if request is None:
                break
            step_number = trace.steps[-1].index if trace.steps else 0
            answer: Any
            try:
                if isinstance(request, Write) and watched:
                    kind = kind_of(request, trace)
                    answer = yield from _watch_tokens(model, request, running.draft_seed, step_number, kind)
                elif isinstance(request, Write):
                    answer = model.write(request, running.draft_seed)
                elif isinstance(request, Attend):
                    answer = model.attend(request.ids)
                else:
                    (answer,) = search_all(retriever, [request])
            except Exception as error:  # noqa: BLE001 - whatever a model raises belongs to the episode
                answer = error
            running.send(answer)  # first, so that the trace of one who leaves now has it
            if isinstance(request, Search) and isinstance(answer, list):
                yield Retrieved(step_number, request.query, tuple(answer))
        yield Ended(trace)
    finally:
        running.close()


def _watch_tokens(model: Any, request: Write, seed: int, step: int, kind: str) -> Generator[TokenWritten, None, Draft]:
    """An event for each token of a draft; returns the draft."""
    shown, tokens = 0, stream_draft(model, request, seed)  # characters of the text
    while True:
        try:
            draft = next(tokens)
        except StopIteration as end:
            return end.value
        new, shown = draft.text[shown:], len(draft.text)
        yield TokenWritten(step, kind, len(draft) - 1, new, float(draft.entropy[-1]), float(draft.logprob[-1]))


def kind_of(request: Write, trace: Trace) -> str:
    """Which of an episode's texts a draft is: "draft", "continuation" or "answer" (the extraction)."""
    if request.prompt is trace.extraction_prompt:
        return "answer"
    return "continuation" if trace.steps and request.prompt is trace.steps[-1].passages_prompt else "draft"


# -- many -------------------------------------------------------------------------------------------------------------


def ask_many(setup: Setup, questions: Iterable[str | Question], method: Method, batch_size: int = 1) -> Iterator[Trace]:
    """``Lab.ask_many``. What the cache serves takes no place in the batch.

    With ``batch_size`` above 1, ``trace.provenance["batch"]`` has the size asked for, the size when the episode ended
    and, where it is smaller, why; a warning says so when it happens. Seconds are wall-clock time, so those of episodes
    side by side overlap.
    """
    if not isinstance(questions, Iterator):  # a list is checked before anything is asked
        remedy = "give a list of texts or of Question; Lab.run takes dictionaries and tables"
        questions = iter(several("questions", questions, str | Question, remedy))
    return _answer_many(setup, questions, method, count("batch_size", batch_size))


def _answer_many(setup: Setup, questions: Iterator[str | Question], method: Method, batch_size: int) -> Iterator[Trace]:
    server = Server(setup.writer, setup.retriever_for(method), batch_size)
    under_way: list[Running] = []
    more, broken, answered, warned = True, None, 0, 0

    def note_batch(trace: Trace) -> Trace:
        if batch_size > 1:
            trace.provenance["batch"] = server.drafts.describe()
        return trace

    try:
        while more or under_way:
            opened: list[tuple[Running, Answer | None]] = []
            while more and len(under_way) < server.drafts.size:
                try:
                    question = next(questions)
                except StopIteration:
                    more = False
                    break
                except Exception as error:  # noqa: BLE001 - raised when those under way have ended
                    more, broken = False, error
                    break
                try:
                    opened.append((open_episode(setup, method, question), None))
                except Exception as error:  # noqa: BLE001 - the other questions are still answered
                    yield refuse_question(question, method, error)
                else:
                    under_way.append(opened[-1][0])
            for running, answer in opened or server.answers():
                if not server.go_on(running, answer):
                    under_way.remove(running)
                    answered += 1
                    yield note_batch(running.trace)
            if batch_size > 1:
                for note in server.drafts.describe()["notes"][warned:]:
                    warnings.warn(note, stacklevel=2)
                    warned += 1
        if broken is not None:
            raise broken
    except KeyboardInterrupt as interrupt:
        interrupt.traces = [note_batch(running.trace) for running in under_way]  # type: ignore[attr-defined]
        explain(
            interrupt,
            f"{answered} questions have their trace; {len(under_way)} under way were cancelled. Run again with the "
            "questions that are left.",
        )
        raise
    finally:
        for running in under_way:
            running.close()
        server.drafts.close()
