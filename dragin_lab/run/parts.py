"""Runs that several processes share out: each answers a part in a folder of its own, and readers join them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from dragin_lab.run.rundir import RunError, RunRecord

_ALIKE = ("method", "model", "retriever", "template", "seed", "limit", "sample")


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
