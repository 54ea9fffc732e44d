"""Damaged run directories: every damaged line is found, named and asked again, and none is ever counted."""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from answering import answer, questions
from filelock import FileLock
from mounts import mounted
from run_folders import read_config, write_config

from dragin_lab.errors import TraceFileError
from dragin_lab.run import runwriter
from dragin_lab.run.lines import Prediction, Timing, decode, encode
from dragin_lab.run.rundir import FORMAT, RunError, RunRecord, find_runs, read_run
from dragin_lab.run.runwriter import NotWrittenError
from dragin_lab.study.runs import Runs

COUNT = 4
FILES = ("run.json", "predictions.jsonl", "timings.jsonl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over four questions that is complete and sound."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    answer(folder, COUNT)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def predictions(folder: Path) -> list[dict[str, Any]]:
    return [decode(raw, Prediction) for raw in (folder / "predictions.jsonl").read_bytes().splitlines()]


def change(folder: Path, **entries: Any) -> None:
    """Let the second prediction say something else, with a checksum that fits."""
    found = predictions(folder)
    found[1] |= entries
    (folder / "predictions.jsonl").write_text(
        "".join(encode([{k: v for k, v in line.items() if v is not ...}]).decode() for line in found)
    )


# -- lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "number", "says", "asked"),
    [
        (lambda d: d.replace(b'"em": 1.0', b'"em": 0.0', 1), 1, "its checksum does not fit", [1]),
        (lambda d: d.replace(b'{"qid": "q2"', b'"qid": "q2"'), 2, "its checksum does not fit", [2]),
        (lambda d: d.replace(b'"ended"', b'"end"', 1), 1, "its checksum does not fit", [1]),
        (lambda d: b"[]\n" + d, 1, "its checksum does not fit", []),
        (lambda d: d + b"\n", 5, "its checksum does not fit", []),
        (lambda d: d.replace(b"\n", b" ", 1), 1, "its checksum does not fit", [1, 2]),
        (lambda d: d + d.splitlines(keepends=True)[2], 5, "the id 'q3' was used before, at line 3", [3]),
    ],
)
def test_a_damaged_line_is_named_and_asked_again(
    whole: Path, folder: Path, damage: Callable[[bytes], bytes], number: int, says: str, asked: list[int]
) -> None:
    path = folder / "predictions.jsonl"
    data = path.read_bytes()
    path.write_bytes(damage(data))
    named = rf"{path}, line {number}: {says}"
    with pytest.warns(UserWarning, match=rf"{named}.*: left out"):
        record = read_run(folder)
    assert record.damaged == (f"{path}, line {number}: {says}",)
    assert [line["qid"] for line in record.predictions] == [f"q{i}" for i in range(1, 5) if i not in asked]
    assert record.complete == (not asked)
    with pytest.warns(UserWarning, match=f"{named}; its question is asked again"):
        assert answer(folder, COUNT).asked == asked
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"em": "x"}, "Expected `float | null`, got `str` - at `$.em`"),
        ({"em": 7}, "at `$.em`"),
        ({"em": True}, "at `$.em`"),
        ({"f1": 10**400}, "at `$.f1`"),
        ({"em": None}, "its scores do not go with its gold answers and its ending"),
        ({"tokens": -5}, "Expected `int` >= 0 - at `$.tokens`"),
        ({"tokens": 10**400}, "at `$.tokens`"),
        ({"retrievals": "3"}, "at `$.retrievals`"),
        ({"ended": "done"}, "at `$.ended`"),
        ({"ended": ["error"]}, "at `$.ended`"),
        ({"ended": "error"}, "its scores do not go"),
        ({"error": "gone"}, "its error does not go with its ending"),
        ({"gold": "Li 2"}, "at `$.gold`"),
        ({"gold": []}, "its scores do not go"),
        ({"passages": [[1]]}, "at `$.passages[0][0]`"),
        ({"qid": 2}, "at `$.qid`"),
        ({"qid": "\ud800"}, "surrogate"),
        ({"gold": ["\ud800"]}, "surrogate"),
        ({"answer": ...}, "missing required field `answer`"),
    ],
)
def test_an_entry_out_of_range_is_damage_though_its_checksum_fits(
    folder: Path, entries: dict[str, Any], says: str
) -> None:
    change(folder, **entries)
    with pytest.warns(UserWarning, match=r"line 2: "):
        record = read_run(folder)
    (one,) = record.damaged
    assert says in one
    assert len(record.predictions) == COUNT - 1


