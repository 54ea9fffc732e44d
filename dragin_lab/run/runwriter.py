"""A run directory while it is written: locked, completed from where it was left, a line added as
each episode ends.
"""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from filelock import FileLock, Timeout

from dragin_lab.core.budget import list_peaks
from dragin_lab.core.fingerprint import list_changes
from dragin_lab.errors import RunError, TraceFileError
from dragin_lab.files import LOCK, as_path, clear_drafts, not_saved, remedy, write_whole
from dragin_lab.run.rundir import (
    CONFIG,
    LEAST,
    PEAK,
    PREDICTIONS,
    SCORES,
    TIMINGS,
    TRACES,
    ById,
    Facts,
    Folder,
    Line,
    Prediction,
    Timing,
    encode_lines,
    read_config,
    read_lines,
    trace_name,
)
from dragin_lab.trace.file import save_trace
from dragin_lab.trace.frames import list_differing
from dragin_lab.trace.trace import Trace
from dragin_lab.warning import warn

#: Bytes of slim traces that a run keeps where nobody says otherwise: those of some thousand
#: questions.
TRACE_SPACE = 64 * 2**20
#: What decides answers, of ``run.json``: two runs that are one have the same.
_DECIDES = ("method", "model", "retriever", "template", "dataset", "seed")
#: What changes nothing, by the part: who chose it; what is defined, which is compared as it was
#: given; the kind of a data set, which its questions tell.
_TOLD_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "method": ("chosen", "defined"),
    "retriever": ("chosen", "defined"),
    "template": ("chosen", "defined"),
    "dataset": ("kind",),
}
#: May change between two commands of one run: it is announced and recorded, as it can change what
#: rounding decides.
_CIRCUMSTANCES = ("versions", "device")


class Finished(NamedTuple):
    """What is recorded of an episode: the lines of a run directory, and its trace where that is
    wanted.
    """

    line: Line
    timing_line: Line
    trace: Trace | None


def record_of(trace: Trace, traces: bool | None = False) -> Finished:
    """What is recorded of a trace: its lines, and itself unless ``traces`` is False."""
    return Finished(prediction_line(trace), timing_line(trace), None if traces is False else trace)


def prediction_line(trace: Trace) -> Line:
    """The line of ``predictions.jsonl``: what was answered and what it took, and nothing that
    changes from run to run.

    ``passages`` holds the ids found by each retrieval, ``tokens`` counts all that were generated.
    The scores are None without a gold answer and where the episode failed; ``error`` is there only
    then, ``metrics`` only where the prompt has any of your own, and ``window`` only where the
    model's window cost something (``Trace.lost``).
    """
    count = trace.counters
    passages = []
    for step in trace.steps:
        if step.query is not None:
            passages.append([passage.id for passage in step.passages])
    line: Line = {
        "id": trace.question.id,
        "question": trace.question.text,
        "text": trace.text,
        "answer": trace.answer,
        "readable": trace.readable,
        "gold": list(trace.question.golds),
        **{name: trace.scores.get(name) for name in SCORES},
        "retrievals": count["retrievals"],
        "queries": trace.queries,
        "passages": passages,
        "drafts": count["drafts"],
        "tokens": count["generated"],
        "ended": trace.ended,
    }
    metrics = {name: value for name, value in trace.scores.items() if name not in SCORES}
    if metrics:
        line["metrics"] = metrics
    if trace.lost:
        line["window"] = trace.lost
    if trace.ended == "error":
        line["error"] = trace.error
    return line


def timing_line(trace: Trace) -> Line:
    """The line of ``timings.jsonl``: seconds in all and by kind of request, and what did not have
    to be computed.

    ``reused`` counts prompt tokens; ``stored_drafts`` and ``stored_tokens`` count what a cache
    served. ``peak`` is the highest score that was compared with θ, and ``least`` the lowest of the
    drafts' highest; None without one. Rounding moves them from run to run.
    """
    line = {"id": trace.question.id, "seconds": trace.seconds}
    for kind in ("draft", "attend", "search"):
        line[kind] = sum(step.seconds.get(kind, 0.0) for step in trace.steps)
    line["reused"] = trace.counters["reused"]
    stored = {f"stored_{name}": count for name, count in trace.stored.items()}
    highest = []  # of each draft
    for peaks in list_peaks(trace):
        if len(peaks):
            highest.append(float(max(peaks)))
    scores = {PEAK: max(highest, default=None), LEAST: min(highest, default=None)}
    return line | stored | scores


