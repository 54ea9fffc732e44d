"""One table type: cells with a mean and its interval, or a text, and the paper's value beside them, laid out by pandas.

A table is read as numbers (``Table.frame``) or written as text, HTML, Markdown, LaTeX or CSV (``Table.show``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from dragin_lab.checks import choice, several
from dragin_lab.run.intervals import Interval, bracket
from dragin_lab.study.comparisons import PairedTest
from dragin_lab.text import csv_text

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("text", "html", "markdown", "latex", "csv")
PAPER, OURS, INTERVAL = "paper", "ours", "95 %"

#: Private characters around raised and bold text: every format keeps them, and replaces them last.
_MARKUP = "\ue000\ue001\ue002\ue003"
_RAISED, _BOLD = "\ue000{}\ue001", "\ue002{}\ue003"
_WRITTEN = {
    "text": ("^", "", "", "*"),
    "markdown": ("<sup>", "</sup>", "**", "**"),
    "html": ("<sup>", "</sup>", "<b>", "</b>"),
    "latex": (r"\textsuperscript{", "}", r"\textbf{", "}"),
}
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
    best: bool = False  # printed in bold
    ours: Interval | None = None
    setting: str = ""
    marks: tuple[str, ...] = ()  # keys of ``Table.marks``
    test: PairedTest | None = None  # ours against the row that all are compared with
    places: int = 3  # decimals of ours

    def texts(self, own: str, base: str) -> dict[str, str | None]:
        """The parts of the cell as text; None for those that it does not have."""
        marks = _RAISED.format(",".join(self.marks)) if self.marks else ""
        setting = f"{self.setting}{marks}" if self.setting else None
        mean = f"{self.ours.mean:.{self.places}f}{marks}" if self.ours else None
        return {
            PAPER: (_BOLD.format(self.printed) if self.best else self.printed) or None,
            own: setting,
            own or "mean": mean or (setting if own else None),
            INTERVAL: bracket(self.ours.low, self.ours.high, places=self.places) if self.ours else None,
            f"− {base}": f"{self.test.difference:+.{self.places}f} (p {self.test.p})" if self.test else None,
        }

    def values(self, own: str, base: str) -> dict[str, Any]:
        """The parts of the cell as values; None for those that it does not have."""
        ours, test, base = self.ours, self.test, f"minus {base}"
        return {
            PAPER: self.printed or None,
            own or "mean": self.setting or (ours.mean if ours else None),
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
    chosen: tuple[str, ...] = ()  # as ``choose`` got them; empty: every column

    @property
    def filled(self) -> int:
        """How many cells hold a value of ours."""
        return sum(cell.ours is not None or bool(cell.setting) for row in self.rows for cell in row.cells)

    def choose(self, columns: Iterable[str]) -> Table:
        """The table with some of its columns, in the order given.

        ``columns`` name headings, measures and parts, as they stand above the columns, in any case: "EM" takes that
        measure of every data set, "HotpotQA" all of one, both together one measure of one; "paper", "ours", "mean",
        "95 %" and "p" (the difference with its p value) choose among the parts. ``show`` and ``frame`` raise
        ``SettingError`` for a name that no column has.
        """
        names = several("columns", columns, str, "give names of columns, such as ['EM', 'F1']", alone=True)
        return replace(self, chosen=tuple(names))

    @property
    def frame(self) -> pd.DataFrame:
        """One frame row per row (pandas.DataFrame): labels as index; columns (heading, measure, part).

        Parts: ``paper``, ``ours`` (``mean`` in a table of your own values), ``low``, ``high``, ``n`` and, where
        methods are compared, ``minus METHOD``, its ``low``, ``high`` and ``n``, and ``p``; only those that some cell
        has. Settings are text, results float64.
        """
        import pandas as pd

        frame = self._spread(Cell.values)
        for column in frame:
            numbers = pd.to_numeric(frame[column], errors="coerce")
            if numbers.notna().sum() == frame[column].notna().sum():
                frame[column] = numbers.astype("float64")
        return frame

    def latex(self) -> str:
        """The table for LaTeX, with the package booktabs."""
        return self.show("latex")

    def markdown(self) -> str:
        """The table in Markdown."""
        return self.show("markdown")

    def show(self, form: str = "text", *, width: int | None = None) -> str:
        """The table in one of ``FORMATS``; as text it is folded between columns to at most ``width`` characters.

        LaTeX needs the package booktabs.
        """
        if choice("format", form, FORMATS) == "csv":
            return self._csv()
        frame = self._sheet()
        below = self._below(frame, "*" if form == "text" else "bold")
        heading = f"{self.title} (Table {self.number} of DRAGIN, ACL 2024)" if self.number else self.title
        if form == "text":
            return _to_text(frame, heading, below, width)
        write = {"html": _to_html, "markdown": _to_markdown, "latex": _to_latex}
        return _mark_up(write[form](frame, heading, below), form)

    def _spread(self, parts: Callable[[Cell, str, str], dict[str, Any]]) -> pd.DataFrame:
        """A column for each part that some cell has, without those that were not chosen."""
        import pandas as pd

        own = OURS if self.number else ""
        rows = [[parts(cell, own, self.compared_with) for cell in row.cells] for row in self.rows]
        columns = [
            (at, part)
            for at in range(len(self.columns))
            for part in dict.fromkeys(part for row in rows for part in row[at])
        ]
        values = [[row[at].get(part) for at, part in columns] for row in rows]
        names = [name or f"label {at}" for at, name in enumerate(self.labels, 1)]
        index = pd.MultiIndex.from_tuples([row.labels for row in self.rows], names=names)
        headings = [(*self.columns[at], part) for at, part in columns]
        header = pd.MultiIndex.from_tuples(headings, names=["", "measure", "part"])
        frame = pd.DataFrame(values, index, header, dtype=object).dropna(axis="columns", how="all")
        return frame[_choose_columns(list(frame.columns), self.chosen)] if self.chosen else frame

    def _sheet(self) -> pd.DataFrame:
        """Every cell as text, without levels of headings that are empty."""
        import pandas as pd

        frame = self._spread(Cell.texts).fillna("")
        notes = self._notes()
        labels = [
            (*row.labels[:-1], row.labels[-1] + (_RAISED.format(1 + notes.index(row.note)) if row.note else ""))
            for row in self.rows
        ]
        frame.index = pd.MultiIndex.from_tuples(labels, names=self.labels)
        empty = [at for at in range(3) if set(frame.columns.get_level_values(at)) <= {"", "mean"}]
        empty = empty[:2]  # one level has to stay
        frame.columns = frame.columns.droplevel(empty)
        frame.columns.names = [None] * frame.columns.nlevels
        return frame

    def _notes(self) -> list[str]:
        return list(dict.fromkeys(row.note for row in self.rows if row.note))

    def _below(self, frame: pd.DataFrame, bold: str) -> list[str]:
        """The lines under the table as it is shown; ``bold`` is how bold values look."""
        base, parts = f"− {self.compared_with}", frame.columns.get_level_values(-1)
        lines = [line for line in self.about if base in parts or not line.startswith(f"{base}: ")]
        if frame.map(lambda text: "\ue002" in text).any(axis=None):
            lines.append(f"{bold}: the best of the paper's values")
        lines += [f"{_RAISED.format(mark)} {text}" for mark, text in self.marks.items()]
        notes = enumerate(self._notes(), 1)
        return lines + [f"{_RAISED.format(number)} on the paper's values: {text}" for number, text in notes]

    def _csv(self) -> str:
        """A header, then a line per row: ours in full precision, the paper's as printed, remarks in ``note``."""
        frame = self._spread(Cell.values)
        frame.columns = [" ".join(filter(None, column)) for column in frame.columns]
        marks = [dict.fromkeys(mark for cell in row.cells for mark in cell.marks) for row in self.rows]
        frame["note"] = [
            "; ".join([*map(self.marks.__getitem__, own), *([f"paper: {row.note}"] if row.note else [])])
            for row, own in zip(self.rows, marks, strict=True)
        ]
        return csv_text(frame, index=True).rstrip("\n")

    def __str__(self) -> str:
        return self.show()

    def __repr__(self) -> str:
        cells = sum(len(row.cells) for row in self.rows)
        return f"Table({self.number}, {self.title}: {self.filled} of {cells} cells are ours)"

    def _repr_html_(self) -> str:
        return self.show("html")