@pytest.mark.parametrize(
    "raw", [b"[1]", b"NaN", b'{"em": NaN}', b"[" * 100_000, b"\xff", b"1" * 5000, b'{"qid": "q1"}']
)
@pytest.mark.parametrize("rules", [Prediction, Timing])
def test_what_is_not_a_line(raw: bytes, rules: Any) -> None:
    body = raw.removesuffix(b"}")
    with_sum = body + f', "sum": "{crc32(raw):08x}"}}'.encode()
    for line in (raw, with_sum):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
            decode(line, rules)


def test_a_damaged_timing_is_named_and_dropped(folder: Path) -> None:
    path = folder / "timings.jsonl"
    sound = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(sound[0] + sound[1].replace(b"seconds", b"Seconds") + sound[2] + sound[3])
    with pytest.warns(UserWarning, match=rf"{path}, line 2: its checksum does not fit; how long that question took"):
        assert answer(folder, COUNT).asked == []
    assert path.read_bytes() == sound[0] + sound[2] + sound[3]


def test_predictions_of_other_questions_are_refused(folder: Path) -> None:
    path = folder / "predictions.jsonl"
    change(folder, qid="q9")
    data = path.read_bytes()
    with pytest.raises(RunError, match="the id 'q9' is not one of this run's questions; delete its line"):
        answer(folder, COUNT)
    assert path.read_bytes() == data


# -- run.json ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "was changed or damaged after it was written"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"[1]", "not written by dragin_lab"),
        (b'{"format": true}', "not written by dragin_lab"),
        (b'{"format": NaN}', "not written by dragin_lab"),
        (b'{"format": 9}', f"a newer edition of dragin_lab .format 9, this one has {FORMAT}"),
        (b'{"format": 2}', "its checksum does not fit"),
        (b'{"format": 1}', f"an older edition of dragin_lab .format 1, this one has {FORMAT}"),
    ],
)
def test_a_damaged_run_json_is_named(folder: Path, data: bytes, says: str) -> None:
    (folder / "run.json").write_bytes(data)
    for use in (lambda: answer(folder, COUNT), lambda: find_runs(folder)):
        with pytest.raises(RunError, match=says) as caught:
            use()
        assert str(folder / "run.json") in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"dataset": []}, r"\.dataset"),
        ({"dataset": {"name": "one", "questions": "4"}}, r"\.dataset\.questions"),
        ({"dataset": {"name": "one", "questions": 10**400}}, r"\.dataset\.questions"),
        ({"retriever": "bm25"}, r"\.retriever"),
        ({"seed": None}, r"\.seed"),
        ({"method": {}}, "missing required field `name`"),
        ({"template": {"exemplars": 2}}, r"\.template\.exemplars"),
    ],
)
def test_entries_of_another_type_in_run_json(folder: Path, entries: dict[str, Any], says: str) -> None:
    write_config(folder, read_config(folder) | entries)
    with pytest.raises(RunError, match=says):
        read_run(folder)


def test_an_edited_setting_is_found(folder: Path) -> None:
    config = read_config(folder)
    config["method"]["threshold"] = 0.5
    (folder / "run.json").write_text(json.dumps(config | {"sum": "00000000"}))
    with pytest.raises(RunError, match="its checksum does not fit"):
        read_run(folder)


# -- older and read-only folders --------------------------------------------------------------------------------------


def test_a_folder_of_an_older_edition_is_neither_read_nor_completed(folder: Path) -> None:
    written = (folder / "predictions.jsonl").read_bytes()
    write_config(folder, read_config(folder) | {"format": 1})
    for use in (lambda: answer(folder, COUNT), lambda: read_run(folder)):
        with pytest.raises(RunError, match=r"is of an older edition of dragin_lab .*run again in another folder"):
            use()
    assert (folder / "predictions.jsonl").read_bytes() == written


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system refuse every write, as on a read-only mount."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    for name in ("write_whole", "_append_line", "clear_drafts"):
        monkeypatch.setattr(runwriter, name, refuse)


@pytest.mark.usefixtures("read_only")
def test_a_complete_run_on_a_read_only_mount_can_be_shown(whole: Path) -> None:
    assert answer(whole, COUNT).asked == []


