"""Questions with a name and a prompt, where their runs are kept, and what is read of many runs."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from answering import DRAGIN, AnsweringModel, questions, recorded
from scripted import ScriptedRetriever

import dragin_lab as dl
from dragin_lab.core.prompts import Exemplar
from dragin_lab.errors import DataError, RunError, SettingError
from dragin_lab.lab import Lab
from dragin_lab.run.benchmark import Benchmark, as_benchmark
from dragin_lab.run.benchmark import benchmark as open_benchmark
from dragin_lab.run.intervals import summarize_lines
from dragin_lab.run.rundir import RunRecord, find_runs, read_run
from dragin_lab.trace.trace import Question


def test_find_runs(whole: Path, tmp_path: Path) -> None:
    a, b = (Path(shutil.copytree(whole, tmp_path / "d" / name)) for name in "ab")
    data = (b / "predictions.jsonl").read_bytes()[:-5]
    (b / "predictions.jsonl").write_bytes(data)
    found = find_runs([b, tmp_path, a / "run.json"])
    assert [(record.folder, record.complete, len(record.predictions)) for record in found] == [
        (b, False, 3),
        (a, True, 4),
    ]
    assert [record.folder for record in find_runs(tmp_path)] == [a, b]
    assert (b / "predictions.jsonl").read_bytes() == data  # reading mends nothing
    (a / "predictions.jsonl").unlink()
    assert read_run(a) == RunRecord(a, read_run(a).config, [])
    (tmp_path / "empty").mkdir()
    for nothing in ("none", "d/b/timings.jsonl", "empty"):
        with pytest.raises(
            RunError, match="no such folder; give" if nothing == "none" else "holds no run"
        ):
            find_runs(tmp_path / nothing)


def test_summary_leaves_out_what_failed_and_what_has_no_gold() -> None:
    line = {"em": 1.0, "f1": 1.0, "retrievals": 2, "tokens": 10, "ended": "answered"}
    failed = line | {"em": None, "f1": None, "retrievals": 0, "tokens": 0, "ended": "error"}
    found = summarize_lines(
        [line, line | {"em": 0.0, "f1": 0.5, "tokens": 20}, line | {"em": None, "f1": None}, failed]
    )
    assert (found["n"], found["scored"], found["em"], found["f1"], found["retrievals"]) == (
        3,
        2,
        0.5,
        0.75,
        2,
    )
    assert found["tokens"] == pytest.approx(40 / 3)
    assert (found["em_low"], found["em_high"]) == (
        pytest.approx(0.0945, abs=1e-4),
        pytest.approx(0.9055, abs=1e-4),
    )
    # both retrieved twice, and nothing says how often another would
    assert math.isnan(found["retrievals_low"])
    nothing = summarize_lines([failed])
    assert nothing["n"] == 0
    assert math.isnan(nothing["em"])


# -- benchmarks ------------------------------------------------------------------------------------


def test_a_benchmark_of_almanac_brings_its_prompt() -> None:
    one = open_benchmark("almanac/hotpotqa", limit=2)
    assert (one.name, one.split, one.limit, len(one.questions)) == (
        "almanac/hotpotqa",
        "test",
        2,
        2,
    )
    assert (one.template.answer_rule, len(one.template.exemplars)) == ("hotpotqa", 2)
    assert "step-by-step" in one.template.instruction
    assert open_benchmark("almanac/hotpotqa", limit=2, split="dev").name == "almanac/hotpotqa-dev"
    assert open_benchmark("almanac/hotpotqa", limit=2, exemplars=()).template.exemplars == ()  # type: ignore[union-attr]


def test_a_sample_is_recorded_with_its_seed(tmp_path: Path) -> None:
    one = open_benchmark("almanac/iirc", sample=3, seed=7)
    assert [q.id for q in one.questions] == [
        q.id for q in open_benchmark("almanac/iirc", sample=3, seed=7).questions
    ]
    assert one.fingerprint() != open_benchmark("almanac/iirc", sample=3, seed=8).fingerprint()
    assert one.sample == 3


def test_rows_of_questions_wherever_questions_are_taken(tmp_path: Path) -> None:
    pandas, data = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    rows = [{"question": f"Who made thing {i}?", "answers": [f"Li {i}", "Li"]} for i in (1, 2)]
    sources = [rows, pandas.DataFrame(rows), data.Dataset.from_list(rows)]
    asked = [as_benchmark(one).questions for one in sources]
    assert asked[0] == asked[1] == asked[2]
    assert asked[0][1] == Question("2", "Who made thing 2?", ("Li 2", "Li"))
    assert as_benchmark(sources[1]).name == "questions"
    assert as_benchmark(as_benchmark(rows), limit=1).questions == asked[0][:1]
    sources[2].save_to_disk(str(tmp_path / "saved"))
    one = open_benchmark(
        tmp_path / "saved", fields={"question": "question", "answer": "answers"}, limit=1
    )
    assert (one.name, one.questions) == ("saved", asked[0][:1])
    with pytest.raises(DataError, match="hotpotqa has fields of its own; leave it out"):
        open_benchmark("almanac/hotpotqa", fields="question=q")


def test_questions_of_ones_own_are_asked_with_the_models_own_prompt(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"question": "Who made thing 1?", "answer": "Li 1"}) + "\n")
    assert open_benchmark(path).template is None
    record = recorded(
        Lab(AnsweringModel(), retriever=ScriptedRetriever()), path, DRAGIN, tmp_path / "run"
    )  # type: ignore[arg-type]
    assert [(line["id"], line["em"]) for line in record.predictions] == [("1", 1.0)]
    assert record.config["dataset"]["name"] == "mine"
    assert record.config["template"]["exemplars"] == []


@pytest.mark.parametrize(
    ("name", "called", "split"),
    [
        ("mine/dev.json", "mine-dev", "dev"),
        ("latest.json", "latest", None),
        ("hotpot_dev_x.json", "hotpot_dev_x", "dev"),
    ],
)
def test_a_file_is_called_by_its_name(
    tmp_path: Path, name: str, called: str, split: str | None
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([{"_id": "h", "question": "Who?", "answer": "Li"}]))
    one = open_benchmark(path)
    assert (one.name, one.split) == (called, split)


def test_the_fingerprint_is_of_the_questions() -> None:
    one = Benchmark("a", tuple(questions(3)))
    assert one.fingerprint() == Benchmark("b", tuple(questions(3))).fingerprint()
    golds = ("Bo", "Li")
    orders = [Benchmark("a", tuple(questions(3, golds=order))) for order in (golds, golds[::-1])]
    assert orders[0].fingerprint() == orders[1].fingerprint()
    for other in (questions(2), questions(3)[::-1], questions(3, golds=("Bo",))):
        assert one.fingerprint() != Benchmark("a", tuple(other)).fingerprint()


# -- where a run is kept ---------------------------------------------------------------------------


def test_each_benchmark_has_a_folder_of_its_own(tmp_path: Path) -> None:
    lab = Lab(AnsweringModel(), retriever=ScriptedRetriever())
    for name in ("one", "two/dev"):
        lab.run(
            Benchmark(name, tuple(questions(2))),
            [DRAGIN, "wo-rag"],
            output=tmp_path,
            progress=False,
        )
    lab.run([q.text for q in questions(2)], "wo-rag", output=tmp_path, progress=False)
    lab.sweep(
        Benchmark("one", tuple(questions(2))),
        DRAGIN,
        threshold=[1, 9],
        output=tmp_path,
        progress=False,
    )
    folders = {record.folder.relative_to(tmp_path).as_posix() for record in find_runs(tmp_path)}
    name = "dragin-what=question-threshold"
    assert folders == {
        f"one/{name}=1.0",
        f"one/{name}=9.0",
        "one/wo-rag",
        f"two/dev/{name}=1.0",
        "two/dev/wo-rag",
        "questions/wo-rag",
    }


@pytest.mark.parametrize("name", ["", ".", "..", "../out", "a/../../b", "/abs", "a\\b", "a\0b"])
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="part of the path"):
        Benchmark(name, tuple(questions(1)))


def test_a_question_among_the_worked_examples_is_said_recorded_and_below_the_table(
    tmp_path: Path,
) -> None:
    lab = Lab(exemplars=[Exemplar("Who made Kor?", "Kor was made by Bo Ek.", "Bo Ek")])
    rows = [
        {"id": id, "question": text, "answer": "Bo Ek"}
        for id, text in (("a", "who made KOR"), ("b", "Who?"))
    ]
    with pytest.warns(
        UserWarning, match="1 question is among the worked examples, with the answer: a"
    ):
        runs = lab.run(rows, ["wo-rag"], output=tmp_path)
    assert json.loads(next(tmp_path.glob("*/*/run.json")).read_text())["among_exemplars"] == ["a"]
    assert "1 question is among the worked examples" in str(runs.table())


def test_an_interrupt_names_every_folder_that_was_written(tmp_path: Path) -> None:
    class Stops(ScriptedRetriever):
        def search(self, query: str, k: int) -> list[dl.Passage]:
            if len(self.queries) == 4:
                raise KeyboardInterrupt
            return super().search(query, k)

    lab = Lab(AnsweringModel(), retriever=Stops("Bo."))
    with pytest.raises(KeyboardInterrupt) as caught:
        lab.run(questions(3), ["sr-rag", "dragin"], output=tmp_path, progress=False)
    (note,) = caught.value.__notes__
    for method, answers in (("sr-rag", 3), ("dragin", 1)):
        assert f"{answers} of 3 answers are kept in {tmp_path / 'questions' / method}" in note
