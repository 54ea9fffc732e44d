"""``Table``: a DataFrame of numbers, the same as texts, and the lines below them.

pandas writes it as text, HTML, Markdown, LaTeX and CSV.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from dragin_lab.checks import choice
from dragin_lab.data.exemplars import among_exemplars, say_among
from dragin_lab.results.compared import Compared, Named, list_differences, list_idle_thresholds
from dragin_lab.results.statistics import PairedTest
from dragin_lab.run.intervals import Interval, describe_failures, write_interval
from dragin_lab.run.rundir import Line, own_metrics
from dragin_lab.text import csv_text

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

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
ROWS = 40  # the most of several data sets in one ``table``
#: A table that is wider than the text is made as wide as it.
_FITTED = "\\resizebox{\\ifdim\\width>\\textwidth \\textwidth\\else\\width\\fi}{!}{%\n"
#: What LaTeX would not print as it is. A bracket or a star after the end of a row would be read as
#: its option.
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
        '"': "''",
        "θ": r"$\theta$",
        "−": "$-$",
        "×": r"$\times$",
        "–": "--",
        "’": "'",
        "…": r"\dots{}",
        "[": "{[}",
        "]": "{]}",
        "*": "{*}",
        "\n": " ",
    }
)
#: The parts of a cell, by their headings.
Parts = dict[str, Any]
#: Cells by column (heading, measure).
Columns = dict[tuple[str, str], list[Parts]]


@dataclass
class Table:
    """Rows of means with their intervals; printing it gives text, a notebook shows HTML.

    ``frame`` (pandas.DataFrame) has the numbers: labels as index, columns (heading, measure, part).
    Parts: ``paper``, ``ours`` (``mean`` in a table of your own values), ``low``, ``high``, ``n``
    and, where methods are compared, ``minus METHOD``, its ``low``, ``high`` and ``n``, and ``p``;
    only those that some cell has. ``sheet`` has the same rows as texts, as they are shown; the best
    values end in *. ``about`` are the lines below, ``label`` is LaTeX's.
    """

    title: str
    frame: pd.DataFrame
    sheet: pd.DataFrame
    about: list[str]
    label: str = "tab:means"

    def __post_init__(self) -> None:
        counts = [at for at in self.frame if "n" in at or at[2].endswith(" n")]
        self.frame = self.frame.astype(dict.fromkeys(counts, "Int64"))
        self.frame.attrs = {"title": self.title, "notes": self.about}

    @property
    def style(self) -> Styler:
        """pandas' Styler of what a notebook shows, the best in bold."""
        styler = _style(self.sheet, _escape_html, "<b>{}</b>")
        return styler.set_uuid(self.label.removeprefix("tab:"))

    def show(self, form: str = "text", *, width: int | None = None) -> str:
        """The table in one of ``FORMATS``; text is folded between columns to ``width``
        characters.
        """
        if choice("format", form, FORMATS) == "text":
            return self.to_string(width)
        return str(getattr(self, f"to_{form}")())

    def to_string(self, width: int | None = None) -> str:
        """Plain text, folded between columns to at most ``width`` characters."""
        with pd.option_context("display.unicode.east_asian_width", True):
            lines = _drop_idle(self.sheet).to_string(line_width=width).splitlines()
        return "\n".join([self.title, "", *map(str.rstrip, lines), "", *self.about]).rstrip()

    def to_html(self) -> str:
        """What a notebook shows."""
        title = f"<p><b>{_escape_html(self.title)}</b></p>"
        below = (f"<p>{_escape_html(line)}</p>" for line in self._notes)
        return "\n".join([title, self.style.to_html(), *below])

    def to_markdown(self) -> str:
        """A pipe table with its title and notes."""
        sheet = _style_texts(_drop_idle(self.sheet), _escape_markdown, "**{}**")
        names = _join_headings(sheet)
        rows = [[*sheet.index.names, *names]]
        rows.append(["---"] * sheet.index.nlevels + ["---:"] * len(names))
        rows += sheet.reset_index().to_numpy().tolist()
        lines = [f"**{self.title}**", ""]
        for row in rows:
            lines.append(f"| {' | '.join(row)} |")
        below = "  \n".join(self._notes)
        return "\n".join([*lines, "", below]).rstrip()

    def to_csv(self) -> str:
        """``frame`` with its headings in one line."""
        frame = self.frame.set_axis(_join_headings(self.frame), axis="columns")
        return csv_text(frame, index=True).rstrip("\n")

    def to_latex(
        self, caption: str | None = None, label: str | None = None, *, intervals: bool = False
    ) -> str:
        """A ``table`` for the packages booktabs and graphicx, at most as wide as the text.

        Data sets stand one under another, each in a ``table`` where one would have above 40 rows. n
        and what could not be read are left out, and intervals where they are not asked for.
        """
        notes = self._notes
        if not intervals:
            notes = [line.partition("; brackets:")[0] for line in notes]
        title = caption or self.title
        label = label or self.label
        blocks = _stack(_choose(self.sheet, intervals))
        tables = []
        for number, (heading, block) in enumerate(blocks.items(), 1):
            styler = _style(block, escape_latex, r"\bfseries {}")
            titled = f"{title}: {heading}" if heading else title
            labelled = f"{label}-{number}" if heading else label
            below = notes if number == len(blocks) else []
            tables.append(write_environment(styler, titled, labelled, below))
        return "\n\n".join(tables)

    @property
    def _notes(self) -> list[str]:
        return [line.replace("*: the best", "bold: the best") for line in self.about]

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"Table({self.title}: {len(self.frame)} rows)"

    def _repr_html_(self) -> str:
        return self.to_html()

    def _repr_latex_(self) -> str:
        # what nbconvert writes, and JupyterLab only where there is no HTML
        return self.to_latex()


