"""A run directory while it is written: locked, taken up where it was left, a line added as each episode ends."""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from dragin_lab.core.frames import differences
from dragin_lab.files import clear_drafts, not_saved, remedy, write_whole
from dragin_lab.run.lines import Line
from dragin_lab.run.rundir import (
    CONFIG,
    PREDICTIONS,
    TIMINGS,
    TRACES,
    RunError,
    read_config,
    read_lines,
    trace_name,
)

if TYPE_CHECKING:
    from dragin_lab.core.trace import Trace

LOCK = ".lock"
#: May change while a run goes on: it is announced and recorded, as it can change what rounding decides.
_CIRCUMSTANCES = ("versions", "device")


class NotWrittenError(RunError):
    """A run directory that could not be written to; what was finished before is in it."""


class RunInMemory:
    """A run that no folder records: its lines by question id, in ``done``."""

    def __init__(self, qids: Sequence[str]) -> None:
        self.done: dict[str, Line] = {}
        refuse_duplicates(qids)

    def __enter__(self) -> RunInMemory:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, line: Line, timing: Line, trace: Trace | None = None) -> None:
        """An episode has ended."""
        self.done[line["qid"]] = line

    def finish(self) -> None:
        """All questions asked for have a line."""


class RunFolder:
    """A run directory under way, locked against a second writer; a context manager.

    Entering makes the folder or takes up the run in it, drops a torn last line and the lines that failed, so that they
    are tried again, and leaves the rest in ``done`` by question id. Raises ``RunError`` where the folder holds another
    run or another process writes it, ``NotWrittenError`` where it cannot be written.
    """

    def __init__(self, folder: str | Path, config: Mapping[str, Any], qids: Sequence[str]) -> None:
        self.folder = Path(folder).expanduser()
        self.config: dict[str, Any] = json.loads(json.dumps(config))
        self.qids = list(qids)
        self.done: dict[str, Line] = {}
        self._timings: dict[str, Line] = {}
        self._lock = FileLock(self.folder / LOCK, timeout=0)
        refuse_duplicates(self.qids)

    def __enter__(self) -> RunFolder:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            raise NotWrittenError(f"{self.folder}: cannot be written: {error.strerror}; {remedy(error)}") from None
        try:
            self._take_up()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _take_lock(self) -> None:
        path = self.folder / LOCK
        try:
            self._lock.acquire()
        except Timeout:
            holder = path.read_text(errors="replace").strip()
            raise RunError(
                f"{self.folder}: another run is writing it{f' ({holder})' if holder else ''}; wait for it, end it, "
                "or give another folder"
            ) from None
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")

    def add(self, line: Line, timing: Line, trace: Trace | None = None) -> None:
        """Record an episode that has ended: its trace, how long it took, then its line, which says that it is done."""
        if trace is not None:
            folder = self.folder / TRACES
            _writing(folder, lambda: folder.mkdir(exist_ok=True))
            trace.save(folder / trace_name(line["qid"]))
        for name, record, kept in ((TIMINGS, timing, self._timings), (PREDICTIONS, line, self.done)):
            _append(self.folder / name, _encode([record]))
            kept[record["qid"]] = record

    def finish(self) -> None:
        """Put the lines into the order of the questions, once every question has one."""
        self._rewrite(PREDICTIONS, self.done)
        self._rewrite(TIMINGS, self._timings)

    def _take_up(self) -> None:
        path = self.folder / CONFIG
        if not path.exists():
            if (self.folder / PREDICTIONS).exists():
                raise RunError(f"{self.folder}: holds {PREDICTIONS} but no {CONFIG}; give another folder")
            self._write_config()
            return
        there = check_settings(self.folder, self.config)
        clear_drafts(self.folder)
        self._note_circumstances(there)
        lines, torn = read_lines(self.folder / PREDICTIONS)
        strange = [line["qid"] for line in lines if line["qid"] not in set(self.qids)]
        if strange:
            raise RunError(
                f"{self.folder / PREDICTIONS}: the id {strange[0]!r} is none of this run's questions; delete its line"
            )
        self.done = {line["qid"]: line for line in lines if line["ended"] != "error"}
        if torn or len(self.done) < len(lines):
            self._rewrite(PREDICTIONS, self.done, list(self.done))
        timings = _read_timings(self.folder / TIMINGS)
        self._timings = {qid: line for qid, line in timings.items() if qid in self.done}
        self._rewrite(TIMINGS, self._timings, list(self._timings))

    def _note_circumstances(self, there: dict[str, Any]) -> None:
        """Say, and record, where a run goes on under another version or on another device than it began."""
        now = _circumstances(self.config)
        before = _circumstances(there)
        self.config = there
        if changes := differences(before, now):
            warnings.warn(
                f"{self.folder}: this run was begun otherwise ({'; '.join(changes)}); answers may differ in what "
                "rounding decides",
                stacklevel=2,
            )
            resumed = there.setdefault("resumed", [])
            if now not in resumed:
                resumed.append(now)
                self._write_config()

    def _write_config(self) -> None:
        text = json.dumps(self.config, indent=1, ensure_ascii=False) + "\n"
        path = self.folder / CONFIG
        _writing(path, lambda: write_whole(path, text.encode("utf-8", errors="backslashreplace")))

    def _rewrite(self, name: str, lines: Mapping[str, Line], order: Sequence[str] | None = None) -> None:
        """Replace a file whole by these lines; not where it holds them already."""
        path = self.folder / name
        data = _encode(lines[qid] for qid in (self.qids if order is None else order) if qid in lines)
        with suppress(OSError):
            if path.read_bytes() == data:
                return
        if data or path.exists():
            _writing(path, lambda: write_whole(path, data))


