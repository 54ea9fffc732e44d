"""A run over four questions, whole and to be damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from answering import answer


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over four questions that is complete and sound."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    answer(folder, 4)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "run"))
