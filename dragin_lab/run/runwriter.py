"""A run directory while it is written: locked, completed from where it was left, a line added as each episode ends."""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from filelock import FileLock, Timeout

from dragin_lab.errors import TraceFileError
from dragin_lab.files import LOCK, as_path, clear_drafts, not_saved, remedy, write_whole
from dragin_lab.run.lines import Line, Prediction, Timing, encode
from dragin_lab.run.rundir import (
    CONFIG,
    PREDICTIONS,
    TIMINGS,
    TRACES,
    RunError,
    config_sum,
    file_of,
    read_config,
    read_lines,
    trace_name,
)
from dragin_lab.trace.file import LARGEST as LARGEST_TRACE
from dragin_lab.trace.file import save_trace
from dragin_lab.trace.frames import differences

if TYPE_CHECKING:
    from dragin_lab.trace.trace import Trace

#: Bytes of slim traces that a run keeps where nobody says otherwise: those of some thousand questions.
TRACE_SPACE = 64 * 2**20
#: May change between two commands of one run: it is announced and recorded, as it can change what rounding decides.
_CIRCUMSTANCES = ("versions", "device")


class NotWrittenError(RunError):
    """A run directory that could not be written to; what was finished before is in it."""


class RunInMemory:
    """A run that no folder records: its lines by question id, in ``done``."""

    def __init__(self, qids: Sequence[str]) -> None:
        self.qids, self.done = list(qids), dict[str, Line]()
        refuse_duplicates(self.qids)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, line: Line, timing: Line, trace: Trace | None = None) -> None:
        """An episode has ended."""
        self.done[line["qid"]] = line

    def finish(self) -> None:
        """All questions asked for have a line."""

    def lacks_trace(self, qid: str) -> bool:
        """Whether a question that was answered is to be answered again for its trace."""
        return False


class RunFolder(RunInMemory):
    """A run directory under way, locked against a second writer; a context manager.

    Entering makes the folder or reads the run in it, drops lines that are torn or damaged and those that failed, so
    that their questions are asked again, and leaves the rest in ``done`` by question id. A complete run is also entered
    where nothing can be written. ``traces`` as for ``Lab.run``; ``grown`` gives the fingerprint of the
    first n questions, by which a run of fewer is known and goes on. Raises ``RunError`` where the folder holds
    another run or another process writes it, ``NotWrittenError`` where it cannot be written.
    """

    def __init__(
        self,
        folder: str | Path,
        config: Mapping[str, Any],
        qids: Sequence[str],
        *,
        traces: bool | None = None,
        grown: Callable[[int], str] | None = None,
    ) -> None:
        super().__init__(qids)
        self.folder = as_path(folder, RunError)
        self.config: dict[str, Any] = json.loads(json.dumps(config))
        self._timings: dict[str, Line] = {}
        self._traces, self._grown = traces, grown
        self._room = 0  # bytes that slim traces may still take
        self._lock = FileLock(self.folder / LOCK, timeout=0)

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            if not self._complete():
                raise NotWrittenError(f"{self.folder}: cannot be written: {error.strerror}; {remedy(error)}") from None
            return self
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _take_lock(self) -> None:
        path = file_of(self.folder, LOCK)
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
        """Its trace is written first, then how long it took, then its line, which says that it is done."""
        if trace is not None:
            self._keep(line, trace)
        if line["qid"] in self.done:
            return
        for name, record, known in ((TIMINGS, timing, self._timings), (PREDICTIONS, line, self.done)):
            _append_line(file_of(self.folder, name), encode([record]))
            known[record["qid"]] = record

    def lacks_trace(self, qid: str) -> bool:
        return self._traces is True and self._lock.is_locked and not (self._kept / trace_name(qid)).exists()

    @property
    def _kept(self) -> Path:
        return self.folder / TRACES

    def _keep(self, line: Line, trace: Trace) -> None:
        """Save a trace, as far as there is room; not that of an answer again that is not the recorded one."""
        before = self.done.get(line["qid"], line)
        if changes := differences(before, line):
            warnings.warn(
                f"{line['qid']}: answered otherwise than before ({changes[0]}); no trace is kept", stacklevel=3
            )
            return
        path = file_of(self.folder, TRACES, trace_name(line["qid"]), most=LARGEST_TRACE)
        if not self._traces and self._room <= 0:
            return
        why = f"traces take {TRACE_SPACE // 2**20} MiB"
        try:
            _write_or_explain(self._kept, lambda: self._kept.mkdir(exist_ok=True))
            save_trace(trace, path, slim=not self._traces)
            self._room -= path.stat().st_size
        except (NotWrittenError, TraceFileError) as error:
            if self._traces:
                raise
            why, self._room = str(error), 0  # nobody asked for it, and the answers matter more
        if not self._traces and self._room <= 0:
            warnings.warn(f"{self.folder}: {why}; no more traces are kept (--traces keeps all)", stacklevel=3)

    def finish(self) -> None:
        """Put the lines into the order of the questions, once every question has one."""
        if self._lock.is_locked:
            for name, lines in ((PREDICTIONS, self.done), (TIMINGS, self._timings)):
                self._rewrite(name, (lines[qid] for qid in self.qids if qid in lines))

    def _complete(self) -> bool:
        """Whether the folder holds the whole run, so that nothing has to be written; then its lines are read."""
        if not (self.folder / CONFIG).exists():
            return False
        check_settings(self.folder, self.config, self._grown)
        self._read()
        return self.done.keys() == set(self.qids)

    def _read(self) -> list[str]:
        """Have what was answered in ``done``, all but what failed; what is wrong with damaged lines."""
        lines, damaged = read_lines(self.folder / PREDICTIONS, Prediction)
        if strange := lines.keys() - set(self.qids):
            where = self.folder / PREDICTIONS
            raise RunError(f"{where}: the id {min(strange)!r} is not one of this run's questions; delete its line")
        self.done = {qid: line for qid, line in lines.items() if line["ended"] != "error"}
        return damaged

    def _open(self) -> None:
        traces = list(os.scandir(self._kept)) if file_of(self.folder, TRACES).is_dir() else []
        for entry in traces:
            if entry.is_symlink() or not entry.is_file():  # the question of a bad one may come late in the run
                file_of(self.folder, TRACES, entry.name)
        self._room = TRACE_SPACE - sum(entry.stat(follow_symlinks=False).st_size for entry in traces)
        if not (self.folder / CONFIG).exists():
            if (self.folder / PREDICTIONS).exists():
                raise RunError(f"{self.folder}: holds {PREDICTIONS} but no {CONFIG}; give another folder")
            self._write_config()
            return
        there = check_settings(self.folder, self.config, self._grown)
        clear_drafts(self.folder)
        for one in self._read():
            warnings.warn(f"{one}; its question is asked again", stacklevel=3)
        timings, damaged = read_lines(self.folder / TIMINGS, Timing)
        for one in damaged:
            warnings.warn(f"{one}; how long that question took is no longer known", stacklevel=3)
        self._timings = {qid: line for qid, line in timings.items() if qid in self.done}
        self._note_circumstances(there)
        self._rewrite(PREDICTIONS, self.done.values())
        self._rewrite(TIMINGS, self._timings.values())

    def _note_circumstances(self, there: dict[str, Any]) -> None:
        """Say, and record, where a run is completed under another version or on another device than it was started."""
        now = _find_circumstances(self.config)
        before = _find_circumstances(there)
        changed = there["dataset"] != self.config["dataset"]
        self.config = there | {key: self.config[key] for key in ("dataset", "limit")}
        if changes := differences(before, now):
            warnings.warn(
                f"{self.folder}: this run was started otherwise ({'; '.join(changes)}); answers may differ in what "
                "rounding decides",
                stacklevel=2,
            )
            resumed = self.config.setdefault("resumed", [])
            if now not in resumed:
                resumed.append(now)
                changed = True
        if changed:
            self._write_config()

    def _write_config(self) -> None:
        written = self.config | {"sum": config_sum(self.config)}
        text = json.dumps(written, indent=1, ensure_ascii=False) + "\n"
        path = file_of(self.folder, CONFIG)
        _write_or_explain(path, lambda: write_whole(path, text.encode("utf-8", errors="backslashreplace")))

    def _rewrite(self, name: str, lines: Iterable[Line]) -> None:
        """Replace a file whole by these lines; not where it holds them already."""
        path, data = file_of(self.folder, name), encode(lines)
        with suppress(OSError):
            if path.read_bytes() == data:
                return
        if data or path.exists():
            _write_or_explain(path, lambda: write_whole(path, data))