class RunFolder:
    """A run directory under way, locked against a second writer; a context manager.

    Entering makes the folder or reads the run in it, drops lines that are torn or damaged and those
    that failed, so that their questions are asked again, and leaves the rest in ``done`` by
    question id. ``folder`` None keeps the lines there alone. ``traces`` as for ``Lab.run``;
    ``grown`` gives the fingerprint of the first n questions, by which a run of fewer is known and
    goes on. Raises ``RunError`` where two questions have one id, the folder holds another run or
    another process writes it, ``RunError`` where it cannot be written.
    """

    def __init__(
        self,
        folder: Folder,
        config: Facts,
        ids: Sequence[str],
        *,
        traces: bool | None = None,
        grown: Callable[[int], str] | None = None,
    ) -> None:
        self.ids = list(ids)
        self.done = ById()
        if twice := [id for id, count in Counter(self.ids).items() if count > 1]:
            places = [i for i, id in enumerate(self.ids, 1) if id == twice[0]]
            raise RunError(
                f"the id {twice[0]!r} stands for {len(places)} questions, number {places[0]} and"
                f" {places[1]} among them; give every question an id of its own"
            )
        self.folder = None if folder is None else as_path(folder, RunError, local=True)
        self.config = dict(config)
        self._timings: ById = {}
        self._traces = traces
        self._grown = grown
        self._room = 0  # bytes that slim traces may still take

    def __enter__(self) -> Self:
        if self.folder is None:
            return self
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / LOCK
            self._lock = FileLock(path, timeout=0)
            self._lock.acquire()
            path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
        except Timeout:
            holder = path.read_text(errors="replace").strip() or "it says not which"
            raise RunError(
                f"{self.folder}: another run is writing it ({holder}); wait for it, end it, or give"
                " another folder"
            ) from None
        except OSError as error:
            raise RunError(
                f"{self.folder}: cannot be written: {error.strerror}; {remedy(error)}", begun=True
            ) from None
        try:
            self._open(self.folder)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder is not None:
            self._lock.release()

    def _open(self, folder: Path) -> None:
        self._room = TRACE_SPACE - sum(path.lstat().st_size for path in (folder / TRACES).glob("*"))
        clear_drafts(folder)
        if not (folder / CONFIG).exists():
            if (folder / PREDICTIONS).exists():
                raise RunError(
                    f"{folder}: holds {PREDICTIONS} but no {CONFIG}; give another folder"
                )
            self._rewrite_file(CONFIG, _write_config(self.config))
            return
        there = check_settings(folder, self.config, self._grown)
        lines = read_lines(folder / PREDICTIONS, Prediction)
        if strange := lines.keys() - set(self.ids):
            where = folder / PREDICTIONS
            raise RunError(
                f"{where}: the id {min(strange)!r} is not one of this run's questions; delete its"
                " line"
            )
        self.done = {qid: line for qid, line in lines.items() if line["ended"] != "error"}
        timings = read_lines(folder / TIMINGS, Timing)
        self._timings = {qid: line for qid, line in timings.items() if qid in self.done}
        self._note_circumstances(there)
        self._rewrite_file(CONFIG, _write_config(self.config))
        self._rewrite_file(PREDICTIONS, encode_lines(self.done.values()))
        self._rewrite_file(TIMINGS, encode_lines(self._timings.values()))

    def _note_circumstances(self, there: Facts) -> None:
        """Say, and record, where a run is completed under another version or on another device
        than it was started.
        """
        before = {key: there.get(key) for key in _CIRCUMSTANCES}
        now = {key: self.config.get(key) for key in _CIRCUMSTANCES}
        if changes := list_differing(before, now):
            warn(
                f"{self.folder}: this run was started otherwise ({'; '.join(changes)}); answers may"
                " differ in what rounding decides"
            )
            resumed = there.setdefault("resumed", [])
            if now not in resumed:
                resumed.append(now)
        latest = {
            key: self.config[key] for key in ("dataset", "limit", "sample") if key in self.config
        }
        self.config = there | latest  # what chose the questions that the run has by now

    def add(self, line: Line, timing: Line, trace: Trace | None = None) -> None:
        """Its trace is written first, then how long it took, then its line, which says that it
        is done.
        """
        id = line["id"]
        if self.folder is not None and trace is not None:
            self._keep_trace(self.folder, line, trace)
        if id in self.done:
            return
        if self.folder is not None:
            append_line(self.folder / TIMINGS, encode_lines([timing]))
            append_line(self.folder / PREDICTIONS, encode_lines([line]))
        self._timings[id] = timing
        self.done[id] = line

    def lacks_trace(self, id: str) -> bool:
        """Whether a question that was answered is to be answered again for its trace."""
        folder = self.folder if self._traces else None
        return folder is not None and not (folder / TRACES / trace_name(id)).exists()

    def _keep_trace(self, folder: Path, line: Line, trace: Trace) -> None:
        """Save a trace, as far as there is room; not that of an answer again that is not the
        recorded one.
        """
        if changes := list_differing(self.done.get(line["id"], line), line):
            warn(f"{line['id']}: answered otherwise than before ({changes[0]}); no trace is kept")
            return
        if not self._traces and self._room <= 0:
            return
        path = folder / TRACES / trace_name(line["id"])
        why = f"traces take {TRACE_SPACE // 2**20} MiB"
        try:
            path.parent.mkdir(exist_ok=True)
            save_trace(trace, path, slim=not self._traces)
            self._room -= path.stat().st_size
        except (OSError, TraceFileError) as error:
            why = not_saved(path.parent, error) if isinstance(error, OSError) else str(error)
            if self._traces:
                raise RunError(why, begun=True) from error
            self._room = 0  # these traces are optional: go on with the answers
        if not self._traces and self._room <= 0:
            warn(f"{folder}: {why}; no more traces are kept (traces=True keeps all)")

    def finish(self) -> None:
        """Put the lines into the order of the questions, once every question has one."""
        for name, lines in ((PREDICTIONS, self.done), (TIMINGS, self._timings)):
            ordered = [lines[qid] for qid in self.ids if qid in lines]
            self._rewrite_file(name, encode_lines(ordered))

    def _rewrite_file(self, name: str, data: bytes) -> None:
        """Replace a file whole; not where it holds this already."""
        if self.folder is None:
            return
        path = self.folder / name
        if data != (path.read_bytes() if path.exists() else b""):
            try:
                write_whole(path, data)
            except OSError as error:
                raise RunError(not_saved(path, error), begun=True) from error


