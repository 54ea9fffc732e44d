"""One table type: cells with a mean and its interval, or a text, and the paper's value beside them,
laid out by pandas.

A table is read as numbers (``Table.frame``) or written as text, HTML, Markdown, LaTeX or CSV
(``Table.show``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import choice
from dragin_lab.data.exemplars import among_exemplars, say_among
from dragin_lab.errors import SettingError
from dragin_lab.run.intervals import Interval, bracket, describe_failures
from dragin_lab.run.rundir import RunRecord, own_metrics
from dragin_lab.study.compared import Compared
from dragin_lab.study.conditions import At, list_differences, list_idle_thresholds
from dragin_lab.study.latex import SHORT, choose_columns, to_latex
from dragin_lab.study.statistics import PairedTest
from dragin_lab.text import csv_text

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("text", "html", "markdown", "latex", "csv")
#: What the brackets of a table hold; a line below it.
INTERVALS = (
    "brackets: 95 % intervals over the questions (Wilson where values are 0 or 1, else bootstrap; "
    "– where all are equal)"
)
TESTED = "test (EM: McNemar, exact; else by permutation)"
#: What a table has of each data set: heading, entry of a prediction line, decimals.
_SCORED = (("EM", "em", 3), ("F1", "f1", 3))
_COUNTS = (("retrievals", "retrievals", 2), ("tokens", "tokens", 1))


@dataclass(frozen=True)
class Cell:
    """One cell: a mean with its interval (``ours``) or a text (``setting``), and the paper's
    value as printed.
    """

    printed: str = ""  # "" where the paper has none
    # the best of the paper's values, or of ours in a table that has none of the paper's
    best: bool = False
    ours: Interval | None = None
    setting: str | int = ""  # a text, or a count
    marks: tuple[str, ...] = ()  # keys of ``Table.marks``
    test: PairedTest | None = None  # ours against the row that all are compared with
    places: int = 3  # decimals of ours

    def texts(self, own: str, base: str) -> dict[str, str | None]:
        """The parts of the cell as text; None for those that it does not have."""
        marks = f" ({', '.join(self.marks)})" if self.marks else ""
        star = "*" * (self.best and not self.printed)
        setting = f"{self.setting:,}" if isinstance(self.setting, int) else self.setting
        mean = f"{self.ours.mean:z.{self.places}f}{star}" if self.ours else setting
        return {
            "paper": f"{self.printed}{'*' * self.best}" if self.printed else None,
            "": f"{mean}{marks}" if mean and not self.ours and own != "ours" else None,
            own: f"{mean}{marks}" if mean and (self.ours or own == "ours") else None,
            "95 %": (
                bracket(self.ours.low, self.ours.high, places=self.places) if self.ours else None
            ),
            f"− {base}": (
                f"{self.test.difference:+z.{self.places}f} (p {self.test.p})" if self.test else None
            ),
        }

    def values(self, own: str, base: str) -> dict[str, Any]:
        """The parts of the cell as values; None for those that it does not have."""
        ours, test, base = self.ours, self.test, f"minus {base}"
        return {
            "paper": self.printed or None,
            own: ours.mean if ours else None if self.setting == "" else self.setting,
            **{name: getattr(ours, name, None) for name in ("low", "high", "n")},
            base: getattr(test, "difference", None),
            **{f"{base} {name}": getattr(test, name, None) for name in ("low", "high", "n")},
            "p": getattr(test, "p_value", None),
        }


@dataclass(frozen=True)
class Row:
    """One row; ``note`` says what is odd about the paper's values."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    note: str = ""


