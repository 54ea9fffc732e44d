"""Runs that stand side by side: of the same questions, under conditions that a table names, with triggers that fire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering import DRAGIN, answer
from run_folders import change_line, read_config, write_config, write_run

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.study.paper_tables import table

EM = (1.0, 0.0, 1.0, 1.0)


JOINS: dict[str, Callable[[Path, list[Path]], Any]] = {
    "runs": lambda root, folders: dl.Runs.load(root),
    "table": lambda root, folders: table(2, root),
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("entries", [{"gold": ["Li"]}, {"gold": ["Bo", "Li"]}])
def test_other_golds_of_the_same_questions_are_refused(tmp_path: Path, join: str, entries: dict[str, Any]) -> None:
    folders = [write_run(tmp_path, name, "hotpotqa", EM) for name in ("dragin", "flare")]
    JOINS[join](tmp_path, folders)
    for at in (1, 3):
        change_line(folders[1], at, **entries)
    with pytest.raises(SettingError, match="other gold answers: those of q1, q3 differ, for 'q1'"):
        JOINS[join](tmp_path, folders)


CHANGES: dict[str, dict[str, Any]] = {
    "models": {"model": {"model": "almanac", "weights_sha256": "1" * 64}},
    "passages": {"retriever": {"kind": "bm25", "corpus": "mine"}},
    "exemplars": {"template": {"exemplars": [{"question": "Why?"}, {}], "layout": "dragin", "answer_rule": "hotpotqa"}},
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_not_the_same_in_all_rows_is_announced_under_the_table(tmp_path: Path, kind: str) -> None:
    write_run(tmp_path, "dragin", "hotpotqa", EM)
    folder = write_run(tmp_path, "flare", "hotpotqa", EM)

    said = {"models": "dragin: almanac (", "passages": "flare: bm25 mine", "exemplars": "dragin: 2 ("}

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


def test_triggers_that_never_fired_or_fired_at_every_draft_are_warned_of_with_their_scores(tmp_path: Path) -> None:
    for name, theta in (("never", 5.0), ("always", 0.0)):
        answer(tmp_path / name, 21, how=replace(DRAGIN, trigger=replace(DRAGIN.trigger, threshold=theta)))
    made = dl.Runs.load(tmp_path).table()
    always, never = (line for line in made.about if line.startswith("warning: "))
    for shown in ("never retrieved", "threshold of 5; the highest was 4.5", "threshold=lab.budget(questions, 1.5)"):
        assert shown in never
        assert shown in made.show("html")
    assert "retrieved at every draft of 21 questions" in always
    assert "above the threshold of 0, at least" in always


@pytest.mark.parametrize(
    ("method", "questions", "retrievals"), [("flare", 20, 0), ("flare", 24, 1), ("wo-rag", 24, 0), ("sr-rag", 24, 0)]
)
def test_few_questions_and_methods_without_a_threshold_are_not_warned_of(
    tmp_path: Path, method: str, questions: int, retrievals: int
) -> None:
    write_run(tmp_path, method, "hotpotqa", [1.0] * questions, retrievals=[retrievals] + [0] * (questions - 1))
    for made in (dl.Runs.load(tmp_path).table(), table(2, tmp_path)):
        assert not any("never retrieved" in line for line in made.about)


def test_the_plot_says_over_which_questions_of_which_data_sets(tmp_path: Path) -> None:
    for method, dataset in (("dragin", "hotpotqa"), ("flare", "hotpotqa"), ("dragin", "iirc")):
        write_run(tmp_path, method, dataset, EM)
    (said,) = (one.text for one in dl.Runs.load(tmp_path).plot().layout.annotations)
    assert said == "4 questions of hotpotqa; 4 of 8 are not in all methods and are left out"
