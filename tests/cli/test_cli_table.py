"""``dragin-lab table``: what goes to standard output, what to standard error, and what is
refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Command
from run_folders import write_run

from dragin_lab.cli import app as cli
from dragin_lab.results.paper_tables import table


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "120")
    return Command(capsys)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for method in ("dragin", "sr-rag"):
        write_run(tmp_path, method, "almanac/iirc", [1.0, 0.0, 1.0, float(method == "dragin")])
    return tmp_path


def test_the_papers_tables_alone(command: Command) -> None:
    for number in range(1, 10):
        ran = command("table", number)
        assert (ran.code, ran.err) == (cli.DONE, "")
        assert f" (Table {number} of DRAGIN, ACL 2024)\n" in ran.out


def test_the_table_is_printed_and_nothing_else(command: Command, runs: Path) -> None:
    ran = command("table", 3, runs, "--compare", "dragin")
    assert ran.code == cli.DONE
    made = table(3, runs, compare="dragin")
    assert ran.out == made.show(width=120) + "\n"
    assert ran.err == ""


def test_what_is_refused(command: Command, runs: Path) -> None:
    command.refused("table", "two", says=("two: no such folder",))
    command.refused("table", 2, runs / "nothing", says=(f"{runs / 'nothing'}: ",))


def test_runs_of_any_benchmark_have_a_table(command: Command, tmp_path: Path) -> None:
    for method in ("dragin", "sr-rag"):
        write_run(tmp_path, method, "mine", [1.0, 0.0, 1.0, float(method == "dragin")])
    ran = command("table", tmp_path, "--compare", "dragin", "--format", "latex")
    assert ran.code == cli.DONE
    assert r"dragin & \bfseries 0.750" in ran.out
    assert r"$-$0.250 (p = 1)" in ran.out
    ran = command("table", tmp_path / "mine" / "sr-rag", tmp_path, "--format", "latex")
    assert r" & EM & F1 & retrievals & tokens \\" in ran.out
    rows = [line.split(" & ")[0] for line in ran.out.splitlines() if "0." in line and " & " in line]
    assert rows == ["sr-rag", "dragin"]  # the methods in the order of the folders
    command.refused(
        "table", says=("give run directories, or the number of a table of the paper, 1 to 9",)
    )
