"""Damaged run directories and bad disks: what cannot be read is named and asked again, and never
counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answering import answer
from command import ROOT, environment
from mounts import mounted
from ray_nodes import wait_for, whole_lines
from run_folders import change_line

import dragin_lab as dl
from dragin_lab.errors import TraceFileError
from dragin_lab.run.rundir import FORMAT, RunError, find_runs, read_run
from dragin_lab.run.runwriter import RunFolder

COUNT = 4

# -- lines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "number", "says", "asked"),
    [
        (lambda d: d.replace(b'"em": 1.0', b'"em": x1.0', 1), 1, "JSON is malformed", [1]),
        (lambda d: b"[]\n" + d, 1, "Expected `object`, got `array`", []),
        (lambda d: d + b"\n", 5, "Input data was truncated", []),
        (lambda d: d + b"\xff" + b"[" * 100_000 + b"\n", 5, "JSON is malformed", []),
        (lambda d: d.replace(b"\n", b" ", 1), 1, "JSON is malformed", [1, 2]),
        (lambda d: d + d.splitlines(keepends=True)[2], 5, "the id 'q3' was used before", []),
    ],
)
def test_a_damaged_line_is_named_and_asked_again(
    folder: Path, damage: Callable[[bytes], bytes], number: int, says: str, asked: list[int]
) -> None:
    path = folder / "predictions.jsonl"
    data = path.read_bytes()
    path.write_bytes(damage(data))
    for use in (lambda: read_run(folder), lambda: answer(folder, COUNT)):
        with pytest.warns(
            UserWarning, match=rf"{path}, line {number}: {says}.*: left out; a run that goes on"
        ):
            found = use()
    assert found.asked == asked
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"em": "x"}, "Expected `float | null`, got `str` - at `$.em`"),
        ({"tokens": -5}, "Expected `int` >= 0 - at `$.tokens`"),
        ({"id": "\ud800"}, "surrogate"),
        ({"answer": ...}, "missing required field `answer`"),
        ({"window": {"beyond": -1}}, "at `$.window"),
        ({"window": {"other": 1}}, "at `key` in `$.window"),
    ],
)
def test_an_entry_out_of_range_is_damage(folder: Path, entries: dict[str, Any], says: str) -> None:
    change_line(folder, 1, **entries)
    with pytest.warns(UserWarning, match=r"line 2: ") as warned:
        record = read_run(folder)
    assert says in str(warned[0].message)
    assert (len(record.predictions), record.complete) == (COUNT - 1, False)


def test_a_damaged_timing_is_named_and_dropped(folder: Path) -> None:
    path = folder / "timings.jsonl"
    sound = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(sound[0] + sound[1].replace(b"seconds", b"Seconds") + sound[2] + sound[3])
    with pytest.warns(
        UserWarning, match=rf"{path}, line 2: Object missing required field `seconds`"
    ):
        assert answer(folder, COUNT).asked == []
    assert path.read_bytes() == sound[0] + sound[2] + sound[3]


def test_predictions_of_other_questions_are_refused(folder: Path) -> None:
    path = folder / "predictions.jsonl"
    change_line(folder, 1, id="q9")
    data = path.read_bytes()
    with pytest.raises(
        RunError, match="the id 'q9' is not one of this run's questions; delete its line"
    ):
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


# -- run.json --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "was changed or damaged"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"[]", f"has format None, and this dragin_lab reads {FORMAT}"),
        (
            b'{"format": 9}',
            f"has format 9, and this dragin_lab reads {FORMAT}; .*run again in another folder",
        ),
        (b'{"format": 2}', "missing required field `method`"),
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


# -- two runs in one folder ------------------------------------------------------------------------


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


def test_a_killed_process_leaves_what_it_finished_and_no_lock(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "answering.py", folder, str(COUNT), "0.5"],
        env=environment(),
    )
    wait_for(lambda: whole_lines(folder) >= 1 or process.poll() is not None)
    with pytest.raises(RunError, match=f"process {process.pid} on "):
        answer(folder, COUNT)
    process.kill()
    process.wait()
    finished = whole_lines(folder)
    assert 1 <= finished < COUNT
    assert answer(folder, COUNT).asked == list(range(finished + 1, COUNT + 1))
    for name in ("predictions.jsonl", "run.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}
    assert len((folder / "timings.jsonl").read_text().splitlines()) == COUNT


# -- bad disks -------------------------------------------------------------------------------------


def test_a_disk_that_cannot_be_written(whole: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "mount", "32k") as mount:
        with pytest.raises(RunError, match="No space left on device; free some space"):
            answer(mount / "run", 100, traces=False)
        kept = (mount / "run" / "predictions.jsonl").read_bytes().count(b"\n")
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        assert len(read_run(mount / "run").predictions) == kept
        with pytest.raises(
            RunError,
            match="Read-only file system; save it in a folder that you may write to",
        ):
            answer(mount / "run", 100)
        subprocess.run(["mount", "-o", "remount,rw,size=8m", str(mount)], check=True)
        assert len(answer(mount / "run", 100, traces=False).asked) == 100 - kept


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        RunError, match="cannot be written: Not a directory; create the folder first"
    ):
        answer(tmp_path / "file" / "run", 1)
    with pytest.raises(RunError, match="cannot be written: File exists"):
        answer(tmp_path / "file", 1)


# -- what somebody else made -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.json", "predictions.jsonl", "timings.jsonl"])
def test_a_file_of_a_run_is_read_up_to_a_size(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragin_lab.run.rundir.LARGEST", (folder / name).stat().st_size - 1)
    with pytest.raises(RunError, match=r"has more than [\d,]+ bytes, and no more are read"):
        answer(folder, COUNT)


@pytest.mark.parametrize("name", ["run.json", "predictions.jsonl", "timings.jsonl"])
def test_a_file_that_cannot_be_read_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(RunError, match=rf"{name}: cannot be read \(Is a directory\)"):
        read_run(folder)


def test_links_in_a_run_and_to_the_whole_of_it_are_followed(folder: Path, tmp_path: Path) -> None:
    path = folder / "predictions.jsonl"
    (tmp_path / "answers").write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    path.unlink()
    path.symlink_to(tmp_path / "answers")
    (tmp_path / "elsewhere").symlink_to(folder)
    assert answer(tmp_path / "elsewhere", COUNT).asked == [COUNT]
    assert read_run(tmp_path / "elsewhere").complete
    assert read_run(tmp_path / "elsewhere").trace("q2").text


def test_links_to_runs_below_a_folder_are_found_and_a_circle_of_links_ends(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "paper" / "deep").mkdir(parents=True)
    (tmp_path / "paper" / "mine").symlink_to(folder)
    for name in ("up", "again"):
        (tmp_path / "paper" / "deep" / name).symlink_to(tmp_path / "paper")
    assert [run.folder for run in find_runs(tmp_path / "paper")] == [tmp_path / "paper" / "mine"]
    assert dl.Runs.load(tmp_path / "paper").names == ("mine",)
