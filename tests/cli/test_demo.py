"""``dragin-lab demo``: the table, and what is left of it when something goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import Command

from dragin_lab.cli import app as cli
from dragin_lab.cli import run as cli_run
from dragin_lab.core.method import PAPERS
from dragin_lab.run.lab import Lab
from dragin_lab.study.runs import Runs
from dragin_lab.trace.trace import Trace

#: The demo where its answers do not matter.
SHORT = ("demo", "--set", "max_new_tokens=24")


def rows(text: str) -> list[str]:
    """The methods of a table, with their remarks."""
    lines = text.partition("means per question")[2].splitlines()
    return [line.split("  ")[0] for line in lines if line and line.split()[0] in PAPERS]


def test_all_methods_as_a_table_and_one_trace(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    args = ("demo", "--limit", 2, "--set", "max_new_tokens=40", "--output", folder)
    ran = command(*args)
    assert ran.code == cli.DONE, ran.err
    assert rows(ran.out) == list(PAPERS)
    assert (folder / "table.txt").read_text(encoding="utf-8") in ran.out
    trace = Trace.load(folder / "dragin.trace")
    assert trace.method["name"] == "dragin"
    assert trace.counters["retrievals"] > 0
    assert trace.question.text in (folder / "dragin.html").read_text(encoding="utf-8")
    again = command(*args)
    assert again.out.count("2 of 2 were already there") == len(PAPERS)
    assert rows(again.out) == rows(ran.out)


def test_settings_go_to_the_methods_they_belong_to(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def note(lab: Lab, asked: Any, methods: list[Any], **_: Any) -> None:
        seen.update({method.name: method for method in methods})

    monkeypatch.setattr(Lab, "run", note)
    ran = command("demo", "--set", "top_k=1", "--output", tmp_path)
    assert ran.code == cli.DONE, ran.err
    assert {method.top_k for method in seen.values()} == {1}
    assert min(method.max_new_tokens for method in seen.values()) == 96
    assert list(seen) == list(PAPERS)


def test_more_questions_than_there_are(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cli_run.benchmark
    monkeypatch.setattr(cli_run, "benchmark", lambda name, limit, split: whole(name, limit=1, split=split))
    ran = command(*SHORT, "--limit", 5, "--output", tmp_path)
    assert ran.code == cli.DONE
    assert "--limit 5: there is no more than 1 question" in ran.out


def test_what_was_finished_is_shown_and_kept(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Lab.run

    def broken(lab: Lab, asked: Any, methods: Any, **options: Any) -> Runs:
        whole(lab, asked, methods[:3], **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Lab, "run", broken)
    ran = command(*SHORT, "--limit", 1, "--output", tmp_path)
    assert ran.code == cli.INTERRUPTED
    assert rows(ran.out) == list(PAPERS)[:3]
    assert (tmp_path / "table.txt").read_text(encoding="utf-8") in ran.out
    assert not (tmp_path / "dragin.html").exists()
