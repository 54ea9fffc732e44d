"""Runs side by side: of the same questions, under conditions that a table names; what flipped
between two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering import DRAGIN, AnsweringModel, answer, questions
from run_folders import change_line, read_config, write_config, write_run
from scripted import ScriptedRetriever

import dragin_lab as dl
from dragin_lab.errors import RunError, SettingError
from dragin_lab.results.paper_tables import table
from dragin_lab.results.statistics import paired

EM = (1.0, 0.0, 1.0, 1.0)


JOINS: dict[str, Callable[[Path, list[Path]], Any]] = {
    "runs": lambda root, folders: dl.Runs.load(root),
    "table": lambda root, folders: table(2, root),
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("entries", [{"gold": ["Li"]}, {"gold": ["Bo", "Li"]}])
def test_other_golds_of_the_same_questions_are_refused(
    tmp_path: Path, join: str, entries: dict[str, Any]
) -> None:
    folders = [write_run(tmp_path, name, "hotpotqa", EM) for name in ("dragin", "flare")]
    JOINS[join](tmp_path, folders)
    for at in (1, 3):
        change_line(folders[1], at, **entries)
    with pytest.raises(SettingError, match="other gold answers: those of q1, q3 differ, for 'q1'"):
        JOINS[join](tmp_path, folders)


CHANGES: dict[str, dict[str, Any]] = {
    "models": {"model": {"model": "almanac", "weights_sha256": "1" * 64}},
    "passages": {"retriever": {"kind": "bm25", "corpus": "mine"}},
    "exemplars": {
        "template": {
            "exemplars": [{"question": "Why?"}, {}],
            "layout": "dragin",
            "answer_rule": "hotpotqa",
        }
    },
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_not_the_same_in_all_rows_is_announced_under_the_table(
    tmp_path: Path, kind: str
) -> None:
    write_run(tmp_path, "dragin", "hotpotqa", EM)
    folder = write_run(tmp_path, "flare", "hotpotqa", EM)

    said = {
        "models": ": almanac (another)",
        "passages": "flare: bm25 mine",
        "exemplars": ": 2 of your own (another)",
    }

    def announced() -> list[list[str]]:
        runs = dl.Runs.load(tmp_path)
        about = [runs.table().about, runs.tests("flare").attrs["notes"], table(2, tmp_path).about]
        return [[line for line in of if " differ: " in line] for of in about]

    assert announced() == [[], [], []]
    write_config(folder, read_config(folder) | CHANGES[kind])
    for lines in announced():
        assert len(lines) == 1
        assert lines[0].startswith(f"{kind} differ: ")
        assert said[kind] in lines[0]


def test_triggers_that_never_fired_or_fired_at_every_draft_are_warned_of_with_their_scores(
    tmp_path: Path,
) -> None:
    for name, theta in (("never", 5.0), ("always", 0.0)):
        answer(
            tmp_path / name,
            21,
            how=replace(DRAGIN, trigger=replace(DRAGIN.trigger, threshold=theta)),
        )
    made = dl.Runs.load(tmp_path).table()
    always, never = (line for line in made.about if line.startswith("warning: "))
    for shown in (
        "never retrieved",
        "threshold of 5; the highest was 4.5",
        "threshold=lab.budget(questions, 1.5)",
    ):
        assert shown in never
        assert shown in made.show("html")
    assert "retrieved at every draft of 21 questions" in always
    assert "above the threshold of 0, at least" in always


@pytest.mark.parametrize(
    ("method", "questions", "retrievals"),
    [("flare", 20, 0), ("flare", 24, 1), ("wo-rag", 24, 0), ("sr-rag", 24, 0)],
)
def test_few_questions_and_methods_without_a_threshold_are_not_warned_of(
    tmp_path: Path, method: str, questions: int, retrievals: int
) -> None:
    write_run(
        tmp_path,
        method,
        "hotpotqa",
        [1.0] * questions,
        retrievals=[retrievals] + [0] * (questions - 1),
    )
    for made in (dl.Runs.load(tmp_path).table(), table(2, tmp_path)):
        assert not any("never retrieved" in line for line in made.about)


def test_the_plot_says_over_which_questions_of_which_data_sets(tmp_path: Path) -> None:
    for method, dataset in (("dragin", "hotpotqa"), ("flare", "hotpotqa"), ("dragin", "iirc")):
        write_run(tmp_path, method, dataset, EM)
    (said,) = (one.text for one in dl.Runs.load(tmp_path).plot().layout.annotations)
    assert said == "4 questions of hotpotqa; 4 of 8 are not in all methods and are left out"


A, B = (1.0, 0.0, 1.0, 1.0, 0.0, None), (0.0, 1.0, 1.0, 0.0, 0.0, 1.0)


@pytest.fixture
def runs(tmp_path: Path) -> dl.Runs:
    for name, em in (("dragin", A), ("flare", B)):
        folder = write_run(tmp_path, name, "mine", em)
        for at in range(6):
            change_line(
                folder,
                at,
                question=f"Who made {at}, of which there is so much to say that no label holds it?",
            )
    return dl.Runs.load(tmp_path)


def test_the_questions_that_flipped_stand_in_table_and_figure(runs: dl.Runs) -> None:
    found = runs.difference("dragin", "flare")
    assert found.counts == {"both right": 1, "both wrong": 1, "won": 1, "lost": 2}
    assert found.table[["id", "outcome"]].to_numpy().tolist() == [
        ["q0", "lost"],
        ["q3", "lost"],
        ["q1", "won"],
    ]
    assert found.table["cause"].tolist() == ["unreadable"] * 3
    assert found.p == paired(B[:5], A[:5], scores=True).p
    assert found.title.startswith("flare against dragin: 1 won, 2 lost of 5 (EM -0.200, p = 1)")
    assert "1 of 6 questions are not in all methods and are left out: dragin failed on 1" in str(
        found
    )
    figure = found.plot()
    bars, lines = ([one for one in figure.data if one.type == kind] for kind in ("bar", "scatter"))
    assert [bar.x[0] for bar in bars] == [
        found.counts[kind] for kind in ("both wrong", "lost", "won", "both right")
    ]
    assert [list(line.x) for line in lines] == found.table[
        ["retrievals dragin", "retrievals flare"]
    ].to_numpy().tolist()
    lines = [line for text in figure.layout.yaxis2.ticktext for line in text.split("<br>")]
    assert all(len(line) < 60 for line in lines)
    assert found._repr_html_().count("<tr>") == 3
    with pytest.raises(RunError, match="no trace of 'q1' was kept"):
        found.compare("q1")
    with pytest.raises(SettingError, match="'q2' did not flip"):
        found.compare("q2")
    with pytest.raises(SettingError, match="give two methods"):
        runs.difference("flare", "flare")


def test_a_question_is_the_same_under_another_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, order in (("dragin", (0, 1)), ("flare", (1, 0))):
        folder = write_run(tmp_path, name, "mine", [float(at == (name == "flare")) for at in order])
        for at, question in enumerate(order):
            change_line(folder, at, question=f"Who made {question}?")
    runs = dl.Runs.load(tmp_path)
    assert runs.same("q0", "dragin", "flare") == "q1"
    monkeypatch.setattr("dragin_lab.views.comparing.compare", lambda traces, labels: traces)
    monkeypatch.setattr(runs, "trace", lambda *of: of)
    assert runs.difference("dragin", "flare").compare("q0") == [
        ("q0", "dragin", "mine"),
        ("q1", "flare", "mine"),
    ]


def test_a_sweep_has_its_runs_and_their_difference(tmp_path: Path) -> None:
    lab = dl.Lab(AnsweringModel(), retriever=ScriptedRetriever("Bo."))
    for output in (None, tmp_path):
        sweep = lab.sweep(
            questions(3), "dragin", threshold=[0.1, 5.0], output=output, progress=False
        )
        assert sweep.runs.names == ("dragin-threshold=0.1", "dragin-threshold=5.0")
        assert sum(sweep.runs.difference(*sweep.runs.names).counts.values()) == 3


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
