"""``Lab.explore``: watch a question being answered. A worker thread streams, so that the buttons stay live."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from dragin_lab.catalog.methods import method as make_method
from dragin_lab.checks import choice, instance, several
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
from dragin_lab.views.frame import View, make_message
from dragin_lab.views.heat import LEVELS, Scale
from dragin_lab.views.html import printable, show_or_explain
from dragin_lab.views.rendering import render_macro
from dragin_lab.views.sections import ended_line
from dragin_lab.views.trace import trace_html, trace_view
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
        self.trace: Trace | None = None
        thetas = {f"{name}/{kind}": _default_threshold(name, kind) for name in METHODS for kind in VARIANTS}
        thetas[f"{method}/{variant}"] = make_method(method, variant=variant, **settings).threshold
        embedded = any("almanac" in name.lower() for name in self.labs)
        data = {
            "error": "",
            "question": self.question.text,
            "labs": list(self.labs),
            "methods": list(METHODS),
            "variants": list(VARIANTS),
            "method": method,
            "variant": variant,
            "thresholds": thetas,
            "examples": [known.text for known in demo_questions()[:5]] if embedded else [],
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
            self._update(busy=False, error=describe_error(error))

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
        settings = dict(self.settings) if own else {}
        if threshold is not None and _default_threshold(name, kind) is not None:
            settings["threshold"] = threshold
        built = make_method(name, variant=kind, **settings)
        asked = self.question if question is None or question == self.question.text else question
        chosen = self.labs[next(iter(self.labs)) if lab is None else choice("lab", lab, self.labs)]
        events = chosen.stream(asked, built)
        self.trace = events.trace
        run = int(self.state["run"]) + 1
        self.state = {"run": run, "busy": True, "status": "Reading …", "error": "", "html": ""}
        self._begin(self._work, events, run)

    def wait(self, timeout: float | None = None) -> Trace | None:
        super().wait(timeout)
        return self.trace

    def _update(self, **changes: Any) -> None:
        self.state = {**self.state, **changes}

    # -- the worker ----------------------------------------------------------------------------------------------------

    def _work(self, events: Any, run: int) -> None:
        """Stream the events, tokens at most every ``EVERY`` seconds; an error is shown in the widget."""
        news, sent, error, trace = list[dict[str, Any]](), 0.0, "", events.trace
        try:
            for event in events:
                news.append(self._describe_event(event, trace))
                if not isinstance(event, TokenWritten) or time.monotonic() - sent >= EVERY:
                    self.send({"kind": "news", "run": run, "news": news})
                    news, sent = [], time.monotonic()
                if self._stop.is_set():
                    break
        except Exception as failed:  # noqa: BLE001 - in a thread an error would be seen in a log only
            error = describe_error(failed)
        finally:
            events.close()
            if news:
                self.send({"kind": "news", "run": run, "news": news})
            stopped = trace.ended == "cancelled"
            ending = "Stopped. What was done is below." if stopped else f"{ended_line(trace).capitalize()}."
            html = show_or_explain("The trace", lambda: trace_html(trace), lambda: "") if trace.steps else ""
            self._update(busy=False, status="" if error else ending, error=error, html=html)

    def _describe_event(self, event: Event, trace: Trace) -> dict[str, Any]:
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
            step, reason = trace.steps[event.step], printable(event.decision.reason)
            html = show_or_explain("The draft", partial(_judged_draft, step, trace), str)
            return {
                "is": "decided",
                "step": step.index,
                "retrieve": event.decision.retrieve,
                "reason": reason,
                "html": html,
            }
        if isinstance(event, Retrieved):
            step = trace.steps[event.step]
            found = Step(step.index, query=step.query, passages=event.passages)
            canvas = Canvas(trace, Scale("none", "", 0.0), "")
            query = show_or_explain("The query", partial(render_macro, "parts.html", "ask_box", step.query), str)
            passages = show_or_explain(
                "The passages", partial(render_macro, "parts.html", "passages", canvas, found), str
            )
            return {"is": "retrieved", "step": event.step, "query": query, "passages": passages}
        if isinstance(event, StepDone):
            return {"is": "done", "step": event.step.index}
        assert isinstance(event, Ended)
        return {"is": "ended", "answer": printable(trace.answer), "how": trace.ended}

    def static(self) -> View:
        if self.trace is None:
            return make_message("lab.explore", "Nothing was asked yet. Without a front end: lab.ask(question).")
        return trace_view(self.trace)

    def save(self, path: str | Path) -> Path:
        return self.static().save(path)  # there is nothing to ask without a kernel


def _judged_draft(step: Step, trace: Trace) -> str:
    """A draft in the colours of its scores, to replace that in the colours of entropy; "" where it has no scores."""
    draft, decision = step.draft, step.decision
    if draft is None or decision is None or not np.isfinite(step.words.score).any():
        return ""
    look = Canvas.of(Trace(trace.question, trace.method, [step])).look(draft, step)
    end = decision.cut if decision.retrieve and decision.cut is not None else len(draft.text)
    return render_macro("parts.html", "judged", look, end)


def _lab_name(lab: Lab) -> str:
    """A name for people: the model's, and its passages'."""
    corpus = getattr(getattr(lab.retriever, "corpus", None), "name", None) or repr(lab.retriever)
    return lab.model.name if corpus == lab.model.name else f"{lab.model.name} with {corpus}"


def _default_threshold(name: str, variant: str) -> float | None:
    """θ where none is given; None for a method that has none, or that is not of this variant."""
    known = REFERENCE_METHODS if variant == "reference" else METHODS
    return make_method(name, variant=variant).threshold if name in known and variant in VARIANTS else None
