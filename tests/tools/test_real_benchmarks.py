"""Methods on real benchmarks: which methods, what the ceiling is given, and what the section says of partial runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_folders import write_run

import dragin_lab as dl
from dragin_lab.data import paper
from dragin_lab.run.benchmark import Benchmark
from dragin_lab.trace.trace import Passage
from tools.pages import real_benchmarks
from tools.pages.base import DOCS, text_between
from tools.pages.real_benchmarks import CEILING, TITLES, GoldPassages, label_of

LABELS = list(real_benchmarks.methods())


def line(qid: str, f1: float, retrievals: int = 1) -> dict[str, Any]:
    scores = {"em": float(f1 == 1), "f1": f1}
    return {"qid": qid, "retrievals": retrievals, "tokens": 40, "ended": "answered", "text": ""} | scores


def test_every_method_of_table_1_is_asked_in_both_variants_and_the_ceiling_beside_them() -> None:
    named = {re.sub(r"\W", "", row["method"]).lower() for row in paper.rows(1)}
    assert {label.replace("-", "") for label in LABELS if "reference" not in label} - {CEILING} == named | {"worag"}
    assert [label_of(name, "reference") in LABELS for name in real_benchmarks.TABLE_1] == [True] * 6
    assert all(m.max_new_tokens == 64 for m in real_benchmarks.methods().values())


def test_gold_passages_are_those_of_the_question_and_iirc_adds_the_one_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGIN_LAB_DATA", str(tmp_path))
    (tmp_path / "passages").mkdir()
    golds = [
        {"dataset": "iirc", "id": "q", "passages": ["2"]},
        {"dataset": "hotpotqa", "id": "q", "passages": ["3", "1"]},
    ]
    (tmp_path / "passages" / "gold.jsonl").write_text("\n".join(map(json.dumps, golds)), encoding="utf-8")
    (tmp_path / "iirc").mkdir()
    about = [{"pid": "p", "text": "It was\nlong ago.", "questions": [{"qid": "q"}]}]
    (tmp_path / "iirc" / "dev.json").write_text(json.dumps(about), encoding="utf-8")
    corpus = dl.Corpus.from_passages([Passage(str(n), "T", f"text {n}") for n in (1, 2, 3)])
    asked = [dl.Question("q", "When?", ("1900",))]
    hotpotqa = GoldPassages("hotpotqa", asked, corpus)
    assert [p.id for p in hotpotqa.search("When?", 25)] == ["3", "1"]
    assert hotpotqa.search("the first king", 3) == []
    iirc = GoldPassages("iirc", asked, corpus)
    assert [(p.id, p.text) for p in iirc.search("When?", 25)] == [("p", "It was long ago."), ("2", "text 2")]
    assert iirc.provenance() != hotpotqa.provenance()


def test_all_labs_share_one_model_and_one_index(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def open_model(*_: object, **__: object) -> Any:
        opened.append(SimpleNamespace(stream=None))
        return opened[-1]

    monkeypatch.setattr(real_benchmarks, "open_model", open_model)
    monkeypatch.setattr(real_benchmarks.dl.Corpus, "load", lambda _: dl.Corpus.from_passages([Passage("1", "T", "t")]))
    asked = real_benchmarks.Asked(Path(), "transformers")
    labs = [asked.lab_for(label, Benchmark("hotpotqa", (dl.Question("q", "When?"),))) for label in ("flare", "dragin")]
    assert len(opened) == 1
    assert {id(lab.model) for lab in labs} == {id(opened[0])}
    assert labs[0].retriever is labs[1].retriever


def test_a_partial_run_counts_the_questions_that_every_method_has_answered(tmp_path: Path) -> None:
    for label in LABELS:
        answers = (1.0,) * (4 if label == "dragin" else 3)
        write_run(tmp_path, dataset="hotpotqa", em=answers, asked=9, label=label.replace(", ", "-"))
    write_run(tmp_path, dataset="iirc", em=(1.0,), label="dragin")  # the only method so far
    answered = real_benchmarks.read_lines(tmp_path)
    assert {name: {len(of) for of in lines.values()} for name, lines in answered.items()} == {"hotpotqa": {3}}
    section = real_benchmarks.write_section(answered, "transformers")
    assert "So far every method has answered: 3 of HotpotQA, of 100 planned each." in section


def test_a_sentence_says_ahead_only_where_the_interval_is_clear_of_0() -> None:
    f1 = dict.fromkeys(LABELS, 0.5) | {"dragin": 1.0}
    answered = {
        name: {label: [line(str(i), f1[label] if i % 4 else 1 - f1[label]) for i in range(40)] for label in LABELS}
        for name in TITLES
    }
    assert real_benchmarks.compare(answered, "dragin", "sr-rag").startswith(
        "`dragin` is ahead of `sr-rag` (F1 +0.250 ["
    )
    assert "not clearly apart" in real_benchmarks.compare(answered, "fs-rag", "sr-rag")


def test_the_page_has_a_row_for_every_method_and_as_many_questions_as_it_counts() -> None:
    section = text_between(DOCS / "real-model.md", "benchmarks")
    counts = {name: int(n) for n, name in re.findall(rf"(\d+) of ({'|'.join(TITLES.values())})\b", section)}
    assert (f"Over all {sum(counts.values())} questions" if counts else "No question has been answered") in section
    for name in counts:
        table = section.split(f"### {name}\n")[1].split("###")[0]
        assert re.findall(r"^\| `([^`]+)`", table, re.MULTILINE) == LABELS
