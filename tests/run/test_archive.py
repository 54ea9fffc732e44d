"""Run directories as one file."""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path
from random import Random

import pytest
from run_folders import write_run
from tools.packaged import pack

import dragin_lab as dl
from dragin_lab.errors import DraginLabError
from dragin_lab.run.rundir import RunError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are unpacked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dragin_lab" / "runs"


def left(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.suffix != ".lock"] if cache.is_dir() else []


def test_packed_runs_are_read_like_folders(tmp_path: Path, cache: Path) -> None:
    for name in ("dragin", "flare"):
        write_run(tmp_path / "runs", name, "mine", [1.0, 0.0])
    files = [file for file in (tmp_path / "runs").rglob("*") if file.is_file()]
    first, again = (pack(tmp_path / "runs", files, tmp_path / f"{n}.tar.xz") for n in "ab")
    assert first.read_bytes() == again.read_bytes()
    for _ in range(2):  # unpacked once
        runs = dl.Runs.load(first)
        assert runs.names == ("dragin", "flare")
        assert runs.records[0].folder.is_relative_to(cache)
    assert len(left(cache)) == 1


class Zeros(BytesIO):
    """An endless file."""

    def read(self, size: int | None = -1) -> bytes:
        return bytes(size or 0)


@pytest.mark.parametrize(("size", "count"), [(50_000_000, 1), (1_500_000, 2), (0, 1000)])
def test_an_archive_unpacks_to_a_limit_that_can_be_raised(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, size: int, count: int
) -> None:
    with tarfile.open(tmp_path / "a.tar.xz", "w:xz") as archive:
        for number in range(count):
            about = tarfile.TarInfo(f"run/{number}")
            about.size = size
            archive.addfile(about, Zeros())
    monkeypatch.setenv("DRAGIN_LAB_UNPACK_GB", "0.002")
    with pytest.raises(RunError, match=r"unpacks to more than 0\.002 GB .* set DRAGIN_LAB_UNPACK_GB to more"):
        dl.Runs.load(tmp_path / "a.tar.xz")
    assert left(cache) == []
    monkeypatch.setenv("DRAGIN_LAB_UNPACK_GB", "1")
    with pytest.raises(DraginLabError, match="holds no run"):
        dl.Runs.load(tmp_path / "a.tar.xz")
    assert len(left(cache)) == 1


def test_a_damaged_archive_is_said_to_be_one_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    folder = write_run(tmp_path / "runs")
    whole = pack(tmp_path / "runs", folder.iterdir(), tmp_path / "a.tar.xz").read_bytes()
    random = Random(0)
    for number in range(40):
        data = bytearray(whole if number else whole[:100])
        for place in random.sample(range(len(data)), 3 if number else 0):
            data[place] ^= random.randrange(1, 256)
        (tmp_path / "a.tar.xz").write_bytes(data)
        with pytest.raises(RunError, match="cannot be unpacked"):
            dl.Runs.load(tmp_path / "a.tar.xz")
        assert left(cache) == []
