"""``Curve``: what a method answers at every θ, exactly; its table, its costs, and the runs at any
θ.
"""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dragin_lab.catalog.exchanged import label_of
from dragin_lab.checks import count, instance, number
from dragin_lab.core.budget import Threshold
from dragin_lab.core.method import Method
from dragin_lab.drawn import Drawn
from dragin_lab.errors import SettingError, explain
from dragin_lab.files import as_path
from dragin_lab.progress import Progress
from dragin_lab.results.headroom import Headroom, find_budget, find_headroom
from dragin_lab.results.pieces import (
    CONFIG,
    Piece,
    PieceFolder,
    Pieces,
    find_pieces,
    read_config,
    read_into,
    refuse_lowest,
)
from dragin_lab.results.runs import Runs
from dragin_lab.run.benchmark import Benchmark, run_config
from dragin_lab.run.intervals import MEASURES, NOTHING, describe_failures, intervals_of
from dragin_lab.run.rundir import Facts, Folder, Root, RunRecord, open_zip
from dragin_lab.run.setup import Setup
from dragin_lab.study.whatif import Replay, refuse_no_interval
from dragin_lab.text import printable
from dragin_lab.trace.trace import Trace

#: Pieces a question, where nobody says otherwise: below, all but every word fires.
MOST = 32
#: Down to which share of its own θ a method's curve goes, where nobody says otherwise.
LOWEST = 0.4


@dataclass(frozen=True)
class PieceRun(RunRecord):
    """The run at one θ of a curve: a trace is the piece's, as this θ judges it."""

    theta: float = field(default=math.nan, compare=False)
    kept: Mapping[str, Trace | Path | None] = field(default_factory=dict, compare=False, repr=False)
    nlp: Any = field(default=None, compare=False, repr=False)

    def has_trace(self, id: str) -> bool:
        kept = self.kept.get(id)
        return isinstance(kept, Trace) or (kept is not None and kept.is_file())

    def trace_file(self, id: str) -> Root:
        kept = self.kept.get(id)
        return kept if isinstance(kept, Path) else super().trace_file(id)

    def trace(self, id: str) -> Trace:
        kept = self.kept.get(id)
        trace = kept if isinstance(kept, Trace) else super().trace(id)
        return Replay(trace, nlp=self.nlp).at(threshold=self.theta).judged


