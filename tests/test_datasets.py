"""The question files of the four benchmarks: what is read, and what is said of a file that is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dragin_lab import datasets
from dragin_lab.datasets import BENCHMARKS, DataError, load, paragraphs, template
from dragin_lab.errors import DraginLabError
from dragin_lab.prompts import Exemplar

TWOWIKI = {
    "_id": "a1", "type": "comparison", "question": " Which film? ", "answer": "Elm Road", "answer_id": "Q1",
    "evidences": [], "context": [],
}  # fmt: skip
HOTPOT = {"_id": "h1", "answer": "Ada", "question": "Who?", "supporting_facts": [], "context": [], "type": "bridge"}
STRATEGY = {"qid": "s1", "term": "x", "question": "Is it?", "answer": False, "facts": [], "decomposition": []}


def iirc(*answers: Any) -> list[dict[str, Any]]:
    asked = [{"qid": f"q{i}", "question": f"Question {i}?", "answer": a} for i, a in enumerate(answers)]
    return [{"pid": "p", "text": "t", "links": [], "questions": asked}]


def write(folder: Path, name: str, value: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def aliases(folder: Path, *lines: Any) -> None:
    write(folder, "id_aliases.json", "\n".join(json.dumps(line) for line in lines))


def test_2wiki_golds_are_the_answer_and_its_aliases(tmp_path: Path) -> None:
    aliases(tmp_path, {"Q_id": "Q1", "aliases": ["Elm Road", "The Elm Road"], "demonyms": []})
    path = write(tmp_path, "dev.json", [TWOWIKI, TWOWIKI | {"_id": "a2", "answer": "yes", "answer_id": None}])
    first, second = load(path)
    assert first.golds == ("Elm Road", "The Elm Road")
    assert (first.id, first.text) == ("a1", "Which film?")
    assert second.golds == ("yes",)


def test_hotpot_strategy_and_iirc(tmp_path: Path) -> None:
    assert load(write(tmp_path, "h.json", [HOTPOT]))[0].golds == ("Ada",)
    assert load(write(tmp_path, "s.json", [STRATEGY, STRATEGY | {"qid": "s2", "answer": True}]))[1].golds == ("yes",)
    answers = [
        {"type": "none"},
        {"type": "span", "answer_spans": [{"text": "Ada"}, {"text": "Bea"}]},
        {"type": "value", "answer_value": "60", "answer_unit": "years"},
        {"type": "binary", "answer_value": "no"},
    ]
    found = load(write(tmp_path, "i.json", iirc(*answers)))
    assert [(q.id, q.golds) for q in found] == [("q1", ("Ada", "Bea")), ("q2", ("60",)), ("q3", ("no",))]


def test_limit_counts_answerable_questions_from_the_start(tmp_path: Path) -> None:
    value = {"type": "value", "answer_value": 3}
    path = write(tmp_path, "i.json", iirc({"type": "none"}, value, value))
    assert [q.id for q in load(path, limit=1)] == ["q1"]
    with pytest.raises(DataError, match="limit=0"):
        load(path, limit=0)


def test_a_folder_stands_for_the_file_in_it(tmp_path: Path) -> None:
    write(tmp_path, "hotpot_dev_distractor_v1.json", [HOTPOT])
    assert datasets.benchmark(tmp_path) == "hotpotqa"
    assert len(load(tmp_path)) == 1


def test_paragraphs_of_each_format(tmp_path: Path) -> None:
    context = [["A", ["One.", " Two."]], ["B", ["Three."]]]
    aliases(tmp_path)
    wiki = TWOWIKI | {"context": [["A", ["One.", "Two."]], ["B", ["Three."]]]}
    path = write(tmp_path, "dev.json", [wiki, wiki | {"_id": "a2"}])
    assert [(p.id, p.title, p.text) for p in paragraphs(path)] == [("a1-0", "A", "One. Two."), ("a1-1", "B", "Three.")]
    assert paragraphs(write(tmp_path, "h.json", [HOTPOT | {"context": context}]))[0].text == "One. Two."
    write(tmp_path, "s_paragraphs.json", {"A-1": {"title": "A", "content": "One.", "para_index": 1}})
    assert [(p.id, p.text) for p in paragraphs(write(tmp_path, "s.json", [STRATEGY]))] == [("A-1", "One.")]
    assert [(p.id, p.title) for p in paragraphs(write(tmp_path, "i.json", iirc()))] == [("p", "")]


def test_paragraphs_that_are_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"s_paragraphs\.json: cannot be read"):
        paragraphs(write(tmp_path, "s.json", [STRATEGY]))
    write(tmp_path, "s_paragraphs.json", {"A-1": {"title": "A"}})
    with pytest.raises(DataError, match="'A-1': has no field 'content'"):
        paragraphs(tmp_path / "s.json")
    with pytest.raises(DataError, match=r"record 1 \(h1\): field 'context' holds something else"):
        paragraphs(write(tmp_path, "h.json", [HOTPOT | {"context": [["A", [1]]]}]))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x.json", "[{]", "line 1: is not JSON"),
        ("x.json", {}, "holds no list of records"),
        ("x.json", [{"id": 1}], "record 1: is of none of the formats"),
        ("x.json", [HOTPOT, {"_id": "h1", "question": "Who?"}], r"record 2 \(h1\): has no field 'answer'"),
        ("x.json", [HOTPOT, HOTPOT], r"record 2: the id 'h1' was used before, at .*record 1"),
        ("x.json", [HOTPOT | {"question": " "}], "field 'question' is empty"),
        ("x.json", [STRATEGY | {"answer": "yes"}], "field 'answer' is str, not bool"),
        ("x.json", iirc({"type": "spam"}), r"question 1 \(q0\): field 'type' is 'spam'"),
        ("x.json", iirc({"type": "span", "answer_spans": [{}]}), "has no field 'text'"),
        ("x.json", iirc({"type": "none"}), "no question that can be answered"),
        ("x.json", [TWOWIKI], "id_aliases.json: cannot be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, name: str, value: Any, message: str) -> None:
    path = write(tmp_path, name, value)
    with pytest.raises(DataError, match=message) as caught:
        load(path)
    assert str(tmp_path) in str(caught.value)


def test_a_broken_line_of_aliases_is_named(tmp_path: Path) -> None:
    write(tmp_path, "id_aliases.json", '{"Q_id": "Q1", "aliases": []}\n{"Q_id": "Q2"}\n')
    with pytest.raises(DataError, match=r"id_aliases.json, line 2: has no field 'aliases'"):
        load(write(tmp_path, "dev.json", [TWOWIKI]))


def test_names_that_do_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGIN_LAB_DATA", str(tmp_path))
    with pytest.raises(DataError, match="neither a file, a folder nor a benchmark"):
        load("hotpot")
    with pytest.raises(DataError, match="set DRAGIN_LAB_DATA"):
        load("hotpotqa")
    with pytest.raises(DataError, match="no split 'dve'"):
        load("almanac/iirc", split="dve")
    with pytest.raises(DataError, match="holds none of"):
        load(tmp_path)
    with pytest.raises(DataError, match="one split only"):
        load(write(tmp_path, "h.json", [HOTPOT]), split="test")
    assert issubclass(DataError, DraginLabError)


def test_template_has_the_instruction_and_the_answer_rule() -> None:
    shot = Exemplar("Who?", "Ada did.", "Ada")
    prompt = template("hotpotqa", (shot,)).render("Where?").text
    assert prompt.endswith("following the example above.\nQuestion: Where?\nAnswer:")
    assert template("strategyqa").answer_rule == "strategyqa"
    assert template("iirc").render("Where?").text == "Question: Where?\nAnswer:"
    with pytest.raises(DataError, match="does not exist"):
        template("hotpot")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_almanac_has_all_four(name: str) -> None:
    questions = load(f"almanac/{name}")
    assert datasets.benchmark(f"almanac/{name}") == name
    assert len(questions) >= 200
    assert not {q.id for q in questions} & {q.id for q in load(f"almanac/{name}", split="dev")}
    assert all(q.golds and all(q.golds) for q in questions)


@pytest.mark.skipif("DRAGIN_LAB_DATA" not in os.environ, reason="DRAGIN_LAB_DATA does not say where the real data is")
@pytest.mark.parametrize(
    ("name", "count"), [("2wikimultihopqa", 200), ("hotpotqa", 197), ("strategyqa", 200), ("iirc", 149)]
)
def test_the_real_files(name: str, count: int) -> None:
    try:
        path = datasets.find(name)
    except DataError as error:
        pytest.skip(str(error))
    questions = load(name)
    assert len(questions) == count
    assert datasets.benchmark(path) == name
    found = paragraphs(name)
    if name in ("strategyqa", "iirc"):
        assert len(found) == {"strategyqa": 893, "iirc": 71}[name]
    else:
        records = json.loads(path.read_text(encoding="utf-8"))
        assert {t for r in records for t, _ in r["supporting_facts"]} <= {p.title for p in found}
        assert len({p.id for p in found}) == len(found)
    if name == "strategyqa":
        assert {g for q in questions for g in q.golds} == {"yes", "no"}
    if name == "2wikimultihopqa":
        assert any(len(q.golds) > 1 for q in questions)
