"""One table type: cells with a mean and its interval, or a text, and the paper's value beside them, laid out by pandas.

A table is read as numbers (``Table.frame``) or written as text, HTML, Markdown, LaTeX or CSV (``Table.show``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import choice
from dragin_lab.run.intervals import Interval, bracket
from dragin_lab.study.statistics import PairedTest
from dragin_lab.text import csv_text

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("text", "html", "markdown", "latex", "csv")
#: What LaTeX would not print as it is. A bracket or a star after the end of a row would be read as its option.
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$", '"': "''",
    "θ": r"$\theta$", "−": "$-$", "×": r"$\times$", "–": "--", "’": "'", "…": r"\dots{}", "[": "{[}", "]": "{]}",
    "*": "{*}", "\n": " ",
})  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One cell: a mean with its interval (``ours``) or a text (``setting``), and the paper's value as printed."""

    printed: str = ""  # "" where the paper has none
    best: bool = False  # the best of the paper's values
    ours: Interval | None = None
    setting: str = ""
    marks: tuple[str, ...] = ()  # keys of ``Table.marks``
    test: PairedTest | None = None  # ours against the row that all are compared with
    places: int = 3  # decimals of ours

    def texts(self, own: str, base: str) -> dict[str, str | None]:
        """The parts of the cell as text; None for those that it does not have."""
        marks = f" ({', '.join(self.marks)})" if self.marks else ""
        mean = f"{self.ours.mean:.{self.places}f}" if self.ours else self.setting
        return {
            "paper": f"{self.printed}{'*' * self.best}" or None,
            own if self.ours or own == "ours" else "": f"{mean}{marks}" if mean else None,
            "95 %": bracket(self.ours.low, self.ours.high, places=self.places) if self.ours else None,
            f"− {base}": f"{self.test.difference:+.{self.places}f} (p {self.test.p})" if self.test else None,
        }

    def values(self, own: str, base: str) -> dict[str, Any]:
        """The parts of the cell as values; None for those that it does not have."""
        ours, test, base = self.ours, self.test, f"minus {base}"
        return {
            "paper": self.printed or None,
            own: self.setting or (ours.mean if ours else None),
            **{name: getattr(ours, name) if ours else None for name in ("low", "high", "n")},
            base: test.difference if test else None,
            **{f"{base} {name}": getattr(test, name) if test else None for name in ("low", "high", "n")},
            "p": test.p_value if test else None,
        }


