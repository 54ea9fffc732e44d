"""``Lab.explore``: watch a question being answered. A worker thread streams, so that the buttons stay live."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from dragin_lab.catalog.methods import method
from dragin_lab.checks import instance, several
from dragin_lab.core.method import METHODS, VARIANTS
from dragin_lab.data.datasets import demo_questions
from dragin_lab.errors import SettingError
from dragin_lab.reference.rules import REFERENCE_METHODS
from dragin_lab.run.drivers import Decided, Ended, Event, Retrieved, StepDone, TokenWritten
from dragin_lab.run.lab import Lab
from dragin_lab.run.serving import describe_error
from dragin_lab.trace.kept import with_passages
from dragin_lab.trace.trace import Question, Step, Trace
from dragin_lab.views.canvas import Canvas
from dragin_lab.views.frame import View, make_message, make_view
from dragin_lab.views.heat import LEVELS, Scale, scale_of
from dragin_lab.views.html import printable, show_or_explain
from dragin_lab.views.rendering import render_macro
from dragin_lab.views.sections import ended_line
from dragin_lab.views.tokens import Look
from dragin_lab.views.trace import trace_html
from dragin_lab.widgets.base import Running, load_script, load_style

EVERY = 0.04  # seconds between messages while tokens come
CERTAIN, LOST = 0.05, 3.0  # nats: where the colour of entropy begins and ends


class AskLive(Running):
    """The widget. ``trace`` is that of the latest episode, valid at any moment; ``state`` is what the controls show."""

    _esm = load_script("asking")
    _css = load_style()
    #: {"run", "busy", "status", "error", "html"}: the number of the episode, whether it goes on, how it ended
    state: Any = traitlets.Dict({"run": 0, "busy": False, "status": "", "error": "", "html": ""}).tag(sync=True)

    def __init__(
        self,
        lab: Lab,
        question: str | Question = "",
        method: str = "dragin",
        *,
        others: Mapping[str, Lab] | None = None,
        variant: str = "paper",
        **settings: Any,
    ) -> None:
        further = instance("others", {} if others is None else others, Mapping, "give labs by name")
        several("others", further.values(), Lab, "give dl.Lab objects")
        self.labs = {_lab_name(lab): lab} | dict(further)
        self.settings = settings
        instance("question", question, str | Question, "give a text or a Question")
        self.question = Question("", question) if isinstance(question, str) else question
        first = _build_method(method, variant, settings)
        self.trace: Trace | None = None
        thetas = {f"{n}/{v}": _default_threshold(n, v) for n in METHODS for v in VARIANTS}
        thetas[f"{method}/{variant}"] = first.threshold
        data = {
            "error": "",
            "question": self.question.text,
            "labs": list(self.labs),
            "methods": list(METHODS),
            "variants": list(VARIANTS),
            "method": method,
            "variant": variant,
            "thresholds": thetas,
            "examples": _example_questions(list(self.labs)),
        }
        super().__init__(data=data)

    # -- the controls --------------------------------------------------------------------------------------------------

    def _heard(self, _: Any, content: Any, __: Any) -> None:
        kind = content.get("kind") if isinstance(content, dict) else None
        try:
            if kind == "ask":
                asked = {key: content[key] for key in ("lab", "method", "variant") if content.get(key)}
                self.ask(str(content.get("question", "")), threshold=content.get("threshold"), **asked)
            elif kind == "stop":
                self.stop()
        except Exception as error:  # noqa: BLE001 - in a callback an error would be seen in a log only
            self._say(busy=False, error=describe_error(error))

    def ask(
        self,
        question: str | Question | None = None,
        *,
        lab: str | None = None,
        method: str | None = None,
        variant: str | None = None,
        threshold: float | None = None,
    ) -> None:
        """Begin to answer, as the button does; what is left out keeps its initial value. Returns at once; see ``wait``.

        Raises ``SettingError`` for settings that make no method, an empty question, or while another is being answered.
        """
        if self.busy:
            raise SettingError("a question is being answered; stop it first, or wait for it")
        name, kind = method or self.data["method"], variant or self.data["variant"]
        own = (name, kind) == (self.data["method"], self.data["variant"])
        given = dict(self.settings) if own else {}
        if threshold is not None and _default_threshold(name, kind) is not None:
            given["threshold"] = threshold
        built = _build_method(name, kind, given)
        asked = self.question if question is None or question == self.question.text else question
        events = _pick_lab(self.labs, lab).stream(asked, built)
        self.trace = events.trace
        run = int(self.state["run"]) + 1
        self.state = {"run": run, "busy": True, "status": "Reading …", "error": "", "html": ""}
        self._begin(self._work, events, run)

    def wait(self, timeout: float | None = None) -> Trace | None:
        super().wait(timeout)
        return self.trace

    def _say(self, **changes: Any) -> None:
        self.state = {**self.state, **changes}

    # -- the worker ----------------------------------------------------------------------------------------------------

    def _work(self, events: Any, run: int) -> None:
        """Stream the events; an error is shown in the widget."""
        post = _Post(lambda news: self.send({"kind": "news", "run": run, "news": news}))
        error = ""
        try:
            for event in events:
                post.add(self._news(event, events.trace))
                if self._stop.is_set():
                    break
        except Exception as failed:  # noqa: BLE001 - in a thread an error would be seen in a log only
            error = describe_error(failed)
        finally:
            events.close()
            post.flush()
            trace = events.trace
            ending = (
                "Stopped. What was done is below."
                if trace.ended == "cancelled"
                else f"{ended_line(trace).capitalize()}."
            )
            html = show_or_explain("The trace", lambda: trace_html(trace), lambda: "") if trace.steps else ""
            self._say(busy=False, status="" if error else ending, error=error, html=html)

    def _news(self, event: Event, trace: Trace) -> dict[str, Any]:
        """An event as the widget draws it."""
        if isinstance(event, TokenWritten):
            level = np.clip(1 + (event.entropy - CERTAIN) / (LOST - CERTAIN) * LEVELS, 1, LEVELS)
            return {
                "is": "token",
                "step": event.step,
                "of": event.kind,
                "fresh": event.kind != "answer" and with_passages(trace.steps[event.step], event.kind),
                "text": printable(event.text).replace("\n", "↵\n"),
                "level": int(level) if event.entropy > CERTAIN else 0,
                "about": f"entropy {event.entropy:.3f}   probability {np.exp(event.logprob):.2f}",
            }
        if isinstance(event, Decided):
            step, decision = trace.steps[event.step], event.decision
            return {
                "is": "decided",
                "step": event.step,
                "retrieve": decision.retrieve,
                "reason": printable(decision.reason),
                "cut": decision.cut,
                "cells": _judged_cells(step, trace),
            }
        if isinstance(event, Retrieved):
            step = trace.steps[event.step]
            retrieved = Step(step.index, query=step.query, passages=event.passages)
            canvas = Canvas(trace, Scale("none", "", 0.0), "")
            query = show_or_explain("The query", partial(render_macro, "parts.html", "ask_box", step.query), str)
            passages = show_or_explain(
                "The passages", partial(render_macro, "parts.html", "passages", canvas, retrieved), str
            )
            return {"is": "retrieved", "step": event.step, "query": query, "passages": passages}
        if isinstance(event, StepDone):
            return {"is": "done", "step": event.step.index}
        assert isinstance(event, Ended)
        return {"is": "ended", "answer": printable(trace.answer), "how": trace.ended}

    def static(self) -> View:
        if self.trace is None:
            return make_message("lab.explore", "Nothing was asked yet. Without a front end: lab.ask(question).")
        trace = self.trace
        text = f"{trace.question.text}\n{trace.text}"
        return make_view("The answer", "live", trace.question.text, lambda: trace_html(trace), lambda: text)

    def save(self, path: str | Path) -> Path:
        return self.static().save(path)  # there is nothing to ask without a kernel


class _Post:
    """Gathers news and sends them together, at most every ``EVERY`` seconds but for those that end something."""

    def __init__(self, send: Callable[[list[dict[str, Any]]], None]) -> None:
        self._send, self._news, self._last = send, list[dict[str, Any]](), 0.0

    def add(self, news: dict[str, Any]) -> None:
        self._news.append(news)
        if news["is"] != "token" or time.monotonic() - self._last >= EVERY:
            self.flush()

    def flush(self) -> None:
        if self._news:
            self._send(self._news)
            self._news, self._last = [], time.monotonic()


def _judged_cells(step: Step, trace: Trace) -> list[dict[str, Any]]:
    """A judged draft's cells in the colours of its scores, to replace those that were coloured by entropy."""
    draft, words = step.draft, step.words
    if draft is None or not len(words) or not np.isfinite(words.score).any():
        return []
    scale = scale_of(Trace(trace.question, trace.method, [step]))
    look = Look.of(draft, words, scale, step.decision, trace.method.get("variant") == "reference")
    place, out = 0, []
    for cell in look.cells:
        if cell.text:
            before, place = printable(draft.text[place : cell.start]), max(place, cell.stop)
            text, figures = printable(cell.text).replace("\n", "↵\n"), look.about(cell)
            flags = {"l": cell.level, "h": cell.hit, "f": cell.fired, "w": cell.word, "at": cell.start}
            unit = look.units[cell.unit] if cell.unit >= 0 else None
            judged = None if unit is None else [str(unit), unit.above, cell.begins, cell.ends]
            out.append({"b": before, "t": text, "about": figures, "u": judged, **flags})
    return out


def _example_questions(names: list[str]) -> list[str]:
    """Five questions that the embedded world can answer, where it is what is asked; else none."""
    if not any("almanac" in name.lower() for name in names):
        return []
    return [question.text for question in demo_questions()[:5]]


def _lab_name(lab: Lab) -> str:
    """A name for people: the model's, and its passages'."""
    corpus = getattr(getattr(lab.retriever, "corpus", None), "name", None) or repr(lab.retriever)
    return lab.model.name if corpus == lab.model.name else f"{lab.model.name} with {corpus}"


def _pick_lab(known: dict[str, Lab], name: str | None) -> Lab:
    if name is None:
        return next(iter(known.values()))
    if name not in known:
        raise SettingError(f"lab {name!r} does not exist here; one of {', '.join(known)}")
    return known[name]


def _build_method(name: str, variant: str, settings: dict[str, Any]) -> Any:
    return method(name, variant=variant, **settings)


def _default_threshold(name: str, variant: str) -> float | None:
    """θ where none is given; None for a method that has none, or that is not of this variant."""
    known = REFERENCE_METHODS if variant == "reference" else METHODS
    return method(name, variant=variant).threshold if name in known and variant in VARIANTS else None