@dataclass(frozen=True, repr=False)
class Curve:
    """What a method answers at every θ from ``lowest`` up: the pieces of each question.

    Every number is of answers that the model gave. Questions that failed, or are not finished, are
    left out of all means; ``notes`` says how many, and why. ``lab.curve`` makes one.
    """

    config: Facts  # as ``run.json`` has it; its θ is the method's own
    ids: tuple[str, ...]
    collected: Pieces
    nlp: Any = field(default=None, compare=False)

    @classmethod
    def load(cls, path: str | Path, *, nlp: Any = None) -> Curve:
        """The curve that a folder, or a zip of one, holds; without a model.

        ``nlp`` is its pipeline, where it is not the default. Raises ``RunError`` where there is
        none.
        """
        folder = as_path(path, local=True)
        packed = folder.suffix == ".zip"
        files = zipfile.Path(open_zip(folder)) if packed else folder
        config = read_config(files)
        pieces = Pieces(**config["curve"])
        read_into(pieces, files, None if packed else folder)
        return cls(config, tuple(pieces.by_question), pieces, nlp)

    # -- what is known -----------------------------------------------------------------------------

    @property
    def method(self) -> str:
        """What its method is called, without θ."""
        return label_of(self.config["method"])

    @property
    def benchmark(self) -> str:
        """The name of its questions."""
        return str(self.config["dataset"]["name"])

    @cached_property
    def complete(self) -> tuple[str, ...]:
        """The ids of the questions that are finished."""
        pieces = self.collected
        return tuple(id for id in self.ids if pieces.finished(id) and id not in pieces.failed)

    @cached_property
    def lowest(self) -> float:
        """The θ from which up every question is known."""
        floors = [self.collected.floor(id) for id in self.complete]
        return max([self.collected.lowest, *floors])

    @property
    def notes(self) -> list[str]:
        """What of the questions is not known, and why."""
        pieces = self.collected
        notes = describe_failures(pieces.failed.values())
        cut = [id for id in self.complete if pieces.floor(id) > pieces.lowest]
        if cut:
            notes.append(
                f"{_questions(len(cut))} reached {pieces.most} pieces, so the curve begins"
                f" at θ {self.lowest:.4g}; raise most= for a lower θ"
            )
        left = self.config["dataset"]["questions"] - len(self.complete) - len(pieces.failed)
        if left:
            notes.append(f"{_questions(left)} not finished; the same call of lab.curve goes on")
        return notes

    def refuse_unknown(self, theta: float) -> float:
        """The θ. Raises ``SettingError`` for one below what is known."""
        theta = number("theta", theta, -math.inf)
        if theta < self.lowest:
            raise SettingError(
                f"θ {theta:g} is below {self.lowest:.6g}, from which up this curve is known; make"
                " it with a lower lowest=, or a larger most="
            )
        return theta

    def piece(self, id: str, theta: float) -> Piece:
        """The piece of a question at a θ. Raises ``SettingError`` where it is not known."""
        theta = self.refuse_unknown(theta)
        if id not in self.complete:
            raise SettingError(
                f"question {id!r} has no curve here; ids are those of .pieces, such as"
                f" {next(iter(self.complete), 'none')!r}"
            )
        return next(piece for piece in self.collected.by_question[id] if theta in piece.thetas)

    def trace(self, id: str, theta: float) -> Trace:
        """The trace of a question at a θ, as that θ judges it."""
        return self._run_at(self.refuse_unknown(theta), self.piece(id, theta)).trace(id)

    @cached_property
    def pieces(self) -> pd.DataFrame:
        """One row per piece (pandas.DataFrame): question, from, to, em, f1, retrievals, tokens,
        answer, trace.

        An episode is the same from θ ``from`` up and below ``to``. ``trace`` is the trace, or its
        file.
        """
        rows = []
        for id in self.complete:
            for piece in reversed(self.collected.by_question[id]):
                ends = {"from": max(piece.start, self.collected.lowest), "to": piece.stop}
                kept = {key: piece.line[key] for key in (*MEASURES, "answer")}
                rows.append({"question": id} | ends | kept | {"trace": piece.trace})
        columns = ["question", "from", "to", *MEASURES, "answer", "trace"]
        return pd.DataFrame(rows, columns=columns)

    # -- at one θ ----------------------------------------------------------------------------------

    def at(self, *thetas: float) -> Runs:
        """The runs at one θ or several, as ``Runs``: their tables, tests, traces and differences.

        They are what ``lab.run`` gives there. Raises ``SettingError`` for a θ below ``lowest``.
        """
        if not thetas:
            raise SettingError("no θ was given; give one or several: curve.at(0.4)")
        runs = []
        for theta in map(self.refuse_unknown, thetas):
            pieces = [self.piece(id, theta) for id in self.complete]
            runs.append(self._run_at(theta, *pieces))
        return Runs(runs)

    def _run_at(self, theta: float, *pieces: Piece) -> PieceRun:
        method = self.config["method"] | {"threshold": theta}
        lines = [piece.line for piece in pieces] + [*self.collected.failed.values()]
        kept = {piece.line["id"]: piece.trace for piece in pieces}
        config = self.config | {"method": method}
        folder = Path(f"θ={theta:.9g}")
        return PieceRun(folder, config, lines, theta=theta, kept=kept, nlp=self.nlp)

    # -- over θ ------------------------------------------------------------------------------------

    @cached_property
    def thetas(self) -> np.ndarray:
        """(t,) float64, where anything changes: each θ from which on some question has another
        episode; ``lowest`` first.
        """
        starts = {self.lowest}
        for id in self.complete:
            starts |= {max(piece.start, self.lowest) for piece in self.collected.by_question[id]}
        return np.array(sorted(starts))

    def values(self, measure: str) -> np.ndarray:
        """(q, t) float64, a measure of each complete question from each of ``thetas`` on; NaN
        without a gold answer.
        """
        rows = [
            values_at(self.collected.by_question[id], self.thetas, measure) for id in self.complete
        ]
        return np.array(rows, dtype=float).reshape(len(rows), len(self.thetas))

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per θ where anything changes (pandas.DataFrame), as ``Sweep.table``: from which
        θ on (``value``) a question costs and gives so much, with 95 % intervals.

        ``until`` is where the next row begins; ``attrs["notes"]`` says what was left out.
        """
        if not self.complete:
            raise SettingError("; ".join(["no question is finished", *self.notes]))
        columns: dict[str, Any] = {
            "setting": "threshold",
            "value": self.thetas,
            "until": [*self.thetas[1:], math.inf],
            "n": len(self.complete),
            "scored": int(np.isfinite(self.values("em")[:, 0]).sum()),
        }
        for measure in MEASURES:
            columns |= _with_intervals(measure, self.values(measure))
        table = pd.DataFrame(columns).drop(columns=["tokens_low", "tokens_high"])
        table.attrs["notes"] = self.notes
        return table

    def budget(self, retrievals: float, *, held_out: Curve | None = None) -> Threshold:
        """The θ at which these questions cost so many retrievals each, exactly:
        ``curve.budget(1.5)``.

        It is a number, that of fewest digits among equals; ``.table`` has what it costs and gives
        here and on ``held_out``, the same method's curve of other questions. Raises
        ``SettingError`` for a cost that no θ of the curve has, with the nearest.
        """
        if held_out is not None:
            remedy = "give a curve of lab.curve, or Curve.load of its folder"
            instance("held_out", held_out, Curve, remedy)
        return find_budget(self, retrievals, held_out)

    @cached_property
    def headroom(self) -> Headroom:
        """One θ for all questions against the best for each: what a better trigger could still
        win, as ``Headroom``.
        """
        return find_headroom(self)

    # Quality and retrievals as steps over every θ; quality against cost, beside other curves.
    plot = Drawn()
    frontier = Drawn()

    def __repr__(self) -> str:
        asked = sum(len(self.collected.by_question[id]) for id in self.complete)
        notes = "".join(f"; {note}" for note in self.notes)
        return (
            f"Curve({self.method}, θ from {self.lowest:.4g}, {self.benchmark},"
            f" {_questions(len(self.complete))}, {asked} pieces{notes})"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>"


def _questions(n: int) -> str:
    return f"{n:,} question{'s' * (n != 1)}"


def values_at(pieces: Sequence[Piece], thetas: np.ndarray, measure: str) -> np.ndarray:
    """(t,) float64, a measure of a question at each of some θ, of its pieces from the highest θ
    down; NaN where it has none.
    """
    rising = list(reversed(pieces))
    starts = [piece.start for piece in rising]
    places = np.searchsorted(starts, thetas, side="right") - 1  # (t,)
    values = np.array([piece.line[measure] for piece in rising], dtype=float)  # None is NaN
    return values[places]


def _with_intervals(measure: str, values: np.ndarray) -> dict[str, list[float]]:
    """The means of a measure (q, t) over the questions that have it, with their intervals."""
    scored = values[np.isfinite(values[:, 0])]
    intervals = [NOTHING] * values.shape[1]
    if len(scored):
        intervals = intervals_of([(measure, column) for column in scored.T])
    return {
        measure: [interval.mean for interval in intervals],
        f"{measure}_low": [interval.low for interval in intervals],
        f"{measure}_high": [interval.high for interval in intervals],
    }


# -- making one ------------------------------------------------------------------------------------


@dataclass
class Making:
    """A curve under way: iterate for the id of a question whenever it has a piece more; ``curve``
    is what is known.
    """

    setup: Setup
    method: Method
    asked: Benchmark
    pieces: Pieces
    output: Path | None
    batch_size: int

    @cached_property
    def config(self) -> Facts:
        """``curve.json``: that of a run, and how far the curve goes."""
        config = run_config(self.setup, self.method, self.asked)
        return config | {"curve": {"lowest": self.pieces.lowest, "most": self.pieces.most}}

    @property
    def curve(self) -> Curve:
        """The curve as far as it is known."""
        ids = tuple(question.id for question in self.asked.questions)
        return Curve(self.config, ids, self.pieces, self.method.pipeline.by_lines(False))

    @property
    def folder(self) -> Path | None:
        if self.output is None:
            return None
        return self.output / self.asked.name / f"{self.method.label}-curve"

    def __iter__(self) -> Generator[str, None, None]:
        questions = self.asked.questions
        template = self.setup.template(self.method, self.asked.template)
        asking = replace(self.setup, prompt=template)
        folder = PieceFolder(self.folder, self.config, [question.id for question in questions])
        folder.pieces = self.pieces
        with folder:
            yield from find_pieces(asking, self.method, questions, folder, self.batch_size)


def begin_curve(
    setup: Setup,
    method: Method,
    asked: Benchmark,
    *,
    lowest: float | None,
    most: int,
    output: Folder,
    batch_size: int,
) -> Making:
    """A curve to be made. Raises ``SettingError`` where no θ says what is written, and for a
    cluster.
    """
    if setup.elsewhere:
        raise SettingError(
            "a curve shares drafts between its answers, which a cluster's processes do not; make"
            " it with a lab on one machine"
        )
    refuse_no_interval(method, bool(getattr(setup.model, "sample", False)))
    usual = method.threshold
    assert usual is not None
    least = method.trigger.declared()["threshold"].ge
    down_to = max(LOWEST * usual, least) if lowest is None else number("lowest", lowest, -math.inf)
    refuse_lowest(method, down_to)
    pieces = Pieces(down_to, count("most", most))
    folder = None if output is None else as_path(output, local=True)
    making = Making(setup, method, asked, pieces, folder, count("batch_size", batch_size))
    if making.folder is not None and (making.folder / CONFIG).exists():
        day = read_config(making.folder)["template"].get("day") or setup.day
        making.setup = replace(setup, day=day)  # a prompt may write when it was begun
    return making


def make_curve(making: Making, progress: bool) -> Curve:
    """``Lab.curve``. An interrupt carries the curve of what is finished as ``.curve``."""
    pieces = making.pieces
    ids = [question.id for question in making.asked.questions]
    title = f"{making.asked.name} {making.method.name} at every θ"
    shown = set[str]()
    with Progress(title, len(ids)) if progress else nullcontext() as bar:
        try:
            for _ in making:
                if bar is None:
                    continue
                new = [id for id in ids if pieces.finished(id) and id not in shown]
                shown.update(new)
                for id in new:
                    bar.add({"em": None, "ended": "error" if id in pieces.failed else ""})
        except KeyboardInterrupt as interrupt:
            interrupt.curve = making.curve  # type: ignore[attr-defined]
            kept = f"kept in {making.folder}; the same call goes on from there"
            where = "sys.last_value.curve" if making.folder is None else kept
            explain(
                interrupt,
                f"{len(making.curve.complete)} of {len(ids)} questions are finished: {where}.",
            )
            raise
    curve = making.curve
    for note in curve.notes if progress else ():
        print(printable(note), file=sys.stderr)
    return curve