# -- cells -----------------------------------------------------------------------------------------


def numbers_of(name: str, mean: Interval, base: str, test: PairedTest | None) -> Parts:
    """The parts of a cell as ``Table.frame`` has them."""
    parts: Parts = {name: mean.mean, "low": mean.low, "high": mean.high, "n": mean.n}
    if test is not None:
        minus = f"minus {base}"
        parts[minus] = test.difference
        parts |= {f"{minus} low": test.low, f"{minus} high": test.high, f"{minus} n": test.n}
        parts["p"] = test.p_value
    return parts


def texts_of(name: str, mean: Interval, base: str, test: PairedTest | None, places: int) -> Parts:
    """The parts of a cell as they are shown, with so many decimals."""
    ends = write_interval(mean.low, mean.high, places=places)
    parts: Parts = {name: f"{mean.mean:z.{places}f}", "95 %": ends}
    if test is not None:
        parts[f"− {base}"] = f"{test.difference:+z.{places}f} (p {test.p})"
    return parts


def spread(columns: Columns, index: pd.Index) -> pd.DataFrame:
    """A column (heading, measure, part) for each part that some cell of a column has."""
    frames = {at: pd.DataFrame(cells, index=index) for at, cells in columns.items()}
    frame = pd.concat(frames, axis="columns", names=["", "measure", "part"])
    return frame.dropna(axis="columns", how="all")


# -- what is shown ---------------------------------------------------------------------------------


def _join_headings(frame: pd.DataFrame) -> list[str]:
    return [" ".join(filter(None, column)) for column in frame.columns]


def _escape_html(text: str) -> str:
    return escape(text, quote=False)


def _escape_markdown(text: str) -> str:
    return text.replace("|", r"\|")


def _style_texts(sheet: pd.DataFrame, escape: Callable[[str], str], bold: str) -> pd.DataFrame:
    """Every text escaped, the best values in bold."""

    def write(text: str) -> str:
        return bold.format(escape(text[:-1])) if text.endswith("*") else escape(text)

    styled = sheet.map(write).rename(index=escape, columns=escape)
    styled.index.names = [escape(name) for name in sheet.index.names]
    return styled


def _style(sheet: pd.DataFrame, escape: Callable[[str], str], bold: str) -> Styler:
    from pandas.io.formats.style import Styler

    styled = _style_texts(_drop_idle(sheet), escape, bold)
    if styled.columns.nlevels == 1:  # pandas writes headings of one level as tuples
        styled.columns = styled.columns.get_level_values(0)
    return Styler(styled, cell_ids=False)


def _drop_idle(sheet: pd.DataFrame) -> pd.DataFrame:
    """Without the rows of headings that say nothing."""
    headings = sheet.columns
    idle = [level for level in headings.names[:-1] if not any(headings.get_level_values(level))]
    parts = {*headings.get_level_values("part")}
    if len(idle) < headings.nlevels - 1 and (parts <= {"mean", ""} or parts == {"paper"}):
        idle.append("part")
    kept = headings.droplevel(idle)
    if kept.nlevels == 1:
        kept = pd.MultiIndex.from_arrays([kept])
    return sheet.set_axis(kept.set_names([None] * kept.nlevels), axis="columns")