def _choose_columns(columns: Sequence[tuple[str, ...]], names: Sequence[str]) -> list[tuple[str, ...]]:
    """The columns that have a chosen name in every level that a name is of, in the order of the names."""
    plain = {column: (*map(str.casefold, column[:2]), _name_part(column[2])) for column in columns}
    levels = [list(dict.fromkeys(level)) for level in zip(*plain.values(), strict=True)]
    orders: list[list[str]] = [[], [], []]
    for name in names:
        keys = (name.strip().casefold(), name.strip().casefold(), _name_part(name))
        if not any(key in level for key, level in zip(keys, levels, strict=True)):
            choice("column", keys[0], dict.fromkeys(known for level in levels for known in level if known))
        for key, level, order in zip(keys, levels, orders, strict=True):
            order += [key] if key in level else []
    orders = [[*order, ""] if order else level for order, level in zip(orders, levels, strict=True)]

    def place(column: tuple[str, ...]) -> list[int]:
        return [order.index(key) if key in order else -1 for key, order in zip(plain[column], orders, strict=True)]

    return sorted((column for column in columns if -1 not in place(column)), key=place)


def _name_part(name: str) -> str:
    """A part's name in ``choose``: both ends of an interval have one, and so have a difference and its p value."""
    name = name.strip().casefold()
    if name in ("low", "high"):
        return INTERVAL
    return "difference" if name == "p" or name.startswith(("minus ", "− ")) else name


