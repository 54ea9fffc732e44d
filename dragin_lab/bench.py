"""Run directories: one folder holds one method on one data set (docs/architecture.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragin_lab.errors import DraginLabError

FORMAT = 1


class RunError(DraginLabError):
    """A folder that is no run directory, or a damaged one."""


@dataclass(frozen=True)
class RunRecord:
    """A run directory as it was read: ``run.json``, the lines of ``predictions.jsonl``, whether all are there."""

    folder: Path
    config: dict[str, Any]
    predictions: list[dict[str, Any]]
    complete: bool


def find_runs(paths: str | Path | Iterable[str | Path]) -> list[RunRecord]:
    """Every run at or below some folders, each once, in order of their paths.

    Raises ``RunError`` for a path below which there is no run, and for a run that is damaged.
    """
    found: dict[Path, None] = {}
    for path in [paths] if isinstance(paths, str | Path) else paths:
        folders = sorted(file.parent for file in Path(path).expanduser().rglob("run.json"))
        if not folders:
            raise RunError(f"{path}: holds no run; give a folder that 'dragin-lab run --output' wrote")
        found |= dict.fromkeys(folders)
    return [_read(folder) for folder in found]


def _read(folder: Path) -> RunRecord:
    try:
        config = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        path = folder / "predictions.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        asked = config["dataset"]["questions"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder}: cannot be read as a run directory ({error!r}); start the run anew") from None
    done = sum(line["ended"] != "error" for line in lines)
    return RunRecord(folder, config, lines, done == asked)