def check_settings(folder: str | Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The ``run.json`` of a folder, which must say the same as ``config`` but for versions and device.

    Raises ``RunError`` naming every setting that differs, with both values.
    """
    there = read_config(Path(folder) / CONFIG)
    now = json.loads(json.dumps(config))
    found = differences(_settings(there), _settings(now))
    if found:
        more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
        raise RunError(
            f"{folder}: holds a run of other settings (there → asked for now): {'; '.join(found[:5])}{more}.\n"
            "Give another folder, or the settings that it was begun with"
        )
    return there


def refuse_duplicates(qids: Sequence[str]) -> None:
    """Raise ``RunError`` where two questions have one id, by which their answers could not be told apart."""
    twice = [qid for qid, count in Counter(qids).items() if count > 1]
    if twice:
        places = [i for i, qid in enumerate(qids, 1) if qid == twice[0]]
        raise RunError(
            f"the id {twice[0]!r} stands for {len(places)} questions, number {places[0]} and {places[1]} among them; "
            "give every question an id of its own"
        )


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in (*_CIRCUMSTANCES, "resumed")}
    if kept.get("retriever"):  # who chose it changes nothing of what it finds
        kept["retriever"] = {key: value for key, value in kept["retriever"].items() if key != "chosen"}
    return kept


def _circumstances(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in _CIRCUMSTANCES if key in config}


def _read_timings(path: Path) -> dict[str, Line]:
    """What is known of earlier times: a log, in which the last line of a question counts and damage does no harm."""
    found = {}
    with suppress(OSError):
        for raw in path.read_bytes().split(b"\n"):
            with suppress(ValueError, TypeError, KeyError):
                line = json.loads(raw)
                found[line["qid"]] = line
    return found


def _encode(lines: Iterable[Line]) -> bytes:
    # ASCII only, so that nobody's idea of where a line ends differs, and half a surrogate pair survives.
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()


def _append(path: Path, data: bytes) -> None:
    def write() -> None:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
            os.fsync(file)
        finally:
            os.close(file)

    try:
        write()
    except OSError as error:
        raise NotWrittenError(
            f"{path}: a line was not written: {error.strerror or error}; {remedy(error)}; the lines before it are kept"
        ) from error


def _writing(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise NotWrittenError(not_saved(path, error)) from error
