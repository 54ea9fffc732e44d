"""Run directories: one folder holds what one method answered on one set of questions, and all that repeats it.

``run.json`` says everything needed to repeat the run. ``predictions.jsonl`` has a line an episode, written as each
ends, and is put into the order of the questions when all have one; it holds nothing that changes from run to run, so a
run that was killed and went on ends with the same bytes as one that was not. ``timings.jsonl`` holds what does change,
``traces/`` the whole traces where they are wanted. A process that writes holds ``.lock`` (``runwriter``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dragin_lab.errors import DraginLabError
from dragin_lab.run.lines import Line

if TYPE_CHECKING:
    import pandas as pd

    from dragin_lab.core.trace import Trace

FORMAT = 1
CONFIG, PREDICTIONS, TIMINGS, TRACES = "run.json", "predictions.jsonl", "timings.jsonl", "traces"
_AGAIN = "delete the line, and its question is asked again"


class RunError(DraginLabError):
    """A run directory that is none, is damaged, is in use, or holds a run of other settings."""


@dataclass(frozen=True)
class RunRecord:
    """A run directory as it was read.

    ``config`` is ``run.json``, ``predictions`` the lines of ``predictions.jsonl``; ``complete`` says whether every
    question has one and none of them failed. A line that failed (``ended`` is "error") or has no gold answer has None
    for em, f1, precision and recall.
    """

    folder: Path
    config: dict[str, Any]
    predictions: list[Line]
    complete: bool

    @property
    def failed(self) -> list[Line]:
        """The lines of the episodes that failed."""
        return [line for line in self.predictions if line["ended"] == "error"]

    @property
    def frame(self) -> pd.DataFrame:
        """One row a prediction (pandas.DataFrame)."""
        import pandas as pd

        return pd.DataFrame(self.predictions)

    def trace(self, qid: str) -> Trace:
        """The trace of a question, where the run kept traces; ``TraceFileError`` where it did not."""
        from dragin_lab.core.tracefile import load_trace

        return load_trace(self.folder / TRACES / trace_name(qid))

    def __repr__(self) -> str:
        asked = self.config["dataset"]["questions"]
        return f"RunRecord({self.folder}, {len(self.predictions)} of {asked} questions, {len(self.failed)} failed)"


# -- reading ----------------------------------------------------------------------------------------------------------


def find_runs(paths: str | Path | Iterable[str | Path]) -> list[RunRecord]:
    """Every run at or below some folders, each once, in order of their paths.

    Raises ``RunError`` for a path below which there is no run, and for a run that is damaged.
    """
    wanted = [paths] if isinstance(paths, str | Path) else list(paths)
    found: dict[Path, None] = {}
    for path in wanted:
        root = Path(path).expanduser()
        root = root.parent if root.name in (CONFIG, PREDICTIONS) else root
        folders = sorted(file.parent for file in root.rglob(CONFIG)) if root.is_dir() else []
        if not folders:
            what = "holds no run" if root.is_dir() else "no such folder"
            raise RunError(f"{path}: {what}; give a folder that 'dragin-lab run --output' wrote")
        found |= dict.fromkeys(folders)
    return [read_run(folder) for folder in found]


def finished_runs(paths: str | Path | Iterable[str | Path], made_by: str) -> list[RunRecord]:
    """``find_runs``, of runs that are complete: for a page or a notebook that shows what another command has made.

    Raises ``RunError`` that names the command ``made_by`` where there is no run, or one that is not complete.
    """
    try:
        found = find_runs(paths)
    except RunError as error:
        raise RunError(f"{error}; these are made with: {made_by}") from None
    part = [record for record in found if not record.complete]
    if part:
        more = f", and {len(part) - 1} more are not" if len(part) > 1 else ""
        raise RunError(f"{part[0]!r} is not complete{more}; this goes on where it stopped: {made_by}")
    return found


def read_run(folder: str | Path) -> RunRecord:
    """One run directory. A last line that was torn is left out. Raises ``RunError`` naming file and line."""
    folder = Path(folder).expanduser()
    config = read_config(folder / CONFIG)
    lines, _ = read_lines(folder / PREDICTIONS)
    done = sum(line["ended"] != "error" for line in lines)
    return RunRecord(folder, config, lines, done == config["dataset"]["questions"])


def read_config(path: Path) -> dict[str, Any]:
    """``run.json``, of this format. Raises ``RunError`` for what is no such file."""
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise RunError(f"{path}: is not JSON ({error}); start the run anew in another folder") from None
    if not isinstance(config, dict) or "format" not in config:
        raise RunError(f"{path}: was not written by dragin_lab (it has no format); give another folder")
    if config["format"] != FORMAT:
        raise RunError(
            f"{path}: written in format {config['format']}, and this dragin_lab reads format {FORMAT}; "
            "read it with the dragin_lab that wrote it, or run again in another folder"
        )
    if not isinstance((config.get("dataset") or {}).get("questions"), int):
        raise RunError(f"{path}: does not say how many questions were asked; start the run anew in another folder")
    return config


def read_lines(path: Path) -> tuple[list[Line], bool]:
    """The lines of a file of predictions, and whether something torn stands behind its last newline.

    No file is no lines. Raises ``RunError`` for a line that is no record and for an id that comes twice.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], False
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None
    *whole, torn = data.split(b"\n")
    found: list[Line] = []
    first: dict[str, int] = {}
    for number, raw in enumerate(whole, 1):
        where = f"{path}, line {number}"
        try:
            line = json.loads(raw)
        except ValueError as error:
            raise RunError(f"{where}: is not JSON ({error}); {_AGAIN}") from None
        if not isinstance(line, dict) or not all(isinstance(line.get(name), str) for name in ("qid", "ended")):
            raise RunError(f"{where}: is no record of a question; {_AGAIN}")
        qid = line["qid"]
        if qid in first:
            raise RunError(f"{where}: the id {qid!r} was used before, at line {first[qid]}; delete one of the two")
        first[qid] = number
        found.append(line)
    return found, bool(torn)


def trace_name(qid: str) -> str:
    """The name of a question's trace file: its id, with what a file's name cannot hold written as %XX."""
    name = quote(qid, safe=" ,+=@")
    return (name if len(name) <= 200 else f"{name[:150]}-{sha256(qid.encode()).hexdigest()[:16]}") + ".trace"
