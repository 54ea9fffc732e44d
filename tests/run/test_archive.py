"""Runs in a zip: the same questions, causes, tables and traces as of the folders, and no damage
that goes unseen.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from random import Random

import pandas as pd
import pytest
from answering import DRAGIN, AnsweringModel, answer, questions
from run_folders import write_run

import dragin_lab as dl
from dragin_lab.errors import RunError


def pack(folder: Path, path: Path) -> Path:
    return Path(shutil.make_archive(str(path.with_suffix("")), "zip", folder))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two runs, one with a question that failed."""
    write_run(tmp_path / "runs", "dragin", "mine", [1.0, 0.0, None, 1.0])
    write_run(tmp_path / "runs", "flare", "mine", [0.0, 1.0, 1.0, 0.0])
    return pack(tmp_path / "runs", tmp_path / "runs.zip")


def test_a_zip_is_read_like_the_folders_in_it(tmp_path: Path) -> None:
    for name, how in (("dragin", DRAGIN), ("wo-rag", dl.method("wo-rag"))):
        answer(tmp_path / "runs" / name, 4, how=how, traces=True)
    of_folders = dl.Runs.load(tmp_path / "runs")
    of_zip = dl.Runs.load(pack(tmp_path / "runs", tmp_path / "a.zip"))
    pd.testing.assert_frame_equal(of_zip.questions, of_folders.questions)
    reasons = of_zip.questions["why"].dropna()
    assert len(reasons)
    assert not reasons.str.contains("no trace was kept").any()
    assert str(of_zip.table(compare="dragin")) == str(of_folders.table(compare="dragin"))
    assert [run.complete for run in of_zip.records] == [True, True]
    assert repr(of_zip.trace("q1", "dragin")) == repr(of_folders.trace("q1", "dragin"))
    # a copy counts once
    assert len(dl.Runs.load([tmp_path / "runs", tmp_path / "a.zip"]).records) == 2


def test_a_zip_of_one_run_and_a_run_packed_with_its_causes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs", "dragin", "mine", [0.0, 1.0])
    file = folder / "predictions.jsonl"
    first, second = file.read_text().splitlines()
    first = json.dumps(json.loads(first) | {"cause": ["not found", "as was seen"]})
    file.write_text(f"{first}\n{second}\n")
    runs = dl.Runs.load(pack(folder, tmp_path / "one.zip"))
    assert runs.questions["why"].dropna().tolist() == ["as was seen"]
    assert not runs.records[0].has_trace("q0")


def test_runs_whose_questions_share_a_long_preamble_load_again(tmp_path: Path) -> None:
    file = write_run(tmp_path, em=[1.0] * 160) / "predictions.jsonl"
    file.write_text(file.read_text().replace("Who?", "Read all of it. " * 500 + "Who?"))
    packed = pack(tmp_path / "almanac", tmp_path / "r.zip")
    assert len(dl.Runs.load(packed).outcomes) == 160


def test_no_flipped_bit_of_an_answer_and_no_cut_goes_unseen(archive: Path) -> None:
    whole, questions = archive.read_bytes(), dl.Runs.load(archive).questions
    random = Random(0)
    for place in random.sample(range(len(whole)), 80):
        archive.write_bytes(whole[:place])
        with pytest.raises(RunError, match=r"runs\.zip: cannot be read .*; get the file again"):
            dl.Runs.load(archive)
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.randrange(8)
        archive.write_bytes(damaged)
        try:
            found = dl.Runs.load(archive).questions
        except RunError:
            continue
        else:  # a date or a permission, which nothing here reads
            pd.testing.assert_frame_equal(found, questions)


def test_a_zip_is_unpacked_up_to_a_size(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragin_lab.run.rundir.LARGEST", 1000)
    with pytest.raises(RunError, match=r"unpacks to [\d,]+ bytes, and at most 1,000 are read"):
        dl.Runs.load(archive)


def test_a_zip_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        packed.writestr("a.txt", "no run")
    with pytest.raises(RunError, match=r"x\.zip: holds no run"):
        dl.Runs.load(tmp_path / "x.zip")


@pytest.mark.parametrize("name", ["runs/smollm:rind@0.5", "smollm:rind@0.5", "dragin@0.5"])
def test_an_output_folder_may_be_named_like_a_written_form(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dl.Lab(AnsweringModel()).run(questions(1), "wo-rag", output=name, progress=False)
    assert dl.Runs.load(name).names == ("wo-rag",)
