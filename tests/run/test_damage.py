"""Damaged run directories and bad disks: what is damaged is found, named and asked again, and never counted."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from answering import answer, questions
from command import ROOT, environment
from filelock import FileLock
from mounts import mounted
from run_folders import read_config, write_config

from dragin_lab.errors import TraceFileError
from dragin_lab.run import runwriter
from dragin_lab.run.lines import Prediction, Timing, decode, encode
from dragin_lab.run.rundir import FORMAT, RunError, RunRecord, find_runs, read_run
from dragin_lab.run.runwriter import NotWrittenError, RunFolder
from dragin_lab.study.runs import Runs

COUNT = 4
NO_SUM = "its checksum does not fit"


def change(folder: Path, **entries: Any) -> None:
    """Let the second prediction say something else, with a checksum that fits."""
    path = folder / "predictions.jsonl"
    lines = [decode(raw, Prediction) for raw in path.read_bytes().splitlines()]
    lines[1] |= entries
    path.write_bytes(encode([{key: value for key, value in line.items() if value is not ...} for line in lines]))


# -- lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "number", "says", "asked"),
    [
        (lambda d: d.replace(b'"em": 1.0', b'"em": 0.0', 1), 1, NO_SUM, [1]),
        (lambda d: b"[]\n" + d, 1, NO_SUM, []),
        (lambda d: d + b"\n", 5, NO_SUM, []),
        (lambda d: d.replace(b"\n", b" ", 1), 1, NO_SUM, [1, 2]),
        (lambda d: d + d.splitlines(keepends=True)[2], 5, "the id 'q3' was used before, at line 3", [3]),
    ],
)
def test_a_damaged_line_is_named_and_asked_again(
    folder: Path, damage: Callable[[bytes], bytes], number: int, says: str, asked: list[int]
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
        ({"f1": 10**400}, "at `$.f1`"),
        ({"tokens": -5}, "Expected `int` >= 0 - at `$.tokens`"),
        ({"ended": "done"}, "at `$.ended`"),
        ({"qid": "\ud800"}, "surrogate"),
        ({"answer": ...}, "missing required field `answer`"),
        ({"ended": "error"}, "its scores do not go with its gold answers and its ending"),
        ({"error": "gone"}, "its error does not go with its ending"),
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


@pytest.mark.parametrize("raw", [b"[1]", b'{"em": NaN}', b"[" * 100_000, b"\xff", b"1" * 5000, b'{"qid": "q1"}'])
def test_what_is_not_a_line(raw: bytes) -> None:
    with_sum = raw.removesuffix(b"}") + f', "sum": "{crc32(raw):08x}"}}'.encode()
    for kind in (Prediction, Timing):
        for line in (raw, with_sum):
            with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
                decode(line, kind)


def test_a_damaged_timing_is_named_and_dropped(folder: Path) -> None:
    path = folder / "timings.jsonl"
    sound = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(sound[0] + sound[1].replace(b"seconds", b"Seconds") + sound[2] + sound[3])
    with pytest.warns(UserWarning, match=rf"{path}, line 2: {NO_SUM}; how long that question took"):
        assert answer(folder, COUNT).asked == []
    assert path.read_bytes() == sound[0] + sound[2] + sound[3]


def test_predictions_of_other_questions_are_refused(folder: Path) -> None:
    path = folder / "predictions.jsonl"
    change(folder, qid="q9")
    data = path.read_bytes()
    with pytest.raises(RunError, match="the id 'q9' is not one of this run's questions; delete its line"):
        answer(folder, COUNT)
    assert path.read_bytes() == data
    (folder / "run.json").unlink()
    with pytest.raises(RunError, match=r"holds predictions\.jsonl but no run\.json"):
        answer(folder, COUNT)


def test_the_trace_of_another_question_is_refused(folder: Path) -> None:
    first, second = sorted((folder / "traces").iterdir())[:2]
    first.write_bytes(second.read_bytes())
    with pytest.raises(TraceFileError, match=f"{first}: is the trace of question 'q2'"):
        read_run(folder).trace("q1")


# -- run.json ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "was changed or damaged after it was written"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
        (b'{"format": true}', "not written by dragin_lab"),
        (b'{"format": 9}', f"a newer edition of dragin_lab .format 9, this one has {FORMAT}"),
        (b'{"format": 1}', "an older edition of dragin_lab .format 1, .*run again in another folder"),
        (b'{"format": 2, "sum": "00000000"}', NO_SUM),
    ],
)
def test_a_damaged_run_json_is_named(folder: Path, data: bytes, says: str) -> None:
    (folder / "run.json").write_bytes(data)
    written = (folder / "predictions.jsonl").read_bytes()
    for use in (lambda: answer(folder, COUNT), lambda: find_runs(folder)):
        with pytest.raises(RunError, match=says) as caught:
            use()
        assert str(folder / "run.json") in str(caught.value)
    assert (folder / "predictions.jsonl").read_bytes() == written


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"dataset": {"name": "one", "questions": 10**400}}, r"\.dataset\.questions"),
        ({"retriever": "bm25"}, r"\.retriever"),
        ({"method": {}}, "missing required field `name`"),
    ],
)
def test_entries_of_another_type_in_run_json(folder: Path, entries: dict[str, Any], says: str) -> None:
    write_config(folder, read_config(folder) | entries)
    with pytest.raises(RunError, match=says):
        read_run(folder)


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
    assert read_run(folder) == RunRecord(folder, sound.config, sound.predictions)
    times = [decode(raw, Timing)["qid"] for raw in (folder / "timings.jsonl").read_bytes().splitlines()]
    assert times == [q.id for q in questions(COUNT) if q.id in times]


@pytest.mark.parametrize("times", [1, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_flips_and_cuts_of_every_file(whole: Path, folder: Path, times: int) -> None:
    for seed, name in enumerate(("run.json", "predictions.jsonl", "timings.jsonl")):
        for damaged in damages((whole / name).read_bytes(), 8 * times, 4 * times, seed):
            shutil.copytree(whole, folder, dirs_exist_ok=True)
            (folder / name).write_bytes(damaged)
            same_or_named(whole, folder, name)


@pytest.mark.parametrize("times", [1, pytest.param(25, marks=pytest.mark.slow)])
def test_flips_and_cuts_of_traces(whole: Path, folder: Path, times: int) -> None:
    """A trace is what it was, or its file is named and it is left out."""
    sound = read_run(whole)
    for seed, file in enumerate(sorted((whole / "traces").iterdir())):
        qid, path = f"q{seed + 1}", folder / "traces" / file.name
        for damaged in damages(file.read_bytes(), 4 * times, 2 * times, seed):
            path.write_bytes(damaged)
            record = read_run(folder)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                trace = Runs([record]).kept_trace(record, qid)
            if trace is None:
                assert any(str(path) in str(one.message) for one in warned)
            else:
                assert trace.diff(sound.trace(qid), arrays=True) == ""
        path.write_bytes(file.read_bytes())


# -- two runs in one folder -------------------------------------------------------------------------------------------


def test_a_second_run_in_the_same_folder_is_refused(whole: Path, tmp_path: Path) -> None:
    config = read_run(whole).config
    with (
        RunFolder(tmp_path, config, ["q1"]),
        pytest.raises(RunError, match=rf"another run is writing it \(process {os.getpid()} on "),
        RunFolder(tmp_path, config, ["q1"]),
    ):
        pass
    with RunFolder(tmp_path, config, ["q1"]):  # the first has ended
        pass


def test_the_lock_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "tests" / "answering.py", tmp_path / "run", "2", "100"]
    process = subprocess.Popen(command, env=environment())
    while not (tmp_path / "run" / "run.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    with pytest.raises(RunError, match=f"process {process.pid} on "):
        answer(tmp_path / "run", 2)
    process.kill()
    process.wait()
    assert answer(tmp_path / "run", 2).asked == [1, 2]


# -- bad disks --------------------------------------------------------------------------------------------------------


def cut_to_one_line(folder: Path) -> None:
    path = folder / "predictions.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def test_where_nothing_can_be_written_a_complete_run_is_shown_and_a_part_refused(
    whole: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    cut_to_one_line(folder)
    monkeypatch.setattr(FileLock, "acquire", refuse)
    for name in ("write_whole", "_append_line", "clear_drafts"):
        monkeypatch.setattr(runwriter, name, refuse)
    assert answer(whole, COUNT).asked == []
    with pytest.raises(NotWrittenError, match="Read-only file system; save it in a folder that you may write to"):
        answer(folder, COUNT)


def test_a_real_read_only_mount(whole: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "mount", "16m") as mount:
        for name in ("run", "part"):
            shutil.copytree(whole, mount / name)
        cut_to_one_line(mount / "part")
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        assert answer(mount / "run", COUNT).asked == []
        runs = Runs.load(mount / "run")
        assert runs.trace("q1", runs.names[0]).text == Runs.load(whole).trace("q1", runs.names[0]).text
        with pytest.raises(NotWrittenError, match="Read-only file system"):
            answer(mount / "part", COUNT)


def test_a_file_size_limit_loses_no_finished_line(whole: Path, tmp_path: Path) -> None:
    """A disk that fills up in the middle of a line, as far as a process can see."""
    path, other = (tmp_path / name / "predictions.jsonl" for name in ("run", "other"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (whole / "run.json").stat().st_size
    limit = max(size, 2 * len((whole / "predictions.jsonl").read_bytes().splitlines()[0])) + 100
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(NotWrittenError, match=r"a line was not written: File too large; .*ulimit -f") as caught:
            answer(path.parent, 30)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(path) in str(caught.value)
    assert path.stat().st_size == limit  # the last line is torn
    kept = path.read_bytes().count(b"\n")
    assert kept >= 2
    assert len(answer(path.parent, 30).asked) == 30 - kept
    answer(other.parent, 30)
    assert path.read_bytes() == other.read_bytes()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWrittenError, match="cannot be written: Not a directory; create the folder first"):
        answer(tmp_path / "file" / "run", 1)
    with pytest.raises(NotWrittenError, match="cannot be written: File exists"):
        answer(tmp_path / "file", 1)
