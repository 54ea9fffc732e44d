"""Run directories: one folder holds what one method answered on one set of questions, and all that
repeats it.

``run.json`` says everything needed to repeat the run. ``predictions.jsonl`` has one line per
episode, written as each ends, and is put into the order of the questions when all have one; it
holds nothing that changes from run to run, so a run that was killed and completed later ends with
the same bytes as one that was not. ``timings.jsonl`` holds what does change, ``traces/`` the whole
traces where they are wanted. A process that writes holds ``.lock`` (``runwriter``).

A line that cannot be read is reported by file and number and never counted; the next run asks its
question again.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from urllib.parse import quote

import msgspec
from msgspec import Meta

from dragin_lab.checks import several
from dragin_lab.errors import RunError, TraceFileError
from dragin_lab.files import as_path, is_set_aside
from dragin_lab.trace.file import read_trace
from dragin_lab.trace.trace import Trace
from dragin_lab.warning import warn

FORMAT = 2
#: Bytes of a run's file: those of about a million predictions.
LARGEST = 2**30
CONFIG = "run.json"
PREDICTIONS = "predictions.jsonl"
TIMINGS = "timings.jsonl"
TRACES = "traces"
SCORES = ("em", "f1", "precision", "recall")  # from 0 to 1
# entries of a timings line: the highest score, and the lowest that a draft reached
PEAK = "peak"
LEAST = "least"
GIVE = "give a folder that 'dragin-lab run --output' wrote"


# -- what a file may hold --------------------------------------------------------------------------

Facts = dict[str, Any]  # plain data, such as ``run.json`` and its parts
Line = dict[str, Any]  # of a file of lines
ById = dict[str, Line]  # by question id
Folder = str | Path | None  # that a run is kept in; None: nowhere
Root = Path | zipfile.Path  # a folder, on a disk or in a zip
Counted = Annotated[int, Meta(ge=0, lt=2**31)]  # tokens, drafts and the like are fewer
Score = Annotated[float, Meta(ge=0, le=1)] | None
Seconds = Annotated[float, Meta(ge=0, lt=2**31)]


class Prediction(TypedDict):
    """A line of ``predictions.jsonl`` (``prediction_line``)."""

    id: str
    question: str
    text: str
    answer: str
    readable: bool
    gold: list[str]
    em: Score
    f1: Score
    precision: Score
    recall: Score
    retrievals: Counted
    queries: list[str]
    passages: list[list[str]]
    drafts: Counted
    tokens: Counted
    ended: Literal["answered", "length", "stalled", "cancelled", "error"]
    metrics: NotRequired[dict[str, int | float]]
    window: NotRequired[dict[Literal["beyond", "passages", "exemplars"], Counted]]
    error: NotRequired[str]
    # of ``results.causes``, kind and why; only in a run that was packed without its traces
    cause: NotRequired[tuple[str, str]]
    # of ``study.attribution``, what each retrieval gave; only there
    attributed: NotRequired[list[Facts]]


class Timing(TypedDict):
    """A line of ``timings.jsonl`` (``timing_line``)."""

    id: str
    seconds: Seconds
    draft: NotRequired[Seconds]
    attend: NotRequired[Seconds]
    search: NotRequired[Seconds]
    reused: NotRequired[Counted]
    stored_drafts: NotRequired[Counted]
    stored_tokens: NotRequired[Counted]
    peak: NotRequired[float | None]
    least: NotRequired[float | None]


class _Method(TypedDict):
    name: str


class _Template(TypedDict):
    exemplars: list[Any]


class _Dataset(TypedDict):
    name: str
    questions: Counted


class _Config(TypedDict):
    """What readers rely on of ``run.json``; the other entries are kept as they are."""

    method: _Method
    model: Facts
    template: _Template
    dataset: _Dataset
    versions: Facts
    retriever: Facts | None
    seed: int


def encode_lines(lines: Iterable[Line]) -> bytes:
    """Lines as they are written: JSON in ASCII."""
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()


def own_metrics(lines: Iterable[Line]) -> tuple[str, ...]:
    """The names of the custom metrics that some line has, in order."""
    return tuple(dict.fromkeys(name for line in lines for name in line.get("metrics", ())))


def value_of(line: Line, name: str) -> Any:
    """An entry of a prediction line, or the value of a custom metric; None where it has none."""
    return line[name] if name in line else line.get("metrics", {}).get(name)


@dataclass(frozen=True)
class RunRecord:
    """A run directory as it was read.

    ``config`` is ``run.json``, ``predictions`` the lines of ``predictions.jsonl``. A line that
    failed (``ended`` is "error") or has no gold answer has None for em, f1, precision and recall.
    ``timings`` are by question id. A run that was packed without its traces has ``causes`` and
    ``attributed`` retrievals by question id. ``folder`` is what it is called, below a zip's path
    where it is in one, and ``root`` where its files are. A copy is equal: it has the same settings
    and the same answers.
    """

    folder: Path = field(compare=False)
    config: Facts
    predictions: list[Line]
    timings: ById = field(default_factory=dict, compare=False)
    causes: dict[str, tuple[str, str]] = field(default_factory=dict, compare=False)
    attributed: dict[str, list[Facts]] = field(default_factory=dict, compare=False)
    root: Root | None = field(default=None, compare=False, repr=False)

    @property
    def label(self) -> str:
        """What the method is called: its folder."""
        return self.folder.name

    @property
    def dataset(self) -> str:
        """The name of its questions."""
        return str(self.config["dataset"]["name"])

    @property
    def asked(self) -> int:
        """How many questions it has."""
        return int(self.config["dataset"]["questions"])

    @property
    def by_id(self) -> ById:
        """The predictions by question id."""
        return {line["id"]: line for line in self.predictions}

    @property
    def sound(self) -> list[Line]:
        """The lines of the episodes that did not fail."""
        return [line for line in self.predictions if line["ended"] != "error"]

    @property
    def complete(self) -> bool:
        """Whether every question has an answer, and none of them failed."""
        return len(self.sound) == self.asked

    @property
    def failed(self) -> list[Line]:
        """The lines of the episodes that failed."""
        return [line for line in self.predictions if line["ended"] == "error"]

    def has_trace(self, id: str) -> bool:
        """Whether there is a file for the trace of a question."""
        return self.trace_file(id).is_file()

    def trace_file(self, id: str) -> Root:
        """Where the trace of a question is, or would be."""
        return (self.root or self.folder) / TRACES / trace_name(id)

    def trace(self, id: str) -> Trace:
        """The trace of a question; ``TraceFileError`` where the run saved none, and for one that
        is damaged.
        """
        path = self.trace_file(id)
        trace = Trace.load(path) if isinstance(path, Path) else read_trace(Trace, path)
        if trace.question.id != id:
            raise TraceFileError(
                f"{path}: is the trace of question {trace.question.id!r}; it was renamed or"
                " exchanged"
            )
        return trace

    def __repr__(self) -> str:
        return (
            f"RunRecord({self.folder}, {len(self.predictions)} of {self.asked} questions,"
            f" {len(self.failed)} failed)"
        )


def trace_name(id: str) -> str:
    """The name of a question's trace file: its id, with what a file's name cannot hold written
    as %XX.
    """
    name = quote(id, safe=" ,+=@")
    if len(name) > 200:
        name = f"{name[:150]}-{sha256(id.encode()).hexdigest()[:16]}"
    return f"{name}.trace"


def read_run(folder: str | Path) -> RunRecord:
    """One run directory. Lines that cannot be read are left out with a warning, and so is a torn
    last one in silence.

    Raises ``RunError`` where ``run.json`` cannot be read.
    """
    path = as_path(folder, RunError, local=True)
    return _read_files(path, path)


def _read_files(folder: Path, root: Root) -> RunRecord:
    """The run whose files lie in ``root``."""
    config = read_config(root)
    lines = read_lines(root / PREDICTIONS, Prediction)
    timings = read_lines(root / TIMINGS, Timing)
    causes = {id: line.pop("cause") for id, line in lines.items() if "cause" in line}
    attributed = {id: line.pop("attributed") for id, line in lines.items() if "attributed" in line}
    return RunRecord(folder, config, list(lines.values()), timings, causes, attributed, root)


def read_bounded(path: Root) -> bytes:
    """The bytes of a run's file, which may come from someone else.

    Raises ``RunError`` for a file that cannot be read, and for one of more than ``LARGEST`` bytes,
    whatever its size is said to be.
    """
    chunks = list[bytes]()
    size = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(2**20):
                chunks.append(chunk)
                size += len(chunk)
                if size > LARGEST:
                    raise RunError(
                        f"{path}: has more than {LARGEST:,} bytes, and no more are read; give a"
                        " smaller file"
                    )
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None
    return b"".join(chunks)


def read_config(folder: Root) -> Facts:
    """``run.json`` of a folder. Raises ``RunError`` for a file that is damaged or of an unknown
    format.
    """
    path = folder / CONFIG
    try:
        config = json.loads(read_bounded(path))
        _check_config(path, config)
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"{path}: was changed or damaged ({error}); run again in another folder"
        ) from None
    return dict(config)


def _check_config(path: Root, config: Any) -> None:
    there = config.get("format") if isinstance(config, dict) else None
    if there != FORMAT:
        raise RunError(
            f"{path}: has format {there!r}, and this dragin_lab reads {FORMAT}; read it with the"
            " dragin_lab that wrote it, or run again in another folder"
        )
    msgspec.convert(config, _Config)


def split_lines(path: Root) -> list[bytes]:
    """The lines of a file; none where there is none.

    What follows the last newline was torn when a process was killed, and is not read.
    """
    return read_bounded(path).split(b"\n")[:-1] if path.exists() else []


def read_lines(path: Root, kind: Any) -> ById:
    """The lines of a file by question id, those that cannot be read left out with a warning that
    names the first.

    Raises ``RunError`` for a file that cannot be read.
    """
    lines: ById = {}
    bad: list[str] = []
    for number, raw in enumerate(split_lines(path), 1):
        try:
            line = msgspec.json.decode(raw, type=kind)
            if lines.setdefault(line["id"], line) is not line:
                raise ValueError(f"the id {line['id']!r} was used before")
        except (ValueError, RecursionError) as error:
            bad.append(f"{path}, line {number}: {error}")
    if bad:
        more = f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
        warn(f"{bad[0]}{more}: left out; a run that goes on asks these questions again")
    return lines


# -- runs below folders, and in zips ---------------------------------------------------------------

Paths = str | Path | Iterable[str | Path]
Places = list[tuple[Path, Root]]  # what a run is called by, and where its files are


def find_runs(paths: Paths) -> list[RunRecord]:
    """Every run at or below some folders, and in zips of them, each once, in order of their paths.

    Raises ``RunError`` for a path below which there is no run, and for a run or a zip that is
    damaged.
    """
    places: dict[Path, tuple[Path, Root]] = {}
    for path, root in _find_roots(paths):
        packed = root.suffix == ".zip" and root.is_file()
        below = _read_zip(root) if packed else _find_folders(root)
        if not below:
            problem = "holds no run" if root.exists() else "no such folder"
            where = f" (looked for below {Path.cwd()}; papermill takes --cwd)"
            raise RunError(f"{path}: {problem}; {GIVE}{'' if root.is_absolute() else where}")
        for folder, files in below:
            places.setdefault(folder.resolve(), (folder, files))
    return [_read_files(folder, files) for folder, files in places.values()]


def stamp_runs(paths: Paths) -> dict[Path, tuple[int, int]]:
    """When the answers of each run at or below some folders were last written, and their bytes;
    {} for no run yet.
    """
    stamps = {}
    for _, root in _find_roots(paths):
        files = [folder / PREDICTIONS for folder, _ in _find_folders(root)]
        for file in files or [root]:
            with suppress(OSError):  # nothing is there yet
                stat = file.stat()
                stamps[file] = stat.st_mtime_ns, stat.st_size
    return stamps


def _find_roots(paths: Paths) -> list[tuple[str | Path, Path]]:
    """Paths as they were given, with the folder or zip that each is, or is a run's file of."""
    roots = []
    for path in several("runs", paths, str | Path, f"{GIVE}, or a list of them", alone=True):
        root = as_path(path, RunError, local=True)
        roots.append((path, root.parent if root.name in (CONFIG, PREDICTIONS) else root))
    return roots


