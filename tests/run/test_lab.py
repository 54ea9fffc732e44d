"""``Lab``: its arguments, columns under other names, and what it says of passages and exemplars
that were chosen.
"""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answering import AnsweringModel, questions
from command import Command
from scripted import ScriptedRetriever

import dragin_lab as dl
from dragin_lab.almanac import default_exemplars
from dragin_lab.almanac import questions as of_almanac
from dragin_lab.cli import app as cli
from dragin_lab.data.datasets import build_template
from dragin_lab.engines.arguments import NAMES
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import DataError, SettingError
from dragin_lab.run.benchmark import Benchmark, finds_nothing
from dragin_lab.run.benchmark import benchmark as open_benchmark
from dragin_lab.run.rundir import find_runs

PASSAGES = "nr,headline,body\n7,Ulm,Ulm is a city.\n"
ASKED = "nr,q,gold\n7,Who made thing 1?,Li 1\n"
FIELDS = "id=nr,title=headline,text=body"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Passages and a question under column names of their own, in the working folder."""
    (tmp_path / "p.csv").write_text(PASSAGES)
    (tmp_path / "q.csv").write_text(ASKED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("wrong", "near"), [("dtpye", "dtype"), ("corpsu", "corpus"), ("heds", "heads")]
)
def test_an_argument_that_transformers_does_not_take_is_refused_with_the_nearest(
    wrong: str, near: str
) -> None:
    for lab in (dl.Lab(**{wrong: 1}), dl.Lab().replace(**{wrong: 1})):
        with pytest.raises(
            SettingError, match=f"argument '{wrong}' does not exist; did you mean '{near}'"
        ):
            lab.ask("Who?", "wo-rag")


def test_a_loaded_model_takes_no_argument_of_loading() -> None:
    with pytest.raises(SettingError, match="argument of a loaded model, 'device_map' does not"):
        dl.Lab(object(), tokenizer=object(), device_map="auto")


def test_the_nearest_is_looked_for_among_all_arguments() -> None:
    own = [*inspect.signature(dl.Lab).parameters, *inspect.signature(LanguageModel.load).parameters]
    assert set(own) - {"loading", "source", "given"} <= set(NAMES)


@pytest.mark.parametrize("fields", [FIELDS, {"id": "nr", "title": "headline", "text": "body"}])
def test_passages_under_other_names(files: Path, fields: Any) -> None:
    lab = dl.Lab(corpus="p.csv", fields=fields)
    for one in (lab, lab.replace(seed=1)):
        (found,) = one.retriever.search("Ulm", 1)
        assert (found.id, found.title, found.text) == ("7", "Ulm", "Ulm is a city.")
    (files / "usual.jsonl").write_text(json.dumps({"text": "Bonn is a city."}) + "\n")
    assert (
        lab.replace(corpus="usual.jsonl").retriever.search("Bonn", 1)[0].text == "Bonn is a city."
    )


def test_fields_of_what_has_none_are_refused(files: Path) -> None:
    for given in (
        {},
        {"corpus": "almanac"},
        {"retriever": ScriptedRetriever()},
        {"corpus": dl.Corpus.load()},
    ):
        with pytest.raises(SettingError, match="names the columns of a file or table"):
            dl.Lab(fields=FIELDS, **given)
    dl.Corpus.build("p.csv", "built", fields=FIELDS)
    with pytest.raises(DataError, match="has fields of its own"):
        dl.Corpus.load("built", fields=FIELDS)
    with pytest.raises(SettingError, match="these questions have no columns"):
        dl.Lab(AnsweringModel()).run(["Who?"], "wo-rag", output="o", fields="question=q")


def test_questions_under_other_names(files: Path) -> None:
    lab = dl.Lab(AnsweringModel(), retriever=ScriptedRetriever())
    fields = "id=nr,question=q,answer=gold"
    (record,) = lab.run("q.csv", "wo-rag", output="runs", fields=fields, progress=False).records
    assert [(line["id"], line["question"], line["gold"]) for line in record.predictions] == [
        ("7", "Who made thing 1?", ["Li 1"])
    ]
    assert record.folder == Path("runs/q/wo-rag")
    assert (
        lab.sweep(
            "q.csv", "dragin", threshold=[1], what="question", fields=fields, progress=False
        ).benchmark
        == "q"
    )


def test_the_command_line_takes_both(command: Command, files: Path) -> None:
    shared = ("--set", "max_new_tokens=8", "--method", "sr-rag", "--corpus", "p.csv")
    named = ("--dataset", "q.csv", "--set", "fields=id=nr,question=q,answer=gold")
    command.refused(
        "run", *shared, *named, "--output", "o", says=("has no text", "fields='text=contents'")
    )
    ran = command("run", *shared, *named, "--set", f"corpus_fields={FIELDS}", "--output", "o")
    assert ran.code == cli.DONE, ran.err
    (record,) = find_runs("o")
    assert (record.config["retriever"]["passages"], record.predictions[0]["id"]) == (1, "7")
    ran = command("ask", "Where is Ulm?", *shared, "--set", f"corpus_fields={FIELDS}")
    assert "Ulm is a city." in ran.out


@pytest.mark.filterwarnings("error")
def test_the_embedded_passages_are_only_said_to_hold_nothing_where_that_is_known(
    tmp_path: Path,
) -> None:
    lab = dl.Lab(AnsweringModel(), corpus="almanac")
    own = of_almanac("hotpotqa", "dev")[:2]
    real = tuple(questions(2))
    unknown = Benchmark("hotpotqa", real, kind="hotpotqa")
    with pytest.warns(UserWarning, match="the embedded passages hold nothing on hotpotqa"):
        lab.run(unknown, "sr-rag", output=tmp_path, progress=False)
    lab.run(unknown, "wo-rag", output=tmp_path, progress=False)  # it never searches
    for asked in (
        Benchmark("mine", real),  # nobody knows what they are about
        # Almanac's, in a file of HotpotQA's form
        Benchmark("hotpotqa", tuple(own), kind="hotpotqa"),
        open_benchmark("almanac/iirc", limit=2),
        open_benchmark([{"question": "Who?", "answer": "Li"}]),
    ):
        assert not finds_nothing(lab, asked)
    other = dl.Lab(AnsweringModel(), corpus=[{"text": "Ulm is a city."}])
    assert not finds_nothing(other, Benchmark("hotpotqa", real, kind="hotpotqa"))


def test_another_model_does_not_search_the_invented_world_in_silence() -> None:
    def warnings_of(lab: dl.Lab) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")  # of Python, such as of a file that was never closed
            warnings.simplefilter("always", UserWarning)
            lab.ask("Who made thing 3?", "wo-rag", max_new_tokens=4)  # which never searches
            before = len(caught)
            for _ in range(2):
                lab.ask("Who made thing 3?", "sr-rag", max_new_tokens=4)
        assert before == 0
        return [str(one.message) for one in caught]

    for spec in (None, "bm25"):
        [said] = warnings_of(dl.Lab(AnsweringModel(), retriever=spec))
        assert "SEARCHES AN INVENTED WORLD: no passages were given" in said
    for lab in (
        dl.Lab(AnsweringModel(), corpus="almanac"),
        dl.Lab(AnsweringModel(), corpus=[{"text": "Ulm is a city."}]),
        dl.Lab(AnsweringModel(), retriever=ScriptedRetriever()),
        dl.Lab(),
    ):
        assert warnings_of(lab) == []


def test_exemplars_that_were_chosen_are_named_and_only_those(
    command: Command, tmp_path: Path
) -> None:
    brief = ("--method", "wo-rag", "--set", "max_new_tokens=4")
    ran = command("run", *brief, "--limit", 1, "--output", tmp_path)
    chosen = (
        f"{len(build_template('almanac/2wikimultihopqa').exemplars)} exemplars: the package's own"
        " set for "
    )
    assert chosen + "almanac/2wikimultihopqa" in ran.out
    assert find_runs(tmp_path)[0].config["template"]["chosen"].endswith("almanac/2wikimultihopqa")
    number, page = len(default_exemplars("reasoning")), tmp_path / "a.html"
    ran = command("ask", "Who?", *brief, "--html", page, "--save", tmp_path / "a.trace")
    assert re.search(rf"^exemplars +{number}: Almanac's", ran.out, re.MULTILINE)
    assert f"<dt>exemplars</dt><dd>{number}: Almanac" in page.read_text(encoding="utf-8")
    assert dl.Trace.load(tmp_path / "a.trace").provenance["exemplars"].startswith("Almanac's")
    assert "Exemplars" not in command("ask", "Who?", *brief, "--exemplars", "hotpotqa").out


# -- models that are loaded already, threads, copies -----------------------------------------------

ASKED_OF_ALMANAC = "Who directed The Silent Fukain?"


def test_a_loaded_model_goes_in_with_its_tokenizer() -> None:
    lm = dl.Lab().model
    lab = dl.Lab(lm.model, "almanac", default_exemplars(), tokenizer=lm.tokenizer.hf)
    text = lab.ask(ASKED_OF_ALMANAC, "wo-rag", max_new_tokens=4).text
    assert text == dl.Lab().ask(ASKED_OF_ALMANAC, "wo-rag", max_new_tokens=4).text
    assert lab.model.model is lm.model
    assert lab.replace(seed=1).model is lab.model
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(SettingError, match="the copy would be another model"):
            copied(lab)
    for wrong in (5, object(), ("model", "tokenizer")):
        with pytest.raises(SettingError, match="tokenizer=tokenizer"):
            dl.Lab(wrong)  # type: ignore[arg-type]


def test_a_model_is_opened_once_whoever_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_slowly(*_: Any, **__: Any) -> AnsweringModel:
        opened.append(1)
        time.sleep(0.05)
        return AnsweringModel()

    monkeypatch.setattr("dragin_lab.engines.load.open_model", open_slowly)
    lab = dl.Lab("model", retriever=ScriptedRetriever())
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: lab.model, range(4)))
    assert len(opened) == 1
    assert len(set(map(id, models))) == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda lab: pickle.loads(pickle.dumps(lab))])
def test_a_lab_with_a_cache_is_copied_without_what_is_in_it(copied: Any) -> None:
    lab = dl.Lab(cache=True)
    assert lab.cache is not None
    lab.cache["a"] = np.zeros(2)
    other = copied(lab)
    assert (len(lab.cache), len(other.cache)) == (1, 0)


def test_samples_of_one_question_differ_and_are_drawn_again() -> None:
    with pytest.raises(SettingError, match="whole number"):
        dl.Lab(seed=0.5)  # type: ignore[arg-type]
    assert dl.Lab(seed=10**40 + 1).seed == 10**40 + 1
    lab = dl.Lab(sample=True, seed=2**60 + 1)
    asked = [ASKED_OF_ALMANAC] * 3
    texts = [trace.text for trace in lab.ask_many(asked, "wo-rag", max_new_tokens=16)]
    assert len(set(texts)) > 1
    assert [trace.text for trace in lab.ask_many(asked, "wo-rag", max_new_tokens=16)] == texts
    assert lab.ask(ASKED_OF_ALMANAC, "wo-rag", max_new_tokens=16).text == texts[0]
    assert lab.ask("Who directed The Ashen Rooftop?", "wo-rag", max_new_tokens=16).text != texts[0]


def test_a_retriever_that_the_lab_opened_is_asked_once_what_it_is_and_ones_own_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab, asked = dl.Lab(AnsweringModel(), "almanac"), []
    kind = type(lab.retriever)
    facts = kind.provenance
    monkeypatch.setattr(kind, "provenance", lambda self: asked.append(self) or facts(self))
    first, second = (lab.ask("Who made thing 1?", "sr-rag") for _ in range(2))
    assert first.provenance["retriever"] == second.provenance["retriever"] == facts(lab.retriever)
    assert len(asked) == 1
    assert lab.ask("Who made thing 1?", "wo-rag").provenance["retriever"] is None

    class Growing(ScriptedRetriever):
        def provenance(self) -> dict[str, Any]:
            return {"kind": "mine", "asked": len(self.queries)}

    own = lab.replace(retriever=Growing())
    traces = [own.ask("Who made thing 1?", "sr-rag") for _ in range(2)]
    assert [trace.provenance["retriever"]["asked"] for trace in traces] == [0, 1]
    back = own.replace(retriever="bm25", corpus="almanac").ask("Who made thing 1?", "sr-rag")
    assert back.provenance["retriever"]["kind"] == "bm25"
