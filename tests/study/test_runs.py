"""``Runs``: questions, tables, tests and selections of any run directories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from answering import DRAGIN, AnsweringModel, answer
from run_folders import change_line, read_config, write_config, write_run

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.results.statistics import paired
from dragin_lab.results.table import FORMATS
from dragin_lab.text import csv_text

A = (1.0, 0.0, 1.0, 1.0)
B = (0.0, 1.0, 1.0, 0.0)


@pytest.fixture
def runs(tmp_path: Path) -> dl.Runs:
    """Two methods on a file of one's own."""
    write_run(tmp_path, "dragin", "mine", A)
    write_run(tmp_path, "flare", "mine", B)
    return dl.Runs.load(tmp_path)


def test_one_row_per_question_and_method(runs: dl.Runs) -> None:
    frame = runs.questions
    assert (runs.names, runs.datasets) == (("dragin", "flare"), ("mine",))
    assert list(frame["right"]) == [bool(em) for em in (*A, *B)]
    assert frame.loc[0, ["id", "method", "gold", "retrievals", "ended"]].tolist() == [
        "q0",
        "dragin",
        "Bo",
        0,
        "answered",
    ]
    assert set(frame.columns) >= {
        "em",
        "f1",
        "tokens",
        "seconds",
        "readable",
        "cause",
        "why",
        "type",
    }
    assert frame["cause"].notna().tolist() == [not em for em in (*A, *B)]


def test_a_table_says_over_how_many_questions_its_scores_are_means(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "dragin", "mine", A)
    assert "n = 4 questions; brackets" in str(dl.Runs.load(tmp_path).table())
    change_line(folder, 1, gold=[], em=None, f1=None, precision=None, recall=None)
    assert "n = 4 questions, 3 of them scored; brackets" in str(dl.Runs.load(tmp_path).table())
    write_run(tmp_path, "flare", "mine", (1.0, 0.0, None, None))  # two of which failed
    change_line(
        tmp_path / "mine" / "flare", 1, gold=[], em=None, f1=None, precision=None, recall=None
    )
    text = str(dl.Runs.load(tmp_path).table())
    assert "n = 2 questions, 1 of them scored; brackets" in text
    assert "2 of 4 questions are not in all methods and are left out: flare failed on 2" in text
    assert "2 of 8 answers failed: gone" in text


def test_no_sample_without_spread_has_an_interval_without_width(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "mine", (0.0,) * 5, retrievals=[1] * 5)
    write_run(tmp_path, "flare", "mine", (1.0,) * 5, retrievals=[1] * 5)
    made = dl.Runs.load(tmp_path).table(compare="flare")
    for shown in map(made.show, FORMATS):
        for width in ("[0.000, 0.000]", "[1.000, 1.000]", "[1.00, 1.00]", "nan"):
            assert width not in shown.lower()
    for part in ("[0.000, 0.434]", "[0.566, 1.000]", "where all are equal"):
        assert part in made.show()


def test_the_table_counts_texts_that_are_empty_and_what_could_not_be_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "dragin", "mine", A)
    assert "texts are empty" not in str(dl.Runs.load(tmp_path).table())
    change_line(folder, 1, text=" \n", readable=False)
    for at in (0, 2, 3):
        change_line(folder, at, readable=True)
    runs = dl.Runs.load(tmp_path)
    assert "1 of 4 texts are empty" in str(runs.table())
    assert 'an instruct model may need layout="chat"' in str(runs.table())
    assert runs.table().frame["", "unreadable", ""].tolist() == ["1 of 4"]
    assert runs.where("method == 'dragin' and not readable").outcomes["id"].tolist() == ["q1"]
    assert runs.questions.loc[1, "cause"] == "unreadable"
    config = read_config(folder)
    write_config(folder, config | {"template": config["template"] | {"layout": "chat"}})
    assert "asked for" in (table := str(dl.Runs.load(tmp_path).table()))
    assert "instruct" not in table


def test_runs_without_golds_have_no_exact_match(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "dragin", "mine", A)
    for at in range(4):
        change_line(folder, at, gold=[], em=None, f1=None, precision=None, recall=None)
    runs = dl.Runs.load(tmp_path)
    assert runs.table().frame.columns.unique("measure").tolist() == [
        "n",
        "retrievals",
        "tokens",
        "unreadable",
    ]
    assert runs.questions["right"].isna().all()
    with pytest.raises(
        SettingError, match="no other method has a question with a gold answer in common"
    ):
        runs.tests("dragin")


def test_methods_are_tested_in_pairs(runs: dl.Runs) -> None:
    tests = runs.tests(against="flare").set_index("measure")
    parts = ["difference", "low", "high", "p_value", "n", "won", "lost", "tied"]
    for key, a, b in (("em", A, B), ("f1", [(em + 1) / 2 for em in A], [(em + 1) / 2 for em in B])):
        test = paired(a, b, scores=True)
        expected = (test.difference, test.low, test.high, test.p_value, 4, 2, 1, 1)
        assert tests.loc[key, ["method", *parts]].tolist() == ["dragin", *expected]
    with pytest.raises(SettingError, match="did you mean 'flare'"):
        runs.tests("flair")


