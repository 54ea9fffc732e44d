"""``tuner``: sliders over stored traces, answered by ``replay`` without the model; a button asks the model itself."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from dragin_lab.almanac.facts import Labelled
from dragin_lab.catalog.methods import exchange_settings
from dragin_lab.checks import instance, several
from dragin_lab.core.method import Method
from dragin_lab.core.settings import title_setting
from dragin_lab.errors import DraginLabError, SettingError, TraceFileError
from dragin_lab.run.cached import CacheAlone, is_cacheable
from dragin_lab.run.lab import Lab
from dragin_lab.run.serving import describe_error
from dragin_lab.study.stored_drafts import fits
from dragin_lab.study.truth import find_labels
from dragin_lab.study.whatif import Outcome, Replay
from dragin_lab.trace.trace import Trace
from dragin_lab.views import replays
from dragin_lab.views.frame import View, make_message, make_view, open_trace
from dragin_lab.views.heat import find_largest
from dragin_lab.views.html import clip
from dragin_lab.views.trace import trace_html
from dragin_lab.widgets.base import Running, load_script, load_style

STEPS = 200  # of the slider of θ
PICTURES = 32  # of a saved page
LOOK_UP = 0.03  # seconds of a picture that may go into answers from the cache


class Tuner(Running):
    """The widget. ``asked`` holds the controls' values, ``answer`` what they lead to, ``outcomes`` the replays.

    ``traces`` are the stored traces, ``ran`` those that the button had the model make.
    """

    _esm = load_script("tuning")
    _css = load_style("replay")
    #: {"id", "trace", "settings"}, from the controls. The last one is answered, those it overtakes are not.
    asked: Any = traitlets.Dict().tag(sync=True)
    #: {"id", "html", "error", "more"}; ``more``: ask again, there are answers left to look up
    answer: Any = traitlets.Dict().tag(sync=True)
    #: {"busy", "status", "html", "error"} of the model's run
    running: Any = traitlets.Dict({"busy": False, "status": "", "html": "", "error": ""}).tag(sync=True)

    def __init__(
        self,
        traces: Trace | str | Path | Iterable[Trace | str | Path],
        labels: Iterable[Labelled] | None = None,
        lab: Lab | None = None,
        *,
        nlp: Any = None,
    ) -> None:
        given = several("traces", traces, Trace | str | Path, "give traces or their files", alone=True)
        known = None if labels is None else several("labels", labels, Labelled, "give almanac.labels(...)")
        self.lab = None if lab is None else instance("lab", lab, Lab, "give the dl.Lab that made the traces")
        self.ran: list[Trace] = []
        self.outcomes: list[Outcome] = []
        self._replays: list[Replay] = []
        self._looked_up: dict[tuple[int, str], Trace | None] = {}
        wrong = [] if given else ["There is no trace to tune; give one or a list of them."]
        for one in given:
            try:
                trace = open_trace(one)
                own = lab.model.tokenizer if lab is not None and fits(lab.model.tokenizer, trace) else None
                self._replays.append(Replay(trace, find_labels(trace, known), tokenizer=own, nlp=nlp))
            except TraceFileError as error:
                wrong.append(f"{error}.")
            except SettingError as error:
                wrong.append(f"{clip(trace.question.text, 60)[0]!r} cannot be tuned: {error}.")
        self.traces = [replay.trace for replay in self._replays]
        about = ""
        if (
            len(
                {
                    (r.method.name, r.method.variant, type(r.method.trigger), type(r.method.formulator))
                    for r in self._replays
                }
            )
            > 1
        ):
            named = ", ".join(sorted({f"{r.method.name} ({r.method.variant})" for r in self._replays}))
            raise SettingError(f"the traces are of several methods ({named}); give a tuner those of one")
        if self._replays and not self._replays[0].tunable:
            about = f"{self._replays[0].method.name} has no threshold: there is nothing to tune."
        controls = self._controls(self._replays[0]) if self._replays else []
        titles = [clip(trace.question.text, 120)[0] for trace in self.traces]
        model = lab is not None
        super().__init__(
            data={"error": " ".join(wrong), "controls": controls, "traces": titles, "model": model, "about": about}
        )
        if self._replays:
            self.asked = {"id": 0, "trace": 0, "settings": {c["name"]: c["value"] for c in controls}}

    def _controls(self, first: Replay) -> list[dict[str, Any]]:
        """A control for each setting that a replay can change: a choice, or a slider."""
        method, out = first.method, []
        declared = method.trigger.declared() | method.formulator.declared()
        scores = [step.words.score for replay in self._replays for step in replay.trace.steps]
        for name in first.tunable:
            known, value = declared[name], method.settings[name]
            control = {"name": name, "label": title_setting(name), "about": known.label, "value": value}
            if known.choices:
                none = [["", "none"]] if known.optional else []
                out.append(control | {"value": value or "", "choices": none + [[one, one] for one in known.choices]})
            elif isinstance(value, int | float) and not isinstance(value, bool):
                whole, low = isinstance(value, int), known.ge
                if not math.isfinite(low):
                    low = -_round_up(max(-2 * value, find_largest(-score for score in scores)))
                top = max(50, 2 * value) if whole else known.top or _round_up(max(2 * value, find_largest(scores)))
                out.append(control | {"min": low, "max": top, "step": 1 if whole else (top - low) / STEPS})
        return out

    def _recorded(self) -> dict[str, Any]:
        """A page has no kernel, so it holds an answer for each θ at which one changes, at most ``PICTURES`` of them."""
        data = {**self.data, "model": False}
        own = self._replays[0].method.trigger.declared() if self._replays else {}
        control = next((c for c in self.data["controls"] if c["name"] in own and "max" in c), None)
        if control is None:
            return {"data": data, "answer": self.answer}
        steps = [step for replay in self._replays for step in replay.trace.steps]
        scores = [s.words.score for s in steps] + [np.array(s.decision.peaks) for s in steps if s.decision is not None]
        values = np.unique(np.concatenate([*scores, [control["min"]]]).astype(float))
        values = values[
            (values >= control["min"]) & (values <= control["max"])
        ]  # NaN, which is not measured, is neither
        places = np.linspace(0, len(values) - 1, min(PICTURES, len(values))).round().astype(int)
        thetas = np.unique([*values[places], control["value"]]).tolist()
        answers = [replays.replay_card([r.at(**{control["name"]: theta}) for r in self._replays]) for theta in thetas]
        data |= {"controls": [{**control, "values": thetas}], "answers": answers}
        return {"data": data, "asked": {"settings": {control["name"]: control["value"]}}}

    # -- answering -----------------------------------------------------------------------------------------------------

    @traitlets.observe("asked")
    def _asked(self, change: Any) -> None:
        asked = change["new"]
        if not asked or not self._replays:
            return
        try:
            outcomes = [r.at(**_changed_settings(asked, r)) for r in self._replays]
            place = self._place(asked)
            self.outcomes, more = self._answered(outcomes, place)
            html = replays.replay_card(self.outcomes, place)
            self.answer = {"id": asked.get("id", 0), "html": html, "error": "", "more": more}
        except Exception as error:  # noqa: BLE001 - in a callback an error would be seen in a log only
            self.answer = {"id": asked.get("id", 0), "html": "", "error": describe_error(error)}

    def _answered(self, outcomes: list[Outcome], first: int) -> tuple[list[Outcome], bool]:
        """The outcomes with the answers that the lab's cache holds, as far as time allows; whether more are to look up.

        They are looked up from the ``first`` trace on, each once.
        """
        if self.lab is None or self.lab.cache is None:
            return outcomes, False
        until, more = time.perf_counter() + LOOK_UP, False
        answered = list(outcomes)
        for place in [first, *range(len(outcomes))]:
            outcome = outcomes[place]
            key = (place, repr(outcome.method.settings))
            timely = place == first or time.perf_counter() < until
            if timely and not outcome.whole and key not in self._looked_up:
                self._looked_up[key] = _ask_cache(self.lab, outcome.trace, outcome.method)
            more |= not outcome.whole and key not in self._looked_up
            answered[place] = replace(outcome, answered=self._looked_up.get(key))
        return answered, more

    def tune(self, trace: int = 0, **settings: Any) -> list[Outcome]:
        """Set the controls from Python, those not named as they were run; returns the outcomes.

        Raises ``SettingError`` for settings that cannot be replayed.
        """
        if not self._replays:
            raise SettingError("there is no trace to tune; give tuner one or a list of them")
        self._replays[0].at(**settings)
        start = {c["name"]: c["value"] for c in self.data["controls"]}
        self.asked = {"id": self.asked.get("id", 0) + 1, "trace": trace, "settings": start | settings}
        return self.outcomes

    def static(self) -> View:
        if not self._replays:
            return make_message("tuner", self.data["error"])
        outcomes = self.outcomes or [r.at() for r in self._replays]
        draw = (partial(replays.replay_card, outcomes), partial(replays.replay_text, outcomes))
        return make_view("The tuner", "tuner", outcomes[0].trace.question.text, *draw, "replay")

    # -- the model -----------------------------------------------------------------------------------------------------

    def _heard(self, _: Any, content: Any, __: Any) -> None:
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind == "run":
            self.run_model()
        elif kind == "stop":
            self.stop()

    def run_model(self) -> None:
        """Have the model answer the chosen trace's question with the chosen values, in its own thread."""
        if self.busy:
            return
        if self.lab is None:
            error = "Open the tuner with lab.tune(traces) to run the model."
            self.running = {"busy": False, "status": "", "html": "", "error": error}
            return
        self.running = {"busy": True, "status": "Starting …", "html": "", "error": ""}
        self._begin(self._run, dict(self.asked))

    def _run(self, asked: dict[str, Any]) -> None:
        error, html = "", ""
        try:
            assert self.lab is not None
            replay = self._replays[self._place(asked)]
            method = exchange_settings(replay.method, **_changed_settings(asked, replay))
            events = self.lab.stream(replay.trace.question, method)
            self.ran.append(events.trace)
            try:
                for number, _ in enumerate(events):
                    if number % 16 == 15:
                        counted = events.trace.counters
                        status = f"{counted['retrievals']} retrievals, {counted['drafts']} drafts so far …"
                        self.running = {"busy": True, "status": status, "html": "", "error": ""}
                    if self._stop.is_set():
                        break
            finally:
                events.close()
            html = trace_html(events.trace)
        except Exception as failed:  # noqa: BLE001 - in a thread an error would be seen in a log only
            error = describe_error(failed)
        self.running = {"busy": False, "status": "", "html": html, "error": error}

    def _place(self, asked: dict[str, Any]) -> int:
        """The number of the trace that is drawn in full."""
        return min(max(int(asked.get("trace", 0)), 0), len(self._replays) - 1)


