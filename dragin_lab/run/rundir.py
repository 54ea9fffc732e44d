"""Run directories: one folder holds what one method answered on one set of questions, and all that repeats it.

``run.json`` says everything needed to repeat the run. ``predictions.jsonl`` has one line per episode, written as each
ends, and is put into the order of the questions when all have one; it holds nothing that changes from run to run, so a
run that was killed and completed later ends with the same bytes as one that was not. ``timings.jsonl`` holds what does
change, ``traces/`` the whole traces where they are wanted. A process that writes holds ``.lock`` (``runwriter``).

``run.json`` and every line have a checksum (``lines``). A line that does not check is reported by file and number and
is never counted; the command that made the run asks its question again.
"""

from __future__ import annotations

import gzip
import json
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from dragin_lab.checks import several
from dragin_lab.errors import DraginLabError, TraceFileError
from dragin_lab.files import LARGEST, as_path, inside
from dragin_lab.run.lines import PEAK, Count, Head, Line, Prediction, Row, Timing, checksum, decode, encode
from dragin_lab.trace.file import LARGEST as LARGEST_TRACE
from dragin_lab.trace.trace import Trace

#: Of all files of a run directory.
FORMAT = 2
TABLE = ".jsonl.gz"  # the ending of runs as one file
MOST_UNPACKED = 100  # times its size; answers unpack to ten times or so
CONFIG, PREDICTIONS, TIMINGS, TRACES = "run.json", "predictions.jsonl", "timings.jsonl", "traces"
_ANOTHER, _GIVE = "run again in another folder", "give a folder that 'dragin-lab run --output' wrote"
LARGEST_JSON = 2**26  # bytes of a file that is one token of JSON


class _Method(msgspec.Struct):
    name: str


class _Template(msgspec.Struct):
    exemplars: list[Any]


class _Dataset(msgspec.Struct):
    name: str
    questions: Count


class _Config(msgspec.Struct):
    """What readers rely on of ``run.json``; the other entries are kept as they are."""

    method: _Method
    model: dict[str, Any]
    template: _Template
    dataset: _Dataset
    versions: dict[str, Any]
    retriever: dict[str, Any] | None
    seed: int


class RunError(DraginLabError):
    """A folder that is not a run directory, is damaged, is in use, or holds a run of other settings."""


class RunStoppedError(RunError):
    """A run that stopped, as its search failed for one question after another; what was answered is kept."""


@dataclass(frozen=True)
class RunRecord:
    """A run directory as it was read.

    ``config`` is ``run.json``, ``predictions`` the lines of ``predictions.jsonl``. A line that failed (``ended`` is
    "error") or has no gold answer has None for em, f1, precision and recall. ``damaged`` says which lines were left
    out, and why. A run of a table has ``timings`` and ``causes`` by question id, where it had any, and its ``folder``
    is the table's path and a number.
    """

    folder: Path
    config: dict[str, Any]
    predictions: list[Line]
    damaged: tuple[str, ...] = ()
    timings: dict[str, Line] | None = None
    causes: dict[str, tuple[str, str]] | None = None

    @property
    def complete(self) -> bool:
        """Whether every question has an answer, and none of them failed."""
        return len(self.predictions) - len(self.failed) == int(self.config["dataset"]["questions"])

    @property
    def traced(self) -> bool:
        """Whether traces were kept, or a table says what they told of wrong answers."""
        return self.causes is not None or (self.folder / TRACES).is_dir()

    def read_timings(self) -> tuple[dict[str, Line], list[str]]:
        """The lines of ``timings.jsonl`` by question id, and what is wrong with the others (``read_lines``)."""
        return read_lines(self.folder / TIMINGS, Timing) if self.timings is None else (self.timings, [])

    @property
    def failed(self) -> list[Line]:
        """The lines of the episodes that failed."""
        return [line for line in self.predictions if line["ended"] == "error"]

    def same_as(self, other: RunRecord) -> bool:
        """Whether the other is a copy: the same settings and the same answers."""
        return self.config == other.config and self.predictions == other.predictions

    def has_trace(self, qid: str) -> bool:
        """Whether there is a file for the trace of a question."""
        return (self.folder / TRACES / trace_name(qid)).is_file()

    def trace(self, qid: str) -> Trace:
        """The trace of a question; ``TraceFileError`` where the run saved none, and for one that is damaged."""
        trace = Trace.load(path := file_of(self.folder, TRACES, trace_name(qid), most=LARGEST_TRACE))
        if trace.question.id != qid:
            raise TraceFileError(f"{path}: is the trace of question {trace.question.id!r}; it was renamed or exchanged")
        return trace

    def __repr__(self) -> str:
        asked = self.config["dataset"]["questions"]
        return f"RunRecord({self.folder}, {len(self.predictions)} of {asked} questions, {len(self.failed)} failed)"


