"""What every driver does with an episode: open it, serve what it asks for, mark how it ended."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dragin_lab.catalog.loops import episode
from dragin_lab.checks import shown
from dragin_lab.core.episode import Attend, Episode, Request, Search
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.run.lab import Lab
from dragin_lab.text import printable
from dragin_lab.trace.trace import Passage, Question, Trace

Found = list[Passage] | Exception


class Running:
    """An episode under way. ``request`` is the draft or the search that it waits for; None before its begin and after
    its end.

    ``model`` is a language model or a batch of one; it answers ``Attend`` at once. A request that fails is thrown into
    the episode. An error that the episode does not handle ends it; the trace records it, and ``failed`` holds it.
    """

    def __init__(self, episode: Episode[None], trace: Trace, model: Any, seed: int) -> None:
        self.trace, self.model, self.seed = trace, model, seed
        self.request: Request | None = None
        self.failed: Exception | None = None
        self._episode = episode
        self._started = self._asked = time.perf_counter()

    def go_on(self, answer: Any = None) -> None:
        """Answer the request, with an exception where it failed; the first time, with nothing, begin."""
        self._turn(answer)
        while isinstance(self.request, Attend):
            try:
                answer = self.model.attend(self.request.ids)
            except Exception as error:  # noqa: BLE001 - whatever a model raises belongs to the episode
                answer = error
            self._turn(answer)

    @property
    def draft_seed(self) -> int:
        """The next draft's own seed, so that it does not repeat the draws of the one before it."""
        return int(np.random.SeedSequence([self.seed, len(self.trace.continuations)]).generate_state(1)[0])

    def _turn(self, answer: Any) -> None:
        if self.request is not None and self.trace.steps:
            spent, kind = self.trace.steps[-1].seconds, self.request.kind
            spent[kind] = spent.get(kind, 0.0) + time.perf_counter() - self._asked
        self.request = None
        try:
            failed = isinstance(answer, Exception)
            self.request = self._episode.throw(answer) if failed else self._episode.send(answer)
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - whoever drives the episode decides whether to raise it
            self.failed = error
            self.trace.ended, self.trace.error = "error", what_happened(error)
        finally:
            self._asked = time.perf_counter()
            self.trace.seconds = self._asked - self._started

    def close(self) -> None:
        """End the episode, wherever it is."""
        self.trace.seconds = time.perf_counter() - self._started
        self._episode.close()


def opened(
    lab: Lab, method: Method, question: str | Question, model: Any, gold: str | Iterable[str] | None = None
) -> Running:
    """A question's episode, not started, for ``model`` to write; ``gold`` replaces the question's own gold answers.

    Raises ``SettingError`` for an empty question.
    """
    asked, template = _asked(question, gold), lab.template(method)
    trace = Trace(asked, method.settings, provenance=_provenance(lab, method, template))
    if lab.prompt is not None and lab.prompt.exemplars and template.exemplars != lab.prompt.exemplars:
        trace.notes.append(
            f"the exemplars given do not show what {method.name} writes, so its own stand in their place"
        )
    lm = lab.model
    return Running(episode(method, trace, template, lm.tokenizer, window=lm.context_window), trace, model, lab.seed)


def _asked(question: str | Question, gold: str | Iterable[str] | None) -> Question:
    if not isinstance(question, str | Question):
        raise SettingError(f"question {shown(question)} is {type(question).__name__}; give a text or a Question")
    if isinstance(question, str):
        question = Question("", question)
    if gold is not None:
        question = replace(question, golds=gold)  # type: ignore[arg-type]
    if not question.text.strip():
        raise SettingError("the question is empty; write one, such as 'Who directed the film …?'")
    return question


def refused(question: str | Question, method: Method, error: Exception) -> Trace:
    """The trace of a question that no episode could be opened for."""
    question = question if isinstance(question, Question) else Question("", printable(question))
    return Trace(question, method.settings, ended="error", error=what_happened(error))


def _provenance(lab: Lab, method: Method, template: PromptTemplate) -> dict[str, Any]:
    from dragin_lab import __version__

    return (
        lab.model.provenance()
        | {
            "dragin_lab": __version__,
            "context_window": lab.model.context_window,
            "retriever": described(lab.retriever_for(method)),
            "seed": lab.seed,
            "template": template.described,
        }
        | ({"exemplars": template.chosen} if template.chosen else {})
    )


def described(retriever: Any) -> dict[str, Any] | None:
    """What a retriever says of itself (``provenance``); None for none."""
    return None if retriever is None else dict(retriever.provenance())


def search_all(retriever: Any, requests: Sequence[Search]) -> list[Found]:
    """What each search finds or fails with; all together where the retriever has ``search_many``."""
    numbers = {request.k for request in requests}
    if len(requests) > 1 and len(numbers) == 1 and hasattr(retriever, "search_many"):
        try:
            found = retriever.search_many([request.query for request in requests], requests[0].k)
            return [list(passages) for _, passages in zip(requests, found, strict=True)]
        except Exception as error:  # noqa: BLE001 - one query may be at fault; alone, each meets its own error
            warnings.warn(f"search_many failed ({error}); the queries are sent one by one", stacklevel=2)
    return [_search(retriever, request) for request in requests]


def _search(retriever: Any, request: Search) -> Found:
    try:
        return list(retriever.search(request.query, request.k))
    except Exception as error:  # noqa: BLE001 - belongs to the episode that asked
        return error


def what_happened(error: Exception) -> str:
    """Our own errors are sentences for people; others are named."""
    return str(error) if isinstance(error, DraginLabError) else f"{type(error).__name__}: {error}"
