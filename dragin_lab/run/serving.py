"""Serve what episodes ask for: drafts and attention maps by the model, passages by the retriever.

Everything that answers questions is around one ``Server``: one question, a stream of its events, many side by side, and
the workers of a cluster. A cache is a model of its own (``cached``), so nothing here knows of it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dragin_lab.catalog.methods import start_episode
from dragin_lab.checks import shown
from dragin_lab.core.episode import Attend, Episode, Request, Retriever, Search, Write
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.engines.engine import Batch
from dragin_lab.engines.streaming import stream_draft
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.run.lab import Lab
from dragin_lab.text import printable
from dragin_lab.trace.trace import Draft, Question, Trace

Results = list[Any] | Exception  # of a retriever: passages, or counts
Answer = Draft | Results


class Running:
    """An episode under way. ``request`` is what it waits for; None before its begin and after its end.

    An error that the episode does not handle ends it; the trace records it, and ``failed`` holds it.
    """

    def __init__(self, episode: Episode[None], trace: Trace, seed: int) -> None:
        self.trace, self.seed = trace, seed
        self.request: Request | None = None
        self.failed: Exception | None = None
        self.episode = episode
        self._started = self._asked = time.perf_counter()

    @property
    def draft_seed(self) -> int:
        """The next draft's own seed, so that it does not repeat the draws of the one before it."""
        return int(np.random.SeedSequence([self.seed, len(self.trace.continuations)]).generate_state(1)[0])

    def send(self, answer: Any) -> None:
        """Answer the request, with an exception where it failed; the first time None, to begin."""
        if self.request is not None and self.trace.steps:
            seconds, kind = self.trace.steps[-1].seconds, self.request.kind
            seconds[kind] = seconds.get(kind, 0.0) + time.perf_counter() - self._asked
        self.request = None
        try:
            failed = isinstance(answer, Exception)
            self.request = self.episode.throw(answer) if failed else self.episode.send(answer)
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - whoever drives the episode decides whether to raise it
            self.failed = error
            self.trace.ended, self.trace.error = "error", describe_error(error)
        finally:
            self._asked = time.perf_counter()
            self.trace.seconds = self._asked - self._started

    def close(self) -> None:
        """End the episode, wherever it is."""
        self.trace.seconds = time.perf_counter() - self._started
        self.episode.close()


class Server:
    """Serves the requests of episodes: ``go_on`` starts one, ``answers`` waits for what any of them has asked for.

    With a ``size`` above 1 the drafts of that many episodes are written in one batch, with their searches in a thread
    beside it. An episode that ends, or waits for passages, gives its place to the next draft. ``watched``: a draft that
    is written by itself comes token by token.
    """

    def __init__(self, model: Any, retriever: Retriever | None, size: int = 1, *, watched: bool = False) -> None:
        self.drafts: Any = model.batch(size) if size > 1 else (_Watched if watched else Batch)(model)
        self._searches = _Searches(retriever, threaded=size > 1)

    @property
    def token(self) -> Draft | None:
        """The draft as far as the token that the last ``answers`` wrote, where it is watched; else None."""
        return getattr(self.drafts, "token", None)

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
            self._searches.ask(running, running.request)
        return running.request is not None

    def answers(self) -> list[tuple[Running, Answer]]:
        """Do one thing, such as writing a token; the requests that are answered by then. Failures are answers too."""
        return self._searches.answers(wait=not len(self.drafts)) or self.drafts.step()

    def close(self) -> None:
        """Give up what is under way."""
        self._searches.close()
        self.drafts.close()


class _Watched(Batch):
    """A batch of one draft that comes token by token; ``token`` is the draft as far as its last one."""

    token: Draft | None = None
    _tokens: Generator[Draft, None, Draft] | None = None

    def step(self) -> list[tuple[Any, Draft | Exception]]:
        self.token = None
        if not self._waiting:
            return []
        key, request, seed = self._waiting[0]
        try:
            self._tokens = self._tokens or stream_draft(self.engine, request, seed)
            self.token = next(self._tokens)
            return []
        except StopIteration as end:
            answer = end.value
        except Exception as error:  # noqa: BLE001 - whatever a model raises belongs to the episode
            answer = error
        self._tokens = None
        self._waiting.clear()
        return [(key, answer)]

    def close(self) -> None:
        if self._tokens is not None:
            self._tokens.close()
        self._tokens = None
        super().close()


