"""A table as text, Markdown, HTML, LaTeX, CSV and DataFrame."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from dragin_lab.study.tables.cells import Cell, Cells, Row

if TYPE_CHECKING:
    import pandas as pd

PAPER, OURS, ALONE, INTERVAL = "paper", "ours", "mean", "95 %"
_GAP = "  "


class _Shown:
    """What a table says, as strings: the parts that each column has, cells, and numbered notes."""

    def __init__(self, table: Cells, raised: Callable[[str], str], bold: Callable[[str], str], key: str) -> None:
        """``raised`` and ``bold`` mark a text, ``key`` is what says what ``bold`` means."""
        self.table, self._raised, self._bold, self._key = table, raised, bold, key
        self.notes = list(dict.fromkeys(row.note for row in table.rows if row.note))
        self.parts = [self._parts([row.cells[at] for row in table.rows]) for at in range(len(table.columns))]

    def _parts(self, cells: Sequence[Cell]) -> list[str]:
        interval = any(cell.ours is not None for cell in cells)
        has = {
            PAPER: self.table.number and (any(cell.printed for cell in cells) or not self.table.filled),
            OURS: self.table.number and (interval or any(cell.setting for cell in cells)),
            ALONE: not self.table.number and interval,
            "": not self.table.number and not interval,
            INTERVAL: interval,
            f"− {self.table.compared_with}": any(cell.test is not None for cell in cells),
        }
        return [part for part, there in has.items() if there]

    def cell(self, cell: Cell, part: str) -> str:
        if part == PAPER:
            return self._bold(cell.printed) if cell.best else cell.printed
        marks = self._raised(",".join(cell.marks)) if cell.marks else ""
        if cell.setting:
            return cell.setting + marks if part in (OURS, ALONE, "") else ""
        if cell.ours is None:
            return ""
        if part in (OURS, ALONE):
            return f"{cell.ours.mean:.{cell.places}f}{marks}"
        if part == INTERVAL:
            return f"[{cell.ours.low:.{cell.places}f}, {cell.ours.high:.{cell.places}f}]"
        return "" if cell.test is None else f"{cell.test.difference:+.{cell.places}f} (p {cell.test.p_value:.2g})"

    def row(self, row: Row) -> list[list[str]]:
        """For each column its parts."""
        return [[self.cell(cell, part) for part in parts] for cell, parts in zip(row.cells, self.parts, strict=True)]

    def labels(self, row: Row, before: Row | None) -> list[str]:
        """The labels with the number of the row's note; those that repeat the row before are left out."""
        found = list(row.labels)
        if row.note:
            found[-1] += self._raised(str(1 + self.notes.index(row.note)))
        if before is not None and len(found) > 1 and before.labels[0] == row.labels[0]:
            found[0] = ""
        return found

    def below(self) -> Iterator[str]:
        """Lines under the table."""
        yield from self.table.about
        if any(cell.best for row in self.table.rows for cell in row.cells):
            yield f"{self._key}: the best of the paper's values"
        for mark, text in self.table.marks.items():
            yield f"{self._raised(mark)} {text}"
        for number, text in enumerate(self.notes, 1):
            yield f"{self._raised(str(number))} on the paper's values: {text}"


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Every row with the one before it."""
    return zip(rows, [None, *rows], strict=False)


# -- text -------------------------------------------------------------------------------------------------------------


def to_text(table: Cells, width: int | None = None) -> str:
    """Aligned columns; what does not fit into ``width`` follows below, with the labels again.

    Laid out here, as rich has no headings over several columns and folds inside cells, not between columns.
    """
    shown = _Shown(table, lambda text: f"^{text}", lambda text: f"{text}*", "*")
    labels = [list(table.labels), *(shown.labels(row, before) for row, before in _pairs(table.rows))]
    label_widths = [max(map(cell_len, column)) for column in zip(*labels, strict=True)]
    cells = [shown.row(row) for row in table.rows]
    right = [
        [_numeric([row[at][i] for row in cells]) for i in range(len(parts))] for at, parts in enumerate(shown.parts)
    ]
    for at, parts in enumerate(shown.parts):
        for i in range(len(parts)):
            for texts, text in zip(cells, _aligned([row[at][i] for row in cells]), strict=True):
                texts[at][i] = text
    widths = [
        [max(cell_len(part), *(cell_len(row[at][i]) for row in cells)) for i, part in enumerate(shown.parts[at])]
        for at in range(len(table.columns))
    ]
    for at, column in enumerate(table.columns):  # a heading may be wider than all that stands below it
        widths[at][-1] += max(0, cell_len(" ".join(column).strip()) - _total(widths[at]))
    lines = [f"Table {table.number}. {table.title} (DRAGIN, ACL 2024)" if table.number else table.title]
    for block in _folded([_total(of) for of in widths], _total(label_widths), width):
        head = _line([""] * len(label_widths), label_widths)
        titles = _GAP.join(" ".join(table.columns[at]).strip().center(_total(widths[at])) for at in block)
        names = _GAP.join(_line(shown.parts[at], widths[at], right[at]) for at in block)
        rule = "-" * (_total(label_widths) + sum(len(_GAP) + _total(widths[at]) for at in block))
        lines += ["", f"{head}{_GAP}{titles}", f"{_line(labels[0], label_widths)}{_GAP}{names}", rule]
        for place, (row, before) in enumerate(_pairs(table.rows)):
            if before is not None and len(row.labels) > 1 and before.labels[0] != row.labels[0]:
                lines.append("")
            values = _GAP.join(_line(cells[place][at], widths[at], right[at]) for at in block)
            lines.append(f"{_line(labels[place + 1], label_widths)}{_GAP}{values}")
    return "\n".join(line.rstrip() for line in [*lines, "", *shown.below()]).rstrip()


def _folded(columns: Sequence[int], labels: int, width: int | None) -> list[list[int]]:
    """Which columns of a table stand side by side; a column is never cut, however narrow ``width`` is."""
    blocks: list[list[int]] = [[]]
    for at, own in enumerate(columns):
        used = labels + sum(len(_GAP) + columns[i] for i in blocks[-1])
        if width is not None and blocks[-1] and used + len(_GAP) + own > width:
            blocks.append([])
        blocks[-1].append(at)
    return blocks


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _numeric(texts: Sequence[str]) -> bool:
    """Whether a column holds numbers, which stand to the right, or intervals of them."""
    return all(text[0] in "+-[.0123456789" for text in texts if text)


def _aligned(texts: Sequence[str]) -> list[str]:
    """A column whose marks come after the longest, so that its numbers end at one place."""
    tails = [cell_len(text) - cell_len(text.rstrip("*").partition("^")[0]) for text in texts]
    return [text + " " * (max(tails) - tail) if text else "" for text, tail in zip(texts, tails, strict=True)]


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool] = ()) -> str:
    padded = []
    for at, (text, width) in enumerate(zip(texts, widths, strict=True)):
        space = " " * (width - cell_len(text))
        padded.append(space + text if right and right[at] else text + space)
    return _GAP.join(padded)


# -- Markdown ---------------------------------------------------------------------------------------------------------


def to_markdown(table: Cells) -> str:
    """A pipe table, aligned in the source too."""
    shown = _Shown(table, lambda text: f"<sup>{text}</sup>", lambda text: f"**{text}**", "bold")
    names = [" ".join((*column, part)).strip() for column, parts in zip(table.columns, shown.parts, strict=True)
             for part in parts]  # fmt: skip
    lines = [[*table.labels, *names]]
    for row, before in _pairs(table.rows):
        lines.append([*shown.labels(row, before), *(text for parts in shown.row(row) for text in parts)])
    lines = [[text.replace("|", "\\|") for text in line] for line in lines]
    widths = [max(3, *map(cell_len, column)) for column in zip(*lines, strict=True)]
    count = len(table.labels)
    rules = ["-" * width if at < count else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    aligned = [_pipes(line, widths, count) for line in lines]
    head = f"**Table {table.number}.** {table.title} (DRAGIN, ACL 2024)" if table.number else f"**{table.title}**"
    below = "  \n".join(shown.below())
    return "\n".join([head, "", aligned[0], _pipes(rules, widths, count), *aligned[1:], "", below]).rstrip()


def _pipes(line: Sequence[str], widths: Sequence[int], labels: int) -> str:
    padded = [_line([text], [width], [at >= labels]) for at, (text, width) in enumerate(zip(line, widths, strict=True))]
    return f"| {' | '.join(padded)} |"


# -- LaTeX ------------------------------------------------------------------------------------------------------------

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$", '"': "''",
    "θ": r"$\theta$", "−": "$-$", "×": r"$\times$", "–": "--", "’": "'", "…": r"\dots{}", "[": "{[}", "]": "{]}",
    "*": "{*}",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """A text that LaTeX prints as it is. After the end of a row a bracket or a star would be read as its option."""
    parts = ("".join(_ESCAPES.get(c, c if c.isprintable() else " ") for c in part) for part in text.split("--"))
    return "-{}-".join(parts)


def to_latex(table: Cells) -> str:
    """A ``table`` environment that needs no package."""
    shown = _Shown(table, lambda text: f"\0r{text}\0", lambda text: f"\0b{text}\0", "bold")
    spec = "l" * len(table.labels) + "r" * sum(map(len, shown.parts))
    empty = ["" for _ in table.labels]
    both = zip(table.columns, shown.parts, strict=True)
    spans = [
        (heading, sum(len(parts) for _, parts in of)) for heading, of in groupby(both, key=lambda pair: pair[0][0])
    ]
    head = []
    if any(heading for heading, _ in table.columns):
        head.append([*empty, *(_span(heading, count) for heading, count in spans)])
    if any(measure for _, measure in table.columns):
        head.append([*empty, *(_span(c[1], len(parts)) for c, parts in zip(table.columns, shown.parts, strict=True))])
    head.append([_tex(text) for text in (*table.labels, *(part for parts in shown.parts for part in parts))])
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{spec}}}", r"\hline"]
    lines += [" & ".join(line) + r" \\" for line in head] + [r"\hline"]
    for row, before in _pairs(table.rows):
        if before is not None and len(row.labels) > 1 and before.labels[0] != row.labels[0]:
            lines.append(r"\hline")
        texts = [*shown.labels(row, before), *(text for parts in shown.row(row) for text in parts)]
        lines.append(" & ".join(map(_tex, texts)) + r" \\")
    notes = [_tex(line) for line in shown.below()]
    lines += [
        r"\hline",
        r"\end{tabular}",
        rf"\caption{{{_tex(table.title + (f' ({table.source})' if table.source else ''))}.}}",
    ]
    if notes:
        lines += [r"\par\medskip", r"\begin{minipage}{\linewidth}\footnotesize\raggedright", " \\\\\n".join(notes),
                  r"\end{minipage}"]  # fmt: skip
    return "\n".join([*lines, r"\end{table}"])


def _span(text: str, count: int) -> str:
    return rf"\multicolumn{{{count}}}{{c}}{{{_tex(text)}}}"


def _tex(text: str) -> str:
    """Escaped, with what is raised or bold (between NULs) as commands."""
    first, *rest = text.split("\0")
    made = escape_latex(first)
    for place, part in enumerate(rest):
        command = {"r": r"\textsuperscript", "b": r"\textbf"}.get(part[:1], "") if place % 2 == 0 else ""
        made += f"{command}{{{escape_latex(part[1:])}}}" if command else escape_latex(part)
    return made


# -- data -------------------------------------------------------------------------------------------------------------


def _data(table: Cells) -> Iterator[tuple[Row, dict[tuple[str, str, str], Any]]]:
    """Every row with its values by (heading, measure, part); None where a cell has none."""
    for row in table.rows:
        found: dict[tuple[str, str, str], Any] = {}
        for column, cell in zip(table.columns, row.cells, strict=True):
            ours, test = cell.ours, cell.test
            own = OURS if table.number else ALONE
            parts: dict[str, Any] = {PAPER: cell.printed or None, own: cell.setting or None}
            if ours is not None:
                parts |= {own: ours.mean, "low": ours.low, "high": ours.high, "n": ours.n}
            if test is not None:
                name = f"minus {table.compared_with}"
                parts |= {name: test.difference, f"{name} low": test.low, f"{name} high": test.high}
                parts |= {f"{name} n": test.n, "p": test.p_value}
            found |= {(*column, part): value for part, value in parts.items()}
        yield row, found


def _columns(table: Cells) -> list[tuple[str, str, str]]:
    """The parts that some row has, column by column."""
    base = f"minus {table.compared_with}"
    order = [PAPER, OURS, ALONE, "low", "high", "n", base, f"{base} low", f"{base} high", f"{base} n", "p"]
    there = {key for _, values in _data(table) for key, value in values.items() if value is not None}
    return [(*column, part) for column in table.columns for part in order if (*column, part) in there]


def to_csv(table: Cells) -> str:
    """A header, then one line per row: ours in full precision, the paper's as printed, remarks in ``note``."""
    columns = _columns(table)
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write([*(name or f"label {at}" for at, name in enumerate(table.labels, 1)),
           *(" ".join(part for part in column if part) for column in columns), "note"])  # fmt: skip
    for row, values in _data(table):
        marks = dict.fromkeys(mark for cell in row.cells for mark in cell.marks)
        note = "; ".join([*(table.marks[mark] for mark in marks), *([f"paper: {row.note}"] if row.note else [])])
        write([*row.labels, *("" if (value := values.get(c)) is None else value for c in columns), note])
    return out.getvalue().rstrip("\n")


def to_frame(table: Cells) -> pd.DataFrame:
    """See ``Table.frame``."""
    import pandas as pd

    columns = _columns(table)
    rows = list(_data(table))
    names = [name or f"label {at}" for at, name in enumerate(table.labels, 1)]
    index = pd.MultiIndex.from_tuples([row.labels for row, _ in rows], names=names)
    frame = pd.DataFrame(
        [[values.get(c) for c in columns] for _, values in rows], index=index,
        columns=pd.MultiIndex.from_tuples(columns, names=["", "measure", "part"]),
    )  # fmt: skip
    for column in columns:
        numbers = pd.to_numeric(frame[column], errors="coerce")
        if numbers.notna().sum() == frame[column].notna().sum():
            frame[column] = numbers.astype("float64")
    return frame