@dataclass
class Table:
    """A table of the paper, filled as far as the runs allow; or, with ``number`` 0, one of your own
    values alone.

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
        return sum(
            cell.ours is not None or cell.setting != "" for row in self.rows for cell in row.cells
        )

    @property
    def frame(self) -> pd.DataFrame:
        """One frame row per row (pandas.DataFrame): labels as index; columns (heading, measure,
        part).

        Parts: ``paper``, ``ours`` (``mean`` in a table of your own values), ``low``, ``high``,
        ``n`` and, where methods are compared, ``minus METHOD``, its ``low``, ``high`` and ``n``,
        and ``p``; only those that some cell has. Settings are text, counts Int64, results float64.
        ``frame.attrs["notes"]`` are the lines below the table.
        """
        import pandas as pd

        frame = self._spread(Cell.values)
        for column in frame:
            numbers = pd.to_numeric(frame[column], errors="coerce")
            if numbers.notna().sum() == frame[column].notna().sum():
                counts = all(isinstance(value, int) for value in frame[column].dropna())
                frame[column] = numbers.astype("Int64" if counts else "float64")
        frame.attrs = {"title": self.title, "notes": self._notes()}
        return frame

    def show(
        self,
        form: str = "text",
        *,
        width: int | None = None,
        columns: Sequence[str] | None = None,
        caption: str | None = None,
        label: str | None = None,
    ) -> str:
        """The table in one of ``FORMATS``; as text it is folded between columns to at most
        ``width`` characters.

        ``columns`` chooses measures and parts by their headings: ("EM", "F1", "95 %"). LaTeX needs
        the packages booktabs and graphicx, takes a ``caption`` and a ``label``, and leaves out n,
        intervals and what could not be read where no columns are named. Raises ``SettingError`` for
        a heading that is not there.
        """
        import pandas as pd

        if choice("format", form, FORMATS) != "latex" and (caption, label) != (None, None):
            raise SettingError(f"caption and label are LaTeX's; leave them out of format {form!r}")
        if form == "csv":
            frame = self._spread(Cell.values)
            frame.columns = [" ".join(filter(None, column)) for column in frame.columns]
            return csv_text(frame, index=True).rstrip("\n")
        marked = (
            replace(self, rows=_mark_best(self.columns, self.rows))
            if form == "latex" and not self.number
            else self
        )
        sheet, notes = (
            marked._sheet(SHORT if form == "latex" and columns is None else columns),
            marked._notes(),
        )
        heading = (
            f"{self.title} (Table {self.number} of DRAGIN, ACL 2024)" if self.number else self.title
        )
        if form == "latex":
            own = f"tab:dragin-{self.number}" if self.number else "tab:means"
            notes = (
                notes
                if "95 %" in str(sheet.columns)
                else [line.partition("; brackets:")[0] for line in notes]
            )
            return to_latex(sheet, caption or heading, label or own, notes)
        if form == "html":
            below = (f"<p>{escape(note, quote=False)}</p>" for note in notes)
            return "\n".join([f"<p><b>{escape(heading)}</b></p>", sheet.to_html(border=0), *below])
        if form == "markdown":
            names = [" ".join(filter(None, column)) for column in sheet.columns]
            rows = [
                [*labels, *cells]
                for labels, cells in zip(sheet.index, sheet.to_numpy(), strict=True)
            ]
            lines = [
                [*self.labels, *names],
                ["---"] * len(self.labels) + ["---:"] * len(names),
                *rows,
            ]
            table = [
                f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |"
                for line in lines
            ]
            return "\n".join([f"**{heading}**", "", *table, "", "  \n".join(notes)]).rstrip()
        with pd.option_context("display.unicode.east_asian_width", True):
            lines = sheet.to_string(line_width=width).splitlines()
        return "\n".join([heading, "", *map(str.rstrip, lines), "", *notes]).rstrip()

    def _spread(self, parts: Callable[[Cell, str, str], dict[str, Any]]) -> pd.DataFrame:
        """A column for each part that some cell has."""
        import pandas as pd

        own = "ours" if self.number else "mean"
        columns = [
            pd.DataFrame(
                [parts(row.cells[at], own, self.compared_with) for row in self.rows], dtype=object
            )
            for at in range(len(self.columns))
        ]
        frame = pd.concat(columns, axis="columns", keys=self.columns, names=["", "measure", "part"])
        labels = [name or f"label {at}" for at, name in enumerate(self.labels, 1)]
        frame.index = pd.MultiIndex.from_tuples([row.labels for row in self.rows], names=labels)
        return frame.dropna(axis="columns", how="all")

    def _sheet(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Every cell as text, of the chosen columns; without a row of headings where all are
        empty.
        """
        import pandas as pd

        frame, odd = self._spread(Cell.texts).fillna(""), self._odd
        if columns is not None:
            frame = frame[choose_columns(frame.columns, columns)]
        labels = [
            (
                *row.labels[:-1],
                row.labels[-1] + (f" ({1 + odd.index(row.note)})" if row.note else ""),
            )
            for row in self.rows
        ]
        frame.index = pd.MultiIndex.from_tuples(labels, names=self.labels)
        parts = set(frame.columns.get_level_values(2))
        empty = [at for at in (0, 1) if set(frame.columns.get_level_values(at)) == {""}]
        frame.columns = frame.columns.droplevel(
            [*empty, 2] if parts <= {"mean", ""} and len(empty) < 2 else empty
        )
        if frame.columns.nlevels == 1:
            frame.columns = pd.MultiIndex.from_arrays([frame.columns])
        frame.columns.names = [None] * frame.columns.nlevels
        return frame

    @property
    def _odd(self) -> list[str]:
        return list(dict.fromkeys(row.note for row in self.rows if row.note))

    def _notes(self) -> list[str]:
        tested = any(cell.test for row in self.rows for cell in row.cells)
        notes = [
            line
            for line in self.about
            if tested or not line.startswith(f"− {self.compared_with}: ")
        ]
        if any(cell.best for row in self.rows for cell in row.cells):
            notes.append("*: the best of the paper's values" if self.number else "*: the best")
        notes += [f"({mark}) {text}" for mark, text in self.marks.items()]
        return notes + [
            f"({number}) on the paper's values: {text}" for number, text in enumerate(self._odd, 1)
        ]

    def __str__(self) -> str:
        return self.show()

    def __repr__(self) -> str:
        cells = sum(len(row.cells) for row in self.rows)
        return f"Table({self.number}, {self.title}: {self.filled} of {cells} cells are ours)"

    def _repr_html_(self) -> str:
        return self.show("html")

    def _repr_latex_(self) -> str:
        # what nbconvert writes, and JupyterLab only where there is no HTML
        return self.show("latex")


