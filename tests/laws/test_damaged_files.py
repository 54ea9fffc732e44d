"""A damaged file of any kind that users hand on is read, or refused by the package's own errors."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from answering import answer

import dragin_lab as dl
from dragin_lab.data.datasets import load_questions
from dragin_lab.data.exemplars import load_exemplars
from dragin_lab.errors import DraginLabError

SEED = 1041
ODD: list[Any] = [
    None,
    True,
    -1,
    10**400,
    1.5,
    float("nan"),
    "",
    "x",
    "\ud800",
    [],
    [None],
    [[]],
    {},
    {"a": 1},
]


class Kind(NamedTuple):
    """A kind of file: where a sound one is, and what reads it."""

    path: Path
    read: Callable[[Path], object]


def odd_json(value: Any, draw: random.Random) -> Any:
    """The value with one of its parts exchanged for something of another type, or left out."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else list(range(len(value)))
        if isinstance(value, list)
        else []
    )
    if not keys or draw.random() < 0.2:
        return draw.choice(ODD)
    key, changed = draw.choice(keys), value.copy()
    if draw.random() < 0.2:
        del changed[key]
    else:
        changed[key] = odd_json(value[key], draw)
    return changed


def damaged(data: bytes, suffix: str, draw: random.Random) -> bytes:
    """The file with a flipped bit, cut, or with an entry of another type where it holds JSON or
    YAML.
    """
    how = (
        draw.choice(["flip", "cut", "type", "type"])
        if suffix in (".json", ".jsonl", ".yaml")
        else "flip"
    )
    if how == "type" and suffix == ".jsonl":
        rows = data.splitlines(keepends=True)
        at = draw.randrange(len(rows))
        rows[at] = json.dumps(odd_json(json.loads(rows[at]), draw)).encode() + b"\n"
        return b"".join(rows)
    if how == "type":
        return json.dumps(odd_json(yaml.safe_load(data), draw)).encode()  # JSON is YAML too
    at = draw.randrange(len(data))
    if how == "cut" or draw.random() < 0.3:
        return data[:at]
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


@pytest.fixture
def kinds(tmp_path: Path) -> list[Kind]:
    run = tmp_path / "run"
    answer(run, 4)

    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    def read_run(_: Path) -> object:
        runs = dl.Runs.load(run)
        return (
            runs.questions,
            str(runs.table()),
            [runs.kept_trace(runs.records[0], f"q{i}") for i in range(1, 5)],
        )

    def read_trace(path: Path) -> object:
        trace = dl.Trace.load(path)
        return (
            trace.tokens,
            trace.retrievals,
            repr(trace),
            trace._repr_html_(),
            trace.overview().text,
        )

    worked = [{"question": "Who?", "rationale": "It is Bo.", "answer": "Bo"}] * 2
    passages = [
        {"id": str(i), "title": "Ann", "text": f"Ann {i} was born in Ulm."} for i in range(3)
    ]
    asked = [{"id": str(i), "question": "Who?", "answer": ["Bo", "Li"]} for i in range(3)]
    trace = shutil.copy(sorted((run / "traces").iterdir())[0], tmp_path / "one.trace")
    return [
        Kind(Path(trace), read_trace),
        *(
            Kind(run / name, read_run)
            for name in ("run.json", "predictions.jsonl", "timings.jsonl")
        ),
        Kind(
            write("questions.jsonl", "".join(json.dumps(row) + "\n" for row in asked)),
            load_questions,
        ),
        Kind(
            write("corpus.jsonl", "".join(json.dumps(row) + "\n" for row in passages)),
            dl.Corpus.load,
        ),
        Kind(write("exemplars.yaml", yaml.safe_dump(worked)), load_exemplars),
    ]


@pytest.mark.parametrize("damages", [100, pytest.param(1000, marks=pytest.mark.deep)])
def test_a_damaged_file_is_read_or_refused_by_an_error_of_the_package(
    kinds: list[Kind], damages: int
) -> None:
    draw = random.Random(SEED)
    sound = {kind.path: kind.path.read_bytes() for kind in kinds}
    for kind in kinds:
        kind.read(kind.path)
    refused = 0
    for number in range(damages):
        kind = kinds[number % len(kinds)]
        data = damaged(sound[kind.path], kind.path.suffix, draw)
        kind.path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                kind.read(kind.path)
            except DraginLabError:
                refused += 1
            except Exception as error:
                error.add_note(f"of damage {number} to {kind.path.name}: {data[:300]!r}")
                raise
        kind.path.write_bytes(sound[kind.path])
    assert refused > damages // 5
