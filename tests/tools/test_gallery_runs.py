"""The script behind the gallery: its runs fill the paper's tables."""

from __future__ import annotations

from pathlib import Path

import pytest

import dragin_lab as dl
from dragin_lab.run.rundir import find_runs
from dragin_lab.study.paper_cells import LABELS, Want, layout
from tools import runs


def test_every_cell_of_the_papers_result_tables_has_a_run() -> None:
    made = [(part, method) for part, methods in runs.PARTS.items() for method in methods()]
    assert len({(part, method.label) for part, method in made}) == len(made)

    def fills(want: Want, part: str, method: dl.methods.Method) -> bool:  # type: ignore[name-defined]
        dense = part == "retrievers"
        same = (method.trigger.name, method.formulator.name) == (want.when, want.what) and method.variant == "reference"
        return same and want.threshold in (None, method.threshold) and dense == (want.retriever == "dense")

    for number in LABELS:
        for want in (want for line in layout(number).lines for want in line.wants):
            assert any(fills(want, part, method) for part, method in made), (number, want)


@pytest.mark.slow
def test_a_second_start_asks_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(runs.PARTS, "methods", lambda: [runs.made("wo-rag")])
    command = ["--questions", "4", "--part", "methods", "--output", str(tmp_path)]
    runs.main(command)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("timings.jsonl")}
    runs.main(command)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("timings.jsonl")} == before
    found = find_runs(tmp_path)
    assert [len(run.predictions) for run in found] == [1] * 4
    assert all(run.complete for run in found)
    assert "almanac/iirc wo-rag" in capsys.readouterr().out


@pytest.mark.parametrize("count", ["0", "3", "50"])
def test_questions_that_the_benchmarks_cannot_share_are_refused(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runs.options(["--questions", count])
    assert f"--questions {count}: give a multiple of 4" in capsys.readouterr().err


def test_without_a_dense_retriever_the_other_parts_are_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.main(
        ["--questions", "4", "--part", "retrievers", "--encoder", str(tmp_path / "none"), "--output", str(tmp_path)]
    )
    assert "retrievers: left out, no dense retriever" in capsys.readouterr().out
