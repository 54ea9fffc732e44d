"""One question at a time: an episode under way, what it is served with, and the events that come
of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from dragin_lab import __version__
from dragin_lab.catalog.by_name import start_episode
from dragin_lab.checks import shown
from dragin_lab.core.episode import Attend, Episode, Request, Search, Write
from dragin_lab.core.method import Method
from dragin_lab.engines.engine import stream_draft
from dragin_lab.errors import SettingError, describe_error, explain
from dragin_lab.run.setup import Setup
from dragin_lab.text import printable
from dragin_lab.trace.trace import Decision, Draft, Passage, Question, Step, Trace
from dragin_lab.warning import warn

Golds = str | Iterable[str] | None  # in place of the question's own
Results = list[Any] | Exception  # of a retriever: passages, or counts


class Running:
    """An episode under way. ``request`` is what it waits for; None before its begin and after its
    end.

    An error that the episode does not handle ends it; the trace records it, and ``failed`` holds
    it.
    """

    def __init__(self, episode: Episode[None], trace: Trace) -> None:
        self.trace = trace
        self.request: Request | None = None
        self.failed: Exception | None = None
        self.episode = episode
        self._started = self._asked = time.perf_counter()

    @property
    def draft_seed(self) -> int:
        """The next draft's own seed: of the run's seed, the question and the draft's place in
        the episode.
        """
        asked = self.trace.question
        recorded = self.trace.provenance
        written = sum(len(step.texts) for step in self.trace.steps)
        place = written + (self.trace.extraction is not None)
        parts = [recorded["seed"], asked.id, asked.text, recorded.get("draw", 0), place]
        return int.from_bytes(sha256(json.dumps(parts).encode()).digest()[:4])

    def send(self, answer: Any) -> None:
        """Answer the request, with an exception where it failed; the first time None, to begin."""
        if self.request is not None and self.trace.steps:
            seconds = self.trace.steps[-1].seconds
            kind = self.request.kind
            seconds[kind] = seconds.get(kind, 0.0) + time.perf_counter() - self._asked
        try:
            failed = isinstance(answer, Exception)
            self.request = self.episode.throw(answer) if failed else self.episode.send(answer)
        except StopIteration:
            self.request = None
        except Exception as error:  # noqa: BLE001 - whoever drives the episode decides whether to raise it
            self.request = None
            self.failed = error
            self.trace.ended = "error"
            self.trace.error = describe_error(error)
        finally:
            self._asked = time.perf_counter()
            self.trace.seconds = self._asked - self._started

    def close(self) -> None:
        """End the episode, wherever it is; one that had not ended is cancelled."""
        if self.request is not None or self.trace.ended == "running":
            self.trace.ended = "cancelled"
            self.trace.seconds = time.perf_counter() - self._started
        self.episode.close()


def open_episode(
    setup: Setup,
    method: Method,
    question: str | Question,
    gold: Golds = None,
    draw: int = 0,
) -> Running:
    """A question's episode, not started; ``gold`` replaces the question's own gold answers.

    ``draw`` tells the answers to one question apart that are sampled under one seed.

    Raises ``SettingError`` for an empty question.
    """
    question = check_question(question, gold)
    model = setup.model
    # refuses a layout before the model is asked anything
    template = setup.template(method).bound(model.tokenizer)
    provenance = model.provenance() | {
        "dragin_lab": __version__,
        "context_window": model.context_window,
        "retriever": setup.describe_retriever(method),
        "seed": setup.seed,
        "template": template.settings,
    }
    trace = Trace(question, method.settings, provenance=provenance)
    if draw:
        trace.provenance["draw"] = draw
    if template.chosen:
        trace.provenance["exemplars"] = template.chosen
    if (
        setup.prompt is not None
        and setup.prompt.exemplars
        and template.exemplars != setup.prompt.exemplars
    ):
        trace.notes.append(
            f"the exemplars do not show what {method.name} writes, so its own stand in their place"
        )
    episode = start_episode(method, trace, template, model.tokenizer, window=model.context_window)
    return Running(episode, trace)


def check_question(question: str | Question, gold: Golds = None) -> Question:
    """The question that is asked; ``gold`` replaces its gold answers. Raises ``SettingError``
    for an empty one.
    """
    if not isinstance(question, str | Question):
        raise SettingError(
            f"question {shown(question)} is {type(question).__name__}; give a text or a Question"
        )
    if isinstance(question, str):
        question = Question("", question)
    if gold is not None:
        question = replace(question, golds=gold)  # type: ignore[arg-type]
    if not question.text.strip():
        raise SettingError("the question is empty; write one, such as 'Who directed the film …?'")
    return question


def refuse_question(question: str | Question, method: Method, error: Exception) -> Trace:
    """The trace of a question that no episode could be opened for."""
    question = question if isinstance(question, Question) else Question("", printable(question))
    return Trace(question, method.settings, ended="error", error=describe_error(error))


# -- one question, as events -----------------------------------------------------------------------


@dataclass(frozen=True)
class TokenWritten:
    """The model wrote one token; ``kind`` is "draft" (before a decision), "continuation" or
    "answer" (extraction).

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
    """An episode under way: iterate for its events; ``trace`` is valid at any moment; ``close()``
    cancels it.

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


def open_stream(
    setup: Setup,
    question: str | Question,
    method: Method,
    gold: Golds = None,
    *,
    watched: bool = True,
) -> Stream:
    """``Lab.stream``."""
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
                f"Interrupted; retrievals so far: {done['retrievals']}, tokens:"
                f" {done['generated']}. What was done is the exception's trace: in a notebook,"
                " sys.last_value.trace.",
            )
        raise
    return events.trace


def _events(
    running: Running, model: Any, retriever: Any, watched: bool
) -> Generator[Event, None, None]:
    """The events of an episode until it ends; a request that fails is thrown into it."""
    # steps whose decision, and whose end, were announced
    trace = running.trace
    decided = 0
    done = 0
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
                # nothing is added to it any more
                if request is None or step is not trace.steps[-1]:
                    done += 1
                    yield StepDone(step)
            if request is None:
                break
            step_number = trace.steps[-1].index if trace.steps else 0
            answer: Any
            try:
                if isinstance(request, Write) and watched:
                    kind = kind_of(request, trace)
                    answer = yield from _watch_tokens(
                        model, request, running.draft_seed, step_number, kind
                    )
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


def _watch_tokens(
    model: Any, request: Write, seed: int, step: int, kind: str
) -> Generator[TokenWritten, None, Draft]:
    """An event for each token of a draft; returns the draft."""
    shown = 0  # characters of the text
    tokens = stream_draft(model, request, seed)
    while True:
        try:
            draft = next(tokens)
        except StopIteration as end:
            return end.value
        new = draft.text[shown:]
        shown = len(draft.text)
        yield TokenWritten(
            step, kind, len(draft) - 1, new, float(draft.entropy[-1]), float(draft.logprob[-1])
        )


def kind_of(request: Write, trace: Trace) -> str:
    """Which of an episode's texts a draft is: "draft", "continuation" or "answer" (the
    extraction).
    """
    if request.prompt is trace.extraction_prompt:
        return "answer"
    if trace.steps and request.prompt is trace.steps[-1].passages_prompt:
        return "continuation"
    return "draft"


def search_all(retriever: Any, requests: Sequence[Search]) -> list[Results]:
    """What each request finds, or its error; all together where the retriever has
    ``search_many``.
    """
    alike = len(requests) > 1 and len({search.k for search in requests}) == 1
    if alike and hasattr(retriever, "search_many"):
        try:
            answers = retriever.search_many([search.query for search in requests], requests[0].k)
            return [list(passages) for _, passages in zip(requests, answers, strict=True)]
        except Exception as error:  # noqa: BLE001 - one query may be at fault; alone, each meets its own error
            why = describe_error(error)
            warn(f"search_many failed ({why}); the queries are sent one by one")
    results: list[Results] = []
    for request in requests:
        try:
            results.append(list(retriever.search(request.query, request.k)))
        except Exception as error:  # noqa: BLE001 - belongs to the episode that asked
            results.append(error)
    return results
