"""The columns of a table that are shown, and LaTeX: a ``table`` environment for booktabs and
graphicx.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import choice, several

if TYPE_CHECKING:
    import pandas as pd

SHORT = ("what fits",)  # the columns of LaTeX where none are named
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


def choose_columns(headings: Any, wanted: Sequence[str]) -> list[tuple[str, str, str]]:
    """The columns (heading, measure, part) with one of the wanted names at each level that has
    any of them.
    """
    if wanted is SHORT:
        left = [
            at
            for at in headings
            if at[2] in ("mean", "ours", "paper", "") and at[1] not in ("n", "unreadable")
        ]
        tested = [at for at in headings if at[2].startswith("− ") and at[1] in ("EM", "F1")]
        return [at for at in headings if at in left + tested]
    there = [
        list(dict.fromkeys(name for name in headings.get_level_values(level) if name))
        for level in range(3)
    ]
    for name in several("columns", wanted, str, "give headings, such as ('EM', 'F1')", alone=True):
        choice("column", name, [*chain.from_iterable(there)])
    chosen = [[name for name in names if name in wanted] for names in there]
    return [
        at
        for at in headings
        if all(not of or name in of or not name for name, of in zip(at, chosen, strict=True))
    ]


def escape_latex(text: Any) -> str:
    """A text that LaTeX prints as it is, with a minus before a number."""
    signed = re.sub(r"(?<![\w-])-(?=\.?\d)", "−", str(text))
    return signed.replace("--", "-\0-").translate(_LATEX).replace("\0", "{}")


def to_latex(sheet: pd.DataFrame, heading: str, label: str, notes: list[str]) -> str:
    """A ``table`` environment, at most as wide as the text; the best values are bold."""
    sheet = sheet.rename(index=escape_latex, columns=escape_latex)
    if sheet.columns.nlevels == 1:  # pandas writes the headings of an index of one level as tuples
        sheet.columns = sheet.columns.get_level_values(0)
    sheet.index.names = [escape_latex(name) for name in sheet.index.names]
    styler = sheet.style.format(lambda text: escape_latex(text.rstrip("*")))
    styler = styler.map(lambda text: "font-weight: bold" if text.endswith("*") else "")
    form = "l" * sheet.index.nlevels + "r" * sheet.shape[1]
    table = styler.to_latex(
        hrules=True,
        caption=escape_latex(heading),
        label=label,
        column_format=form,
        position_float="centering",
        sparse_index=False,
        multicol_align="c",
        convert_css=True,
    ).rstrip()
    table = table.replace(r"\begin{tabular}", _FITTED + "\\begin{tabular}").replace(
        r"\end{tabular}", "\\end{tabular}}"
    )
    below = " \\\\\n".join(
        escape_latex(note).replace("{*}: the best", "bold: the best") for note in notes
    )
    note = (
        r"\par\medskip\begin{minipage}{\linewidth}\footnotesize\raggedright"
        rf" {below}\end{{minipage}}"
    )
    return table.replace(r"\end{table}", f"{note}\n\\end{{table}}") if notes else table
