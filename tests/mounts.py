"""A small file system of its own, where the machine lets one be mounted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """An empty tmpfs of ``size`` ("64k") at a new folder; skips the test, and says why, where
    that is not allowed.
    """
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        # Lazily: a process that a test killed may hold a file open a moment longer, and that fails
        # no test.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
