"""``tune``: what θ does to quality, cost and words over stored traces, without the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as ipw
import numpy as np

from dragin_lab.catalog.exchanged import exchange_settings
from dragin_lab.checks import instance, several
from dragin_lab.core.method import Method
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError
from dragin_lab.results.curve import MOST, Curve, begin_curve
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.cache import Cache
from dragin_lab.run.episodes import open_stream
from dragin_lab.run.setup import MakesSetups
from dragin_lab.study.stored_drafts import fits_trace
from dragin_lab.study.whatif import Outcome, Replay
from dragin_lab.trace.trace import Trace
from dragin_lab.views.curves import draw_curve
from dragin_lab.views.facts import esc
from dragin_lab.views.pages import open_trace, render, styled
from dragin_lab.views.results import draw_board
from dragin_lab.views.rows import draw_tokens, judged_rows
from dragin_lab.views.trace_page import part_row, replayed, summary_rows
from dragin_lab.widgets.board import ThetaBoard
from dragin_lab.widgets.control import figure_json, row
from dragin_lab.widgets.curve_board import CurveBoard, CurveEvents, write_method

STEPS = 40  # values of θ that every trace is judged at
SHOWN = 100  # traces whose words are listed
# two pages, under one another where it is narrow
BESIDE = {"flex": "1 1 440px", "width": "auto", "min_width": "0"}


#: What a board says where its traces do not tell.
MAKE_CURVE = "dl.tune(lab.curve(questions)) knows every θ, as does 'make the curve' with lab="


class Board(ThetaBoard):
    """The box. ``theta`` is the slider, ``outcomes`` what its value leads to.

    Of one trace, the chosen one, ``outcome`` is drawn token by token; ``ran`` are the model's own
    answers. ``curve`` is the curve of the traces' questions, once it was made.
    """

    curve: Curve | None = None

    def __init__(self, replays: list[Replay], lab: MakesSetups | None, measured: Any) -> None:
        self.replays = replays
        self.lab = lab
        self.ran = list[Trace]()
        asked: list[tuple[str, int | None]] = []
        if len(replays) > 1:
            asked.append(("(no trace)", None))
        for place, replay in enumerate(replays):
            asked.append((replay.trace.question.text, place))
        own = replays[0].method.threshold
        assert own is not None
        super().__init__(choose_thetas(replays), float(own), asked)
        self.page = ipw.HTML(layout=BESIDE)
        self.beside = ipw.HTML(layout=BESIDE)
        alone = lab is None
        ask = self.offer("ask the model", self.run_model, disabled=alone)
        make = self.offer("make the curve", self.make_curve, disabled=alone)
        self.made = ipw.VBox()  # the curve's own board
        self.place(self.theta, [row(ask, make)], [row(self.page, self.beside), self.made])
        # which a step of the slider then only shows
        each = [judge_thetas(replay, self.thetas) for replay in replays]
        self.known = dict[float, list[Outcome]]()
        self.sums = dict[float, str]()
        rows = dict[int, str]()  # outcomes that decide alike are written once
        for theta in self.thetas:
            self.known[theta] = [own[theta] for own in each]
            self.sums[theta] = list_changes(self.known[theta], theta, rows)
        self.base = figure_json(draw_board(self.known, measured))
        self.show_theta()
        self.open_trace()
        self.target.value = round(mean_cost(self.outcomes), 2)
        self.listen(self.show_theta, self.aim_at, self.open_trace, self.show_trace)

    @property
    def outcomes(self) -> list[Outcome]:
        """What all traces come to at the chosen θ, in their order."""
        return self.known[self.theta.value]

    @property
    def outcome(self) -> Outcome:
        """What the chosen trace comes to, or the first where none is chosen."""
        return self.replays[self.which.value or 0].at(threshold=self.theta.value)

    def show_theta(self) -> None:
        """The line of θ, what it comes to, and the words that part from what was run."""
        theta = self.theta.value
        self.draw_theta(log=False)
        self.words.value = self.sums[theta]
        self.code.value = write_method(shorten_theta(self.outcomes[0].method))
        if self.which.value is not None:
            self.show_trace()

    def aim_at(self, retrievals: float) -> None:
        """Move θ to where a question costs so many retrievals, if that is known: where all texts
        are followed to their end.
        """
        known = dict[float, float]()
        for theta, outcomes in self.known.items():
            if all(one.whole for one in outcomes):
                known[theta] = mean_cost(outcomes)
        if not known:
            raise SettingError(f"no cost is known here; {MAKE_CURVE}")
        theta = min(known, key=lambda one: abs(known[one] - retrievals))
        if abs(known[theta] - retrievals) > 1 / len(self.replays):
            raise SettingError(
                f"of these traces a cost of {retrievals:g} is not known (known: {known[theta]:.2f}"
                f" retrievals a question at θ {theta:g}); {MAKE_CURVE}"
            )
        self.theta.value = theta
        self.say(f"At θ {theta:g} a question costs {known[theta]:.2f} retrievals.")

    def need_lab(self) -> MakesSetups:
        """The lab; raises ``SettingError`` without one."""
        if self.lab is None:
            raise SettingError(
                "without a lab no model can answer; give one: dl.tune(traces, lab=lab)"
            )
        return self.lab

    def make_curve(self) -> None:
        """Have the model answer the questions at every θ; the figure is the curve's as far as it
        is known.
        """
        method = self.replays[0].method
        setup = self.need_lab().setup(method)
        if setup.cache is None:
            setup = replace(setup, cache=Cache())
        asked = as_benchmark([replay.trace.question for replay in self.replays])
        making = begin_curve(
            setup, method, asked, lowest=None, most=MOST, output=None, batch_size=1
        )

        def grow(_: str, curve: Any) -> None:
            if curve.complete:
                self.drawing.show(draw_curve(curve))

        def show(curve: Any) -> None:
            if not curve.complete:
                raise SettingError("; ".join(["no question is finished", *curve.notes]))
            self.curve = curve
            self.made.children = [CurveBoard(curve)]
            self.say("; ".join(["The curve stands below.", *curve.notes]))

        self.run(lambda: CurveEvents(making), show, grow, says="The model answers at every θ …")

    def open_trace(self) -> None:
        """Look into the chosen trace, from the step that retrieved first."""
        self.tokens.show(None)
        self.texts.options = []
        self.page.value = ""
        self.beside.value = ""
        if self.which.value is None:
            return
        steps = self.replays[self.which.value].trace.steps
        drafted = [step for step in steps if step.draft is not None]
        retrieved = [step for step in drafted if step.query is not None]
        self.texts.options = [step.index + 1 for step in drafted]
        for first in (retrieved + drafted)[:1]:
            self.texts.value = first.index + 1
        self.show_trace()

    def show_trace(self) -> None:
        """The chosen step's tokens and the trace's page, at the chosen θ."""
        outcome = self.outcome
        self.page.value = replayed(outcome).html
        if self.texts.value is not None:
            rows = judged_rows(outcome, self.texts.value - 1)
            title = f"step {self.texts.value}, draft"
            self.tokens.show(draw_tokens(outcome.judged, rows, title))

    def run_model(self) -> None:
        """Have the model answer the chosen trace's question at this θ; its answer stands beside."""
        lab = self.need_lab()
        if self.which.value is None:
            raise SettingError("choose a trace under 'look into', whose question is to be asked")
        replay = self.replays[self.which.value]
        method = exchange_settings(replay.method, threshold=self.theta.value)

        def show(trace: Trace) -> None:
            if trace.ended != "error":  # or an earlier answer would go
                self.ran.append(trace)
                asked = f"<p><b>The model, asked with {esc(write_method(method))}</b></p>"
                self.beside.value = asked + trace._repr_html_()
                stopped = trace.ended == "cancelled"
                self.say("Stopped; what was written stands beside." * stopped)

        self.run(
            lambda: open_stream(lab.setup(method), replay.trace.question, method),
            show,
            says="The model answers …",
        )