def _mark_up(text: str, form: str) -> str:
    return text.translate(dict(zip(map(ord, _MARKUP), _WRITTEN[form], strict=True)))


def _to_text(frame: pd.DataFrame, heading: str, below: Sequence[str], width: int | None) -> str:
    """Columns side by side; those that do not fit into ``width`` follow below, with the labels again."""
    import pandas as pd

    def mark_up(text: str) -> str:
        return _mark_up(text, "text")

    plain = frame.map(mark_up).rename(index=mark_up)
    with pd.option_context("display.unicode.east_asian_width", True):
        blocks = [""]
        columns: list[Any] = []
        for cell in _group_parts(frame.columns):
            wider = plain[columns + cell].to_string()
            if columns and width is not None and cell_len(wider.partition("\n")[0]) > width:
                columns, wider = [], plain[cell].to_string()
                blocks.append("")
            columns, blocks[-1] = columns + cell, wider
    lines = [line for block in blocks for line in ("", *block.splitlines())]
    return "\n".join(line.rstrip() for line in [heading, *lines, "", *map(mark_up, below)]).rstrip()


def _group_parts(columns: Iterable[Any]) -> list[list[Any]]:
    """The columns with the parts of a cell together, which text is not folded between."""
    groups: list[list[Any]] = []
    for column in columns:
        part = column if isinstance(column, str) else column[-1]
        if groups and (part in (OURS, INTERVAL) or part.startswith("− ")):
            groups[-1].append(column)
        else:
            groups.append([column])
    return groups


def _to_html(frame: pd.DataFrame, heading: str, below: Sequence[str]) -> str:
    parts = [f"<p><b>{escape(heading)}</b></p>", frame.to_html(border=0)]
    return "\n".join([*parts, *(f"<p>{escape(line)}</p>" for line in below)])


def _to_markdown(frame: pd.DataFrame, heading: str, below: Sequence[str]) -> str:
    names = [column if isinstance(column, str) else " ".join(filter(None, column)) for column in frame.columns]
    rules = ["---"] * frame.index.nlevels + ["---:"] * len(names)
    rows = ([*labels, *cells] for labels, cells in zip(frame.index, frame.to_numpy(), strict=True))
    lines = [[*frame.index.names, *names], rules, *rows]
    table = [f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines]
    return "\n".join([f"**{heading}**", "", *table, "", "  \n".join(below)]).rstrip()


def escape_latex(text: str) -> str:
    """A text that LaTeX prints as it is."""
    return text.replace("--", "-\0-").translate(_LATEX).replace("\0", "{}")


def _to_latex(frame: pd.DataFrame, heading: str, below: Sequence[str]) -> str:
    """A ``table`` environment for the package booktabs."""
    escaped = frame.map(escape_latex).rename(index=escape_latex, columns=escape_latex)
    escaped.index.names = [escape_latex(name) for name in frame.index.names]
    form = "l" * frame.index.nlevels + "r" * frame.shape[1]
    table = escaped.to_latex(
        escape=False, caption=escape_latex(heading), column_format=form, multirow=False, multicolumn_format="c"
    )
    notes = " \\\\\n".join(map(escape_latex, below))
    note = rf"\par\medskip\begin{{minipage}}{{\linewidth}}\footnotesize\raggedright {notes}\end{{minipage}}"
    table = table.replace(r"\begin{table}", "\\begin{table}\n\\centering").rstrip()
    return table.replace(r"\end{table}", f"{note}\n\\end{{table}}") if below else table
