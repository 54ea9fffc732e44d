"""What a table of the paper holds: cells with the paper's value, ours and its interval; rows; headings and notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from dragin_lab.core.intervals import Interval
from dragin_lab.study.comparisons import PairedTest


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
    missing: list[str] = field(default_factory=list)  # what no run was given for, and commands that make it
    compared_with: str = ""

    @property
    def source(self) -> str:
        """Where the paper has it; "" for one of our own."""
        return f"Table {self.number} of DRAGIN, ACL 2024" if self.number else ""

    @property
    def filled(self) -> int:
        """How many cells hold a value of ours."""
        return sum(cell.ours is not None or bool(cell.setting) for row in self.rows for cell in row.cells)
