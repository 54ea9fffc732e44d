"""Runs over benchmarks: what is recorded, and that nothing which was finished is lost or made
twice.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from answering import DRAGIN, AnsweringModel, answer, questions, recorded
from command import environment
from run_folders import change_line, read_config, write_config
from scripted import ScriptedRetriever

from dragin_lab.catalog.by_name import method
from dragin_lab.catalog.exchanged import exchange_settings
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.errors import DataError, ModelError, RunError, SettingError
from dragin_lab.lab import Lab
from dragin_lab.run import runwriter
from dragin_lab.run.benchmark import Benchmark, run_config
from dragin_lab.run.rundir import FORMAT, read_run, trace_name
from dragin_lab.run.runwriter import check_settings
from dragin_lab.trace.trace import Passage, Question

KEYS = [
    "id",
    "question",
    "text",
    "answer",
    "readable",
    "gold",
    "em",
    "f1",
    "precision",
    "recall",
    "retrievals",
    "queries",
    "passages",
    "drafts",
    "tokens",
    "ended",
]
HERE = Path(__file__).parents[1]


def lines(folder: Path, name: str = "predictions.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="ascii").splitlines()]


def copy(folder: Path, to: Path, predictions: bytes) -> Path:
    """The same run, stopped with these bytes in its predictions."""
    to.mkdir()
    (to / "run.json").write_bytes((folder / "run.json").read_bytes())
    (to / "predictions.jsonl").write_bytes(predictions)
    return to


# -- what is recorded ------------------------------------------------------------------------------


def test_a_line_a_question_in_order(whole: Path) -> None:
    found = lines(whole)
    assert [list(line) for line in found] == [KEYS] * 4
    assert [line["id"] for line in found] == ["q1", "q2", "q3", "q4"]
    assert found[1] == {
        "id": "q2",
        "question": "Who made thing 2?",
        "text": " It is Li. So the answer is Li 2.",
        "answer": "Li 2",
        "readable": True,
        "gold": ["Li 2"],
        "em": 1.0,
        "f1": 1.0,
        "precision": 1.0,
        "recall": 1.0,
        "retrievals": 1,
        "queries": ["Who made thing 2?"],
        "passages": [["0", "1", "2"]],
        "drafts": 2,
        "tokens": found[1]["tokens"],
        "ended": "answered",
    }
    assert found[1]["tokens"] > 8
    timings = lines(whole, "timings.jsonl")
    assert [line["id"] for line in timings] == ["q1", "q2", "q3", "q4"]
    assert all(line["seconds"] >= line["draft"] > 0 for line in timings)


def test_run_json_says_what_repeats_it(whole: Path, tmp_path: Path) -> None:
    record = read_run(whole)
    assert record.complete
    assert record.predictions == lines(whole)
    assert repr(record) == f"RunRecord({whole}, 4 of 4 questions, 0 failed)"
    config = record.config
    expected = {
        "format": FORMAT,
        "method": json.loads(json.dumps(DRAGIN.settings)),
        "model": {"model": {"id": "scripted"}},
        "retriever": {"kind": "ScriptedRetriever"},
        "seed": 0,
        "limit": None,
        "sample": None,
        "traces": None,
    }
    assert config | expected == config
    assert (config["template"]["exemplars"], config["template"]["answer_rule"]) == (
        [],
        "2wikimultihopqa",
    )
    dataset = {"name": "questions", "split": None, "questions": 4}
    assert config["dataset"] | dataset == config["dataset"]
    assert config["versions"]["dragin_lab"]
    answer(tmp_path / "run", 1, how=method("wo-rag"))  # never searches
    assert read_run(tmp_path / "run").config["retriever"] is None


def test_texts_as_questions_have_their_place_as_id(tmp_path: Path) -> None:
    asked = ["Who made thing 1?", "Who made thing 2?"]
    record = recorded(
        Lab(AnsweringModel(), retriever=ScriptedRetriever()),
        asked,
        DRAGIN,
        tmp_path / "run",
        limit=1,
    )  # type: ignore[arg-type]
    assert [line["id"] for line in record.predictions] == ["1"]
    assert [record.predictions[0][k] for k in ("gold", "em", "f1")] == [[], None, None]
    assert record.complete


def test_two_questions_of_one_id_and_none_at_all_are_refused(tmp_path: Path) -> None:
    asked = [*questions(2), Question("q1", "Who made thing 3?")]
    with pytest.raises(RunError, match="the id 'q1' stands for 2 questions, number 1 and 3"):
        recorded(
            Lab(AnsweringModel(), retriever=ScriptedRetriever()), asked, DRAGIN, tmp_path / "run"
        )
    with pytest.raises(SettingError, match="no questions"):
        answer(tmp_path / "run", 0)
    assert not (tmp_path / "run").exists()


def test_traces_are_kept_on_request(tmp_path: Path) -> None:
    asked = [Question(name, "Who made thing 1?") for name in ("a/b", "..", "ü" * 150)]
    record = recorded(
        Lab(AnsweringModel(), retriever=ScriptedRetriever()),
        asked,
        DRAGIN,
        tmp_path / "run",
        traces=True,
    )
    assert len(list((tmp_path / "run" / "traces").iterdir())) == 3
    assert record.trace("a/b").question.id == "a/b"
    assert record.trace("..").answer == record.trace("ü" * 150).answer == "Li 1"
    assert len(trace_name("ü" * 150).encode()) < 255
    assert not (tmp_path / "traces").exists()


def test_slim_traces_are_kept_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(tmp_path / "none", 2, traces=False)
    assert not (tmp_path / "none" / "traces").exists()
    answer(tmp_path / "all", 3)
    record = read_run(tmp_path / "all")
    slim = record.trace("q2")
    assert (slim.answer, slim.queries) == ("Li 2", ["Who made thing 2?"])
    monkeypatch.setattr(runwriter, "TRACE_SPACE", 10)
    with pytest.warns(UserWarning, match="no more traces are kept"):
        answer(tmp_path / "few", 3)
    assert len(list((tmp_path / "few" / "traces").iterdir())) == 1
    assert read_run(tmp_path / "few").complete


def test_traces_can_be_added_to_a_finished_run(tmp_path: Path) -> None:
    answer(tmp_path / "run", 3, traces=False)
    before = (tmp_path / "run" / "predictions.jsonl").read_bytes()
    assert answer(tmp_path / "run", 3).asked == []
    assert answer(tmp_path / "run", 3, traces=True).asked == [1, 2, 3]
    assert answer(tmp_path / "run", 3, traces=True).asked == []
    assert read_run(tmp_path / "run").trace("q3").answer == "Li 3"
    assert (tmp_path / "run" / "predictions.jsonl").read_bytes() == before


def test_an_answer_that_is_not_the_recorded_one_leaves_no_trace(tmp_path: Path) -> None:
    answer(tmp_path / "run", 2, traces=False)
    change_line(tmp_path / "run", 0, answer="Li 7")
    with pytest.warns(UserWarning, match="q1: answered otherwise than before"):
        answer(tmp_path / "run", 2, traces=True)
    assert [file.name for file in (tmp_path / "run" / "traces").iterdir()] == ["q2.trace"]


def test_a_run_grows_to_more_questions(whole: Path, tmp_path: Path) -> None:
    lab = Lab(AnsweringModel(), retriever=ScriptedRetriever())
    recorded(lab, Benchmark("questions", tuple(questions(2)), limit=2), DRAGIN, tmp_path / "run")
    assert answer(tmp_path / "run", 4).asked == [3, 4]
    record = read_run(tmp_path / "run")
    assert record.config["limit"] is None  # as of the latest call, and so is the sample
    more = recorded(
        lab, Benchmark("questions", tuple(questions(4)), sample=4), DRAGIN, tmp_path / "run"
    )
    assert more.config["sample"] == 4
    assert record.complete
    assert lines(tmp_path / "run") == lines(whole)
    assert record.config["dataset"] == read_run(whole).config["dataset"]
    with pytest.raises(RunError, match=r"dataset.questions: 4 → 5"):  # other questions
        recorded(lab, questions(6)[1:], DRAGIN, tmp_path / "run")


def test_a_method_that_shows_a_form_is_recorded_with_its_own_exemplars(tmp_path: Path) -> None:
    how, lm = method("self-ask"), AnsweringModel()
    template = run_config(
        Lab(lm, retriever=ScriptedRetriever()).setup(how), how, Benchmark("a", ())
    )["template"]
    assert template["form"] == "self-ask"
    assert "Follow up:" in template["exemplars"][0]["rationale"]


class Chatting(AnsweringModel):
    """A model with a hash of its tokenizer, and a chat template that writes ``mark`` before the
    assistant.
    """

    def __init__(self, mark: str = "BOT:", sha: str = "0" * 64) -> None:
        super().__init__()
        self.sha = sha
        talk = "\n".join
        self.tokenizer = SimpleNamespace(
            chats=True,
            chat=lambda turns: talk(f"{r}: {t}" for r, t in turns) + mark,
            hf=SimpleNamespace(chat_template=mark),
        )

    def identity(self) -> dict[str, Any]:
        return self.provenance() | {"tokenizer_sha256": self.sha, "eos": [2], "threads": 4}


def settings_of(lm: Any, **options: Any) -> dict[str, Any]:
    return run_config(
        Lab(lm, retriever=ScriptedRetriever(), **options).setup(DRAGIN), DRAGIN, Benchmark("a", ())
    )


def test_a_run_is_not_continued_with_another_tokenizer_or_prompt(tmp_path: Path) -> None:
    def refused(before: dict[str, Any], now: dict[str, Any]) -> str:
        write_config(tmp_path, before)
        check_settings(tmp_path, before)
        with pytest.raises(RunError, match="holds a run of other settings") as caught:
            check_settings(tmp_path, now)
        return str(caught.value)

    chat = settings_of(Chatting(), layout="chat")
    said = refused(chat, settings_of(Chatting("ROBOT:"), layout="chat"))
    assert "template.chat_template:" in said
    assert "ROBOT:" in said
    assert "model.tokenizer_sha256:" in refused(
        chat, settings_of(Chatting(sha="1" * 64), layout="chat")
    )
    plain = settings_of(Chatting())
    assert "chat_template" not in plain["template"]
    # whose chat template writes none of its prompts
    assert plain == settings_of(Chatting("ROBOT:"))
    assert (plain["model"]["eos"], plain["model"].get("threads")) == ([2], None)

    def layout(mark: str) -> Any:
        def own(question: str, passages: Any, tail: str) -> str:
            return f"{mark}{question}{tail}"

        return own

    one, other = (
        settings_of(Chatting(), exemplars=PromptTemplate(layout=layout(mark))) for mark in "ab"
    )
    assert "layout own.mark: 'a' → 'b'" in refused(one, other)


# -- going on --------------------------------------------------------------------------------------


def test_a_run_cut_at_any_byte_ends_with_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    data = (whole / "predictions.jsonl").read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    places = (
        {0, len(data)}
        | {place + d for place in ends for d in (-1, 0, 1)}
        | set(range(0, len(data), 97))
    )
    for place in sorted(places):
        folder = copy(whole, tmp_path / f"at-{place}", data[:place])
        lm = answer(folder, 4)
        # what was whole is not asked again
        assert lm.asked == list(range(1 + data[:place].count(b"\n"), 5))
        assert (folder / "predictions.jsonl").read_bytes() == data


def test_what_was_finished_out_of_order_is_put_in_order(whole: Path, tmp_path: Path) -> None:
    data = (whole / "predictions.jsonl").read_bytes()
    mixed = data.splitlines(keepends=True)
    folder = copy(whole, tmp_path / "mixed", mixed[3] + mixed[1])
    assert answer(folder, 4).asked == [1, 3]
    assert (folder / "predictions.jsonl").read_bytes() == data


def test_a_failed_question_is_recorded_and_tried_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lm = answer(folder, 4, AnsweringModel({2: ModelError("too long\nby far"), 4: OSError("gone")}))
    assert lm.asked == [1, 2, 3, 4]
    record = read_run(folder)
    assert [(line["id"], line["ended"]) for line in record.predictions] == [
        ("q1", "answered"),
        ("q2", "error"),
        ("q3", "answered"),
        ("q4", "error"),
    ]
    assert [line["error"] for line in record.failed] == ["too long\nby far", "OSError: gone"]
    assert record.failed[0]["em"] is None
    assert not record.complete
    assert answer(folder, 4).asked == [2, 4]
    assert read_run(folder).complete
    assert (folder / "predictions.jsonl").read_bytes() == (whole / "predictions.jsonl").read_bytes()


class Down(ScriptedRetriever):
    """A server that is down; ``changing`` says something else every time."""

    def __init__(self, changing: bool = False) -> None:
        super().__init__()
        self.changing = changing

    def search(self, query: str, k: int) -> list[Passage]:
        self.queries.append(query)
        raise DataError(f"nobody answers{f' {query}' if self.changing else ''}")


def test_a_run_stops_where_every_search_fails_alike_and_goes_on_when_they_do_not(
    tmp_path: Path,
) -> None:
    lab, folder = Lab(AnsweringModel(), retriever=Down(changing=True)), tmp_path / "run"
    assert len(recorded(lab, questions(12), DRAGIN, tmp_path / "changing").failed) == 12
    lab = lab.replace(retriever=Down())
    with pytest.raises(
        RunError, match=r"the last 5 questions failed with the same error: nobody answers"
    ):
        recorded(lab, questions(20), DRAGIN, folder)
    assert len(read_run(folder).failed) == 5
    good = lab.replace(retriever=ScriptedRetriever())
    assert recorded(good, questions(20), DRAGIN, folder).complete


def test_a_search_that_never_ends_does_not_hold_an_interrupted_process() -> None:
    script = """