def comparing(base: str, test: str) -> str:
    """The line below a table whose rows are tested against one."""
    return (
        f"− {base}: difference to that row on the same questions, with the p value of a two-sided"
        f" {test}, not corrected for how many there are"
    )


def _mark_best(columns: Sequence[tuple[str, str]], rows: Sequence[Row]) -> list[Row]:
    scores = [label for label, *_ in _SCORED]
    best = {
        at: max(means)
        for at, (_, measure) in enumerate(columns)
        if measure in scores
        and len(means := {cell.ours.mean for row in rows if (cell := row.cells[at]).ours}) > 1
    }
    return [
        replace(
            row,
            cells=tuple(
                replace(cell, best=cell.ours is not None and cell.ours.mean == best.get(at))
                for at, cell in enumerate(row.cells)
            ),
        )
        for row in rows
    ]


def means_table(records: Mapping[At, RunRecord], compared: Compared, base: str = "") -> Table:
    """Exact match, F1, custom metrics, retrievals and tokens per question, and how many answers are
    unreadable.

    The methods are compared on the questions of ``compared``, and tested against ``base`` on those
    of both.
    """
    columns: list[tuple[str, str]] = []
    cells: dict[str, list[Cell]] = {name: [] for name in compared.names}
    tests = compared.tests(base) if base else {}
    for dataset in compared.datasets:
        heading = "" if len(compared.datasets) == 1 else dataset  # the title names it
        answers = {name: compared.lines((dataset, name)) for name in compared.names}
        every = [line for of_method in answers.values() for line in of_method.values()]
        scores = _SCORED if any(line["em"] is not None for line in every) else ()
        measures = (*scores, *((name, name, 3) for name in own_metrics(every)), *_COUNTS)
        columns += [
            (heading, label) for label in ("n", *(label for label, *_ in measures), "unreadable")
        ]
        for name, own in answers.items():
            at = dataset, name
            means = [
                Cell(
                    ours=compared.intervals.get((at, key)), test=tests.get((at, key)), places=places
                )
                for _, key, places in measures
            ]
            count = sum(not line["readable"] for line in own.values())
            n = Cell(setting=len(own) if at in records else "")
            unreadable = Cell(setting=f"{count:,} of {len(own):,}" if own else "")
            cells[name] += [n, *means, unreadable]
    rows = []
    for name in compared.names:
        runs = [record for (_, method), record in records.items() if method == name]
        rows.append(Row((name + _incomplete(runs),), tuple(cells[name])))
    datasets = compared.datasets
    title = ", ".join(datasets) if len(datasets) < 4 else f"{len(datasets)} data sets"
    about = _about(records, compared)
    about += [comparing(base, TESTED)] if base else []
    about += list_differences(records) + list_idle_thresholds(records)
    return Table(
        0,
        f"{title}: means per question",
        ("method",),
        tuple(columns),
        rows,
        about,
        compared_with=base,
    )