def file_of(folder: Path, *names: str, most: int = LARGEST) -> Path:
    """A file of a run directory, before it is read or written; ``RunError`` for one that may not be (``inside``)."""
    return inside(folder, *names, error=RunError, most=most)


# -- reading ----------------------------------------------------------------------------------------------------------


def find_runs(paths: str | Path | Iterable[str | Path]) -> list[RunRecord]:
    """Every run at or below some folders, and in tables of runs (``TABLE``), each once, in order of their paths.

    Raises ``RunError`` for a path below which there is no run, and for a run or a table that is damaged.
    """
    places: dict[Path, Path] = {}
    for path in several("runs", paths, str | Path, f"{_GIVE}, or a list of them", alone=True):
        root = as_path(path, RunError)
        if _is_table(root):
            places.setdefault(root.resolve(), root)
            continue
        root = root.parent if root.name in (CONFIG, PREDICTIONS) else root
        below = sorted(file.parent for file in root.rglob(CONFIG)) if root.is_dir() else []
        if not below:
            where = "" if root.is_absolute() else f" (looked for below {Path.cwd()}; papermill takes --cwd)"
            raise RunError(f"{path}: {'holds no run' if root.is_dir() else 'no such folder'}; {_GIVE}{where}")
        for folder in below:
            places.setdefault(folder.resolve(), folder)
    return [run for place in places.values() for run in (read_table(place) if _is_table(place) else [read_run(place)])]


def _is_table(path: Path) -> bool:
    return path.name.endswith(TABLE) and path.is_file()


def read_run(folder: str | Path) -> RunRecord:
    """One run directory. Lines that are damaged are left out with a warning, and so is a torn last one in silence.

    Raises ``RunError`` where ``run.json`` cannot be read or is damaged.
    """
    folder = as_path(folder, RunError)
    config = read_config(folder / CONFIG)
    lines, damaged = read_lines(folder / PREDICTIONS, Prediction)
    warn_of_damage(damaged, "left out. The command that made the run asks again")
    return RunRecord(folder, config, list(lines.values()), tuple(damaged))


def warn_of_damage(damaged: Sequence[str], result: str) -> None:
    """Name the first of some damaged lines (``read_lines``), how many more there are, and what that leads to."""
    if damaged:
        more = f"; and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        warnings.warn(f"{damaged[0]}{more}: {result}", stacklevel=3)


def read_config(path: Path) -> dict[str, Any]:
    """``run.json`` without its checksum. Raises ``RunError`` for a file that is damaged or of an unknown format."""
    try:
        config = json.loads(file_of(path.parent, path.name, most=LARGEST_JSON).read_bytes())
        if not isinstance(config, dict) or type(config.get("format")) is not int:
            raise RunError(f"{path}: was not written by dragin_lab (it has no format); give another folder")
        _check_format(path, config)
        if config.pop("sum", None) != config_sum(config):
            raise ValueError("its checksum does not fit")
        msgspec.convert(config, _Config)
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: was changed or damaged after it was written ({error}); {_ANOTHER}") from None
    return config


def _check_format(path: Path, config: Mapping[str, Any]) -> None:
    if config["format"] != FORMAT:
        edition = "an older" if config["format"] < FORMAT else "a newer"
        raise RunError(
            f"{path}: is of {edition} edition of dragin_lab (format {config['format']}, this one has {FORMAT}); "
            f"read it with the dragin_lab that wrote it, or {_ANOTHER}"
        )