import signal, threading
from answering import DRAGIN, AnsweringModel, questions
from dragin_lab.lab import Lab

class Silent:
    def search(self, query, k):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        threading.Event().wait()
    def provenance(self):
        return {"kind": "silent"}

lab = Lab(AnsweringModel(), retriever=Silent())
list(lab.ask_many(questions(2), DRAGIN, batch_size=2))
"""
    paths = os.pathsep.join([str(HERE.parent), str(HERE)])
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(PYTHONPATH=paths),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert b"KeyboardInterrupt" in ended.stderr


def test_a_complete_run_is_left_alone(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.iterdir() if path.name != ".lock"}
    assert answer(whole, 4).asked == []
    assert {
        path: path.stat().st_mtime_ns for path in whole.iterdir() if path.name != ".lock"
    } == before


def test_a_run_begins_with_what_is_not_known_of_what_was_given_and_goes_on(tmp_path: Path) -> None:
    class Closed:
        def __reduce_ex__(self, version: Any) -> Any:
            raise RuntimeError("no copies")

    def judged(answer: str, golds: Any) -> float:
        return float(closed is None)

    closed = Closed()
    not_known = "metric judged.closed: not known: Closed (RuntimeError: no copies)"
    prompt = PromptTemplate(metrics=(judged,))
    for count in (1, 2):
        with pytest.warns(UserWarning, match=re.escape(f"{not_known}; a run that goes on cannot")):
            answer(tmp_path / "run", count, exemplars=prompt)
        closed = Closed()
    record = read_run(tmp_path / "run")
    assert len(record.predictions) == 2
    assert record.config["not_known"] == [not_known]


# -- other settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"how": exchange_settings(DRAGIN, threshold=2)}, "method.threshold: 1.0 → 2.0"),
        ({"how": method("sr-rag")}, "method.name: 'dragin' → 'sr-rag'"),
        ({"seed": 3}, "seed: 0 → 3"),
        ({"count": 3}, "dataset.questions: 4 → 3"),
    ],
)
def test_a_folder_of_other_settings_is_refused(
    whole: Path, change: dict[str, Any], says: str
) -> None:
    before = {path.name: path.read_bytes() for path in whole.iterdir() if path.is_file()}
    with pytest.raises(RunError, match="run of other settings") as caught:
        answer(whole, **({"count": 4} | change))
    assert says in str(caught.value)
    assert str(whole) in str(caught.value)
    assert before.keys() == {path.name for path in whole.iterdir() if path.is_file()}
    assert all(
        (whole / name).read_bytes() == data for name, data in before.items() if name != ".lock"
    )


def test_another_version_is_announced_and_recorded(whole: Path, tmp_path: Path) -> None:
    folder = copy(whole, tmp_path / "old", b"")
    config = read_config(folder)
    config["versions"]["numpy"] = "1.0"
    write_config(folder, config)
    with pytest.warns(UserWarning, match=r"started otherwise .*versions.numpy: '1.0' → "):
        answer(folder, 4)
    there = read_run(folder).config
    assert there["versions"]["numpy"] == "1.0"
    assert [entry["versions"]["numpy"] != "1.0" for entry in there["resumed"]] == [True]
    assert (folder / "predictions.jsonl").read_bytes() == (whole / "predictions.jsonl").read_bytes()
