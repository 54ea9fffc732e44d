"""Runs as one file: the same questions, causes and tables as of the folders, and no damage that goes unseen."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from random import Random

import pandas as pd
import pytest
from answering import DRAGIN, answer
from run_folders import write_run

import dragin_lab as dl
from dragin_lab.run.rundir import RunError, encode


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two runs, one with a question that failed."""
    write_run(tmp_path / "runs", "dragin", "mine", [1.0, 0.0, None, 1.0])
    write_run(tmp_path / "runs", "flare", "mine", [0.0, 1.0, 1.0, 0.0])
    return dl.Runs.load(tmp_path / "runs").save(tmp_path / "table.jsonl.gz")


def test_a_table_is_read_like_the_folders_it_was_saved_from(tmp_path: Path) -> None:
    for name, how in (("dragin", DRAGIN), ("wo-rag", dl.method("wo-rag"))):
        answer(tmp_path / "runs" / name, 4, how=how, traces=True)
    of_folders = dl.Runs.load(tmp_path / "runs")
    of_table = dl.Runs.load(of_folders.save(tmp_path / "a.jsonl.gz"))
    pd.testing.assert_frame_equal(of_table.questions, of_folders.questions)
    reasons = of_table.questions["why"].dropna()
    assert len(reasons)
    assert not reasons.str.contains("no trace was kept").any()
    assert str(of_table.table(compare="dragin")) == str(of_folders.table(compare="dragin"))
    assert [run.complete for run in of_table.records] == [True, True]
    assert of_table.save(tmp_path / "b.jsonl.gz").read_bytes() == (tmp_path / "a.jsonl.gz").read_bytes()


def test_no_flipped_bit_and_no_cut_goes_unseen(table: Path) -> None:
    whole, questions = table.read_bytes(), dl.Runs.load(table).questions
    random = Random(0)
    for place in random.sample(range(10, len(whole)), 80):  # the first ten bytes say nothing of what is in it
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.randrange(8)
        table.write_bytes(damaged)
        with pytest.raises(RunError, match=r"table\.jsonl\.gz, line \d+: .*; get the file again"):
            dl.Runs.load(table)
        table.write_bytes(whole[:place])
        with pytest.raises(RunError, match=r"table\.jsonl\.gz, line \d+: "):
            dl.Runs.load(table)
    table.write_bytes(whole)
    pd.testing.assert_frame_equal(dl.Runs.load(table).questions, questions)


def test_a_line_that_is_wrong_is_named(table: Path) -> None:
    lines = gzip.decompress(table.read_bytes()).splitlines(keepends=True)
    head, row = lines[0], lines[4]
    cases = {
        "line 5: .*missing required field `em`": [*lines[:4], row.replace(b'"em"', b'"me"'), *lines[5:]],
        "line 1: ": lines[1:],
        "line 2: .*out of range": [head, encode([{**dl.Runs.load(table).records[0].predictions[0], "run": 7}])],
    }
    for what, damaged in cases.items():
        table.write_bytes(gzip.compress(b"".join(damaged)))
        with pytest.raises(RunError, match=what):
            dl.Runs.load(table)


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(100_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(RunError, match="unpacks to more than 100 times its size"):
            dl.Runs.load(path)
        assert tracemalloc.get_traced_memory()[1] < 400 * path.stat().st_size
    finally:
        tracemalloc.stop()
