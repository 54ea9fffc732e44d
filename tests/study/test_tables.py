"""The paper's tables beside our own values: which run fills which cell, what is marked and
missing, in every format.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_config, write_run

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.results.paper_tables import table
from dragin_lab.results.statistics import PairedTest, paired
from dragin_lab.results.table import FORMATS, Table, escape_latex, texts_of
from dragin_lab.run.intervals import Interval, bootstrap, proportion
from dragin_lab.run.rundir import read_config

REAL = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc")
LLMS = ("Llama2-13b-chat", "Llama2-7b-chat", "Vicuna-13b-v1.5")
RIGHT = (1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0)
WORSE = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0)


def cell(made: Table, *labels: str, column: tuple[str, str]) -> dict[str, float]:
    """The parts that a cell has, as numbers."""
    row = made.frame.loc[labels if len(labels) > 1 else labels[0]]
    return row[column].dropna().to_dict()


def parts(mean: Interval) -> dict[str, float]:
    return {"ours": mean.mean, "low": mean.low, "high": mean.high, "n": mean.n}


def difference(test: PairedTest, base: str) -> dict[str, float]:
    minus = f"minus {base}"
    ends = {f"{minus} low": test.low, f"{minus} high": test.high, f"{minus} n": test.n}
    return {minus: test.difference, **ends, "p": test.p_value}


def filled(made: Table) -> set[Any]:
    """Labels of the rows that hold a value of ours."""
    ours = made.frame.loc[:, made.frame.columns.get_level_values("part") == "ours"]
    return {*ours.index[ours.notna().any(axis="columns")]}


# -- which run fills which cell --------------------------------------------------------------------


def test_a_cell_holds_the_papers_value_ours_and_its_interval(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "almanac/hotpotqa", RIGHT)
    made = table(2, tmp_path)
    em, f1 = (
        cell(made, "Vicuna-13b-v1.5", "DRAGIN (Ours)", column=("HotpotQA", name))
        for name in ("EM", "F1")
    )
    (mean,) = bootstrap([[(value + 1) / 2 for value in RIGHT]], [None])
    assert em == {"paper": 0.296, **parts(proportion(RIGHT))}
    assert f1 == {"paper": 0.4185, **parts(mean)}
    row = made.sheet.loc[("Vicuna-13b-v1.5", "DRAGIN (Ours)"), "HotpotQA"]
    assert row["EM"].to_dict() == {
        "paper": "0.296*",
        "ours": "0.625 (a, b)",
        "95 %": "[0.306, 0.863]",
    }
    ours = made.frame.xs("ours", axis="columns", level="part")
    assert ours.notna().to_numpy().sum() == 6  # EM and F1 beside three models
    assert str(table(2, dl.Runs.load(tmp_path).records)) == str(made)


def test_every_benchmark_and_measure_has_its_column(tmp_path: Path) -> None:
    for at, name in enumerate(REAL):
        write_run(tmp_path, "sr-rag", name, RIGHT[: 4 + at], model="meta-llama/Llama-2-7b-chat-hf")
    made = table(2, tmp_path)
    row = made.frame.loc[("Llama2-7b-chat", "SR-RAG")]
    means = row.xs("ours", level="part").tolist()
    exact = [sum(RIGHT[: 4 + at]) / (4 + at) for at in range(4)]
    both = [(value, (value + 1) / 2) for value in exact]
    # StrategyQA's accuracy is its EM
    assert means == pytest.approx([*both[0], *both[1], exact[2], *both[3]])
    assert filled(made) == {("Llama2-7b-chat", "SR-RAG")}


def test_table_3_counts_retrievals_and_fl_rags_tokens(tmp_path: Path) -> None:
    write_run(
        tmp_path, "fl-rag", "iirc", RIGHT[:4], retrievals=[1, 2, 3, 4], tokens=[16, 32, 48, 64]
    )
    write_run(tmp_path, "flare", "iirc", RIGHT[:4], retrievals=[0, 0, 1, 0], tokens=[9, 9, 9, 9])
    made = table(3, tmp_path, as_model="vicuna-13b-v1.5")
    column = ("IIRC", "#Num")
    found = {
        name: cell(made, "V13B", name, column=column)["ours"]
        for name in ("Avg. Tokens", "FL-RAG", "FLARE")
    }
    assert found == {"Avg. Tokens": 40.0, "FL-RAG": 2.5, "FLARE": 0.25}
    assert "FL-RAG generated" in " ".join(made.about)


@pytest.mark.parametrize(
    ("number", "settings", "rows"),
    [
        (
            4,
            {"when": "probability", "what": "last-sentence"},
            {("L13B", "FLARE"), ("V13B", "FLARE")},
        ),
        (4, {"what": "last-sentence"}, {("L13B", "DRAGIN"), ("V13B", "DRAGIN")}),
        (5, {"threshold": 0.7}, {"0.7"}),
        (6, {"what": "confident-sentence"}, {("L13B", "FLARE"), ("V13B", "FLARE")}),
        (6, {"what": "last-sentence"}, {("L13B", "FS-RAG"), ("V13B", "FS-RAG")}),
        (6, {}, {("L13B", "DRAGIN"), ("V13B", "DRAGIN")}),
        (7, {}, {("HQA", "BM25")}),
        (2, {"when": "every-sentence", "what": "last-sentence"}, {(llm, "FS-RAG") for llm in LLMS}),
    ],
)
def test_ablations_fill_the_row_whose_parts_they_have(
    tmp_path: Path, number: int, settings: dict[str, Any], rows: set[tuple[str, ...]]
) -> None:
    write_run(tmp_path, "dragin", "iirc" if number == 4 else "hotpotqa", RIGHT, **settings)
    assert filled(table(number, tmp_path)) == rows


def test_table_7_has_a_row_for_a_dense_retriever(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "iirc", RIGHT, retriever="dense")
    made = table(7, tmp_path)
    assert filled(made) == {("IIRC", "SGPT")}
    assert "passages by dense, where the paper has BM25" in " ".join(table(2, tmp_path).about)


def test_a_run_fills_the_columns_of_its_questions_kind(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "dragin", "almanac/iirc-dev", RIGHT)
    config = read_config(folder)
    write_config(folder, config | {"dataset": config["dataset"] | {"kind": "iirc"}})
    made = table(2, tmp_path)
    ours = made.frame.xs("ours", axis="columns", level="part")
    assert {*ours.columns.get_level_values(0)} == {"IIRC"}


def test_data_sets_of_ones_own_are_said_to_be_in_no_table(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "my_questions", RIGHT)
    with pytest.raises(
        SettingError, match="no cell for the runs given, which are of rind × qfs on my_questions"
    ):
        table(2, tmp_path)
    write_run(tmp_path, "dragin", "iirc", RIGHT)
    assert "data sets of no table: my_questions" in table(2, tmp_path).about


# -- models ----------------------------------------------------------------------------------------


def test_a_model_the_paper_has_not_stands_beside_all_unless_named(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "iirc", RIGHT)
    beside = table(2, tmp_path)
    assert {labels[0] for labels in filled(beside)} == set(LLMS)
    assert "none of the paper's" in " ".join(beside.about)
    named = table(2, tmp_path, as_model="llama2-7b-chat")
    assert filled(named) == {("Llama2-7b-chat", "DRAGIN (Ours)")}
    assert "almanac as llama2-7b-chat" in named.about[0]
    assert "none of the paper's" not in " ".join(named.about)
    with pytest.raises(SettingError, match="Table 4 has no cell"):  # it has no such rows
        table(4, tmp_path, as_model="llama2-7b-chat")


def test_the_papers_models_find_their_rows(tmp_path: Path) -> None:
    for model in (
        "meta-llama/Llama-2-13b-chat-hf",
        "/models/llama-2-7b-chat-hf/",
        "lmsys/vicuna-13b-v1.5",
    ):
        write_run(
            tmp_path / model.strip("/").replace("/", "-"), "dragin", "iirc", RIGHT, model=model
        )
    made = table(2, tmp_path)
    assert {labels[0] for labels in filled(made)} == set(LLMS)
    assert table(7, tmp_path).about[0].startswith("ours: meta-llama/Llama-2-13b-chat-hf")


def test_models_that_cannot_stand_side_by_side_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "iirc", RIGHT, model="one")
    write_run(tmp_path, "flare", "iirc", RIGHT, model="two")
    with pytest.raises(SettingError, match=r"runs of 2 models \(one, two\); give those of one"):
        table(2, tmp_path)
    with pytest.raises(SettingError, match=r"one beside vicuna-13b-v1\.5"):
        table(2, tmp_path, as_model="vicuna-13b-v1.5")
    with pytest.raises(
        SettingError, match="model of the paper 'gpt' does not exist; one of llama2-13b-chat"
    ):
        table(2, tmp_path, as_model="gpt")


# -- what is marked --------------------------------------------------------------------------------


def test_almanacs_questions_and_a_run_that_is_not_complete_are_marked_at_every_cell(
    tmp_path: Path,
) -> None:
    write_run(tmp_path, "dragin", "almanac/iirc", RIGHT[:3], asked=954, variant="reference")
    write_run(tmp_path, "flare", "iirc", [1.0, None, 0.0])
    made = table(2, tmp_path)
    said = {line[:4]: line[4:] for line in made.about if re.match(r"\([a-z]\) ", line)}
    ours = made.sheet.xs("ours", axis="columns", level="part").to_numpy().ravel()
    marked = {text.partition(" ")[2] for text in ours if text}
    assert marked == {"(a, b)", "(c, d)"}
    assert said["(a) "] == "n = 2 of 3 questions (1 failed)"
    assert said["(b) "] == "paper variant"
    assert said["(c) "].startswith("on Almanac's questions")
    assert said["(d) "] == "n = 3 of 954 questions (the run is not complete)"
    mean = parts(proportion([1.0, 0.0]))
    found = cell(made, "Llama2-7b-chat", "FLARE", column=("IIRC", "EM"))
    assert found == {"paper": 0.136, **mean}


def test_oddities_of_the_paper_are_footnotes() -> None:
    made = table(6)
    assert filled(made) == set()
    assert "(1) on the paper's values: The paper names no data set" in made.show()
    assert made.show().count("names no data set") == 1


# -- which of several runs -------------------------------------------------------------------------


def test_two_runs_that_fit_one_cell_are_named_and_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "hotpotqa", RIGHT[:2], variant="paper")
    write_run(tmp_path, "dragin", "hotpotqa", RIGHT[:3], variant="reference", threshold=0.9)
    with pytest.raises(
        SettingError,
        match=r"2 runs fit rind × qfs on HotpotQA: .*; give the folders .*, or variant=",
    ):
        table(2, tmp_path)
    made = table(2, tmp_path, variant="paper")
    assert cell(made, "Llama2-13b-chat", "DRAGIN (Ours)", column=("HotpotQA", "EM"))["n"] == 2
    write_run(tmp_path, "dragin", "hotpotqa", RIGHT[:4], variant="reference", threshold=1.4)
    with pytest.raises(SettingError, match=r"2 runs fit .*threshold=0.9, .*threshold=1.4"):
        table(2, tmp_path, variant="reference")


def test_table_5_has_a_row_for_each_threshold_of_ours(tmp_path: Path) -> None:
    for theta in (0.25, 1.0, 1.4):
        write_run(tmp_path, "dragin", "hotpotqa", RIGHT, threshold=theta)
    made = table(5, tmp_path)
    assert made.frame.index.tolist() == ["0.25", "1.0", "1.1", "1.2", "1.3", "1.4"]
    assert made.sheet.loc["0.25", ("", "EM", "paper")] == ""
    assert filled(made) == {"0.25", "1.0", "1.4"}


# -- paired tests ----------------------------------------------------------------------------------


def test_rows_are_compared_on_the_same_questions(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "iirc", RIGHT)
    write_run(tmp_path, "flare", "iirc", WORSE[:6], asked=8)
    write_run(tmp_path, "sr-rag", "almanac/iirc", WORSE)
    made = table(2, tmp_path, compare="DRAGIN")
    column = ("IIRC", "EM")
    flare = cell(made, "Llama2-7b-chat", "FLARE", column=column)
    assert flare == flare | difference(paired(WORSE[:6], RIGHT[:6]), "dragin")
    assert "p" not in cell(made, "Llama2-7b-chat", "DRAGIN (Ours)", column=column)
    assert "p" not in cell(made, "Llama2-7b-chat", "SR-RAG", column=column)  # other questions
    assert "− dragin" in made.show()
    assert "not corrected" in made.show()
    assert flare["minus dragin"] == pytest.approx(-1 / 3)


def test_a_data_set_is_missing_where_a_method_has_no_run_of_it(tmp_path: Path) -> None:
    for name in ("dragin", "flare", "fl-rag"):
        for dataset in REAL:
            write_run(tmp_path, name, dataset, RIGHT)
    for number in (2, 3):
        assert "is not in all methods" not in table(number, tmp_path).show()
    shutil.rmtree(next(path for path in tmp_path.rglob("flare*") if "iirc" in str(path)))
    missing = "iirc is not in all methods (no run of flare)"
    assert [line.split(":")[0] for line in table(2, tmp_path).about if "not in all" in line] == [
        missing
    ]


def test_thresholds_and_retrievers_can_be_compared(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "hotpotqa", RIGHT, threshold=1.0)
    write_run(tmp_path, "dragin", "hotpotqa", WORSE, threshold=1.4)
    write_run(tmp_path, "dragin", "iirc", RIGHT)
    write_run(tmp_path, "dragin", "iirc", WORSE, retriever="dense", label="dense")
    for number, base, labels in ((5, "1.0", ("1.4",)), (7, "bm25", ("IIRC", "SGPT"))):
        made = table(number, tmp_path / ("hotpotqa" if number == 5 else "iirc"), compare=base)
        found = cell(made, *labels, column=("", "EM"))
        assert found == found | difference(paired(WORSE, RIGHT), base)


@pytest.mark.parametrize(
    ("number", "given", "says"),
    [
        (
            2,
            {"compare": "dragn"},
            r"row of Table 2 'dragn' does not exist; did you mean 'dragin'\?",
        ),
        (5, {"compare": "2"}, r"row of Table 5 '2' does not exist; .*one of 1\.0, 1\.1"),
        (9, {"compare": "dragin"}, "about settings; it takes neither"),
        (11, {}, "no table 11; give a number from 1 to 9"),
    ],
)
def test_rows_that_do_not_exist_are_refused(number: int, given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        table(number, **given)


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "labels", "printed"),
    [
        (1, "SR-RAG", ["Before Generation", "Initial Input"]),
        (8, ("Retrieval settings", "Top-k"), ["3", "3", "3", "3"]),
        (9, ("Llama2-13b-chat", "θ"), ["0.9", "1.4", "1.25", "1.0"]),
    ],
)
def test_tables_about_settings_show_the_papers_alone(
    number: int, labels: Any, printed: list[str]
) -> None:
    made = table(number)
    assert made.frame.loc[labels, :].tolist() == printed
    assert made.frame.columns.get_level_values("part").unique().tolist() == ["paper"]


# -- formats ---------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Table:
    write_run(
        tmp_path,
        "dragin",
        "almanac/hotpotqa",
        RIGHT,
        model="some_model & more",
        variant="reference",
    )
    write_run(
        tmp_path,
        "flare",
        "almanac/hotpotqa",
        WORSE[:5],
        asked=8,
        model="some_model & more",
        variant="reference",
    )
    return table(2, tmp_path, compare="dragin")


@pytest.mark.parametrize("number", range(1, 10))
def test_every_table_has_every_format(number: int) -> None:
    made = table(number)
    for text in map(made.show, FORMATS):
        assert "None" not in text
        assert "nan" not in text.lower().split()
    assert [line for line in made.show().splitlines() if line != line.rstrip()] == []


def test_text_markdown_and_html_hold_the_same_cells_each_in_its_form(made: Table) -> None:
    text = made.show(width=120)
    assert max(map(len, text.split("\nours:")[0].splitlines()[1:])) <= 120
    markdown, html = made.show("markdown"), made.show("html")
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert len(rows) == 2 + 18
    assert re.fullmatch(r"\|( -+:? \|)+", rows[1])
    assert html.count("<td") == 18 * 13
    assert "some_model &amp; more" in html
    for shown, best in ((text, "0.337*"), (markdown, "**0.337**"), (html, "<b>0.337</b>")):
        assert best in shown
        assert "0.200 (a, b)" in shown
        assert ("*" if shown is text else "bold") + ": the best of the paper's values" in shown
    assert made._repr_html_() == html == made.to_html()
    assert str(made) == made.show()
    assert repr(made).startswith("Table(All methods on the four benchmarks (Table 2")
    with pytest.raises(SettingError, match="did you mean 'text'"):
        made.show("tex")


def test_what_a_reader_would_take_for_markup_is_escaped(tmp_path: Path) -> None:
    write_run(tmp_path, "dragin", "mine", RIGHT, label="a|b <i>")
    made = dl.Runs.load(tmp_path).table()
    assert "<th" in made.to_html()
    assert "a|b &lt;i&gt;" in made.to_html()
    assert r"| a\|b <i> |" in made.to_markdown()


def test_a_style_of_ones_own_begins_with_the_tables(made: Table) -> None:
    style = made.style
    intervals = [column for column in style.columns if column[-1] == "95 %"]
    assert "[0.231, 0.882]" in style.to_html()
    hidden = style.hide(intervals, axis="columns").to_html()
    assert "[0.231, 0.882]" not in hidden
    assert "<b>0.337</b>" in hidden


def read_environments(text: str) -> list[str]:
    """The tables, each of booktabs with as many cells in a row as it has columns."""
    tables = text.split("\n\n")
    for own in tables:
        (spec,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", own)
        body = own.split(r"\end{tabular}")[0].splitlines()
        for line in [line for line in body if line.endswith(r" \\")]:
            spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
            cells = len(re.split(r"(?<!\\)&", line))
            assert cells - len(spans) + sum(spans) == len(spec), line
            assert not line.lstrip().startswith(("[", "*"))
        for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\resizebox{", r"\label{"):
            assert own.count(part) == 1
        assert own.count("{") == own.count("}")
        for name in ("table", "tabular", "minipage"):
            assert own.count(rf"\begin{{{name}}}") == own.count(rf"\end{{{name}}}") <= 1
    assert text.isascii()
    return tables


def test_latex_is_booktabs_with_as_many_cells_as_columns(made: Table) -> None:
    tables = read_environments(made.show("latex"))
    assert [text.count(r"\begin{minipage}") for text in tables] == [0, 0, 0, 1]
    for at, name in enumerate(("2WikiMultihopQA", "HotpotQA", "StrategyQA", "IIRC")):
        assert rf"ACL 2024): {name}}}" in tables[at]
        assert rf"\label{{tab:dragin-2-{at + 1}}}" in tables[at]
    assert r"\bfseries 0.337" in tables[1]
    assert "0.200 (a, b)" in tables[1]
    for part in (r"some\_model \& more", "as\\_model= names", "bold: the best"):
        assert part in tables[3]


def test_latex_has_the_best_in_bold_and_a_label(tmp_path: Path) -> None:
    for name, em in (("dragin", (1.0, 0.0, 1.0, 1.0)), ("flare", (0.0, 1.0, 1.0, 0.0))):
        write_run(tmp_path, name, "mine", em)
    own = dl.Runs.load(tmp_path).table(compare="dragin")
    (text,) = read_environments(own.to_latex())
    for part in (
        r"dragin & \bfseries 0.750 &  & \bfseries 0.875 &  & 0.75 & 41.5 \\",
        r"\label{tab:means}",
        r"$-$0.250",
    ):
        assert part in text
    assert "95" not in text
    (text,) = read_environments(own.to_latex("Mine_1", "tab:x", intervals=True))
    for part in (r"\caption{Mine\_1}", r"\label{tab:x}", "{[}0.301, 0.954{]}", r"brackets: 95 \%"):
        assert part in text


@pytest.mark.parametrize(("methods", "tables"), [(3, 1), (21, 2)])
def test_latex_has_data_sets_one_under_another(tmp_path: Path, methods: int, tables: int) -> None:
    for at in range(methods):
        tokens = [at] * 8
        write_run(tmp_path, "dragin", "mine", RIGHT, label=f"m{at:02}", tokens=tokens)
        write_run(tmp_path, "dragin", "yours", WORSE, label=f"m{at:02}", tokens=tokens)
    made = dl.Runs.load(tmp_path).table()
    found = read_environments(made.to_latex())
    assert len(found) == tables
    if tables == 1:
        assert re.findall(r"^(\S*) & m00 & (\S+) ", found[0], re.MULTILINE) == [
            ("mine", "0.625"),
            ("yours", "0.375"),
        ]
        assert found[0].count(r"\cline{1-6}") == 1


def test_nothing_is_less_than_nothing() -> None:
    tiny = Interval(-1e-9, -1e-9, 1e-9, 3)
    assert texts_of("mean", tiny, "", None, 3)["mean"] == "0.000"


def test_what_latex_would_read_as_a_command_is_escaped() -> None:
    assert escape_latex(r"50% of $x_1$ & {a}#~^\b") == (
        r"50\% of \$x\_1\$ \& \{a\}\#\textasciitilde{}\textasciicircum{}\textbackslash{}b"
    )
    assert escape_latex("θ −1 × [2]*--\n") == r"$\theta$ $-$1 $\times$ {[}2{]}{*}-{}- "


def test_csv_holds_every_figure(made: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(made.show("csv"))))
    (flare,) = (row for row in rows if [*row.values()][:2] == ["Llama2-13b-chat", "FLARE"])
    ours, p = proportion(WORSE[:5]), paired(WORSE[:5], RIGHT[:5]).p_value
    assert flare["HotpotQA EM paper"] == "0.18"
    figures = [float(flare[f"HotpotQA EM {part}"]) for part in ("ours", "low", "high", "n", "p")]
    assert figures == [ours.mean, ours.low, ours.high, 5, p]
    assert "IIRC EM ours" not in flare


def test_a_frame_has_numbers(made: Table) -> None:
    frame = made.frame
    assert frame.index.names == ["LLM", "RAG Method"]
    assert frame.loc[("Llama2-13b-chat", "DRAGIN (Ours)"), ("HotpotQA", "EM", "ours")] == 0.6
    assert {str(kind) for at, kind in frame.dtypes.items() if at[2].split()[-1] == "n"} == {"Int64"}
    assert {str(kind) for at, kind in frame.dtypes.items() if at[2].split()[-1] != "n"} == {
        "float64"
    }
    assert frame["HotpotQA", "EM", "ours"].notna().sum() == 6
    assert str(table(8).frame["HotpotQA", "", "paper"].iloc[0]) == "multihop QA"
    assert frame.attrs == {"title": made.title, "notes": made.about}