class _Searches:
    """Searches, ``threaded`` or in place.

    What is asked for while a thread searches goes out together after it.
    """

    def __init__(self, retriever: Retriever | None, *, threaded: bool) -> None:
        self._retriever, self._threaded = retriever, threaded
        self._waiting: list[tuple[Running, Search]] = []
        self._under_way: tuple[list[Running], Future[list[Results]]] | None = None

    def ask(self, running: Running, request: Search) -> None:
        self._waiting.append((running, request))

    def answers(self, *, wait: bool) -> list[tuple[Running, Any]]:
        """What was found since the last call; ``wait`` for it where nothing else is to be done."""
        self._send()
        if self._under_way is None or not (wait or self._under_way[1].done()):
            return []
        asking, future = self._under_way
        answers = list(zip(asking, future.result(), strict=True))
        self._under_way = None
        self._send()
        return answers

    def _send(self) -> None:
        if not self._waiting or self._under_way is not None:
            return
        asking, requests = zip(*self._waiting, strict=True)
        self._waiting = []
        future: Future[list[Results]] = Future()
        self._under_way = list(asking), future

        def search() -> None:
            try:
                future.set_result(search_all(self._retriever, requests))
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                future.set_exception(error)

        if self._threaded:  # unlike those of concurrent.futures, it does not hold the process when that ends
            threading.Thread(target=search, name="dragin-lab-search", daemon=True).start()
        else:
            search()

    def close(self) -> None:
        self._waiting = []


def search_all(retriever: Any, requests: Sequence[Search]) -> list[Results]:
    """What each request finds, or its error; all together where the retriever has ``search_many``."""
    alike = len(requests) > 1 and len({search.k for search in requests}) == 1
    if alike and hasattr(retriever, "search_many"):
        try:
            answers = retriever.search_many([search.query for search in requests], requests[0].k)
            return [list(passages) for _, passages in zip(requests, answers, strict=True)]
        except Exception as error:  # noqa: BLE001 - one query may be at fault; alone, each meets its own error
            warnings.warn(f"search_many failed ({error}); the queries are sent one by one", stacklevel=2)
    return [_search_one(retriever, request) for request in requests]


def _search_one(retriever: Any, request: Search) -> Results:
    try:
        return list(retriever.search(request.query, request.k))
    except Exception as error:  # noqa: BLE001 - belongs to the episode that asked
        return error


# -- episodes ---------------------------------------------------------------------------------------------------------


def open_episode(
    lab: Lab, method: Method, question: str | Question, gold: str | Iterable[str] | None = None
) -> Running:
    """A question's episode, not started; ``gold`` replaces the question's own gold answers.

    Raises ``SettingError`` for an empty question.
    """
    question, template = check_question(question, gold), lab.template(method)
    trace = Trace(question, method.settings, provenance=_describe_lab(lab, method, template))
    if lab.prompt is not None and lab.prompt.exemplars and template.exemplars != lab.prompt.exemplars:
        trace.notes.append(f"the exemplars do not show what {method.name} writes, so its own stand in their place")
    lm = lab.model
    return Running(start_episode(method, trace, template, lm.tokenizer, window=lm.context_window), trace, lab.seed)


def check_question(question: str | Question, gold: str | Iterable[str] | None = None) -> Question:
    """The question that is asked; ``gold`` replaces its gold answers. Raises ``SettingError`` for an empty one."""
    if not isinstance(question, str | Question):
        raise SettingError(f"question {shown(question)} is {type(question).__name__}; give a text or a Question")
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


def _describe_lab(lab: Lab, method: Method, template: PromptTemplate) -> dict[str, Any]:
    from dragin_lab import __version__

    return (
        lab.model.provenance()
        | {
            "dragin_lab": __version__,
            "context_window": lab.model.context_window,
            "retriever": describe_retriever(lab.retriever_for(method)),
            "seed": lab.seed,
            "template": template.described,
        }
        | ({"exemplars": template.chosen} if template.chosen else {})
    )


def describe_retriever(retriever: Any) -> dict[str, Any] | None:
    """What a retriever records of itself (``provenance``); None for none."""
    return None if retriever is None else dict(retriever.provenance())


def describe_model(lm: Any) -> dict[str, Any]:
    """What a model records of itself (``provenance``), with the hash of its tokenizer and the ids that end a text."""
    identity = getattr(lm, "identity", None)
    known = (identity() if callable(identity) else None) or {}  # a cluster's workers have recorded both
    return dict(lm.provenance()) | {key: known[key] for key in ("tokenizer_sha256", "eos") if key in known}


def render_chat(lm: Any) -> str:
    """A short talk as the model's chat template writes it; "" where it has none or refuses the turns."""
    tokenizer: Any = getattr(lm, "tokenizer", None)
    if not getattr(tokenizer, "chats", False):
        return ""
    with suppress(SettingError):
        return str(tokenizer.chat([("user", "Who?"), ("assistant", "Bo."), ("user", "When?")]))
    return ""


def describe_error(error: Exception) -> str:
    """Our own errors are sentences for people; others are named."""
    return str(error) if isinstance(error, DraginLabError) else f"{type(error).__name__}: {error}"
