"""A run directory from someone else: it may be a link and hold links, and it does not fill this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from answering import answer

import dragin_lab as dl
from dragin_lab.run.finding import find_runs
from dragin_lab.run.rundir import RunError, read_run

COUNT = 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its traces of which the last question is still to be asked."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    answer(folder, COUNT, traces=True)
    lines = (folder / "predictions.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "predictions.jsonl").write_bytes(b"".join(lines[:-1]))
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.mark.parametrize("name", ["run.json", "predictions.jsonl", "timings.jsonl"])
def test_a_file_of_a_run_is_read_up_to_a_size(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragin_lab.files.LARGEST", (folder / name).stat().st_size - 1)
    with pytest.raises(RunError, match=r"has more than [\d,]+ bytes, and no more are read"):
        answer(folder, COUNT, traces=True)


def test_links_in_a_run_and_to_the_whole_of_it_are_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "predictions.jsonl").rename(tmp_path / "answers")
    (folder / "predictions.jsonl").symlink_to(tmp_path / "answers")
    (tmp_path / "elsewhere").symlink_to(folder)
    answer(tmp_path / "elsewhere", COUNT, traces=True)
    assert read_run(tmp_path / "elsewhere").complete
    assert read_run(tmp_path / "elsewhere").trace("q2").text


def test_links_to_runs_below_a_folder_are_found_and_a_circle_of_links_ends(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "paper" / "deep").mkdir(parents=True)
    (tmp_path / "paper" / "mine").symlink_to(folder)
    for name in ("up", "again"):
        (tmp_path / "paper" / "deep" / name).symlink_to(tmp_path / "paper")
    assert [run.folder for run in find_runs(tmp_path / "paper")] == [tmp_path / "paper" / "mine"]
    assert dl.Runs.load(tmp_path / "paper").names == ("mine",)


@pytest.mark.parametrize("name", ["run.json", "predictions.jsonl", "timings.jsonl"])
def test_a_file_that_cannot_be_read_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(RunError, match=rf"{name}: cannot be read \(Is a directory\)"):
        read_run(folder)