@pytest.mark.parametrize(
    "said",
    ["method == 'flare' and not right", "em < 1", "cause == cause"],
)
def test_questions_chosen_by_their_answers_are_not_tested(runs: dl.Runs, said: str) -> None:
    chosen = runs.where(said)
    for narrowed in (chosen, chosen.where("tokens > 0")):
        with pytest.raises(
            SettingError, match=re.escape(f"only questions chosen by: {said}") + ".*no test: what"
        ):
            narrowed.tests("flare")
    made = chosen.table(compare="flare")
    assert "p" not in made.frame.columns.get_level_values("part")
    assert any(line.startswith("no test: what") for line in made.about)


def test_questions_chosen_by_something_else_are_tested(runs: dl.Runs, tmp_path: Path) -> None:
    for said in ("id != 'q0'", "question == 'right' or tokens > 0", "retrievals > 0"):
        found = runs.where(said).tests("flare")
        assert found["measure"].tolist() == ["em", "f1"]
        assert f"only questions chosen by: {said}" in found.attrs["notes"]
    write_run(tmp_path, "sr-rag", "mine", (1.0, 0.0, 0.0, 0.0))
    # a method that is not compared
    third = dl.Runs.load(tmp_path).where("method == 'sr-rag' and not right")
    found = third.tests("flare")
    assert set(found["method"]) == {"dragin"}
    assert set(found["n"]) == {3}
    assert "no test: what sr-rag answered" in found.attrs["notes"][1]


def test_where_takes_an_expression_over_the_questions_and_refuses_nonsense(runs: dl.Runs) -> None:
    for said, ids in (
        ("retrievals > 1 and method == 'flare'", {"q2"}),
        ("method == 'dragin' and cause == 'unreadable'", {"q1"}),
        ("tokens > 42", {"q3"}),
    ):
        assert set(runs.where(said).outcomes["id"]) == ids
    lost = runs.where("method == 'dragin' and not right").where("method == 'flare' and right")
    assert set(lost.outcomes["id"]) == {"q1"}
    assert lost.table().frame["", "EM", "n"].tolist() == [1, 1]
    for said, why in (
        ("retreivals > 2", "column 'retreivals' does not exist; did you mean 'retrievals'"),
        ("em < < 1", "cannot be read"),
        ("right = 1", "cannot be read"),
        ("(" * 500 + "right" + ")" * 500, "cannot be read"),
        ("ended == 'error'", "no question matches"),
        ("", "cannot be read"),
    ):
        with pytest.raises(SettingError, match=why):
            runs.where(said)


def test_a_method_is_called_by_its_folder_whatever_stands_beside_it(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "mine", A, threshold=1.0)
    assert dl.Runs.load(tmp_path).names == ("dragin-threshold=1.0",)
    write_run(tmp_path, "dragin", "mine", B, threshold=1.5)
    folder = write_run(tmp_path, "dragin", "mine", A)
    assert set(dl.Runs.load(tmp_path).names) == {
        "dragin",
        "dragin-threshold=1.0",
        "dragin-threshold=1.5",
    }
    folder.rename(folder.parent / "mine")
    assert "mine" in dl.Runs.load(tmp_path).names


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"model": "org/smollm"}, {"dragin (almanac)", "dragin (smollm)"}),
        ({"retriever": "dense"}, {"dragin (bm25 psgs_w100)", "dragin (dense psgs_w100)"}),
        ({}, {"dragin ({0}/mine)", "dragin ({0}/another/mine)"}),
        ({"dataset": "yours", "model": "org/smollm"}, {"dragin (almanac)", "dragin (smollm)"}),
    ],
)
def test_one_label_of_two_runs_or_models_is_told_apart(
    tmp_path: Path, other: dict[str, str], told: set[str]
) -> None:
    write_run(tmp_path, "dragin", "mine", A)
    write_run(tmp_path, "flare", "mine", A)
    write_run(tmp_path / "another", **{"dataset": "mine"} | other, em=B)
    runs = dl.Runs.load(tmp_path)
    assert set(runs.names) == {name.format(tmp_path) for name in told} | {"flare"}
    with pytest.raises(SettingError, match="method 'dragin' does not exist"):
        runs.tests("dragin")