def _changed_settings(asked: dict[str, Any], replay: Replay) -> dict[str, Any]:
    """The controls' values as settings, those that are not as they were: the empty choice is None, counts are whole."""
    changed, old = {}, replay.method.settings
    for name, value in asked.get("settings", {}).items():
        value = None if value == "" else value
        value = round(value) if isinstance(old.get(name), int) and isinstance(value, float) else value
        if value != old.get(name):
            changed[name] = value
    return changed


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten at or above a value, so that a slider ends at a round number."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(m * power for m in (1, 2, 4, 5, 8, 10) if m * power >= value * (1 - 1e-9))


def _ask_cache(lab: Lab, trace: Trace, method: Method) -> Trace | None:
    """The episode of a trace's question with another method, out of the lab's cache; None where that lacks a draft.

    None, too, where the trace was made with another model, prompt or retriever than the lab's.
    """
    if lab.cache is None or not is_cacheable(lab.model):
        return None
    try:
        answered = lab.replace(model=CacheAlone(lab.model, lab.cache), retriever=lab.retriever_for(method)).ask(
            trace.question, method
        )
    except DraginLabError:  # not cached, or an episode that fails: its answer is not known
        return None
    same = ("weights_sha256", "template", "retriever", "seed")
    return answered if all(answered.provenance.get(key) == trace.provenance.get(key) for key in same) else None
