"""The files: the originals' fields, passages that state what answers need, the same bytes from the same seed."""

from __future__ import annotations

import csv
import json
import lzma
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dragin_lab.almanac import WORLD
from tools.almanac import build as building
from tools.almanac.__main__ import main
from tools.almanac.benchmarks import BENCHMARKS
from tools.almanac.build import EDITION, build, labels_file, question_file, world_lines
from tools.almanac.world import AlmanacError

pytestmark = pytest.mark.slow

TEST_QUESTIONS = 200
FIELDS = {  # of a record in the original files
    "2wikimultihopqa": "_id type question context entity_ids supporting_facts evidences answer evidences_id answer_id",
    "hotpotqa": "_id answer question supporting_facts context type level",
    "strategyqa": "qid term description question answer facts decomposition evidence",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("almanac") / "files")


@pytest.fixture(scope="module")
def passages(folder: Path) -> dict[str, tuple[str, str]]:
    with (folder / "psgs_w100.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    assert rows[0] == ["id", "text", "title"]
    return {row[0]: (row[1], row[2]) for row in rows[1:]}


def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read_labels(folder: Path, benchmark: str, split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in labels_file(folder, benchmark, split).read_text(encoding="utf-8").splitlines()]


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def test_same_seed_same_bytes(folder: Path, tmp_path: Path) -> None:
    assert _bytes(build(tmp_path / "again")) == _bytes(folder)


def test_the_package_ships_what_the_seed_gives() -> None:
    manifest = json.loads((WORLD / "manifest.json").read_text(encoding="utf-8"))
    if manifest["edition"] != EDITION:
        pytest.skip(f"the package ships edition {manifest['edition']}, these tools make edition {EDITION}")
    made = world_lines(manifest["seed"])
    assert set(manifest["files"]) == {f"{name}.jsonl.xz" for name in made}
    for name, rows in made.items():
        data = lzma.decompress((WORLD / f"{name}.jsonl.xz").read_bytes())
        again = json.loads(json.dumps(rows))  # where tuples are lists
        assert [json.loads(line) for line in data.splitlines()] == again
        assert manifest["files"][f"{name}.jsonl.xz"] == {"lines": len(rows), "sha256": sha256(data).hexdigest()}


def test_passages(passages: dict[str, tuple[str, str]]) -> None:
    assert list(passages) == [str(number) for number in range(1, len(passages) + 1)]
    assert len(passages) >= 2000
    assert max(len(text.split()) for text, _ in passages.values()) <= 100
    assert not [text for text, _ in passages.values() if re.search(r'["\t\n{}]|  |\ba [aeiou]', text)]


@pytest.mark.parametrize("benchmark", ["2wikimultihopqa", "hotpotqa", "strategyqa"])
def test_fields_are_those_of_the_originals(folder: Path, benchmark: str) -> None:
    for split in ("train", "dev", "test"):
        for record in _load(question_file(folder, benchmark, split)):
            assert list(record) == FIELDS[benchmark].split()


def test_fields_of_iirc(folder: Path) -> None:
    passages = _load(question_file(folder, "iirc", "test"))
    kinds = set()
    for passage in passages:
        assert set(passage) == {"pid", "title", "text", "links", "questions"}
        for link in passage["links"]:
            if "indices" in link:
                assert passage["text"][slice(*link["indices"])] == link["target"]
        for question in passage["questions"]:
            assert list(question) == ["qid", "question", "answer", "question_links", "context"]
            kinds.add(question["answer"]["type"])
            for one in question["context"]:
                assert one["passage"] != "main" or passage["text"][slice(*one["indices"])] == one["text"]
    assert kinds == {"span", "value", "binary", "none"}


def test_real_files_have_the_same_fields(folder: Path) -> None:
    data = os.environ.get("DRAGIN_LAB_DATA")
    if not data:
        pytest.skip("DRAGIN_LAB_DATA names no folder with the original files")
    real = Path(data)
    pairs = [
        ("2wikimultihopqa/dev.json", "2wikimultihopqa"),
        ("hotpotqa/hotpot_dev_distractor_v1.json", "hotpotqa"),
        ("strategyqa/strategyqa_train.json", "strategyqa"),
    ]
    for name, benchmark in pairs:
        assert set(_load(real / name)[0]) == set(FIELDS[benchmark].split())
    first, ours = (
        _load(one)[0]["questions"][0] for one in (real / "iirc/dev.json", question_file(folder, "iirc", "dev"))
    )
    assert set(first) == set(ours)
    paragraphs = [
        real / "strategyqa/strategyqa_train_paragraphs.json",
        folder / "strategyqa/strategyqa_train_paragraphs.json",
    ]
    theirs, mine = (next(iter(_load(one).values())) for one in paragraphs)
    assert set(theirs) == set(mine)
    line = json.loads((real / "2wikimultihopqa/id_aliases.json").read_text().splitlines()[0])
    mine = json.loads((folder / "2wikimultihopqa/id_aliases.json").read_text().splitlines()[0])
    assert list(line) == list(mine)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_enough_questions_half_of_them_known(folder: Path, benchmark: str) -> None:
    records = read_labels(folder, benchmark, "test")
    assert len(records) >= TEST_QUESTIONS
    assert len({one["question"] for one in records}) == len(records)
    assert sum(one["half"] == "known" for one in records) * 2 == len(records)
    assert {one["knowledge"] for one in records} - {"changed"} == {"known", "unknown"}
    if benchmark != "strategyqa":  # whose kinds ask for little that changes
        assert "changed" in {one["knowledge"] for one in records}
    exposures = {fact["exposure"] for one in records for fact in one["facts"]}
    assert exposures == {"never", "seldom", "some", "often"}


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_fact_stands_where_the_label_says(
    folder: Path, passages: dict[str, tuple[str, str]], benchmark: str
) -> None:
    for split in ("train", "dev", "test"):
        for record in read_labels(folder, benchmark, split):
            assert record["facts"]
            for fact in record["facts"]:
                assert record["reasoning"][fact["start"] : fact["end"]] == fact["value"]
                text, title = passages[fact["passage"]]
                assert fact["value"] in text
                assert title == fact["subject"]
                assert (fact["old"] is not None) == (fact["label"] == "changed")
                assert (fact["exposure"] == "never") == (fact["label"] == "unknown")
            if record["half"] == "unknown":
                assert {fact["label"] for fact in record["facts"]} == {"unknown"}


def test_splits_share_no_question(folder: Path) -> None:
    asked = [
        {record["question"] for name in BENCHMARKS for record in read_labels(folder, name, split)}
        for split in ("train", "dev", "test")
    ]
    assert not asked[0] & asked[1] | asked[0] & asked[2] | asked[1] & asked[2]


def test_supporting_facts_point_into_the_context(folder: Path) -> None:
    for benchmark in ("2wikimultihopqa", "hotpotqa"):
        for record in _load(question_file(folder, benchmark, "test")):
            context = dict(record["context"])
            for title, index in record["supporting_facts"]:
                assert index < len(context[title])
    for record in _load(question_file(folder, "strategyqa", "test")):
        paragraphs = _load(folder / "strategyqa" / "strategyqa_test_paragraphs.json")
        named = [name for step in record["evidence"][0] for part in step if isinstance(part, list) for name in part]
        assert named
        assert all(name in paragraphs for name in named)
        assert len(record["evidence"][0]) == len(record["decomposition"])


def test_answers_follow_from_the_facts(folder: Path) -> None:
    for record in read_labels(folder, "hotpotqa", "test"):
        if record["type"] == "bridge":
            assert record["answer"] == record["facts"][-1]["value"]
    ages = [one for one in read_labels(folder, "iirc", "test") if one["type"] == "value"]
    assert ages
    for record in ages:
        years = {fact["relation"]: int(fact["value"]) for fact in record["facts"] if fact["value"].isdigit()}
        assert int(record["answer"]) == years["year"] - years["born"]
    answers = [one["answer"] for one in read_labels(folder, "strategyqa", "test")]
    assert answers.count("yes") == answers.count("no")
    by_kind: dict[str, set[str]] = {}
    for one in read_labels(folder, "strategyqa", "test"):
        by_kind.setdefault(one["kind"] + one["half"], set()).add(one["answer"])
    assert all(of == {"yes", "no"} for of in by_kind.values())  # the kind does not tell the answer


def test_exemplars_are_of_the_training_split(folder: Path) -> None:
    held_out = {
        one["question"] for name in BENCHMARKS for split in ("dev", "test") for one in read_labels(folder, name, split)
    }
    for name in (*BENCHMARKS, "self-ask", "flare-instruct"):
        rows = _load(folder / "exemplars" / f"{name}.json")
        assert len({row["question"] for row in rows}) == len(rows) >= 4
        assert not {row["question"] for row in rows} & held_out
        assert all(set(row) == {"question", "rationale", "answer"} for row in rows)


def test_nothing_is_overwritten_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["build", "--out", str(tmp_path)]) == 1
    assert "--force" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(building, "_write_benchmark", fail)
    with pytest.raises(OSError, match="disk full"):
        build(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_unknown_names_are_refused(folder: Path) -> None:
    with pytest.raises(AlmanacError, match="train, dev, test"):
        question_file(folder, "hotpotqa", "validation")
    with pytest.raises(AlmanacError, match="2wikimultihopqa"):
        question_file(folder, "squad", "test")
