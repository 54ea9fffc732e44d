"""A run directory from someone else: what is in it neither leads elsewhere nor holds up or fills this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from answering import answer

from dragin_lab.errors import DraginLabError
from dragin_lab.run.rundir import RunError, read_run

COUNT = 3
OUTSIDE = b"what the owner of this machine keeps\n"
REFUSED = r"leads out of its folder|is a pipe, a socket or a device|traces/q2\.trace: cannot be read"
FILES = ("run.json", "predictions.jsonl", "timings.jsonl", ".lock", "traces", "traces/q2.trace")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its traces of which the last question is still to be asked."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    answer(folder, COUNT, traces=True)
    lines = (folder / "predictions.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "predictions.jsonl").write_bytes(b"".join(lines[:-1]))
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(OUTSIDE)
    return tmp_path / "outside"


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def link_of_links(path: Path, outside: Path) -> None:
    (path.parent / "between").symlink_to(outside / "file")
    path.symlink_to("between")


TRAPS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, outside: path.symlink_to(outside / "file"),
    "link to nothing": lambda path, outside: path.symlink_to(outside / "new"),
    "link to a folder": lambda path, outside: path.symlink_to(outside),
    "link of links": link_of_links,
    "link to a device": lambda path, outside: path.symlink_to("/dev/zero"),
    "pipe": lambda path, outside: os.mkfifo(path),
}


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("name", FILES)
def test_no_file_of_a_run_leads_out_of_it_or_holds_up_whoever_reads_or_completes_it(
    folder: Path, outside: Path, name: str, trap: str
) -> None:
    path = folder / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if name == "run.json":
        (folder / "predictions.jsonl").unlink()  # so that nothing but the link speaks against a new run here
    TRAPS[trap](path, outside)
    reads = [lambda: read_run(folder).trace("q2")] if name not in (".lock", "timings.jsonl") else []
    for door in [*reads, lambda: answer(folder, COUNT, traces=True)]:
        with pytest.raises(DraginLabError, match=REFUSED):
            door()
    assert [file.name for file in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == OUTSIDE


@pytest.mark.parametrize("name", [name for name in FILES if name not in (".lock", "traces", "traces/q2.trace")])
def test_a_file_of_a_run_is_read_up_to_a_size(folder: Path, name: str) -> None:
    with (folder / name).open("ab") as file:
        file.truncate(2**40)  # takes no space on the disk
    with pytest.raises(RunError, match="has 1,099,511,627,776 bytes, and at most"):
        answer(folder, COUNT, traces=True)


def test_links_within_a_run_and_to_the_whole_of_it_are_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "predictions.jsonl").rename(folder / "answers")
    (folder / "predictions.jsonl").symlink_to("answers")
    (tmp_path / "elsewhere").symlink_to(folder)
    answer(tmp_path / "elsewhere", COUNT, traces=True)
    assert read_run(tmp_path / "elsewhere").complete
