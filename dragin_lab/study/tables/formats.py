"""A table as text, Markdown, LaTeX, CSV and DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from dragin_lab.run.intervals import bracket
from dragin_lab.study.tables.cells import Cell, Cells
from dragin_lab.text import csv_text

if TYPE_CHECKING:
    import pandas as pd

PAPER, OURS, ALONE, INTERVAL = "paper", "ours", "mean", "95 %"
_GAP = "  "
_TESTED = ("difference", "low", "high", "n", "p_value")


@dataclass(frozen=True)
class _Sheet:
    """A table as strings, for every written form to lay out."""

    parts: list[list[str]]  # the parts of each column
    rows: list[list[str]]  # labels, then the parts of all columns
    opens: list[bool]  # whether a group of rows begins here, below another one
    below: list[str]  # lines under the table

    @classmethod
    def of(cls, table: Cells, raised: Callable[[str], str], bold: Callable[[str], str], key: str) -> _Sheet:
        """``raised`` and ``bold`` mark a text, ``key`` is what says what ``bold`` means."""
        notes = list(dict.fromkeys(row.note for row in table.rows if row.note))
        parts = [_parts(table, [row.cells[at] for row in table.rows]) for at in range(len(table.columns))]
        rows, opens = [], []
        before = ""
        for row in table.rows:
            labels, group = list(row.labels), row.labels[0] if len(row.labels) > 1 else ""
            if row.note:
                labels[-1] += raised(str(1 + notes.index(row.note)))
            if group and group == before:
                labels[0] = ""
            opens.append(bool(before) and group != before)
            before = group
            both = zip(row.cells, parts, strict=True)
            rows.append(labels + [_text(cell, part, raised, bold) for cell, own in both for part in own])
        best = any(cell.best for row in table.rows for cell in row.cells)
        below = [*table.about, *([f"{key}: the best of the paper's values"] if best else [])]
        below += [f"{raised(mark)} {text}" for mark, text in table.marks.items()]
        below += [f"{raised(str(number))} on the paper's values: {text}" for number, text in enumerate(notes, 1)]
        return cls(parts, rows, opens, below)


def _parts(table: Cells, cells: Sequence[Cell]) -> list[str]:
    """The parts that a column has."""
    interval = any(cell.ours is not None for cell in cells)
    has = {
        PAPER: table.number and (any(cell.printed for cell in cells) or not table.filled),
        OURS: table.number and (interval or any(cell.setting for cell in cells)),
        ALONE: not table.number and interval,
        "": not table.number and not interval,
        INTERVAL: interval,
        f"− {table.compared_with}": any(cell.test is not None for cell in cells),
    }
    return [part for part, there in has.items() if there]


def _text(cell: Cell, part: str, raised: Callable[[str], str], bold: Callable[[str], str]) -> str:
    if part == PAPER:
        return bold(cell.printed) if cell.best else cell.printed
    marks = raised(",".join(cell.marks)) if cell.marks else ""
    if cell.setting:
        return cell.setting + marks if part in (OURS, ALONE, "") else ""
    if cell.ours is None:
        return ""
    if part in (OURS, ALONE):
        return f"{cell.ours.mean:.{cell.places}f}{marks}"
    if part == INTERVAL:
        return bracket(cell.ours.low, cell.ours.high, places=cell.places)
    return "" if cell.test is None else f"{cell.test.difference:+.{cell.places}f} (p {cell.test.p})"


# -- text -------------------------------------------------------------------------------------------------------------


def to_text(table: Cells, width: int | None = None) -> str:
    """Aligned columns; what does not fit into ``width`` follows below, with the labels again.

    Laid out here, as rich has no headings over several columns and folds inside cells, not between columns.
    """
    sheet = _Sheet.of(table, "^{}".format, "{}*".format, "*")
    columns = zip(*sheet.rows, strict=True)
    labels = _block("", [_padded([name, *next(columns)]) for name in table.labels])
    blocks = []
    for heading, parts in zip(table.columns, sheet.parts, strict=True):
        blocks.append(_block(" ".join(heading).strip(), [_numbers(part, next(columns)) for part in parts]))
    lines = [f"Table {table.number}. {table.title} (DRAGIN, ACL 2024)" if table.number else table.title]
    for together in _folded(labels, blocks, width):
        head, names, *rows = map(_GAP.join, zip(*together, strict=True))
        lines += ["", head, names, "-" * cell_len(head)]
        for row, opens in zip(rows, sheet.opens, strict=True):
            lines += [""] * opens + [row]
    return "\n".join(line.rstrip() for line in [*lines, "", *sheet.below]).rstrip()


def _padded(texts: Sequence[str], *, right: bool = False, least: int = 0) -> list[str]:
    """Texts made equally wide."""
    width = max(least, *map(cell_len, texts))
    spaces = [" " * (width - cell_len(text)) for text in texts]
    return [space + text if right else text + space for text, space in zip(texts, spaces, strict=True)]


def _numbers(name: str, texts: Sequence[str]) -> list[str]:
    """A column under its name: numbers and intervals to the right, with marks after the place where they end."""
    tails = [cell_len(text) - cell_len(text.rstrip("*").partition("^")[0]) for text in texts]
    texts = [text + " " * (max(tails) - tail) if text else "" for text, tail in zip(texts, tails, strict=True)]
    return _padded([name, *texts], right=all(text[0] in "+-–<[.0123456789" for text in texts if text))


def _block(title: str, columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, with a title over them."""
    lines = [_GAP.join(line) for line in zip(*columns, strict=True)]
    lines = _padded(lines, right=True, least=cell_len(title))
    return [title.center(cell_len(lines[0]) - cell_len(title) + len(title)), *lines]