def test_a_data_set_is_known_by_its_questions(tmp_path: Path) -> None:
    def write(name: str, file: str, mark: str, questions: str) -> None:
        folder = write_run(tmp_path / name, name, file, A)
        config = read_config(folder)
        write_config(folder, config | {"dataset": config["dataset"] | {"fingerprint": mark}})
        for at, question in enumerate(questions):
            change_line(folder, at, question=question)

    write("dragin", "mine", "1" * 64, "abcd")
    write("flare", "copy", "1" * 64, "abcd")
    assert dl.Runs.load(tmp_path).datasets == ("mine",)
    write("wo-rag", "mine", "2" * 64, "cdef")
    runs = dl.Runs.load(tmp_path)
    assert runs.datasets == ("mine",)
    assert set(runs.tests("wo-rag")["n"]) == {2}
    assert "4 of 6 questions are not in all methods" in str(runs.table())
    assert dl.Runs.load(tmp_path).table(on="all").frame["", "n", ""].iloc[0] == 4
    write("sr-rag", "mine", "3" * 64, "wxyz")
    assert dl.Runs.load(tmp_path).datasets == ("mine (111111)", "mine (333333)")


def test_metrics_of_one_name_and_other_definitions_are_said_below_the_table(tmp_path: Path) -> None:
    def given(value: str) -> dict[str, object]:
        return {"metric hits": {"(source)": "def hits():\n    return scale", "scale": value}}

    for name, value in (("dragin", "0.5"), ("flare", "0.5"), ("wo-rag", "1.5")):
        folder = write_run(tmp_path, name, "mine", A)
        write_config(folder, read_config(folder) | {"given": given(value)})
    said = (
        "metric hits is not defined in wo-rag on mine as in dragin on mine (metric hits.scale: 0.5"
        " → 1.5): its means are not of one measure"
    )
    assert said in dl.Runs.load(tmp_path).table().about
    write_config(folder, read_config(folder) | {"given": given("0.5")})
    assert "not defined" not in str(dl.Runs.load(tmp_path).table())


def test_sets_of_exemplars_are_named(tmp_path: Path) -> None:
    def write(name: str, **template: object) -> None:
        folder = write_run(tmp_path, name, "mine", A)
        config = read_config(folder)
        write_config(folder, config | {"template": config["template"] | template})

    write("dragin")
    write("flare", exemplars=[{"question": "Who?"}, {}])
    write("sr-rag", chosen="the same under a name")
    write("wo-rag", exemplars=[{}], chosen="the package's own set for mine")
    write("self-ask", exemplars=[], form="follow-up")
    assert (
        "exemplars differ: dragin, sr-rag: 2 of your own; flare: 2 of your own (another); self-ask:"
        " none (form follow-up); wo-rag: the package's own set for mine"
    ) in dl.Runs.load(tmp_path).table().about


def test_metrics_of_ones_own_go_from_the_prompt_to_the_table(tmp_path: Path) -> None:
    def brief(answer: str, golds: Sequence[str]) -> float:
        return 1 / len(answer)

    for name, how in (("dragin", DRAGIN), ("wo-rag", dl.method("wo-rag", variant="paper"))):
        answering = {"exemplars": dl.PromptTemplate(metrics=(brief,))}
        answer(
            tmp_path / name,
            4,
            AnsweringModel({3: RuntimeError("lost")} if name == "dragin" else {}),
            how,
            **answering,
        )
    runs = dl.Runs.load(tmp_path)
    assert read_config(tmp_path / "dragin")["template"]["metrics"] == ["brief"]
    assert runs.metrics == ("brief",)
    assert runs.lines("questions", "dragin")["q1"]["metrics"] == {"brief": 1 / 4}
    assert runs.questions["brief"].isna().tolist() == [False, False, True, False] + [False] * 4
    made = runs.table(compare="wo-rag")
    assert made.frame.columns.unique("measure").tolist() == [
        "n",
        "EM",
        "F1",
        "brief",
        "retrievals",
        "tokens",
        "unreadable",
    ]
    assert made.frame["", "brief", "mean"].iloc[0] == 1 / 4
    assert runs.tests("wo-rag").set_index("measure").loc["brief", "difference"] == 0
    # the failed question alone is asked again
    answer(tmp_path / "dragin", 4, how=DRAGIN, **answering)
    assert dl.Runs.load(tmp_path).questions["brief"].notna().all()
    folder = tmp_path / "wo-rag"
    change_line(folder, 0, metrics={"brief": "high"})
    with pytest.warns(UserWarning, match="metrics"):
        dl.Runs.load(folder)


def test_the_notes_of_a_table_go_with_its_numbers(runs: dl.Runs) -> None:
    assert runs.table().frame.attrs["notes"] == runs.table().about


def test_no_text_in_a_csv_is_a_formula_and_numbers_stay(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"=a": ["=1+1", "+x", "-1.5", "@b", "\tc", "-"], "n": [-1.0, 2, 3, 4, 5, 6]},
        index=[*"-=cdef"],
    )
    read = pd.read_csv(StringIO(csv_text(frame, index=True)), index_col=0)
    assert read.columns.tolist() == ["'=a", "n"]
    assert read["'=a"].tolist() == ["'=1+1", "'+x", "-1.5", "'@b", "'\tc", "'-"]
    assert read["n"].tolist() == frame["n"].tolist()
    assert read.index.tolist() == ["'-", "'=", *"cdef"]