def _find_folders(root: Path) -> Places:
    """The run directories at or below a folder, links followed, in order of their paths."""
    runs = []
    seen = set[str]()
    for place, folders, files in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not is_set_aside(name)]
        real = os.path.realpath(place)
        if real in seen:  # a link to a folder above it has no end
            folders.clear()
        elif CONFIG in files:
            runs.append(Path(place))
        seen.add(real)
    return [(folder, folder) for folder in sorted(runs)]


def open_zip(path: Path) -> zipfile.ZipFile:
    """A zip that is whole. Raises ``RunError`` for one that is not, and for none."""
    try:
        archive = zipfile.ZipFile(path)
        size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST:
            remedy = "unpack it, and give the folder"
            raise RunError(
                f"{path}: unpacks to {size:,} bytes, and at most {LARGEST:,} are read; {remedy}"
            )
        if damaged := archive.testzip():
            raise zipfile.BadZipFile(f"{damaged} is not what was written")
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, zlib.error) as error:
        raise RunError(f"{path}: cannot be read ({error}); get the file again") from None
    return archive


def _read_zip(path: Path) -> Places:
    """The run directories in a zip of them, such as ``shutil.make_archive`` writes."""
    archive = open_zip(path)
    runs: Places = []
    for name in archive.namelist():
        if PurePosixPath(name).name == CONFIG:
            files = zipfile.Path(archive, name.removesuffix(CONFIG))
            runs.append(((path / name).parent, files))
    return runs
