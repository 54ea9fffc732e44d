"""``dragin-lab demo``: the table, and what is left of it when something goes wrong."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Command

import dragin_lab as dl
from dragin_lab.cli import app as cli
from dragin_lab.cli import demo, outputs
from dragin_lab.core.method import PAPERS, Method
from dragin_lab.run import drivers
from dragin_lab.run.lab import Lab
from dragin_lab.trace.trace import Trace

#: The demo where its answers do not matter.
SHORT = ("demo", "--max-new-tokens", 24)  # targ looks at the first 20


def rows(text: str) -> list[str]:
    """The methods of a table, with their remarks."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if set(line) == {"─"}) + 1
    named = [line for line in lines[first:] if line and line.split()[0] in PAPERS]
    return [line.split("  ")[0] for line in named]


def stop_at(monkeypatch: pytest.MonkeyPatch, name: str, after: int, error: BaseException) -> None:
    """Let ``error`` come in the middle of one method, after ``after`` questions."""

    def broken(lab: Lab, questions: Any, method: Method, *, batch_size: int) -> Iterator[Trace]:
        for i, trace in enumerate(drivers.ask_many(lab, questions, method, batch_size)):
            if method.name == name and i == after:
                raise error
            yield trace

    monkeypatch.setattr(Lab, "ask_many", broken)


def test_all_methods_as_a_table_and_one_trace(command: Command, tmp_path: Path) -> None:
    ran = command("demo", "--limit", 2, "--max-new-tokens", 40, "--output", tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert (ran.code, ran.err) == (cli.DONE, "")
    assert rows(ran.out) == list(PAPERS)
    assert (folder / "table.txt").read_text(encoding="utf-8") in ran.out
    trace = Trace.load(folder / "dragin.trace")
    assert trace.method["name"] == "dragin"
    assert trace.counters["retrievals"] > 0
    assert trace.question.text in (folder / "dragin.html").read_text(encoding="utf-8")


def test_thresholds_go_to_the_methods_they_belong_to(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Method] = {}
    monkeypatch.setattr(demo, "run_demo", lambda methods, *_: seen.update({m.name: m for m in methods}) or [])
    monkeypatch.chdir(tmp_path)
    assert command("demo", "--threshold", 0.8, "--flare-threshold", 0.3, "--top-n", 7, "--top-k", 1).code == cli.DONE
    assert (seen["flare"].threshold, seen["dragin"].threshold, seen["dragin"].top_n) == (0.3, 0.8, 7)
    for name in PAPERS.keys() - {"flare", "dragin"}:
        assert (seen[name].threshold, seen[name].top_n) == (dl.method(name).threshold, dl.method(name).top_n)
    assert {m.top_k for m in seen.values()} == {1}
    assert command("demo", "--threshold", 0.8, "--variant", "paper").code == cli.DONE
    assert (seen["flare"].threshold, seen["dragin"].threshold, seen["dragin"].variant) == (0.2, 0.8, "paper")


def test_more_questions_than_there_are(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = demo.demo_questions()[:1]
    monkeypatch.setattr(demo, "demo_questions", lambda: questions)
    ran = command(*SHORT, "--limit", 5, "--output", tmp_path)
    assert ran.code == cli.DONE
    assert "has 1 question, fewer than the 5 asked for" in ran.out


def test_ctrl_c_keeps_the_rows_that_were_finished(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(monkeypatch, "fs-rag", 1, KeyboardInterrupt())
    ran = command(*SHORT, "--limit", 2, "--output", tmp_path)
    assert ran.code == cli.INTERRUPTED
    assert ran.err.strip() == "interrupted"
    assert rows(ran.out) == ["wo-rag", "sr-rag", "fl-rag", "fs-rag (1 of 2)"]
    assert (tmp_path / "table.txt").read_text(encoding="utf-8") in ran.out
    assert not (tmp_path / "dragin.html").exists()


def test_ctrl_c_before_anything_was_finished_leaves_the_old_table(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table.txt").write_text("old")
    stop_at(monkeypatch, "wo-rag", 0, KeyboardInterrupt())
    assert command("demo", "--limit", 2, "--output", tmp_path).code == cli.INTERRUPTED
    assert (tmp_path / "table.txt").read_text() == "old"


def test_what_breaks_unforeseen_keeps_the_rows_too(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(monkeypatch, "dragin", 1, ZeroDivisionError("upside down"))
    ran = command(*SHORT, "--limit", 2, "--output", tmp_path)
    assert ran.code == cli.FAILED
    assert "ZeroDivisionError: upside down" in ran.err
    assert rows(ran.out)[-1] == "dragin (1 of 2)"
    assert (tmp_path / "dragin.trace").exists()


def test_questions_that_fail_are_counted_and_named(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragin_lab.errors import ModelError
    from dragin_lab.retrieval.bm25 import BM25

    def broken(self: BM25, query: str, k: int) -> None:
        raise ModelError("the index is upside down\nand more")

    monkeypatch.setattr(BM25, "search", broken)
    ran = command("demo", "--limit", 1, "--output", tmp_path)
    assert ran.code == cli.FAILED
    assert rows(ran.out)[:2] == ["wo-rag", "sr-rag (1 failed)"]
    failed = sum(row.endswith("(1 failed)") for row in rows(ran.out))  # a model may ask for nothing by itself
    assert 4 <= failed < len(PAPERS)
    assert ran.err.startswith(f"error: {failed} answers failed; the first with: ")
    assert ran.err.endswith("the index is upside down\n")


def test_a_full_disk_loses_no_row(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(outputs, "write_whole", full)
    ran = command(*SHORT, "--limit", 1, "--output", tmp_path)
    assert ran.code == cli.FAILED
    assert rows(ran.out) == list(PAPERS)
    assert ran.err == f"error: {tmp_path / 'table.txt'}: not saved: No space left on device; " + (
        "free some space, or save it on another disk\n"
    )