def config_sum(config: Mapping[str, Any]) -> str:
    """The checksum of ``run.json``: of its content, whatever its white space and order."""
    return checksum(json.dumps(config, sort_keys=True))


def read_lines(path: Path, kind: type[Prediction | Timing]) -> tuple[dict[str, Line], list[str]]:
    """The sound lines of a file by question id, and what is wrong with each of the others: file, number, why.

    No file is no lines; what follows the last newline was torn when a process was killed, and is not read. Where two
    lines have one id, neither counts. Raises ``RunError`` for a file that cannot be read.
    """
    try:
        data = file_of(path.parent, path.name).read_bytes()
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None
    lines: dict[str, Line] = {}
    first: dict[str, int] = {}
    damaged: list[str] = []
    for number, raw in enumerate(data.split(b"\n")[:-1], 1):
        try:
            line = decode(raw, kind)
            if (qid := line["qid"]) in first:
                lines.pop(qid, None)
                raise ValueError(f"the id {qid!r} was used before, at line {first[qid]}")
        except ValueError as error:
            damaged.append(f"{path}, line {number}: {error}")
            continue
        first[qid] = number
        lines[qid] = line
    return lines, damaged


# -- runs as one table ------------------------------------------------------------------------------------------------


def pack_table(configs: Sequence[Mapping[str, Any]], rows: Sequence[Line]) -> bytes:
    """Runs as one file: a line for ``Head``, then one for each ``Row``, as gzip; the same runs give the same bytes."""
    head = {"format": FORMAT, "runs": list(configs), "lines": len(rows)}
    return gzip.compress(encode([head, *rows]), mtime=0)


def read_table(path: Path) -> list[RunRecord]:
    """The runs of a file that ``pack_table`` made, each with ``timings`` and ``causes`` in place of a folder.

    It is read line by line, and to ``MOST_UNPACKED`` times its size at most. Raises ``RunError`` that names the first
    line that is damaged, missing, or one too many.
    """
    number, left = 0, MOST_UNPACKED * path.stat().st_size

    def read_line(kind: type[Head | Row]) -> Line:
        nonlocal number, left
        number += 1
        raw = file.readline(left + 1)
        if (left := left - len(raw)) < 0:
            raise ValueError(f"the file unpacks to more than {MOST_UNPACKED} times its size")
        return decode(raw.rstrip(b"\n"), kind)

    try:
        with gzip.open(path) as file:
            head = read_line(Head)
            _check_format(path, head)
            msgspec.convert(head["runs"], list[_Config])
            runs: list[dict[str, Line]] = [{} for _ in head["runs"]]
            for _ in range(head["lines"]):
                row = read_line(Row)
                if (at := row.pop("run")) >= len(runs) or runs[at].setdefault(row["qid"], row) is not row:
                    raise ValueError(f"there is no run {at}, or it has {row['qid']!r} twice")
            if file.read(1):
                raise ValueError(f"more follows the {number} lines")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise RunError(f"{path}, line {number}: cannot be read ({error}); get the file again") from None
    return [_run_of_table(path / str(at), *run) for at, run in enumerate(zip(head["runs"], runs, strict=True))]


def _run_of_table(folder: Path, config: dict[str, Any], rows: Mapping[str, Line]) -> RunRecord:
    timings = {qid: {key: row.pop(key) for key in ("seconds", PEAK) if key in row} for qid, row in rows.items()}
    causes = {qid: row.pop("cause") for qid, row in rows.items() if "cause" in row}
    return RunRecord(folder, config, list(rows.values()), (), timings, causes or None)


def trace_name(qid: str) -> str:
    """The name of a question's trace file: its id, with what a file's name cannot hold written as %XX."""
    name = quote(qid, safe=" ,+=@")
    return (name if len(name) <= 200 else f"{name[:150]}-{sha256(qid.encode()).hexdigest()[:16]}") + ".trace"
