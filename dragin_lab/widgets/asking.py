"""``Lab.explore``: watch a question being answered, token by token; a button stops it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import ipywidgets as ipw
import numpy as np

from dragin_lab.catalog.methods import method as make_method
from dragin_lab.checks import instance, several
from dragin_lab.core.method import METHODS, VARIANTS
from dragin_lab.errors import SettingError
from dragin_lab.run.drivers import TokenWritten
from dragin_lab.run.lab import Lab
from dragin_lab.trace.trace import Question, Trace
from dragin_lab.views.facts import ended_line
from dragin_lab.views.html import clip, esc
from dragin_lab.views.pages import load_stylesheet
from dragin_lab.widgets.control import Control, button, row

EVERY = 0.1  # seconds between pictures while tokens come
CERTAIN, LOST = 0.05, 3.0  # nats: where the colour of entropy begins and ends


class AskLive(Control):
    """The box. ``trace`` is that of the latest episode, valid at any moment."""

    def __init__(self, labs: dict[str, Lab], question: Question, method: str, variant: str, settings: Any) -> None:
        self.labs, self.given, self.settings, self.trace = labs, question, settings, None
        self.own = (method, variant)
        self.question = ipw.Textarea(value=question.text, description="question", rows=2, layout={"width": "640px"})
        self.lab = ipw.Dropdown(options=list(labs), description="model")
        self.method = ipw.Dropdown(options=list(METHODS), value=method, description="method")
        self.variant = ipw.Dropdown(options=list(VARIANTS), value=variant, description="variant")
        self.theta = ipw.FloatText(description="θ", layout={"width": "160px"}, step=0.05)
        self.page = ipw.HTML()
        choices = [*([self.lab] if len(labs) > 1 else []), self.method, self.variant, self.theta]
        ask = button("Ask", lambda: self.guard(self.ask), button_style="primary")
        super().__init__([self.question, row(*choices, ask)], [self.page], self.choose_still)
        for one in (self.method, self.variant):
            one.observe(lambda _: self.propose_theta(), "value")
        self.propose_theta()

    def choose_still(self) -> Any:
        """The latest trace; what to do without a kernel where there is none."""
        return "Nothing was asked yet. Without a front end: lab.ask(question)." if self.trace is None else self.trace

    def settings_of(self) -> dict[str, Any]:
        """What was given beside the controls, where the method is the one that it was given for."""
        return dict(self.settings) if (self.method.value, self.variant.value) == self.own else {}

    def propose_theta(self) -> None:
        """θ of the chosen method, as it is by default or was given."""
        self.theta.disabled = True
        try:
            theta = make_method(self.method.value, variant=self.variant.value, **self.settings_of()).threshold
        except SettingError as error:
            return self.say(str(error), alert=True)
        self.theta.value, self.theta.disabled = theta or 0.0, theta is None
        return self.say("")

    def ask(self, question: str | None = None) -> None:
        """Begin to answer, as the button does. Returns at once; see ``wait``.

        Raises ``SettingError`` for settings that make no method, an empty question, or while another is being answered.
        """
        if self.busy:
            raise SettingError("a question is being answered; stop it first, or wait for it. Nothing is lost")
        text = self.question.value if question is None else instance("question", question, str, "give a text")
        settings = self.settings_of() | ({} if self.theta.disabled else {"threshold": self.theta.value})
        method = make_method(self.method.value, variant=self.variant.value, **settings)
        events = self.labs[self.lab.value].stream(self.given if text == self.given.text else text, method)
        self.trace = events.trace
        self.begin(lambda: self.watch_episode(events))

    def watch_episode(self, events: Any) -> None:
        """Show what comes, the text under way at most every ``EVERY`` seconds."""
        trace: Trace = events.trace
        under_way: list[str] = []
        done, last = "", 0.0

        def each(event: Any) -> None:
            nonlocal done, last
            if isinstance(event, TokenWritten):
                level = int(np.clip(1 + (event.entropy - CERTAIN) / (LOST - CERTAIN) * 9, 0, 9))
                tip = f"entropy {event.entropy:.3f}, probability {np.exp(event.logprob):.2f}"
                under_way.append(f'<span class="h{level}" title="{tip}">{esc(event.text)}</span>')
                if time.monotonic() - last < EVERY:
                    return
            else:  # the page is drawn where a step went on, not for each token
                under_way.clear()
                done = trace._repr_html_()
            writing = f"step {event.step + 1}, {event.kind} …" if isinstance(event, TokenWritten) else ""
            style = "" if done else f"<style>{load_stylesheet()}</style>"
            text = f'<div class="head"><small>{writing}</small><div class="txt">{"".join(under_way)}</div></div>'
            self.page.value = f'{done}<div class="dl-out mathjax_ignore">{style}<div class="dl">{text}</div></div>'
            last = time.monotonic()

        try:
            whole = self.follow(events, each)
        finally:
            self.page.value = trace._repr_html_()
        self.say(f"{ended_line(trace).capitalize()}." if whole else "Stopped. What was done is here.")


def live(lab: Lab, question: str | Question, method: str, others: Mapping[str, Lab], **settings: Any) -> AskLive:
    """``Lab.explore``."""
    further = instance("others", {} if others is None else others, Mapping, "give labs by name")
    several("others", further.values(), Lab, "give dl.Lab objects")
    instance("question", question, str | Question, "give a text or a Question")
    given = Question("", question) if isinstance(question, str) else question
    variant = settings.pop("variant", VARIANTS[0])
    make_method(method, variant=variant, **settings)  # refuses before anything is drawn
    name = clip(str(getattr(lab.model, "name", "") or "this lab"), 60)[0]
    return AskLive({name: lab} | dict(further), given, method, variant, settings)