@dataclass(frozen=True)
class Row:
    """One row; ``note`` says what is odd about the paper's values."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    note: str = ""


@dataclass
class Table:
    """A table of the paper, filled as far as the runs allow; or, with ``number`` 0, one of your own values alone.

    Printing it gives text; a notebook shows HTML.
    """

    number: int
    title: str
    labels: tuple[str, ...]  # headings of ``Row.labels``
    columns: tuple[tuple[str, str], ...]  # (heading, measure) of ``Row.cells``
    rows: list[Row]
    about: list[str] = field(default_factory=list)  # what our values are
    marks: dict[str, str] = field(default_factory=dict)  # mark -> what it says
    compared_with: str = ""

    @property
    def filled(self) -> int:
        """How many cells hold a value of ours."""
        return sum(cell.ours is not None or bool(cell.setting) for row in self.rows for cell in row.cells)

    @property
    def frame(self) -> pd.DataFrame:
        """One frame row per row (pandas.DataFrame): labels as index; columns (heading, measure, part).

        Parts: ``paper``, ``ours`` (``mean`` in a table of your own values), ``low``, ``high``, ``n`` and, where
        methods are compared, ``minus METHOD``, its ``low``, ``high`` and ``n``, and ``p``; only those that some cell
        has. Settings are text, results float64. ``frame.attrs["notes"]`` are the lines below the table.
        """
        import pandas as pd

        frame = self._spread(Cell.values)
        for column in frame:
            numbers = pd.to_numeric(frame[column], errors="coerce")
            if numbers.notna().sum() == frame[column].notna().sum():
                frame[column] = numbers.astype("float64")
        frame.attrs = {"title": self.title, "notes": self._notes()}
        return frame

    def latex(self) -> str:
        """The table for LaTeX, with the package booktabs."""
        return self.show("latex")

    def markdown(self) -> str:
        """The table in Markdown."""
        return self.show("markdown")

    def show(self, form: str = "text", *, width: int | None = None) -> str:
        """The table in one of ``FORMATS``; as text it is folded between columns to at most ``width`` characters."""
        import pandas as pd

        if choice("format", form, FORMATS) == "csv":
            frame = self._spread(Cell.values)
            frame.columns = [" ".join(filter(None, column)) for column in frame.columns]
            return csv_text(frame, index=True).rstrip("\n")
        sheet, notes = self._sheet(), self._notes()
        heading = f"{self.title} (Table {self.number} of DRAGIN, ACL 2024)" if self.number else self.title
        if form == "latex":
            return _to_latex(sheet, heading, notes)
        if form == "html":
            parts = [f"<p><b>{escape(heading)}</b></p>", sheet.to_html(border=0)]
            return "\n".join([*parts, *(f"<p>{escape(note)}</p>" for note in notes)])
        if form == "markdown":
            names = [" ".join(filter(None, column)) for column in sheet.columns]
            rows = [[*labels, *cells] for labels, cells in zip(sheet.index, sheet.to_numpy(), strict=True)]
            lines = [[*self.labels, *names], ["---"] * len(self.labels) + ["---:"] * len(names), *rows]
            table = [f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines]
            return "\n".join([f"**{heading}**", "", *table, "", "  \n".join(notes)]).rstrip()
        with pd.option_context("display.unicode.east_asian_width", True):
            lines = sheet.to_string(line_width=width).splitlines()
        return "\n".join([heading, "", *map(str.rstrip, lines), "", *notes]).rstrip()

    def _spread(self, parts: Callable[[Cell, str, str], dict[str, Any]]) -> pd.DataFrame:
        """A column for each part that some cell has."""
        import pandas as pd

        own = "ours" if self.number else "mean"
        rows = [[parts(cell, own, self.compared_with) for cell in row.cells] for row in self.rows]
        columns = [
            (at, part)
            for at in range(len(self.columns))
            for part in dict.fromkeys(part for row in rows for part in row[at])
        ]
        names = [name or f"label {at}" for at, name in enumerate(self.labels, 1)]
        index = pd.MultiIndex.from_tuples([row.labels for row in self.rows], names=names)
        header = pd.MultiIndex.from_tuples(
            [(*self.columns[at], part) for at, part in columns], names=["", "measure", "part"]
        )
        values = [[row[at].get(part) for at, part in columns] for row in rows]
        return pd.DataFrame(values, index, header, dtype=object).dropna(axis="columns", how="all")

    def _sheet(self) -> pd.DataFrame:
        """Every cell as text; without a row of headings where all are empty."""
        import pandas as pd

        frame, odd = self._spread(Cell.texts).fillna(""), self._odd
        labels = [
            (*row.labels[:-1], row.labels[-1] + (f" ({1 + odd.index(row.note)})" if row.note else ""))
            for row in self.rows
        ]
        frame.index = pd.MultiIndex.from_tuples(labels, names=self.labels)
        parts = set(frame.columns.get_level_values(2))
        empty = [at for at in (0, 1) if set(frame.columns.get_level_values(at)) == {""}]
        frame.columns = frame.columns.droplevel([*empty, 2] if parts <= {"mean", ""} and len(empty) < 2 else empty)
        if frame.columns.nlevels == 1:
            frame.columns = pd.MultiIndex.from_arrays([frame.columns])
        frame.columns.names = [None] * frame.columns.nlevels
        return frame

    @property
    def _odd(self) -> list[str]:
        return list(dict.fromkeys(row.note for row in self.rows if row.note))

    def _notes(self) -> list[str]:
        """The lines below the table."""
        tested = any(cell.test for row in self.rows for cell in row.cells)
        notes = [line for line in self.about if tested or not line.startswith(f"− {self.compared_with}: ")]
        if any(cell.best for row in self.rows for cell in row.cells):
            notes.append("*: the best of the paper's values")
        notes += [f"({mark}) {text}" for mark, text in self.marks.items()]
        return notes + [f"({number}) on the paper's values: {text}" for number, text in enumerate(self._odd, 1)]

    def __str__(self) -> str:
        return self.show()

    def __repr__(self) -> str:
        cells = sum(len(row.cells) for row in self.rows)
        return f"Table({self.number}, {self.title}: {self.filled} of {cells} cells are ours)"

    def _repr_html_(self) -> str:
        return self.show("html")


def escape_latex(text: Any) -> str:
    """A text that LaTeX prints as it is."""
    return str(text).replace("--", "-\0-").translate(_LATEX).replace("\0", "{}")


def _to_latex(sheet: pd.DataFrame, heading: str, notes: list[str]) -> str:
    """A ``table`` environment for the package booktabs; the paper's best values are bold."""
    sheet = sheet.rename(index=escape_latex, columns=escape_latex)
    sheet.index.names = [escape_latex(name) for name in sheet.index.names]
    styler = sheet.style.format(lambda text: escape_latex(text.rstrip("*")))
    styler = styler.map(lambda text: "font-weight: bold" if text.endswith("*") else "")
    form = "l" * sheet.index.nlevels + "r" * sheet.shape[1]
    table = styler.to_latex(
        hrules=True, caption=escape_latex(heading), column_format=form, position_float="centering",
        sparse_index=False, multicol_align="c", convert_css=True,
    ).rstrip()  # fmt: skip
    below = " \\\\\n".join(escape_latex(note).replace("{*}: the best", "bold: the best") for note in notes)
    note = rf"\par\medskip\begin{{minipage}}{{\linewidth}}\footnotesize\raggedright {below}\end{{minipage}}"
    return table.replace(r"\end{table}", f"{note}\n\\end{{table}}") if notes else table
