"""What a table of the paper holds: cells with the paper's value, ours and its interval; rows; headings and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dragin_lab.run.intervals import Interval
from dragin_lab.run.lines import SCORES, interval_of, value_of
from dragin_lab.study.comparisons import PairedTest, paired


@dataclass(frozen=True)
class Cell:
    """One cell. ``setting`` is ours where the table is about settings; ``marks`` are keys of ``Table.marks``."""

    printed: str = ""  # the paper's value; "" where it has none
    best: bool = False  # printed in bold
    ours: Interval | None = None
    setting: str = ""
    marks: tuple[str, ...] = ()
    test: PairedTest | None = None  # ours against the row that all are compared with
    places: int = 3  # decimals of ours


@dataclass(frozen=True)
class Row:
    """One row; ``note`` says what is odd about the paper's values."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    note: str = ""


@dataclass
class Cells:
    """A table of the paper, filled as far as runs allow; or, with ``number`` 0, one of our own values alone."""

    number: int
    title: str
    labels: tuple[str, ...]  # headings of the columns of ``Row.labels``
    columns: tuple[tuple[str, str], ...]  # (heading, measure) of ``Row.cells``
    rows: list[Row]
    about: list[str] = field(default_factory=list)  # what our values are
    marks: dict[str, str] = field(default_factory=dict)  # mark -> what it says
    compared_with: str = ""

    @property
    def source(self) -> str:
        """Where the paper has it; "" for one of our own."""
        return f"Table {self.number} of DRAGIN, ACL 2024" if self.number else ""

    @property
    def filled(self) -> int:
        """How many cells hold a value of ours."""
        return sum(cell.ours is not None or bool(cell.setting) for row in self.rows for cell in row.cells)


#: What the brackets of a table hold, said below it.
INTERVALS = (
    "brackets: 95 % intervals over the questions (Wilson where values are 0 or 1, else bootstrap; "
    "– where all are equal)"
)


def comparing(base: str, test: str) -> str:
    """The line below a table whose rows are tested against one."""
    return (
        f"− {base}: difference to that row on the same questions, with the p value of a two-sided {test}, not "
        "corrected for how many there are"
    )


def measured(lines: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, float]:
    """Question id -> value, of the prediction lines that did not fail and have one."""
    values = {qid: value_of(line, key) for qid, line in lines.items() if line["ended"] != "error"}
    return {qid: value for qid, value in values.items() if value is not None}


def mean_cell(measure: str, own: dict[str, float], base: dict[str, float] | None, places: int) -> Cell:
    """The mean of a measure with its interval, and its difference to the same of another method."""
    if not own:
        return Cell()
    both = [qid for qid in own if qid in base] if base else []
    test = (
        paired([own[qid] for qid in both], [base[qid] for qid in both], scores=measure in SCORES)
        if base and both
        else None
    )
    return Cell(ours=interval_of(measure, list(own.values())), test=test, places=places)