def tune(
    traces: Curve | Trace | str | Path | Iterable[Trace | str | Path],
    *,
    sweep: Any = None,
    lab: MakesSetups | None = None,
    nlp: Any = None,
) -> Board | CurveBoard:
    """What θ does, without the model: quality, cost, and the words that change.

    Of a curve (``lab.curve``) every θ is known. Of stored traces of one method a line stands where
    all texts are followed to their end, and a band for what is possible elsewhere; with the ``lab``
    a button makes the curve; ``sweep`` (of ``lab.sweep`` over the same questions, or its table)
    stands there as points. One trace can be looked into token by token, and with the ``lab`` that
    made it a button has its model answer. Without a kernel:
    ``views.replayed(dl.Replay(trace).at(…))``. Raises ``SettingError`` for no trace, traces of
    several methods and a method without a threshold.
    """
    if isinstance(traces, Curve):
        return CurveBoard(traces)
    given = several("traces", traces, Trace | str | Path, "give traces or their files", alone=True)
    instance("lab", lab, MakesSetups | None, "give the dl.Lab that made the traces")
    tokenizer = None if lab is None else lab.setup().model.tokenizer
    replays = []
    for trace in map(open_trace, given):
        own = None if tokenizer is None or not fits_trace(tokenizer, trace) else tokenizer
        replays.append(Replay(trace, tokenizer=own, nlp=nlp))
    if not replays:
        raise SettingError("there is no trace to tune; give one or a list of them")
    method = replays[0].method
    ignored = {"threshold": None, "label": ""}
    for replay in replays:
        if replay.method.settings | ignored != method.settings | ignored:
            one = write_method(method)
            two = write_method(replay.method)
            raise SettingError(
                f"the traces are of several methods, {one} and {two}; give those of one"
            )
    if "threshold" not in replays[0].tunable or method.threshold is None:
        raise SettingError(f"{method.name} has no threshold, so there is nothing to tune")
    return Board(replays, lab, sweep)