def _folded(labels: list[str], blocks: Sequence[list[str]], width: int | None) -> Iterator[list[list[str]]]:
    """Which blocks stand side by side, after the labels; a block is never cut, however narrow ``width`` is."""
    together = [labels]
    for block in blocks:
        used = sum(cell_len(lines[0]) + len(_GAP) for lines in together) + cell_len(block[0])
        if width is not None and len(together) > 1 and used > width:
            yield together
            together = [labels]
        together.append(block)
    yield together


# -- Markdown ---------------------------------------------------------------------------------------------------------


def to_markdown(table: Cells) -> str:
    """A pipe table, aligned in the source too."""
    sheet = _Sheet.of(table, "<sup>{}</sup>".format, "**{}**".format, "bold")
    both = zip(table.columns, sheet.parts, strict=True)
    names = [*table.labels, *(" ".join((*column, part)).strip() for column, parts in both for part in parts)]
    columns = []
    for at, texts in enumerate(zip(names, *sheet.rows, strict=True)):
        right = at >= len(table.labels)
        head, *rest = _padded([text.replace("|", "\\|") for text in texts], right=right, least=3)
        columns.append([head, "-" * (cell_len(head) - right) + ":" * right, *rest])
    lines = [f"| {' | '.join(line)} |" for line in zip(*columns, strict=True)]
    head = f"**Table {table.number}.** {table.title} (DRAGIN, ACL 2024)" if table.number else f"**{table.title}**"
    return "\n".join([head, "", *lines, "", "  \n".join(sheet.below)]).rstrip()


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
    sheet = _Sheet.of(table, "\0r{}\0".format, "\0b{}\0".format, "bold")
    widths = [len(parts) for parts in sheet.parts]
    empty = [""] * len(table.labels)
    spanned = groupby(zip(table.columns, widths, strict=True), key=lambda pair: pair[0][0])
    spans = [(heading, sum(width for _, width in of)) for heading, of in spanned]
    measures = [(measure, width) for (_, measure), width in zip(table.columns, widths, strict=True)]
    head = [
        [*empty, *(rf"\multicolumn{{{width}}}{{c}}{{{_tex(text)}}}" for text, width in line)]
        for line in (spans, measures)
        if any(text for text, _ in line)
    ]
    head.append([_tex(text) for text in (*table.labels, *(part for parts in sheet.parts for part in parts))])
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{'l' * len(empty)}{'r' * sum(widths)}}}", r"\hline"]
    lines += [" & ".join(line) + r" \\" for line in head] + [r"\hline"]
    for row, opens in zip(sheet.rows, sheet.opens, strict=True):
        lines += [r"\hline"] * opens + [" & ".join(map(_tex, row)) + r" \\"]
    title = table.title + (f" ({table.source})" if table.source else "")
    lines += [r"\hline", r"\end{tabular}", rf"\caption{{{_tex(title)}.}}"]
    if sheet.below:
        notes = " \\\\\n".join(map(_tex, sheet.below))
        lines += [r"\par\medskip", r"\begin{minipage}{\linewidth}\footnotesize\raggedright", notes, r"\end{minipage}"]
    return "\n".join([*lines, r"\end{table}"])


