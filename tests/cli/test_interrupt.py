"""Ctrl-C at any moment of a command, from the first line of this package to the end of the
process.
"""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from command import PATIENCE, environment

from dragin_lab.cli.app import INTERRUPTED

#: ``dragin-lab table 2``, with Ctrl-C when a module is looked for. It comes in a callback, whose
#: exceptions Python swallows; ``at_the_end`` is looked for when the command has ended.
WITH_CTRL_C = """
import atexit, signal, sys

class Callback:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == wanted:
            Callback()

wanted, sys.argv = sys.argv[1], ["dragin-lab", "table", "2"]
sys.meta_path.insert(0, Finder)
atexit.register(Finder.find_spec, "at_the_end")
from dragin_lab.cli import main
main()
"""


def loaded() -> list[str]:
    """The modules that are looked for until the command line stands, in order."""
    listing = (
        "import atexit, signal, sys, dragin_lab.cli; old = set(sys.modules); import"
        " dragin_lab.cli.app;print(*(name for name, it in sys.modules.items() if name not in old"
        " and getattr(it, '__spec__', None)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", listing], env=environment(), capture_output=True, check=True
    )
    return [name for name in ran.stdout.decode().split() if not name.startswith("_")]


def interrupted(module: str) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, "-c", WITH_CTRL_C, module],
        env=environment(),
        capture_output=True,
        timeout=PATIENCE,
    )
    return ran.returncode, ran.stderr.decode()


@pytest.mark.parametrize("module", ["dragin_lab.cli.app", "at_the_end"])
def test_ctrl_c_ends_the_command_with_one_line(module: str) -> None:
    assert interrupted(module) == (INTERRUPTED, "\ninterrupted\n")


@pytest.mark.slow
def test_ctrl_c_at_any_moment_of_loading_ends_the_command_with_one_line() -> None:
    for module in random.Random(1).sample(loaded(), 4):
        assert interrupted(module) == (INTERRUPTED, "\ninterrupted\n"), module


def test_where_ctrl_c_is_ignored_it_stays_ignored() -> None:
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{WITH_CTRL_C}"
    ran = subprocess.run(
        [sys.executable, "-c", ignoring, "rich_click"],
        env=environment(),
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