def check_settings(
    folder: str | Path, config: Mapping[str, Any], grown: Callable[[int], str] | None = None
) -> dict[str, Any]:
    """The ``run.json`` of a folder, which must say the same as ``config`` but for versions and device.

    It may be of fewer questions, where ``grown`` gives the same fingerprint for as many of those asked for now.

    Raises ``RunError`` naming every setting that differs, with both values.
    """
    there = read_config(Path(folder) / CONFIG)
    now = json.loads(json.dumps(config))
    before, fewer = _compared_settings(there), there["dataset"]["questions"]
    sampled = there.get("sample") or now.get("sample")
    more = fewer < now["dataset"]["questions"] and not sampled
    if grown and more and grown(fewer) == there["dataset"].get("fingerprint"):
        before |= {"dataset": now["dataset"], "limit": now["limit"]}
    changes = differences(before, _compared_settings(now))
    if changes:
        more = f"; and {len(changes) - 5} more" if len(changes) > 5 else ""
        raise RunError(
            f"{folder}: holds a run of other settings (there → asked for now): {'; '.join(changes[:5])}{more}.\n"
            "Give another folder, or the settings that it was started with"
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


def _compared_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in (*_CIRCUMSTANCES, "resumed", "format", "traces")}
    for part in ("retriever", "template"):  # who chose it changes nothing of what it finds, or of the prompt
        if kept.get(part):
            kept[part] = {key: value for key, value in kept[part].items() if key != "chosen"}
    return kept


def _find_circumstances(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in _CIRCUMSTANCES if key in config}


def _append_line(path: Path, data: bytes) -> None:
    try:
        with path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NotWrittenError(
            f"{path}: a line was not written: {error.strerror or error}; {remedy(error)}; the lines before it are sound"
        ) from error


def _write_or_explain(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise NotWrittenError(not_saved(path, error)) from error
