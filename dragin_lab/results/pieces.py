"""The episodes of questions at every θ, found from the top down and kept as they are found.

A greedy episode changes with θ only where a score that was compared is crossed. So a question has
few episodes: the answer just below the θ from which on one is the same (``Replay.interval``) is the
next.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dragin_lab.catalog.exchanged import exchange_settings
from dragin_lab.core.budget import NEVER
from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError
from dragin_lab.files import clear_drafts, write_whole
from dragin_lab.run.batches import answer_each
from dragin_lab.run.rundir import (
    TRACES,
    ById,
    Facts,
    Line,
    Prediction,
    RunError,
    encode_lines,
    read_bounded,
    split_lines,
    trace_name,
)
from dragin_lab.run.runwriter import RunFolder, append_line, describe_changes, prediction_line
from dragin_lab.run.setup import Setup
from dragin_lab.study.same_episode import Thetas
from dragin_lab.study.whatif import Replay, step_below
from dragin_lab.trace.file import save_trace
from dragin_lab.trace.trace import Question, Trace
from dragin_lab.warning import warn

CONFIG = "curve.json"
PIECES = "pieces.jsonl"
#: Questions whose drafts are shared before the next are asked, so that a cache need not hold all.
BLOCK = 50


class Piece(NamedTuple):
    """An episode of a question, the same for θ from ``start`` up and below ``stop``."""

    start: float
    stop: float  # infinite for the first
    line: Line  # as of ``predictions.jsonl``
    trace: Trace | Path | None = None  # or where it is kept

    @property
    def thetas(self) -> Thetas:
        """Where it is what the model writes."""
        return Thetas(self.start, self.stop)


class _PieceLine(Prediction):
    """A line of ``pieces.jsonl``: a prediction, and where it holds; None: without end."""

    start: float | None
    stop: float | None


@dataclass
class Pieces:
    """The pieces of each question by its id, from the highest θ down; ``failed`` has the lines of
    those that failed.

    A question is finished where its lowest piece reaches ``lowest``, or it has ``most``.
    """

    lowest: float
    most: int
    by_question: dict[str, list[Piece]] = field(default_factory=dict)
    failed: ById = field(default_factory=dict)

    def floor(self, id: str) -> float:
        """The θ down to which a question is known."""
        return self.by_question[id][-1].start if id in self.by_question else math.inf

    def finished(self, id: str) -> bool:
        """Whether nothing is left to ask."""
        pieces = self.by_question.get(id, ())
        return id in self.failed or self.floor(id) <= self.lowest or len(pieces) >= self.most

    def add(self, id: str, piece: Piece) -> None:
        """The next piece of a question, below those before."""
        self.by_question.setdefault(id, []).append(piece)


class PieceFolder(RunFolder):
    """A curve's folder while it is made: locked, completed from where it was left. What failed is
    not written, so that it is tried again.

    ``curve.json`` says what was asked, ``pieces.jsonl`` has a line for each piece in the order in
    which they were found, ``traces/`` their traces.
    """

    pieces: Pieces

    def _open(self, folder: Path) -> None:
        clear_drafts(folder)
        path = folder / CONFIG
        if path.exists():
            refuse_other_curve(folder, self.config)
        else:
            write_whole(path, (json.dumps(self.config, indent=1) + "\n").encode())
        read_into(self.pieces, folder, folder)
        kept = chain.from_iterable(self.pieces.by_question.values())
        write_whole(folder / PIECES, encode_lines(map(write_piece, kept)))

    def record(self, id: str, piece: Piece) -> Piece:
        """Write a piece down, its trace first; as it is then kept."""
        if self.folder is None or not isinstance(piece.trace, Trace):
            return piece
        path = trace_file(self.folder, id, piece.start)
        path.parent.mkdir(exist_ok=True)
        save_trace(piece.trace, path, slim=True)
        append_line(self.folder / PIECES, encode_lines([write_piece(piece)]))
        return piece._replace(trace=path)


def trace_file(folder: Path, id: str, start: float) -> Path:
    """Where the trace of a piece is kept."""
    return folder / TRACES / trace_name(f"{id}@{start:.9g}")


def write_piece(piece: Piece) -> Line:
    """The line of a piece."""
    return piece.line | {"start": _finite(piece.start), "stop": _finite(piece.stop)}


def _finite(theta: float) -> float | None:
    return theta if math.isfinite(theta) else None


def read_into(pieces: Pieces, files: Path | zipfile.Path, folder: Path | None) -> None:
    """Read ``pieces.jsonl``; what a torn or damaged line breaks is asked again.

    A question's pieces are good as far as each begins where the one before ends.
    """
    path = files / PIECES
    bad = 0
    for raw in split_lines(path):
        try:
            line: Line = dict(msgspec.convert(msgspec.json.decode(raw), _PieceLine))
        except ValueError:
            bad += 1
            continue
        start = line.pop("start")
        stop = line.pop("stop")
        id = line["id"]
        piece = Piece(
            -math.inf if start is None else start, math.inf if stop is None else stop, line
        )
        if folder is not None:
            piece = piece._replace(trace=trace_file(folder, id, piece.start))
        if piece.stop == pieces.floor(id):
            pieces.add(id, piece)
    if bad:
        warn(
            f"{path}: {bad} lines were changed or damaged; these pieces are left out, and the same"
            " call of lab.curve asks for them again"
        )


def refuse_other_curve(folder: Path, config: Facts) -> None:
    """Raise ``RunError`` where a folder holds a curve of other settings."""
    there = read_config(folder)
    now = json.loads(json.dumps(config))
    for method in (there["method"], now["method"]):
        method.pop("threshold", None)
        method.pop("label", None)
    if changes := describe_changes(there, now):
        raise RunError(
            f"{folder}: holds a curve of other settings (there → asked for now): {changes}.\nGive"
            " another folder, or the settings that it was started with"
        )


def read_config(files: Path | zipfile.Path) -> Facts:
    """``curve.json``. Raises ``RunError`` where there is none, or one that cannot be read."""
    path = files / CONFIG
    if not path.exists():
        raise RunError(f"{path}: is not there; give a folder that lab.curve(..., output=) wrote")
    try:
        config = json.loads(read_bounded(path))
        return {"method": dict(config["method"])} | config
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RunError(f"{path}: was changed or damaged ({error})") from None


# -- finding them ----------------------------------------------------------------------------------


def find_pieces(
    setup: Setup,
    method: Method,
    questions: Sequence[Question],
    folder: PieceFolder,
    batch_size: int,
) -> Iterator[str]:
    """Ask until every question is finished; the id of a question whenever it has a piece more."""
    pieces = folder.pieces
    for first in range(0, len(questions), BLOCK):
        block = questions[first : first + BLOCK]
        while todo := [question for question in block if not pieces.finished(question.id)]:
            asked = ((item, method_below(method, pieces.floor(item.id))) for item in todo)
            retriever = setup.retriever_for(method)
            for trace in answer_each(setup, asked, retriever, batch_size):
                take(setup, method, folder, trace)
                yield trace.question.id


def method_below(method: Method, floor: float) -> Method:
    """The method at the next θ below what is known; at first, where nothing fires."""
    top = method.trigger.declared()["threshold"].top
    highest = NEVER if top is None else top
    theta = step_below(method, floor) if math.isfinite(floor) else highest
    return exchange_settings(method, threshold=theta)


def take(setup: Setup, method: Method, folder: PieceFolder, trace: Trace) -> None:
    """Enter what an answer says: the next piece of its question, or that it failed."""
    pieces = folder.pieces
    line = prediction_line(trace)
    id = trace.question.id
    if trace.ended == "error":
        pieces.failed[id] = line
        return
    nlp = method.pipeline.by_lines(False)
    interval = Replay(trace, tokenizer=setup.model.tokenizer, nlp=nlp).interval
    piece = Piece(interval.start, pieces.floor(id), line, without_rows(trace))
    pieces.add(id, folder.record(id, piece))


def without_rows(trace: Trace) -> Trace:
    """The trace without maps of attention and hidden states, which take most of its memory."""
    steps = []
    for step in trace.steps:
        draft = _without_rows(step.draft)
        continuation = _without_rows(step.continuation)
        steps.append(replace(step, draft=draft, continuation=continuation))
    return replace(trace, steps=steps)


def _without_rows(draft: Any) -> Any:
    return draft and replace(draft, rows=None, states=None)


def refuse_lowest(method: Method, lowest: float) -> None:
    """Raise ``SettingError`` for a lowest θ that the method does not take."""
    least = method.trigger.declared()["threshold"].ge
    if not least <= lowest < math.inf:
        raise SettingError(
            f"lowest={lowest:g}: θ of {method.trigger.name!r} is at least {least:g}; give the θ"
            " down to which the curve shall go"
        )