def _incomplete(records: list[RunRecord]) -> str:
    """What keeps a method's means from being those of all questions, in brackets; "" for
    nothing.
    """
    asked = sum(record.config["dataset"]["questions"] for record in records)
    answered = sum(len(record.predictions) for record in records)
    failed = sum(len(record.failed) for record in records)
    small = sum("window" in line for record in records for line in record.predictions)
    remarks = [f"{answered} of {asked}"] * (answered < asked) + [f"{failed} failed"] * (failed > 0)
    remarks += [f"window too small for {small}"] * (small > 0)
    return f" ({', '.join(remarks)})" if remarks else ""


def _about(records: Mapping[At, RunRecord], compared: Compared) -> list[str]:
    answers = [[*compared.lines(at).values()] for at in records]
    n = _span([len(lines) for lines in answers])
    scored = _span([sum(line["em"] is not None for line in lines) for lines in answers])
    part = "" if scored in (n, "0") else f", {scored} of them scored"
    lines = [f"n = {n} question{'' if n == '1' else 's'}{part}; {INTERVALS}", *compared.about]
    lines += describe_failures([line for record in records.values() for line in record.predictions])
    templates = [record.config["template"] for record in records.values()]
    if "strategyqa" in [template.get("answer_rule") for template in templates]:
        lines.append(
            "unreadable answers to yes-or-no questions count as no, as in the released code"
        )
    among: dict[tuple[str, str], None] = {}
    for ((dataset, _), template), own in zip(
        zip(records, templates, strict=True), answers, strict=True
    ):
        shown = (one.get("question", "") for one in template.get("exemplars", ()))
        found = among_exemplars(((line["question"], line["question"]) for line in own), shown)
        among |= dict.fromkeys((dataset, text) for text in found)
    lines += [say_among([*among])] if among else []
    every = [
        (template, one) for template, own in zip(templates, answers, strict=True) for one in own
    ]
    if silent := [template for template, one in every if not one["text"].strip()]:
        hint = '; an instruct model may need layout="chat"'
        lines.append(
            f"{len(silent)} of {len(every)} texts are empty: the model ended before it wrote"
            " anything, and the answer was asked for"
            + hint
            * any(template.get("layout") != "chat" for template in silent)
        )
    return lines


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
