"""The paper's tables of settings, and every table in every format."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from run_folders import write_run

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.run.intervals import Interval, proportion
from dragin_lab.study.latex import escape_latex
from dragin_lab.study.paper_tables import table
from dragin_lab.study.statistics import paired
from dragin_lab.study.table import FORMATS, Cell, Table

RIGHT = (1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0)
WORSE = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0)


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "labels", "printed"),
    [
        (1, ("SR-RAG",), ["Before Generation", "Initial Input"]),
        (8, ("Retrieval settings", "Top-k"), ["3", "3", "3", "3"]),
        (9, ("Llama2-13b-chat", "θ"), ["0.9", "1.4", "1.25", "1.0"]),
    ],
)
def test_tables_about_settings_show_the_papers_alone(number: int, labels: tuple[str, ...], printed: list[str]) -> None:
    made = table(number)
    row = next(row for row in made.rows if row.labels == labels)
    assert ([cell.printed for cell in row.cells], made.filled) == (printed, 0)


# -- formats ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Table:
    write_run(tmp_path, "dragin", "almanac/hotpotqa", RIGHT, model="some_model & more", variant="reference")
    write_run(tmp_path, "flare", "almanac/hotpotqa", WORSE[:5], asked=8, model="some_model & more", variant="reference")
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
    assert html.count("<td>") == 18 * 13
    assert "some_model &amp; more" in html
    for shown in (text, markdown, html):
        assert "0.337*" in shown
        assert "0.200 (a, b)" in shown
    assert made._repr_html_() == html
    assert str(made) == made.show()
    with pytest.raises(SettingError, match="did you mean 'text'"):
        made.show("tex")


def test_latex_is_booktabs_with_as_many_cells_as_columns(made: Table) -> None:
    text = made.show("latex")
    (spec,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    body = text.split(r"\end{tabular}")[0].splitlines()
    for line in [line for line in body if line.endswith(r" \\")]:
        spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
        cells = len(re.split(r"(?<!\\)&", line))
        assert cells - len(spans) + sum(spans) == len(spec), line
        assert not line.lstrip().startswith(("[", "*"))
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\hline")] == [1, 1, 1, 0]
    assert text.count("{") == text.count("}")
    for part in (r"some\_model \& more", r"\bfseries 0.337", r"\resizebox{", r"-{}-as"):
        assert part in text
    assert text.isascii()
    for name in ("table", "tabular", "minipage"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 1


def test_latex_has_chosen_columns_a_label_and_the_best_in_bold(tmp_path: Path) -> None:
    for name, em in (("dragin", (1.0, 0.0, 1.0, 1.0)), ("flare", (0.0, 1.0, 1.0, 0.0))):
        write_run(tmp_path, name, "mine", em)
    own = dl.Runs.load(tmp_path).table(compare="dragin")
    text = own.show("latex")
    for part in (
        r"dragin & \bfseries 0.750 &  & \bfseries 0.875 &  & 0.75 & 41.5 \\",
        r"\label{tab:means}",
        r"$-$0.250",
    ):
        assert part in text
    assert "95" not in text.split(r"\bottomrule")[0]
    text = own.show("latex", columns=["F1", "95 %"], caption="Mine_1", label="tab:x")
    for part in (r"\caption{Mine\_1}", r"\label{tab:x}", r"\begin{tabular}{lr}"):
        assert part in text
    assert "tokens" not in own.show(columns=["EM"])
    with pytest.raises(SettingError, match="column 'em' does not exist"):
        own.show(columns=["em"])
    with pytest.raises(SettingError, match="caption and label are LaTeX's"):
        own.show(label="x")
    tiny = Cell(ours=Interval(-1e-9, -1e-9, 1e-9, 3))
    assert tiny.texts("mean", "")["mean"] == "0.000"


def test_what_latex_would_read_as_a_command_is_escaped() -> None:
    assert escape_latex(r"50% of $x_1$ & {a}#~^\b") == (
        r"50\% of \$x\_1\$ \& \{a\}\#\textasciitilde{}\textasciicircum{}\textbackslash{}b"
    )
    assert escape_latex("θ −1 × [2]*--\n") == r"$\theta$ $-$1 $\times$ {[}2{]}{*}-{}- "


def test_csv_holds_every_figure(made: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(made.show("csv"))))
    (flare,) = (row for row in rows if [*row.values()][:2] == ["Llama2-13b-chat", "FLARE"])
    ours, p = proportion(WORSE[:5]), paired(WORSE[:5], RIGHT[:5]).p_value
    assert flare["HotpotQA EM paper"] == "0.180"  # as printed
    figures = [float(flare[f"HotpotQA EM {part}"]) for part in ("ours", "low", "high", "n", "p")]
    assert figures == [ours.mean, ours.low, ours.high, 5, p]
    assert "IIRC EM ours" not in flare


def test_a_frame_has_numbers(made: Table) -> None:
    frame = made.frame
    assert frame.index.names == ["LLM", "RAG Method"]
    assert frame.loc[("Llama2-13b-chat", "DRAGIN (Ours)"), ("HotpotQA", "EM", "ours")] == 0.6
    assert {str(kind) for at, kind in frame.dtypes.items() if at[2].split()[-1] == "n"} == {"Int64"}
    assert {str(kind) for at, kind in frame.dtypes.items() if at[2].split()[-1] != "n"} == {"float64"}
    assert frame["HotpotQA", "EM", "ours"].notna().sum() == 6
    assert str(table(8).frame["HotpotQA", "", "paper"].iloc[0]) == "multihop QA"