def mean_cost(outcomes: Sequence[Outcome]) -> float:
    """Retrievals a question."""
    return sum(one.retrievals for one in outcomes) / len(outcomes)


def choose_thetas(replays: list[Replay]) -> list[float]:
    """About ``STEPS`` values of θ from its least to above the highest score that fired, and the
    one that was run.
    """
    method = replays[0].method
    own = float(method.threshold)  # type: ignore[arg-type]
    known = method.trigger.declared()["threshold"]
    fired = [own, *list_fired(replays)]
    low = known.ge
    if not math.isfinite(low):
        low = min(2 * own, *fired)
    top = known.top or max(2 * own, 1.1 * max(fired))
    step = round_up((top - low) / STEPS)
    grid = np.arange(low, top + step, step).round(9).clip(max=top)
    return sorted({own, *grid.tolist()})


def list_fired(replays: list[Replay]) -> list[float]:
    """The scores of all words that fired."""
    fired = list[float]()
    for replay in replays:
        for step in replay.trace.steps:
            scores = step.words.score[step.words.hit]
            fired += scores[np.isfinite(scores)].tolist()
    return fired


def judge_thetas(replay: Replay, thetas: Sequence[float]) -> dict[float, Outcome]:
    """What a trace comes to at each θ.

    A word fires where its score is above θ, so what is decided alike at two values is decided alike
    between them, and only one side of a change has to be judged again. A trigger that judges by
    code of its own is judged at each.
    """
    own = type(replay.method.trigger).judge is not Trigger.judge
    known = dict[float, Outcome]()

    def at(place: int) -> Outcome:
        theta = thetas[place]
        if theta not in known:
            known[theta] = replay.at(threshold=theta)
        return known[theta]

    def between(low: int, high: int) -> None:
        if high - low < 2:
            return
        if own or decided(at(low)) != decided(at(high)):
            between(low, (low + high) // 2)
            between((low + high) // 2, high)
            return
        for theta in thetas[low + 1 : high]:
            method = exchange_settings(at(low).method, threshold=theta)
            known[theta] = replace(at(low), method=method)

    between(0, len(thetas) - 1)
    return {theta: at(place) for place, theta in enumerate(thetas)}


def decided(outcome: Outcome) -> Any:
    """All that an outcome decides, without the θ that its reasons quote."""
    turns = []
    for turn in outcome.turns:
        decision = turn.decision
        query = turn.query
        does = decision and (decision.cut, decision.token, decision.retrieve)
        asks = query and query.text
        turns.append((turn.change, turn.words.hit.tobytes(), does, asks))
    return outcome.since, turns


def shorten_theta(method: Method) -> Method:
    """The method with a θ of at most four digits."""
    return exchange_settings(method, threshold=float(f"{method.threshold:.4g}"))


def list_changes(outcomes: Sequence[Outcome], theta: float, rows: dict[int, str]) -> str:
    """What outcomes come to, and of each that parts from its trace the words; ``rows`` keeps
    what was written.
    """
    parted = [outcome for outcome in outcomes if outcome.since is not None]
    for outcome in parted:
        if id(outcome.turns) not in rows:
            rows[id(outcome.turns)] = part_row(outcome)
    return styled(
        render(
            "changes.html",
            theta=theta,
            n=len(outcomes),
            parted=len(parted),
            sums=summary_rows(outcomes),
            rows=[rows[id(outcome.turns)] for outcome in parted[:SHOWN]],
        )
    )


def round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten at or above a value."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= value * (1 - 1e-9))
