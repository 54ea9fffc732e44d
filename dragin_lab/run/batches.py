"""Many questions: their drafts side by side in one batch, their searches in a thread beside it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from dragin_lab.checks import count, several
from dragin_lab.core.episode import Attend, Search, Write
from dragin_lab.core.method import Method
from dragin_lab.engines.engine import Batch
from dragin_lab.errors import explain
from dragin_lab.run.episodes import Results, Running, open_episode, refuse_question, search_all
from dragin_lab.run.setup import Setup
from dragin_lab.trace.trace import Draft, Question, Trace
from dragin_lab.warning import warn

Answer = Draft | Results
Answers = list[tuple[Running, Answer]]


class SideBySide:
    """Serves many episodes side by side: ``go_on`` starts one, ``answers`` waits for what any of
    them has asked for.

    The drafts of ``size`` episodes are written in one batch, with their searches in a thread beside
    it where there are several. An episode that ends, or waits for passages, gives its place to the
    next draft.
    """

    def __init__(self, model: Any, retriever: Any, size: int) -> None:
        self.drafts: Any = model.batch(size) if size > 1 else Batch(model)
        self._retriever = retriever
        self._threaded = size > 1
        self._waiting: list[tuple[Running, Search]] = []
        self._under_way: tuple[list[Running], Future[list[Results]]] | None = None

    def go_on(self, running: Running, answer: Answer | None = None) -> bool:
        """Give an episode its answer and take its next request; False where it has ended."""
        running.send(answer)
        while isinstance(running.request, Attend):
            try:
                attention = self.drafts.attend(running.request.ids)
            except Exception as error:  # noqa: BLE001 - whatever a model raises belongs to the episode
                attention = error
            running.send(attention)
        if isinstance(running.request, Write):
            self.drafts.ask(running, running.request, running.draft_seed)
        elif isinstance(running.request, Search):
            self._waiting.append((running, running.request))
        return running.request is not None

    def answers(self) -> Answers:
        """Do one thing, such as writing a token; the requests that are answered by then.
        Failures are answers too.
        """
        self._start_search()
        if self._under_way is not None and (not len(self.drafts) or self._under_way[1].done()):
            asking, results = self._under_way
            answers: Answers = list(zip(asking, results.result(), strict=True))
            self._under_way = None
            self._start_search()
            return answers
        drafts: Answers = self.drafts.step()
        return drafts

    def _start_search(self) -> None:
        if not self._waiting or self._under_way is not None:
            return
        asking, requests = zip(*self._waiting, strict=True)
        self._waiting = []
        results: Future[list[Results]] = Future()
        self._under_way = list(asking), results

        def search() -> None:
            try:
                results.set_result(search_all(self._retriever, requests))
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                results.set_exception(error)

        # unlike those of concurrent.futures, it does not hold the process when that ends
        if self._threaded:
            threading.Thread(target=search, name="dragin-lab-search", daemon=True).start()
        else:
            search()


def ask_many(
    setup: Setup, questions: Iterable[str | Question], method: Method, batch_size: int = 1
) -> Iterator[Trace]:
    """``Lab.ask_many``. What the cache serves takes no place in the batch.

    With ``batch_size`` above 1, ``trace.provenance["batch"]`` has the size asked for, the size when
    the episode ended and, where it is smaller, why; a warning says so when it happens. Seconds are
    wall-clock time, so those of episodes side by side overlap.
    """
    if not isinstance(questions, Iterator):  # a list is checked before anything is asked
        remedy = "give a list of texts or of Question; Lab.run takes dictionaries and tables"
        questions = iter(several("questions", questions, str | Question, remedy))
    asked = ((question, method) for question in questions)
    retriever = setup.retriever_for(method)
    return answer_each(setup, asked, retriever, count("batch_size", batch_size))


def answer_each(
    setup: Setup, asked: Iterator[tuple[str | Question, Method]], retriever: Any, batch_size: int
) -> Iterator[Trace]:
    """``ask_many`` of questions that each have a method of their own."""
    server = SideBySide(setup.writer, retriever, batch_size)
    under_way: list[Running] = []
    draws = Counter[Any]()  # how often each question was asked in this call
    more = True
    broken = None
    answered = 0
    warned = 0

    def note_batch(trace: Trace) -> Trace:
        if batch_size > 1:
            trace.provenance["batch"] = server.drafts.describe()
        return trace

    try:
        while more or under_way:
            opened: list[tuple[Running, Answer | None]] = []
            while more and len(under_way) < server.drafts.size:
                try:
                    question, method = next(asked)
                except StopIteration:
                    more = False
                    break
                except Exception as error:  # noqa: BLE001 - raised when those under way have ended
                    more = False
                    broken = error
                    break
                try:
                    same = question if isinstance(question, str) else (question.id, question.text)
                    opened.append((open_episode(setup, method, question, draw=draws[same]), None))
                    draws[same] += 1
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
                    warn(note)
                    warned += 1
        if broken is not None:
            raise broken
    except KeyboardInterrupt as interrupt:
        interrupt.traces = [note_batch(running.trace) for running in under_way]  # type: ignore[attr-defined]
        explain(
            interrupt,
            f"{answered} questions have their trace; {len(under_way)} under way were cancelled. Run"
            " again with the questions that are left.",
        )
        raise
    finally:
        for running in under_way:
            running.close()
        server.drafts.close()
