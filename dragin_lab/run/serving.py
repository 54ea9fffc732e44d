"""What every driver does with an episode: open it, send it answers, mark how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from dragin_lab.core.episode import Episode, Request
from dragin_lab.core.loops import episode
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.trace import Question, Trace
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.run.lab import Lab


class Running:
    """An episode under way: ``request`` is what it asks for, None before its first ``send`` and once it has ended.

    A failed request is thrown into it (``fail``). What it does not handle is recorded in its trace and raised.
    """

    def __init__(self, episode: Episode[None], trace: Trace) -> None:
        self.trace = trace
        self.request: Request | None = None
        self._episode = episode
        self._started = self._asked = time.perf_counter()

    def send(self, answer: Any = None) -> None:
        """Answer the request; the first time, with nothing, begin."""
        self._go_on(lambda: self._episode.send(answer))

    def fail(self, error: Exception) -> None:
        """Say that the request failed."""
        self._go_on(lambda: self._episode.throw(error))

    def _go_on(self, turn: Callable[[], Request]) -> None:
        if self.request is not None and self.trace.steps:
            spent, kind = self.trace.steps[-1].seconds, self.request.kind
            spent[kind] = spent.get(kind, 0.0) + time.perf_counter() - self._asked
        self.request = None
        try:
            self.request = turn()
        except StopIteration:
            pass
        except Exception as error:
            self.trace.ended, self.trace.error = "error", what_happened(error)
            raise
        finally:
            self._asked = time.perf_counter()
            self.trace.seconds = self._asked - self._started

    def close(self) -> None:
        """End the episode, wherever it is."""
        self.trace.seconds = time.perf_counter() - self._started
        self._episode.close()


def opened(lab: Lab, method: Method, question: str | Question, gold: str | Iterable[str] | None = None) -> Running:
    """A question's episode, not started; ``gold`` replaces the question's own gold answers.

    Raises ``SettingError`` for an empty question.
    """
    asked, template = _asked(question, gold), lab.template(method)
    trace = Trace(asked, method.settings, provenance=_provenance(lab, method, template))
    if lab.prompt is not None and lab.prompt.exemplars and template.exemplars != lab.prompt.exemplars:
        trace.notes.append(
            f"the exemplars given do not show what {method.name} writes, so its own stand in their place"
        )
    lm = lab.model
    return Running(episode(method, trace, template, lm.tokenizer, window=lm.context_window), trace)


def _asked(question: str | Question, gold: str | Iterable[str] | None) -> Question:
    if not isinstance(question, str | Question):
        raise SettingError(f"question {str(question)[:60]!r} is {type(question).__name__}; give a text or a Question")
    if isinstance(question, str):
        question = Question("", question)
    if gold is not None:
        question = replace(question, golds=gold)  # type: ignore[arg-type]
    try:
        question.text.encode()
    except UnicodeEncodeError as error:
        said = f"question {question.text[:60]!r} holds half a character at {error.start}; write it again"
        raise SettingError(said) from None
    if not question.text.strip():
        raise SettingError("the question is empty; write one, such as 'Who directed the film …?'")
    return question


def refused(question: str | Question, method: Method, error: Exception) -> Trace:
    """The trace of a question that no episode could be opened for."""
    question = question if isinstance(question, Question) else Question("", str(question))
    return Trace(question, method.settings, ended="error", error=what_happened(error))


def _provenance(lab: Lab, method: Method, template: PromptTemplate) -> dict[str, Any]:
    from dragin_lab import __version__

    return lab.model.provenance() | {
        "dragin_lab": __version__,
        "context_window": lab.model.context_window,
        "retriever": described(lab.retriever_for(method)),
        "seed": lab.seed,
        "template": template.described,
    }


def described(retriever: Any) -> dict[str, Any] | None:
    """What a retriever says of itself (``provenance``); None for none."""
    return None if retriever is None else dict(retriever.provenance())


def seed_of_draft(seed: int, drafts: int) -> int:
    """A seed of its own for each draft of an episode, so that a second one does not repeat the draws of the first."""
    return int(np.random.SeedSequence([seed, drafts]).generate_state(1)[0])


def what_happened(error: Exception) -> str:
    """Our own errors are sentences for people; others are named."""
    return str(error) if isinstance(error, DraginLabError) else f"{type(error).__name__}: {error}"