def _choose(sheet: pd.DataFrame, intervals: bool) -> pd.DataFrame:
    """Without n, what could not be read, tests of what is no score, and maybe intervals."""
    shown = ["mean", "ours", "paper", ""]
    if intervals:
        shown.append("95 %")
    chosen = []
    for column in sheet.columns:
        _, measure, part = column
        tested = part.startswith("− ") and measure in ("EM", "F1")
        if tested or (part in shown and measure not in ("n", "unreadable")):
            chosen.append(column)
    return sheet[chosen]


def _stack(sheet: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Several data sets one under another: in one sheet under "", where that is not too long."""
    headings = sheet.columns.unique(0)
    if len(headings) == 1 or not any(sheet.columns.get_level_values("measure")):
        return {"": sheet}
    blocks = {}
    for heading in headings:
        block = sheet.loc[:, [column[0] == heading for column in sheet.columns]]
        block = block.rename(columns={heading: ""}, level=0)
        blocks[heading] = block[block.ne("").any(axis="columns")]
    if sum(map(len, blocks.values())) > ROWS:
        return blocks
    return {"": pd.concat(blocks, names=["data set"]).fillna("")}


# -- LaTeX -----------------------------------------------------------------------------------------


def escape_latex(text: Any) -> str:
    """A text that LaTeX prints as it is, with a minus before a number."""
    signed = re.sub(r"(?<![\w-])-(?=\.?\d)", "−", str(text))
    return signed.replace("--", "-\0-").translate(_LATEX).replace("\0", "{}")


def write_environment(styler: Styler, caption: str, label: str, notes: Sequence[str]) -> str:
    """A ``table`` at most as wide as the text, with its notes below."""
    frame = styler.data
    text = styler.to_latex(
        hrules=True,
        caption=escape_latex(caption),
        label=label,
        column_format="l" * frame.index.nlevels + "r" * frame.shape[1],
        position_float="centering",
        multirow_align="naive",
        multicol_align="c",
        clines="skip-last;data" if frame.index.nlevels > 1 else None,
    ).rstrip()
    text = re.sub(r"\\cline\{[-\d]+\}\n\\bottomrule", r"\\bottomrule", text)
    text = text.replace(r"\begin{tabular}", _FITTED + r"\begin{tabular}")
    text = text.replace(r"\end{tabular}", r"\end{tabular}}")
    if not notes:
        return text
    below = r"\par\medskip\begin{minipage}{\linewidth}\footnotesize\raggedright "
    below += " \\\\\n".join(map(escape_latex, notes)) + r"\end{minipage}"
    return text.replace(r"\end{table}", f"{below}\n\\end{{table}}")


# -- means of runs ---------------------------------------------------------------------------------


def comparing(base: str, test: str) -> str:
    """The line below a table whose rows are tested against one."""
    return (
        f"− {base}: difference to that row on the same questions, with the p value of a two-sided"
        f" {test}, not corrected for how many there are"
    )


def means_table(records: Named, compared: Compared, base: str) -> Table:
    """Exact match, F1, custom metrics, retrievals and tokens per question, and how many answers are
    unreadable.

    The methods are compared on the questions of ``compared``, and tested against ``base`` on those
    of both.
    """
    numbers: Columns = {}
    texts: Columns = {}
    tests = compared.tests(base) if base else {}
    for dataset in compared.datasets:
        heading = "" if len(compared.datasets) == 1 else dataset  # the title names it
        answers = {}
        for name in compared.names:
            answers[dataset, name] = list(compared.lines((dataset, name)).values())
        counts = [len(lines) if at in records else None for at, lines in answers.items()]
        numbers[heading, "n"] = [{"": n} for n in counts]
        texts[heading, "n"] = [{"": "" if n is None else f"{n:,}"} for n in counts]
        for measure, key, places in _measures_of(answers.values()):
            means = [compared.intervals.get((at, key)) for at in answers]
            cells: list[Parts] = [{} for _ in answers]
            shown: list[Parts] = [{} for _ in answers]
            for row, (at, mean) in enumerate(zip(answers, means, strict=True)):
                if mean is not None:
                    test = tests.get((at, key))
                    cells[row] = numbers_of("mean", mean, base, test)
                    shown[row] = texts_of("mean", mean, base, test, places)
            if key in ("em", "f1"):
                _mark_best(means, shown)
            numbers[heading, measure] = cells
            texts[heading, measure] = shown
        unreadable = [{"": _count_unreadable(lines)} for lines in answers.values()]
        numbers[heading, "unreadable"] = texts[heading, "unreadable"] = unreadable
    labels = [name + _incomplete(name, records) for name in compared.names]
    index = pd.Index(labels, name="method")
    datasets = compared.datasets
    title = ", ".join(datasets) if len(datasets) < 4 else f"{len(datasets)} data sets"
    sheet = spread(texts, index).fillna("")
    about = _about(records, compared)
    if tests:
        about.append(comparing(base, TESTED))
    about += list_differences(records) + list_idle_thresholds(records)
    if sheet.map(lambda text: text.endswith("*")).any(axis=None):
        about.append("*: the best")
    return Table(f"{title}: means per question", spread(numbers, index), sheet, about)


def _measures_of(answers: Iterable[list[Line]]) -> list[tuple[str, str, int]]:
    """Heading, entry of a prediction line and decimals of what a data set's answers have."""
    every = [line for lines in answers for line in lines]
    scored = any(line["em"] is not None for line in every)
    custom = [(name, name, 3) for name in own_metrics(every)]
    return [*(_SCORED if scored else ()), *custom, *_COUNTS]


def _count_unreadable(lines: Sequence[Line]) -> str:
    count = sum(not line["readable"] for line in lines)
    return f"{count:,} of {len(lines):,}" if lines else ""


def _mark_best(means: Sequence[Interval | None], texts: list[Parts]) -> None:
    """A * after the highest mean, where they are not all one."""
    known = {mean.mean for mean in means if mean is not None}
    for mean, parts in zip(means, texts, strict=True):
        if mean is not None and len(known) > 1 and mean.mean == max(known):
            parts["mean"] += "*"


def _incomplete(name: str, records: Named) -> str:
    """What keeps a method's means from being those of all questions, in brackets; "" for
    nothing.
    """
    asked = answered = failed = small = 0
    for (_, method), record in records.items():
        if method == name:
            asked += record.asked
            answered += len(record.predictions)
            failed += len(record.failed)
            small += sum("window" in line for line in record.predictions)
    remarks = []
    if answered < asked:
        remarks.append(f"{answered} of {asked}")
    if failed:
        remarks.append(f"{failed} failed")
    if small:
        remarks.append(f"window too small for {small}")
    return f" ({', '.join(remarks)})" if remarks else ""


def _about(records: Named, compared: Compared) -> list[str]:
    answers = {at: [*compared.lines(at).values()] for at in records}
    n = _span([len(lines) for lines in answers.values()])
    scored = _span(
        [sum(line["em"] is not None for line in lines_of_run) for lines_of_run in answers.values()]
    )
    part = "" if scored in (n, "0") else f", {scored} of them scored"
    lines = [f"n = {n} question{'' if n == '1' else 's'}{part}; {INTERVALS}", *compared.about]
    lines += describe_failures([line for record in records.values() for line in record.predictions])
    templates = {at: record.config["template"] for at, record in records.items()}
    if any(template.get("answer_rule") == "strategyqa" for template in templates.values()):
        lines.append(
            "unreadable answers to yes-or-no questions count as no, as in the released code"
        )
    among = set[tuple[str, str]]()
    silent = 0
    hint = ""
    for at, answered in answers.items():
        shown = [exemplar.get("question", "") for exemplar in templates[at]["exemplars"]]
        asked = [(line["question"], line["question"]) for line in answered]
        among.update((at[0], text) for text in among_exemplars(asked, shown))
        empty = sum(not line["text"].strip() for line in answered)
        silent += empty
        if empty and templates[at].get("layout") != "chat":
            hint = '; an instruct model may need layout="chat"'
    if among:
        lines.append(say_among([*among]))
    unknown = [part for record in records.values() for part in record.config.get("not_known", ())]
    lines += dict.fromkeys(unknown)
    if silent:
        total = sum(map(len, answers.values()))
        lines.append(
            f"{silent} of {total} texts are empty: the model ended before it wrote anything, and"
            f" the answer was asked for{hint}"
        )
    return lines


def _span(counts: Sequence[int]) -> str:
    low = min(counts)
    high = max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
