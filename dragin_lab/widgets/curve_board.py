"""``tune(curve)``: every θ of a curve, with what each costs and gives, and the words, queries and
answer of one question there.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import ipywidgets as ipw

from dragin_lab.catalog.exchanged import restore_method
from dragin_lab.core.budget import shortest_between
from dragin_lab.core.method import VARIANTS, Method
from dragin_lab.results.pieces import Piece
from dragin_lab.study.whatif import Replay, step_below
from dragin_lab.trace.trace import Trace
from dragin_lab.views.curves import draw_curve, say_range
from dragin_lab.views.facts import esc, num, short
from dragin_lab.views.rows import draw_tokens, find_text, token_rows
from dragin_lab.views.trace_page import first_hit
from dragin_lab.widgets.board import ThetaBoard
from dragin_lab.widgets.control import figure_json, row

if TYPE_CHECKING:
    from dragin_lab.results.curve import Curve, Making

SHOWN = ("em", "f1", "retrievals", "tokens")


class CurveEvents:
    """A curve under way for ``Control.run``: the id of each question that is finished; ``trace`` is
    the curve as far as it is known.
    """

    def __init__(self, making: Making) -> None:
        self.making = making
        self._ids = iter(making)

    @property
    def trace(self) -> Any:
        return self.making.curve

    def __iter__(self) -> Iterator[str]:
        for id in self._ids:
            if self.making.pieces.finished(id):
                yield id

    def close(self) -> None:
        """Ask nothing more; what is finished is kept."""
        self._ids.close()


class CurveBoard(ThetaBoard):
    """The box. ``theta`` is the slider over every change, ``trace`` the chosen question's there.

    ◀ and ▶ go to the next change: of the chosen question, or of any where none is chosen.
    """

    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        self.table = curve.table.to_dict("records")
        self.thetas = [row["value"] for row in self.table]
        threshold = float(curve.config["method"]["threshold"])
        own = self.thetas[self.place_of(threshold)]
        asked: list[tuple[str, str | None]] = [("(no question)", None)]
        for id in curve.complete:
            first = curve.collected.by_question[id][0]
            asked.append((first.line["question"], id))
        super().__init__(self.thetas, own, asked)
        self.page = ipw.HTML()
        back = self.offer("◀", lambda: self.go(-1))
        on = self.offer("▶", lambda: self.go(1))
        self.place(row(back, self.theta, on), [], [self.page])
        self.base = figure_json(draw_curve(curve))
        cost = self.row["retrievals"]
        self.target.value = round(cost, 2)
        self.show_theta()
        self.listen(self.show_theta, self.aim_at, self.show_question, self.show_tokens)

    def place_of(self, theta: float) -> int:
        """Which of the changes a θ lies behind."""
        return max(bisect_right(self.thetas, theta) - 1, 0)

    @property
    def row(self) -> dict[str, Any]:
        """What the chosen θ costs and gives: its row of the table."""
        return self.table[self.place_of(self.theta.value)]

    @property
    def piece(self) -> Piece | None:
        """The chosen question's piece at the chosen θ; None where none is chosen."""
        if self.which.value is None:
            return None
        return self.curve.piece(self.which.value, self.theta.value)

    @property
    def trace(self) -> Trace | None:
        """The chosen question's trace at the chosen θ; None where none is chosen or kept."""
        piece = self.piece
        if piece is None or piece.trace is None:
            return None
        return self.curve.trace(self.which.value, self.theta.value)

    def go(self, way: int) -> None:
        """To the next change of the chosen question, or of any: 1 to a higher θ, -1 to a lower."""
        changes = self.thetas
        if self.which.value is not None:
            pieces = self.curve.collected.by_question[self.which.value]
            changes = sorted({max(piece.start, self.thetas[0]) for piece in pieces})
        theta = self.theta.value
        above = bisect_right(changes, theta)
        here = bisect_left(changes, theta)
        place = above if way > 0 else here - 1
        if 0 <= place < len(changes):
            self.theta.value = changes[place]
        else:
            self.say("Nothing changes further on, as far as the curve goes.")

    def aim_at(self, retrievals: float) -> None:
        """Move θ to where a question costs so many retrievals."""
        theta = self.curve.budget(retrievals)
        self.theta.value = self.thetas[self.place_of(theta)]
        self.say(f"At θ {theta:g} a question costs {theta.reached:.2f} retrievals.")

    def show_theta(self) -> None:
        """The line of θ, what it costs and gives, and the chosen question there."""
        theta = self.theta.value
        row = self.row
        self.draw_theta(log=self.thetas[0] > 0)
        self.words.value = describe_row(row)
        self.code.value = write_call(self.curve, theta, row["until"])
        self.show_question()

    def show_question(self) -> None:
        """The chosen question at the chosen θ: where it changes next, its tokens and its page."""
        trace = self.trace
        piece = self.piece
        self.tokens.show(None)
        self.page.value = ""
        steps = []
        if piece is not None:
            self.page.value = f"<p>{esc(describe_changes(self.curve, piece))}</p>"
        if trace is not None:
            self.page.value += trace._repr_html_()
            steps = [step.index + 1 for step in trace.steps if step.draft is not None]
        chosen = self.texts.value
        self.texts.options = steps
        if steps:
            self.texts.value = chosen if chosen in steps else steps[0]
            self.show_tokens()

    def show_tokens(self) -> None:
        """The chosen step's tokens."""
        trace = self.trace
        number = self.texts.value
        if trace is None or number is None:
            return
        step = trace.steps[number - 1]
        rows = token_rows(trace, step, *find_text(trace, number, "draft")[1:])
        self.tokens.show(draw_tokens(trace, rows, f"step {number}, draft"))