def check_settings(
    folder: str | Path, config: Facts, grown: Callable[[int], str] | None = None
) -> Facts:
    """The ``run.json`` of a folder, which must say the same as ``config`` of what decides answers.

    It may be of fewer questions, where ``grown`` gives the same fingerprint for as many of those
    asked for now.

    Raises ``RunError`` naming every setting that differs, with both values.
    """
    there = read_config(as_path(folder, local=True))
    now = json.loads(_write_config(config))
    recorded = there["dataset"]
    asked = now["dataset"]
    answered = recorded["questions"]
    if grown and answered < asked["questions"] and recorded.get("fingerprint") == grown(answered):
        asked |= {key: recorded[key] for key in ("questions", "fingerprint")}
    elif answered > asked["questions"]:  # another fingerprint follows from that
        asked["fingerprint"] = recorded.get("fingerprint")
    if changes := describe_changes(there, now):
        raise RunError(
            f"{folder}: holds a run of other settings (there → asked for now): {changes}.\nGive"
            " another folder, or the settings that it was started with"
        )
    return there


def describe_changes(before: Facts, now: Facts) -> str:
    """What decides answers and is not the same in two ``run.json``; "" where all is."""
    then = before.get("given", {})
    later = now.get("given", {})
    changes: list[str] = []
    for label in {**then, **later}:
        changes += list_changes(then.get(label, "nothing"), later.get(label, "nothing"), label)
    changes += list_differing(_compared_settings(before), _compared_settings(now))
    listed = changes[:5]
    if len(changes) > len(listed):
        listed.append(f"and {len(changes) - len(listed)} more")
    return "; ".join(listed)


def _compared_settings(config: Facts) -> Facts:
    kept = {}
    for part in _DECIDES:
        names = _TOLD_ELSEWHERE.get(part, ())
        value = config[part]
        if value and names:
            value = {key: setting for key, setting in value.items() if key not in names}
        kept[part] = value
    return kept


def _write_config(config: Facts) -> bytes:
    return (json.dumps(config, indent=1) + "\n").encode()


def append_line(path: Path, data: bytes) -> None:
    """Add a line to a file, which is on the disk then. Raises ``RunError``."""
    try:
        with path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(
            f"{path}: a line was not written: {error.strerror or error}; {remedy(error)}; the lines"
            " before it are sound",
            begun=True,
        ) from error
