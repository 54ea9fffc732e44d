"""Episodes under way, and who serves what they ask for: drafts and attention maps by the model, passages by the
retriever. A cache is a model of its own (``cache``), so nothing here knows of it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab import __version__
from dragin_lab.catalog.by_name import start_episode
from dragin_lab.checks import shown
from dragin_lab.core.episode import Attend, Episode, Request, Search, Write
from dragin_lab.core.method import Method
from dragin_lab.engines.engine import Batch
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
        try:
            failed = isinstance(answer, Exception)
            self.request = self.episode.throw(answer) if failed else self.episode.send(answer)
        except StopIteration:
            self.request = None
        except Exception as error:  # noqa: BLE001 - whoever drives the episode decides whether to raise it
            self.request, self.failed = None, error
            self.trace.ended, self.trace.error = "error", describe_error(error)
        finally:
            self._asked = time.perf_counter()
            self.trace.seconds = self._asked - self._started

    def close(self) -> None:
        """End the episode, wherever it is; one that had not ended is cancelled."""
        if self.request is not None or self.trace.ended == "running":
            self.trace.ended = "cancelled"
            self.trace.seconds = time.perf_counter() - self._started
        self.episode.close()


class Server:
    """Serves many episodes side by side: ``go_on`` starts one, ``answers`` waits for what any of them has asked for.

    The drafts of ``size`` episodes are written in one batch, with their searches in a thread beside it where there are
    several. An episode that ends, or waits for passages, gives its place to the next draft.
    """

    def __init__(self, model: Any, retriever: Any, size: int) -> None:
        self.drafts: Any = model.batch(size) if size > 1 else Batch(model)
        self._retriever, self._threaded = retriever, size > 1
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

    def answers(self) -> list[tuple[Running, Answer]]:
        """Do one thing, such as writing a token; the requests that are answered by then. Failures are answers too."""
        self._search()
        if self._under_way is not None and (not len(self.drafts) or self._under_way[1].done()):
            asking, found = self._under_way
            answers: list[tuple[Running, Answer]] = list(zip(asking, found.result(), strict=True))
            self._under_way = None
            self._search()
            return answers
        drafts: list[tuple[Running, Answer]] = self.drafts.step()
        return drafts

    def _search(self) -> None:
        """Send what waits, all of it together, unless another search is under way."""
        if not self._waiting or self._under_way is not None:
            return
        asking, requests = zip(*self._waiting, strict=True)
        self._waiting = []
        found: Future[list[Results]] = Future()
        self._under_way = list(asking), found

        def search() -> None:
            try:
                found.set_result(search_all(self._retriever, requests))
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                found.set_exception(error)

        if self._threaded:  # unlike those of concurrent.futures, it does not hold the process when that ends
            threading.Thread(target=search, name="dragin-lab-search", daemon=True).start()
        else:
            search()


def search_all(retriever: Any, requests: Sequence[Search]) -> list[Results]:
    """What each request finds, or its error; all together where the retriever has ``search_many``."""
    alike = len(requests) > 1 and len({search.k for search in requests}) == 1
    if alike and hasattr(retriever, "search_many"):
        try:
            answers = retriever.search_many([search.query for search in requests], requests[0].k)
            return [list(passages) for _, passages in zip(requests, answers, strict=True)]
        except Exception as error:  # noqa: BLE001 - one query may be at fault; alone, each meets its own error
            warnings.warn(f"search_many failed ({error}); the queries are sent one by one", stacklevel=2)
    found: list[Results] = []
    for request in requests:
        try:
            found.append(list(retriever.search(request.query, request.k)))
        except Exception as error:  # noqa: BLE001 - belongs to the episode that asked
            found.append(error)
    return found


# -- episodes ---------------------------------------------------------------------------------------------------------


def open_episode(
    lab: Lab, method: Method, question: str | Question, gold: str | Iterable[str] | None = None
) -> Running:
    """A question's episode, not started; ``gold`` replaces the question's own gold answers.

    Raises ``SettingError`` for an empty question.
    """
    question, template, model = check_question(question, gold), lab.template(method), lab.model
    provenance = model.provenance() | {
        "dragin_lab": __version__,
        "context_window": model.context_window,
        "retriever": describe_retriever(lab.retriever_for(method)),
        "seed": lab.seed,
        "template": template.described,
    }
    trace = Trace(question, method.settings, provenance=provenance)
    if template.chosen:
        trace.provenance["exemplars"] = template.chosen
    if lab.prompt is not None and lab.prompt.exemplars and template.exemplars != lab.prompt.exemplars:
        trace.notes.append(f"the exemplars do not show what {method.name} writes, so its own stand in their place")
    episode = start_episode(method, trace, template, model.tokenizer, window=model.context_window)
    return Running(episode, trace, lab.seed)


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


@cache
def describe_library() -> dict[str, str]:
    """The version of this package, and the SHA-256 (hex) of its source, which an unreleased change has too."""
    digest, root = sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return {"version": __version__, "source": digest.hexdigest()}


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
    with suppress(SettingError):
        if getattr(tokenizer, "chats", False):
            return str(tokenizer.chat([("user", "Who?"), ("assistant", "Bo."), ("user", "When?")]))
    return ""


def describe_error(error: Exception) -> str:
    """Our own errors are sentences for people; others are named."""
    return str(error) if isinstance(error, DraginLabError) else f"{type(error).__name__}: {error}"