def write_method(method: Method) -> str:
    """The call that makes a method: ``dl.method("dragin", threshold=0.5, top_n=5)``."""
    values = {"variant": method.variant} if method.variant != VARIANTS[0] else {}
    values |= {"threshold": method.threshold} | method.changed
    given = [f"{name}={value!r}" for name, value in values.items()]
    return f"dl.method({', '.join([repr(method.name), *given])})"


def describe_row(row: dict[str, Any]) -> str:
    """What a θ costs and gives, as HTML."""
    measured = ", ".join(f"{name} {num(row[name])}" for name in SHOWN)
    return f"<p><b>{say_range(row)}: {esc(measured)}.</b></p>"


def write_call(curve: Curve, theta: float, until: float) -> str:
    """The call that makes a curve's method at a θ, or at one of fewer digits that is as good."""
    threshold = shortest_between(theta, until)
    method = curve.config["method"] | {"threshold": threshold, "label": ""}
    return write_method(restore_method(method, curve.nlp))


def describe_changes(curve: Curve, piece: Piece) -> str:
    """Where a question's episode changes next, below and above a θ, and what changes there."""
    parts = []
    if piece.start > curve.collected.lowest:
        parts.append(f"below θ {short(piece.start)} {_describe(curve, piece, -1)}")
    if piece.stop < math.inf:
        parts.append(f"from θ {short(piece.stop)} up {_describe(curve, piece, 1)}")
    return "This answer: " + ("; ".join(parts) or "the same at every θ of the curve") + "."


def _describe(curve: Curve, piece: Piece, way: int) -> str:
    """What changes below a piece (way -1) or above it, by a replay of its trace."""
    kept = piece.trace
    if kept is None:
        return "it is another (its trace was not kept)"
    trace = kept if isinstance(kept, Trace) else Trace.load(kept)
    replay = Replay(trace, nlp=curve.nlp)
    theta = piece.stop if way > 0 else step_below(replay.method, piece.start)
    outcome = replay.at(threshold=theta)
    if outcome.since is None:
        return "it is another"
    step = trace.steps[outcome.since]
    turn = outcome.turns[outcome.since]
    then = first_hit(step, step.words)
    now = first_hit(step, turn.words)
    where = f"in step {step.index + 1}"
    hit = now or then
    if step.draft is None or hit is None or now == then:
        change = turn.change.replace("may ask", "asks")  # the curve knows that it does
        return f"the model {change} {where}"
    does = "fires" if now else "no longer fires"
    return f"{step.draft.text[slice(*hit)].strip()!r} {does} {where}"
