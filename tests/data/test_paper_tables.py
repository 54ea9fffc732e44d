"""The paper's tables: complete, in agreement with one another, and equal to the paper's text
where that is at hand.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

from dragin_lab.data import paper
from dragin_lab.data.presets import find_preset

DATA = Path(os.environ.get("DRAGIN_LAB_DATA") or Path(__file__).parents[2] / "data")
EXTRA = ("best", "note")
#: Rows and columns that the paper prints, labels left out.
SHAPES = {
    1: (5, 2),
    2: (18, 7),
    3: (15, 4),
    4: (8, 4),
    5: (5, 5),
    6: (10, 4),
    7: (6, 4),
    8: (7, 4),
    9: (9, 4),
}
LABELS = {"method", "llm", "threshold", "dataset", "retriever", "part", "setting", "hyperparameter"}

Row = dict[str, str]


def cells(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in LABELS and name not in EXTRA}


def pick(number: int, **labels: str) -> Row:
    (matches,) = [
        row
        for row in paper.rows(number)
        if all(row[name] == value for name, value in labels.items())
    ]
    return matches


# -- by themselves ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", list(paper.TITLES))
def test_every_cell_is_filled(number: int) -> None:
    rows = paper.rows(number)
    assert (len(rows), len(cells(rows[0]))) == SHAPES[number]
    for row in rows:
        assert None not in row
        assert all(value for name, value in row.items() if name not in EXTRA), row
    labels = [tuple(value for name, value in row.items() if name in LABELS) for row in rows]
    assert max(Counter(labels).values()) == 1
    text = (Path(paper.__file__).parent / f"table{number}.csv").read_text(encoding="utf-8")
    assert text.startswith(f"# DRAGIN (ACL 2024), Table {number}, ")


@pytest.mark.parametrize("number", [2, 4, 5, 6, 7])
def test_the_best_of_each_column_is_the_one_that_is_bold(number: int) -> None:
    group = {2: "llm", 4: "llm", 6: "llm", 7: "dataset"}.get(number)
    for key, of in groupby(paper.rows(number), key=lambda row: row[group] if group else "all"):
        rows = list(of)
        for name in cells(rows[0]):
            if name == "num":
                continue  # fewer retrievals are cheaper, not better
            top = max(float(row[name]) for row in rows)
            best = [row for row in rows if float(row[name]) == top]
            assert [row for row in rows if name in row["best"].split()] == best, (number, key, name)


# -- with one another ------------------------------------------------------------------------------


def test_presets_of_the_paper_are_tables_8_and_9() -> None:
    for row in paper.rows(9):
        key = {"θ": "threshold", "top n tokens": "top_n", "generate length": "max_new_tokens"}[
            row["hyperparameter"]
        ]
        for name, value in cells(row).items():
            assert find_preset(row["llm"], name, source="paper").settings[key] == float(value)
    for setting, read in (
        ("#Examplars", lambda p: p.shots),
        ("Top-k", lambda p: p.settings["top_k"]),
    ):
        for name, value in cells(pick(8, setting=setting)).items():
            assert read(find_preset("Llama2-13b-chat", name, source="paper")) == int(value)


# -- with the paper's text -------------------------------------------------------------------------


def paper_text() -> str | None:
    for path in sorted((DATA.parent / "seeds").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        if text.startswith("# DRAGIN"):
            return text
    return None


TEXT = paper_text()
needs_text = pytest.mark.skipif(
    TEXT is None, reason="the paper's text is not in a folder seeds beside DRAGIN_LAB_DATA"
)


def printed_lines(number: int) -> list[list[str]]:
    """The lines of a table in the paper's text, each a list of cells without markup."""
    assert TEXT is not None
    after = TEXT[re.search(rf"^Table {number}: ", TEXT, re.MULTILINE).start() :]  # type: ignore[union-attr]
    lines: list[list[str]] = []
    for line in after.split("\n\n", 1)[1].splitlines():
        if line and "\t" not in line:
            break
        if line:
            lines.append(
                [re.sub(r"</?[bi]>|\$", "", cell).strip() for cell in line.rstrip("\t").split("\t")]
            )
    return lines


@needs_text
@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 7, 9])
def test_numbers_are_those_of_the_text_in_its_order(number: int) -> None:
    read = [part for line in printed_lines(number) for cell in line for part in cell.split()]
    text = [part for part in read if re.fullmatch(r"\d+(\.\d+)?", part)]
    ours = [
        value
        for row in paper.rows(number)
        for name, value in row.items()
        if name not in EXTRA and re.fullmatch(r"\d+(\.\d+)?", value)
    ]
    if number == 7:  # whose two retrievers share a line
        pairs = zip(paper.rows(7)[::2], paper.rows(7)[1::2], strict=True)
        ours = [
            value
            for one, other in pairs
            for pair in zip(cells(one).values(), cells(other).values(), strict=True)
            for value in pair
        ]
    assert ours == text
    assert len(text) == {2: 126, 3: 60, 4: 32, 5: 30, 6: 40, 7: 24, 9: 36}[number]


# -- as data ---------------------------------------------------------------------------------------


def test_all_values_are_one_frame() -> None:
    frame = paper.values()
    for number in paper.TITLES:
        printed = [
            row[name]
            for row in paper.rows(number)
            for name in row
            if name not in (*paper.LABELS, "best", "note")
        ]
        assert frame[frame["table"] == number]["printed"].tolist() == printed
    best = frame.query("table == 5 and metric == 'em' and threshold == '1.4'").iloc[0]
    assert (best["on"], best["model"], best["value"], best["best"]) == (
        "hotpotqa",
        "llama2-13b-chat",
        0.337,
        True,
    )
    assert frame[frame["value"].isna()]["table"].isin([1, 8, 9]).all()  # texts
    fl_rag = frame.query("table == 3 and metric == 'tokens'")
    assert set(fl_rag["method"]) == {"Avg. Tokens"}
