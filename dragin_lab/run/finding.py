"""Runs below folders and in zips; those that several processes share out, each in a folder of
its own, are joined.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from pathlib import Path

from dragin_lab.checks import several
from dragin_lab.files import as_path
from dragin_lab.run.archive import is_archive, read_archive
from dragin_lab.run.rundir import CONFIG, GIVE, PREDICTIONS, Line, RunError, RunRecord, read_run

_ALIKE = ("method", "model", "retriever", "template", "seed", "limit", "sample")


def find_runs(paths: str | Path | Iterable[str | Path]) -> list[RunRecord]:
    """Every run at or below some folders, and in zips of runs, each once, in order of their paths;
    parts are joined.

    Raises ``RunError`` for a path below which there is no run, and for a run or a zip that is
    damaged.
    """
    places: dict[Path, Path] = {}
    for path, root in _find_roots(paths):
        below = _find_folders(root) if root.is_dir() else [root] * is_archive(root)
        if not below:
            where = (
                ""
                if root.is_absolute()
                else f" (looked for below {Path.cwd()}; papermill takes --cwd)"
            )
            raise RunError(
                f"{path}: {'holds no run' if root.exists() else 'no such folder'}; {GIVE}{where}"
            )
        for place in below:
            places.setdefault(place.resolve(), place)
    read = (
        read_archive(place) if is_archive(place) else [read_run(place)] for place in places.values()
    )
    return join_parts(chain.from_iterable(read))


def _find_roots(paths: str | Path | Iterable[str | Path]) -> list[tuple[str | Path, Path]]:
    """Paths as they were given, with the folder or zip that each of them is, or is a run's file
    of.
    """
    given = several("runs", paths, str | Path, f"{GIVE}, or a list of them", alone=True)
    roots = [as_path(path, RunError, local=True) for path in given]
    return [
        (path, at.parent if at.name in (CONFIG, PREDICTIONS) else at)
        for path, at in zip(given, roots, strict=True)
    ]


def stamp_runs(paths: str | Path | Iterable[str | Path]) -> dict[Path, tuple[int, int]]:
    """When the answers of each run at or below some folders were last written, and their bytes;
    {} for no run yet.
    """
    stamps = {}
    for _, root in _find_roots(paths):
        for file in [folder / PREDICTIONS for folder in _find_folders(root)] or [root]:
            with suppress(OSError):  # nothing is there yet
                stamps[file] = (stat := file.stat()).st_mtime_ns, stat.st_size
    return stamps


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


def join_parts(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Parts of one run (``Benchmark.part``) as that run, its questions in their order; other runs
    as they are.

    Parts that are missing are named in a warning, and count as questions without an answer. Raises
    ``RunError`` for parts that overlap, or were asked otherwise than the others in their folder.
    """
    together: dict[tuple[Path, str], list[RunRecord]] = {}
    for record in records:
        part = record.config["dataset"].get("part")
        of = (
            (record.folder.parent, f"{part['of']} {part['fingerprint']}")
            if part
            else (record.folder, "")
        )
        together.setdefault(of, []).append(record)
    return [_join(own) if mark else own[0] for (_, mark), own in together.items()]


def _join(records: list[RunRecord]) -> RunRecord:
    first, of = records[0], records[0].config["dataset"]["part"]
    folder, by_part = (
        first.folder.parent,
        {int(one.config["dataset"]["part"]["number"]): one for one in records},
    )
    if len(by_part) < len(records):
        raise RunError(
            f"{folder}: {len(records)} folders hold {len(by_part)} parts; leave each part once"
        )
    for record in records:
        if other := [key for key in _ALIKE if _as_text(record, key) != _as_text(first, key)]:
            raise RunError(
                f"{record.folder} and {first.folder} differ in {other[0]}, so they are no parts of"
                " one run"
            )
    if lacking := [
        f"{number}/{of['of']}" for number in range(1, of["of"] + 1) if number not in by_part
    ]:
        named = ", ".join(lacking)[:200]
        warnings.warn(
            f"{folder}: {len(lacking)} of {of['of']} parts are missing: {named}", stacklevel=4
        )
    every = [by_part[number] for number in sorted(by_part)]
    asked = {key: value for key, value in first.config["dataset"].items() if key != "part"}
    config = {key: value for key, value in first.config.items() if key != "ids"}
    config |= {"dataset": asked | {key: of[key] for key in ("questions", "fingerprint")}}
    lines = [
        line for _, line in sorted(chain.from_iterable(map(_place_lines, every)), key=itemgetter(0))
    ]
    timings = {id: line for record in every for id, line in record.timings.items()}
    return RunRecord(folder, config, lines, timings, parts=tuple(record.folder for record in every))


def _place_lines(part: RunRecord) -> list[tuple[int, Line]]:
    """The lines of a part with their places in the whole run; parts of before say no ids, so
    those that they have.
    """
    number, of = (int(part.config["dataset"]["part"][key]) for key in ("number", "of"))
    ids = part.config.get("ids") or [line["id"] for line in part.predictions]
    places = {id: number - 1 + of * at for at, id in enumerate(ids)}
    return [(places[line["id"]], line) for line in part.predictions]


def _as_text(record: RunRecord, key: str) -> str:
    return json.dumps(record.config.get(key), sort_keys=True)