def _tex(text: str) -> str:
    """Escaped, with what is raised or bold (between NULs) as commands."""
    first, *rest = text.split("\0")
    made = escape_latex(first)
    for marked, plain in zip(rest[::2], rest[1::2], strict=True):
        command = r"\textsuperscript" if marked[0] == "r" else r"\textbf"
        made += f"{command}{{{escape_latex(marked[1:])}}}{escape_latex(plain)}"
    return made


# -- data -------------------------------------------------------------------------------------------------------------


def _values(table: Cells) -> pd.DataFrame:
    """The parts that some cell has, as they are: the paper's as printed, ours as numbers."""
    import pandas as pd

    rows = [
        {(*column, part): value for column, cell in zip(table.columns, row.cells, strict=True)
         for part, value in _values_of(cell, table).items()}
        for row in table.rows
    ]  # fmt: skip
    names = [name or f"label {at}" for at, name in enumerate(table.labels, 1)]
    index = pd.MultiIndex.from_tuples([row.labels for row in table.rows], names=names)
    columns = pd.MultiIndex.from_tuples(rows[0], names=["", "measure", "part"])
    values = [list(row.values()) for row in rows]
    return pd.DataFrame(values, index, columns, dtype=object).dropna(axis="columns", how="all")


def _values_of(cell: Cell, table: Cells) -> dict[str, Any]:
    """Every part of a cell; None for what it does not have."""
    own, base = OURS if table.number else ALONE, f"minus {table.compared_with}"
    tested = (base, f"{base} low", f"{base} high", f"{base} n", "p")
    return {
        PAPER: cell.printed or None,
        own: cell.setting or getattr(cell.ours, "mean", None),
        **{part: getattr(cell.ours, part, None) for part in ("low", "high", "n")},
        **{part: getattr(cell.test, name, None) for part, name in zip(tested, _TESTED, strict=True)},
    }


def to_csv(table: Cells) -> str:
    """A header, then one line per row: ours in full precision, the paper's as printed, remarks in ``note``."""
    frame = _values(table)
    frame.columns = [" ".join(filter(None, column)) for column in frame.columns]
    marks = [dict.fromkeys(mark for cell in row.cells for mark in cell.marks) for row in table.rows]
    frame["note"] = [
        "; ".join([*(table.marks[mark] for mark in of), *([f"paper: {row.note}"] if row.note else [])])
        for row, of in zip(table.rows, marks, strict=True)
    ]
    return csv_text(frame, index=True).rstrip("\n")


def to_frame(table: Cells) -> pd.DataFrame:
    """See ``Table.frame``."""
    import pandas as pd

    frame = _values(table)
    for column in frame:
        numbers = pd.to_numeric(frame[column], errors="coerce")
        if numbers.notna().sum() == frame[column].notna().sum():
            frame[column] = numbers.astype("float64")
    return frame
