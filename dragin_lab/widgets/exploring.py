"""What can be looked into: an episode token by token, with its lab what if; an answer as it is
written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as ipw
import numpy as np

from dragin_lab.catalog.by_name import method as make_method
from dragin_lab.catalog.exchanged import restore_method
from dragin_lab.checks import instance
from dragin_lab.core.method import METHODS, VARIANTS
from dragin_lab.errors import SettingError
from dragin_lab.run.branch import stream_branch
from dragin_lab.run.episodes import TokenWritten, open_stream
from dragin_lab.run.setup import MakesSetups
from dragin_lab.trace.kept import list_written
from dragin_lab.trace.trace import Branches, Question, Trace
from dragin_lab.views import theme
from dragin_lab.views.comparing import compare
from dragin_lab.views.facts import ended_line, esc, percent, shorten
from dragin_lab.views.pages import open_trace, render, styled
from dragin_lab.views.rows import draw_tokens, find_text, heatmap, list_alternatives, token_rows
from dragin_lab.widgets.control import Control, Drawing, figure_json, row

EVERY = 0.1  # seconds between pictures while tokens come
CERTAIN = 0.05  # nats: where the colour of entropy begins
LOST = 3.0  # nats: where it ends


class Explorer(Control):
    """The box. ``tree`` has the trace and its branches; ``token`` is the chosen token's number,
    from 1.
    """

    def __init__(self, tree: Branches, lab: MakesSetups | None) -> None:
        self.tree = tree
        self.lab = lab
        wide = {"layout": {"width": "auto", "max_width": "640px"}}
        self.which = ipw.Dropdown(
            description="branch", options=self.list_branches(), value=0, **wide
        )
        self.texts = ipw.Dropdown(description="text", **wide)
        self.token = ipw.IntSlider(
            value=1, min=1, max=1, description="token", layout={"width": "480px"}
        )
        self.about = ipw.HTML()
        self.step_page = ipw.HTML()
        self.comparison = ipw.HTML()
        self.drawing = Drawing()
        self.base = dict[str, Any]()
        self.instead = ipw.Dropdown(description="instead", **wide)
        self.query = ipw.Textarea(description="query", rows=2, layout={"width": "60%"})
        self.keep = ipw.SelectMultiple(description="passages", rows=4, layout={"width": "60%"})

        def offer(label: str, read: Callable[[], dict[str, Any]]) -> ipw.Button:
            return self.offer(label, lambda: self.change_step(**read()), disabled=lab is None)

        self.search = offer("search for this", lambda: {"query": self.query.value})
        self.only = offer("keep only these", lambda: {"passages": list(self.keep.value)})
        self.without = offer("write on without", lambda: {"retrieve": False})
        write = offer("write on with it", lambda: {"to": self.instead.value})
        retrieve = offer("retrieve at this token", lambda: {"retrieve": True})
        controls = [row(self.which, self.texts), self.drawing, self.token]
        controls += [self.about, self.step_page, row(self.instead, write)]
        controls += [row(self.query, self.search), row(self.keep, self.only)]
        controls.append(row(retrieve, self.without))
        super().__init__(controls, [self.comparison], self.draw_still)
        self.opening = False  # while choices are exchanged, none of them is one that somebody made
        choices = (
            (self.which, self.open_trace),
            (self.texts, self.open_text),
            (self.token, self.show_token),
        )
        for choice, call in choices:
            choice.observe(partial(self.heed, call), "value")
        self.open_trace()

    def heed(self, call: Callable[[], None], _: Any) -> None:
        if not self.opening:
            call()

    def draw_still(self) -> Any:
        """The figure of the text that is shown; the trace where there is none."""
        return heatmap(self.trace, *self.texts.value) if self.texts.value else self.trace

    def list_branches(self) -> list[tuple[str, int]]:
        """The branches by where they part, indented by how deep they lie."""
        listed = []
        for place, trace in enumerate(self.tree):
            indent = "– " * (len(self.tree.path(place)) - 1)
            parting = trace.parting if place else "the question"
            listed.append((f"{indent}{parting}: {trace.answer}"[:120], place))
        return listed

    @property
    def trace(self) -> Trace:
        return self.tree[self.which.value]

    def open_trace(self) -> None:
        """Show a branch from the text that retrieved first, or where it parts, beside its
        parent.
        """
        trace = self.trace
        parent = self.tree.parent(self.which.value)
        texts = [(step.index + 1, name) for step, name, _ in list_written(trace.steps)]
        self.opening = True
        self.texts.options = [(f"step {step}, {name}", (step, name)) for step, name in texts]
        if parent is not None and trace.parting and trace.parting.step is not None:
            steps = {trace.parting.step + 1}
        else:
            steps = {step.index + 1 for step in trace.steps if step.query is not None}
        of_steps = [text for text in texts if text[0] in steps]
        self.texts.value = next(iter(of_steps + texts), None)
        self.opening = False
        self.open_text()
        self.comparison.value = ""
        if parent is not None:
            before = self.tree[parent]
            self.comparison.value = compare([before, trace], labels=["before", "branch"]).html
        if self.texts.value is None:
            self.say("Nothing is written yet.")

    def open_text(self) -> None:
        """Draw a text and choose its first token that fired."""
        if self.texts.value is None:
            self.drawing.show(None)
            self.about.value = self.step_page.value = ""
            return
        step, name, text = find_text(self.trace, *self.texts.value)
        assert step is not None
        query = step.query
        decision = step.decision
        self.rows = token_rows(self.trace, step, name, text)
        title = f"{self.which.label} · step {self.texts.value[0]}, {name}"
        self.base = figure_json(draw_tokens(self.trace, self.rows, title))
        self.query.value = "" if query is None else query.text
        self.query.disabled = query is None
        self.search.disabled = self.only.disabled = self.lab is None or query is None
        retrieved = decision is not None and decision.retrieve
        self.without.disabled = self.lab is None or not retrieved
        passages = [(shorten(f"{p.title}: {p.text}", 90), p) for p in step.passages]
        self.keep.options = passages
        self.keep.value = step.passages
        titles = [title for title, _ in passages]
        self.step_page.value = render("step.html", step=step, titles=titles)
        fired = self.rows.index[self.rows["opens"]]
        self.opening = True
        self.token.max = max(len(self.rows), 1)
        self.token.value = int(fired[0]) + 1 if len(fired) else 1
        self.opening = False
        self.show_token()
        self.refresh_still(self.base)

    def show_token(self) -> None:
        """Everything that is known of the chosen token, and what could stand in its place."""
        at = self.token.value - 1
        text = find_text(self.trace, *self.texts.value)[2]
        if at >= len(self.rows):
            return
        about = str(esc(self.rows["about"].iloc[at])).replace("\n", "<br>")
        self.about.value = (
            f'<div class="mathjax_ignore" role="status" style="font-family:monospace">{about}</div>'
        )
        edge: dict[str, Any] = {"type": "rect", "name": "chosen", "xref": "x", "yref": "paper"}
        edge |= {"x0": at + 0.5, "x1": at + 1.5, "y0": 0, "y1": 1}
        edge["line"] = {"color": "#d55e00", "width": 2}
        self.drawing.show(theme.add_parts(self.base, shapes=edge))
        alternatives = list_alternatives(text, at)
        self.instead.options = [
            (f"{name}  {percent(share)}", token) for name, share, token in alternatives
        ]
        self.instead.value = next(
            (token for *_, token in alternatives if token != int(text.ids[at])), None
        )

    def change_step(self, **change: Any) -> None:
        """What a button asks for, at the chosen text and token."""
        step, source = self.texts.value or (None, None)
        if "to" in change:
            change |= {"source": source, "token": self.token.value}
        if change.get("retrieve"):
            change["token"] = self.token.value
        self.branch(step=step, **change)

    def branch(self, **change: Any) -> None:
        """Begin to write a branch of the trace that is shown; ``change`` as for ``Lab.branch``. See
        ``wait``.

        Raises ``SettingError`` as ``Lab.branch``, without a lab, and while another branch is being
        written.
        """
        if self.lab is None:
            raise SettingError(
                "without a lab nothing new can be written; give one: dl.explore(trace, lab)"
            )
        tree = self.tree
        parent = self.trace
        method = restore_method(self.trace.method)
        setup = self.lab.setup(method)

        def keep(trace: Trace) -> None:
            if trace.ended in ("cancelled", "error"):
                return self.say("Stopped; nothing was added.")
            tree.add(trace)
            self.opening = True
            self.which.options = self.list_branches()
            self.which.value = tree.find(trace.fingerprint)
            self.open_trace()
            return self.say("")

        self.run(lambda: stream_branch(setup, method, parent, **change), keep, says="Branching …")


def explore(
    trace: Trace | Branches | str | Path,
    lab: MakesSetups | None = None,
) -> Explorer:
    """An episode token by token, from where it first retrieved: move the slider, and see all that
    is known of a token.

    With the ``lab`` that made the trace another token, query, set of passages or decision is a
    button (``Lab.branch``); ``.tree`` keeps all branches. Without a kernel: ``trace.heatmap()``.
    """
    tree = trace if isinstance(trace, Branches) else Branches.of(open_trace(trace))
    instance("lab", lab, MakesSetups | None, "give the dl.Lab that made the trace")
    return Explorer(tree, lab)


class AskLive(Control):
    """The box. ``trace`` is that of the latest episode, valid at any moment."""

    def __init__(
        self,
        lab: MakesSetups,
        question: Question,
        method: str,
        variant: str,
        settings: dict[str, Any],
    ) -> None:
        self.lab = lab
        self.given = question
        self.settings = settings
        self.own = (method, variant)
        self.trace: Trace | None = None
        self.question = ipw.Textarea(
            value=question.text, description="question", rows=2, layout={"width": "640px"}
        )
        self.method = ipw.Dropdown(options=list(METHODS), value=method, description="method")
        self.variant = ipw.Dropdown(options=list(VARIANTS), value=variant, description="variant")
        self.theta = ipw.FloatText(description="θ", layout={"width": "160px"}, step=0.05)
        self.page = ipw.HTML()
        ask = self.offer("Ask", self.ask, button_style="primary")
        controls = [self.question, row(self.method, self.variant, self.theta, ask)]
        nothing = "Nothing was asked yet. Without a front end: lab.ask(question)."
        super().__init__(controls, [self.page], lambda: self.trace or nothing)
        for control in (self.method, self.variant):
            self.on_value(control, self.propose_theta)
        self.propose_theta()

    def make_method(self, **settings: Any) -> Any:
        """The chosen method, with what was given beside the controls where it is the one that
        this was given for.
        """
        name = self.method.value
        variant = self.variant.value
        given = self.settings if (name, variant) == self.own else {}
        return make_method(name, variant=variant, **given | settings)

    def propose_theta(self) -> None:
        """θ of the chosen method, as it is by default or was given."""
        self.theta.disabled = True
        theta = self.make_method().threshold
        self.theta.value = theta or 0.0
        self.theta.disabled = theta is None

    def ask(self, question: str | None = None) -> None:
        """Begin to answer, as the button does. Returns at once; see ``wait``.

        Raises ``SettingError`` for settings that make no method, an empty question, or while
        another is being answered.
        """
        text = self.question.value
        if question is not None:
            text = instance("question", question, str, "give a text")
        settings = {} if self.theta.disabled else {"threshold": self.theta.value}
        method = self.make_method(**settings)
        asked = self.given if text == self.given.text else text
        self.done = ""
        self.under_way = list[Any]()
        self.shown_at = 0.0
        self.trace = self.run(
            lambda: open_stream(self.lab.setup(method), asked, method), self.end, self.show_event
        )

    def show_event(self, event: Any, trace: Trace) -> None:
        """Show what comes, the text under way at most every ``EVERY`` seconds."""
        writing = ""
        if isinstance(event, TokenWritten):
            level = int(np.clip(1 + (event.entropy - CERTAIN) / (LOST - CERTAIN) * 9, 0, 9))
            tip = f"entropy {event.entropy:.3f}, probability {np.exp(event.logprob):.2f}"
            self.under_way.append((level, tip, event.text))
            if time.monotonic() - self.shown_at < EVERY:
                return
            writing = f"step {event.step + 1}, {event.kind} …"
        else:  # the page is drawn where a step went on, not for each token
            self.under_way.clear()
            self.done = trace._repr_html_()
        shown = render("under_way.html", writing=writing, tokens=self.under_way)
        self.page.value = self.done + styled(shown)
        self.shown_at = time.monotonic()

    def end(self, trace: Trace) -> None:
        self.page.value = trace._repr_html_()
        self.say(f"{ended_line(trace).capitalize()}.")


def live(lab: MakesSetups, question: str | Question, method: str, **settings: Any) -> AskLive:
    """``Lab.explore``."""
    instance("question", question, str | Question, "give a text or a Question")
    variant = settings.pop("variant", VARIANTS[0])
    make_method(method, variant=variant, **settings)  # refuses before anything is drawn
    asked = Question("", question) if isinstance(question, str) else question
    return AskLive(lab, asked, method, variant, settings)
