"""The world as the package ships it: read, held to its checksums, refused by name where it is
not what is asked for.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dragin_lab import almanac
from dragin_lab.core.prompts import Exemplar
from dragin_lab.errors import DataError, SettingError


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the world's files, which the loader reads instead."""
    monkeypatch.setattr(almanac, "WORLD", Path(shutil.copytree(almanac.WORLD, tmp_path / "world")))
    almanac._read_rows.cache_clear()
    almanac._read_exemplars.cache_clear()
    yield tmp_path / "world"
    almanac._read_rows.cache_clear()
    almanac._read_exemplars.cache_clear()


def test_passages_have_ids_in_order() -> None:
    every = almanac.passages()
    assert [one.id for one in every] == [str(number) for number in range(1, len(every) + 1)]
    assert sorted(every, key=lambda one: (one.title, one.text)) == every


@pytest.mark.parametrize("benchmark", ["2wikimultihopqa", "hotpotqa", "strategyqa", "iirc"])
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_labels_go_with_questions_and_passages(benchmark: str, split: str) -> None:
    asked = {one.id: one for one in almanac.questions(benchmark, split)}
    texts = {one.id: one.text for one in almanac.passages()}
    labels = almanac.labels(benchmark, split)
    assert {one.id for one in labels} == set(asked)
    for one in labels:
        assert (one.question, one.answer in asked[one.id].golds) == (asked[one.id].text, True)
        assert all(fact.value in texts[fact.passage] for fact in one.facts)
        assert (one.knowledge == "known") == (not any(fact.missing for fact in one.facts))
        assert {fact.degree for fact in one.facts} <= {
            "often",
            "some",
            "seldom",
            "changed",
            "never",
        }
    assert almanac.labels(benchmark, split, 3) == labels[:3]


def test_no_question_is_in_two_splits() -> None:
    for benchmark in ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc"):
        texts = [
            one.text
            for split in ("train", "dev", "test")
            for one in almanac.questions(benchmark, split)
        ]
        assert len(set(texts)) == len(texts)


def test_exemplars_and_wordings() -> None:
    assert all(isinstance(one, Exemplar) for one in almanac.exemplars("self-ask"))
    for ways in almanac.wordings().values():
        assert all("{s}" in one and "{v}" in one for one in ways)


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingError, match="'squad'; it has 2wikimultihopqa, hotpotqa"):
        almanac.questions("squad")
    with pytest.raises(SettingError, match="'validation'; it has train, dev, test"):
        almanac.labels("iirc", "validation")
    with pytest.raises(SettingError, match="'iirk'; it has"):
        almanac.exemplars("iirk")


def test_a_damaged_a_torn_and_a_missing_file_are_named(copy: Path) -> None:
    shutil.copyfile(copy / "labels.jsonl.xz", copy / "passages.jsonl.xz")
    with pytest.raises(DataError, match=r"passages.jsonl.xz is damaged: .* the manifest has"):
        almanac.passages()
    (copy / "questions.jsonl.xz").write_bytes((copy / "questions.jsonl.xz").read_bytes()[:1000])
    with pytest.raises(
        DataError, match=r"questions.jsonl.xz cannot be read .*install dragin_lab again"
    ):
        almanac.questions("iirc")
    (copy / "manifest.json").unlink()
    almanac._read_exemplars.cache_clear()
    with pytest.raises(DataError, match=r"exemplars.jsonl.xz cannot be read"):
        almanac.exemplars("iirc")
