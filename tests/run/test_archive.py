"""Run directories as one file."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import write_run

import dragin_lab as dl
from dragin_lab.run.archive import PackedRunsError
from tools.pages.packaged import pack


def test_packed_runs_are_read_like_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("dragin", "flare"):
        write_run(tmp_path / "runs", name, "mine", [1.0, 0.0])
    files = [file for file in (tmp_path / "runs").rglob("*") if file.is_file()]
    first, again = (pack(tmp_path / "runs", files, tmp_path / f"{n}.tar.xz") for n in "ab")
    assert first.read_bytes() == again.read_bytes()
    for _ in range(2):  # unpacked once
        runs = dl.Runs.load(first)
        assert runs.names == ("dragin", "flare")
        assert str(runs.records[0].folder).startswith(str(tmp_path / "cache"))
    first.write_bytes(first.read_bytes()[:100])
    with pytest.raises(PackedRunsError, match="cannot be unpacked"):
        dl.Runs.load(first)
