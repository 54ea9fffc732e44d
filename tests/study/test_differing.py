"""What flipped between two methods, and between two values of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest
from answering import AnsweringModel, questions
from run_folders import change_line, write_run
from scripted import ScriptedRetriever

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.run.rundir import RunError
from dragin_lab.study.statistics import paired

A, B = (1.0, 0.0, 1.0, 1.0, 0.0, None), (0.0, 1.0, 1.0, 0.0, 0.0, 1.0)


@pytest.fixture
def runs(tmp_path: Path) -> dl.Runs:
    for name, em in (("dragin", A), ("flare", B)):
        folder = write_run(tmp_path, name, "mine", em)
        for at in range(6):
            change_line(folder, at, question=f"Who made {at}, of which there is so much to say that no label holds it?")
    return dl.Runs.load(tmp_path)


def test_the_questions_that_flipped_stand_in_table_and_figure(runs: dl.Runs) -> None:
    found = runs.difference("dragin", "flare")
    assert found.counts == {"both right": 1, "both wrong": 1, "won": 1, "lost": 2}
    assert found.table[["id", "outcome"]].to_numpy().tolist() == [["q0", "lost"], ["q3", "lost"], ["q1", "won"]]
    assert found.table["cause"].tolist() == ["no readable answer"] * 3
    assert found.p == paired(B[:5], A[:5], scores=True).p
    assert found.title.startswith("flare against dragin: 1 won, 2 lost of 5 (EM -0.200, p = 1)")
    assert "1 of 6 questions are not in all methods and are left out: dragin failed on 1" in str(found)
    figure = found.plot()
    bars, lines = ([one for one in figure.data if one.type == kind] for kind in ("bar", "scatter"))
    assert [bar.x[0] for bar in bars] == [found.counts[kind] for kind in ("both wrong", "lost", "won", "both right")]
    assert [list(line.x) for line in lines] == found.table[
        ["retrievals dragin", "retrievals flare"]
    ].to_numpy().tolist()
    assert all(len(text) < 60 for text in figure.layout.yaxis2.ticktext)
    assert found._repr_html_().count("<tr>") == 3
    with pytest.raises(RunError, match="no trace of 'q1' was kept"):
        found.compare("q1")
    with pytest.raises(SettingError, match="'q2' did not flip"):
        found.compare("q2")
    with pytest.raises(SettingError, match="give two methods"):
        runs.difference("flare", "flare")


def test_a_question_is_the_same_under_another_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, order in (("dragin", (0, 1)), ("flare", (1, 0))):
        folder = write_run(tmp_path, name, "mine", [float(at == (name == "flare")) for at in order])
        for at, question in enumerate(order):
            change_line(folder, at, question=f"Who made {question}?")
    runs = dl.Runs.load(tmp_path)
    assert runs.same("q0", "dragin", "flare") == "q1"
    monkeypatch.setattr("dragin_lab.views.comparing.compare", lambda traces, labels: traces)
    monkeypatch.setattr(runs, "trace", lambda *of: of)
    assert runs.difference("dragin", "flare").compare("q0") == [("q0", "dragin", "mine"), ("q1", "flare", "mine")]


def test_a_sweep_has_its_runs_and_what_flipped(tmp_path: Path) -> None:
    lab = dl.Lab(AnsweringModel(), retriever=ScriptedRetriever("Bo."))
    for output in (None, tmp_path):
        sweep = lab.sweep(questions(3), "dragin", threshold=[0.1, 5.0], output=output, progress=False)
        assert sweep.runs.names == ("dragin-threshold=0.1", "dragin-threshold=5.0")
        assert sum(sweep.flips(0.1, 5.0).counts.values()) == 3
        with pytest.raises(SettingError, match="value of threshold '3' does not exist"):
            sweep.flips(0.1, 3)


def test_a_sweep_says_what_failed_and_compares_the_rest() -> None:
    searched = []

    def search(query: str, k: int) -> list[dl.Passage]:
        searched.append(query)
        if len(searched) == 1:
            raise RuntimeError("lost it")
        return [dl.Passage("1", "Bo", "Bo is a film.", 1.0)]

    lab = dl.Lab(AnsweringModel(), retriever=search)
    sweep = lab.sweep(questions(3), "dragin", threshold=[0.1, 5.0], progress=False)
    assert sweep.table["failed"].tolist() == [1, 0]
    assert sweep.table["n"].tolist() == [2, 2]
    for said in (repr(sweep), sweep._repr_html_(), sweep.table.attrs["notes"][0]):
        assert "1 of 6 answers failed: " in said
        assert "lost it" in said
