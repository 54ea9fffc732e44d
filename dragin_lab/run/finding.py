"""Runs below folders and in zips; those that several processes share out, each in a folder of its own, are joined."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from itertools import chain, zip_longest
from pathlib import Path

from dragin_lab.checks import several
from dragin_lab.files import as_path
from dragin_lab.run.archive import is_archive, read_archive
from dragin_lab.run.rundir import CONFIG, GIVE, PREDICTIONS, RunError, RunRecord, read_run

_ALIKE = ("method", "model", "retriever", "template", "seed", "limit", "sample")


def find_runs(paths: str | Path | Iterable[str | Path]) -> list[RunRecord]:
    """Every run at or below some folders, and in zips of runs, each once, in order of their paths; parts are joined.

    Raises ``RunError`` for a path below which there is no run, and for a run or a zip that is damaged.
    """
    places: dict[Path, Path] = {}
    for path in several("runs", paths, str | Path, f"{GIVE}, or a list of them", alone=True):
        root = as_path(path, RunError)
        root = root.parent if root.name in (CONFIG, PREDICTIONS) else root
        below = _find_folders(root) if root.is_dir() else [root] * is_archive(root)
        if not below:
            where = "" if root.is_absolute() else f" (looked for below {Path.cwd()}; papermill takes --cwd)"
            raise RunError(f"{path}: {'holds no run' if root.exists() else 'no such folder'}; {GIVE}{where}")
        for place in below:
            places.setdefault(place.resolve(), place)
    read = (read_archive(place) if is_archive(place) else [read_run(place)] for place in places.values())
    return join_parts(chain.from_iterable(read))


def _find_folders(root: Path) -> list[Path]:
    """The run directories at or below a folder, links followed, in order of their paths."""
    found, seen = list[Path](), set[str]()
    for place, folders, files in os.walk(root, followlinks=True):
        if (real := os.path.realpath(place)) in seen:  # a link to a folder above it has no end
            folders.clear()
        elif CONFIG in files:
            found.append(Path(place))
        seen.add(real)
    return sorted(found)


# -- parts -------------------------------------------------------------------------------------------------------------


def join_parts(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Parts of one run (``Benchmark.part``) as that run, its questions in their order; other runs as they are.

    Parts that are missing are named in a warning, and count as questions without an answer. Raises ``RunError`` for
    parts that overlap, or were asked otherwise than the others in their folder.
    """
    together: dict[tuple[Path, str], list[RunRecord]] = {}
    for record in records:
        part = record.config["dataset"].get("part")
        of = (record.folder.parent, f"{part['of']} {part['fingerprint']}") if part else (record.folder, "")
        together.setdefault(of, []).append(record)
    return [_join(own) if mark else own[0] for (_, mark), own in together.items()]


def _join(records: list[RunRecord]) -> RunRecord:
    first, of = records[0], records[0].config["dataset"]["part"]
    folder, by_part = first.folder.parent, {int(one.config["dataset"]["part"]["number"]): one for one in records}
    if len(by_part) < len(records):
        raise RunError(f"{folder}: {len(records)} folders hold {len(by_part)} parts; leave each part once")
    for record in records:
        if other := [key for key in _ALIKE if _as_text(record, key) != _as_text(first, key)]:
            raise RunError(f"{record.folder} and {first.folder} differ in {other[0]}, so they are no parts of one run")
    if lacking := [f"{number}/{of['of']}" for number in range(1, of["of"] + 1) if number not in by_part]:
        named = ", ".join(lacking)[:200]
        warnings.warn(f"{folder}: {len(lacking)} of {of['of']} parts are missing: {named}", stacklevel=4)
    every = [by_part[number] for number in sorted(by_part)]
    asked = {key: value for key, value in first.config["dataset"].items() if key != "part"}
    config = first.config | {"dataset": asked | {key: of[key] for key in ("questions", "fingerprint")}}
    lines = [line for one in zip_longest(*(record.predictions for record in every)) for line in one if line is not None]
    timings = {qid: line for record in every for qid, line in record.timings.items()}
    return RunRecord(folder, config, lines, timings, parts=tuple(record.folder for record in every))


def _as_text(record: RunRecord, key: str) -> str:
    return json.dumps(record.config.get(key), sort_keys=True)
