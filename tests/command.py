"""Run the command line from tests: in this process, or in one of its own."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragin_lab.cli import app as cli

ROOT = Path(__file__).parents[1]
#: Seconds to wait for what takes a few: a busy machine is no failure, and what hangs is.
PATIENCE = 600.0
QUESTION = "Who is the mother of the director of The Silent Fukain?"


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Command:
    """``dragin-lab`` in this process."""

    captured: pytest.CaptureFixture[str]

    def __call__(self, *args: object) -> Ran:
        self.captured.readouterr()
        code = cli.status([str(arg) for arg in args])
        said = self.captured.readouterr()
        return Ran(code, said.out, said.err)

    def refused(self, *args: object, says: tuple[str, ...] = (), code: int = cli.USAGE) -> Ran:
        """The command ends with ``code`` and one or two lines that hold all of ``says``; it
        prints nothing else.
        """
        ran = self(*args)
        assert ran.code == code, ran.err
        assert ran.out == ""
        assert ran.err.startswith("error: ")
        assert len(ran.err.strip().splitlines()) <= 2
        for part in says:
            assert part in ran.err
        return ran


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that runs this tree's package."""
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"} | more


def start(*args: object, **options: Any) -> subprocess.Popen[bytes]:
    """``dragin-lab`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dragin_lab", *(str(arg) for arg in args)],
        env=environment(),
        **options,
    )


def interrupt_on_terminal(wanted: str, *args: object, times: int = 1) -> tuple[str, str]:
    """``dragin-lab`` on a terminal of its own, with Ctrl-C once that shows ``wanted`` so many
    times.

    Returns what was printed and what the terminal showed; it must end as an interrupted command
    does.
    """
    terminal, far = pty.openpty()
    process = start(*args, stdout=subprocess.PIPE, stderr=far)
    os.close(far)
    shown, sent = b"", False
    try:
        while more := os.read(terminal, 4096):
            shown += more
            if not sent and shown.count(wanted.encode()) >= times:
                process.send_signal(signal.SIGINT)
                sent = True
    except OSError:  # the other end is closed
        os.close(terminal)
    out, _ = process.communicate(timeout=PATIENCE)
    text = shown.decode(errors="replace").replace("\r\n", "\n")
    assert process.returncode == cli.INTERRUPTED, text
    assert text.endswith("interrupted\n")
    assert "Traceback" not in text
    return out.decode(), text
