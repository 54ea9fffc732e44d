"""``dragin-lab demo``: the table, the trace, and the settings of its methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import Command

import dragin_lab as dl
from dragin_lab.cli import app as cli
from dragin_lab.cli import run as cli_run
from dragin_lab.core.method import PAPERS
from dragin_lab.lab import Lab


def rows(text: str) -> list[str]:
    """The methods of a table, with their remarks."""
    lines = text.partition("means per question")[2].splitlines()
    return [line.split("  ")[0] for line in lines if line and line.split()[0] in PAPERS]


def test_all_methods_as_a_table_and_one_trace(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    args = ("demo", "--limit", 1, "--output", folder)
    ran = command(*args)
    assert ran.code == cli.DONE, ran.err
    assert rows(ran.out) == list(PAPERS)
    runs = dl.Runs.load(folder)
    page = (folder / "dragin.html").read_text(encoding="utf-8")
    shown = [q for q in runs.outcomes["question"] if q in page]
    assert len(set(shown)) == 1
    assert f"Open {folder / 'dragin.html'}: Trace(" in ran.out
    again = command(*args)
    assert again.out == ran.out


def test_settings_go_to_the_methods_they_belong_to(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def note(lab: Lab, wanted: dict[Any, Any], root: Path, **_: Any) -> None:
        seen.extend(method for methods in wanted.values() for method in methods)
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_run, "run_all", note)
    assert command("demo", "--set", "top_k=1", "--output", tmp_path).code == cli.INTERRUPTED
    assert [method.name for method in seen] == list(PAPERS)
    assert {method.top_k for method in seen} == {1}
    assert {m.name for m in seen if m.max_new_tokens != 96} == {"self-ask"}  # which writes more
    assert {m.name: m.settings["top_n"] for m in seen if "top_n" in m.settings} == {
        "fl-rag": None,
        "dragin": 5,
    }