@pytest.mark.usefixtures("read_only")
def test_a_part_of_a_run_on_a_read_only_mount_is_refused(folder: Path) -> None:
    path = folder / "predictions.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(NotWrittenError, match="Read-only file system; save it in a folder that you may write to"):
        answer(folder, COUNT)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of its own."""
    with mounted(tmp_path / "mount", "16m") as folder:
        yield folder


def test_a_real_read_only_mount(whole: Path, mount: Path) -> None:
    shutil.copytree(whole, mount / "run")
    part = Path(shutil.copytree(whole, mount / "part"))
    lines = (part / "predictions.jsonl").read_bytes().splitlines(keepends=True)
    (part / "predictions.jsonl").write_bytes(lines[0])
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    before = {path: path.read_bytes() for path in mount.rglob("*") if path.is_file()}
    assert answer(mount / "run", COUNT).asked == []
    runs = Runs.load(mount / "run")
    assert len(runs.questions) == COUNT
    name = runs.names[0]
    assert runs.trace("q1", name).text == Runs.load(whole).trace("q1", name).text
    assert str(runs.table())
    with pytest.raises(NotWrittenError, match="Read-only file system; save it in a folder that you may write to"):
        answer(part, COUNT)
    assert {path: path.read_bytes() for path in mount.rglob("*") if path.is_file()} == before


# -- flips and cuts ---------------------------------------------------------------------------------------------------


def damages(data: bytes, flips: int, cuts: int, seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(flips):
        place, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        yield data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
    for _ in range(cuts):
        yield data[: rng.randrange(len(data))]


def same_or_named(whole: Path, folder: Path, name: str) -> None:
    """What is read of a damaged folder is true, and answering its questions ends as if nothing had happened."""
    sound, refused = read_run(whole), ""
    try:
        record = read_run(folder)
        answer(folder, COUNT)
    except RunError as error:
        refused = str(error)
    if refused:
        assert name == "run.json"
        assert str(folder) in refused
        return
    assert record.config == sound.config
    assert all(line in sound.predictions for line in record.predictions)
    assert record.complete == (len(record.predictions) == COUNT)
    assert read_run(folder) == RunRecord(folder, sound.config, sound.predictions, True)
    times = [decode(raw, Timing) for raw in (folder / "timings.jsonl").read_bytes().splitlines()]
    assert [line["qid"] for line in times] == [q.id for q in questions(COUNT) if q.id in {t["qid"] for t in times}]


def damage_all(whole: Path, folder: Path, flips: int, cuts: int) -> None:
    for seed, name in enumerate(FILES):
        data = (whole / name).read_bytes()
        for damaged in damages(data, flips, cuts, seed):
            shutil.copytree(whole, folder, dirs_exist_ok=True)
            (folder / name).write_bytes(damaged)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                same_or_named(whole, folder, name)


def damage_traces(whole: Path, folder: Path, flips: int, cuts: int) -> None:
    """A trace is what it was, or its file is named and it is left out."""
    sound = read_run(whole)
    kept = sorted((whole / "traces").iterdir())
    assert len(kept) == COUNT
    for seed, file in enumerate(kept):
        path = folder / "traces" / file.name
        for damaged in damages(file.read_bytes(), flips, cuts, seed):
            path.write_bytes(damaged)
            qid, record = f"q{seed + 1}", read_run(folder)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found = Runs([record]).kept_trace(record, qid)
            if found is None:
                assert any(str(path) in str(one.message) for one in told)
            else:
                assert found.diff(sound.trace(qid), arrays=True) == ""
        path.write_bytes(file.read_bytes())


def test_some_flips_and_cuts(whole: Path, folder: Path) -> None:
    damage_all(whole, folder, 8, 4)
    damage_traces(whole, folder, 4, 2)


@pytest.mark.slow
def test_a_hundred_flips_and_fifty_cuts_of_every_file(whole: Path, folder: Path) -> None:
    damage_all(whole, folder, 100, 50)
    damage_traces(whole, folder, 100, 50)


def test_the_trace_of_another_question_is_refused(folder: Path) -> None:
    first, second = sorted((folder / "traces").iterdir())[:2]
    first.write_bytes(second.read_bytes())
    with pytest.raises(TraceFileError, match=f"{first}: is the trace of question 'q2'"):
        read_run(folder).trace("q1")


def test_a_table_counts_no_damaged_line(folder: Path) -> None:
    change(folder, em=0.0)
    path = folder / "predictions.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"em": 1.0', b'"em": 9.0', 1))
    with pytest.warns(UserWarning, match="line 1: its checksum does not fit"):
        frame = read_run(folder).frame
    assert sorted(frame["em"]) == [0.0, 1.0, 1.0]
