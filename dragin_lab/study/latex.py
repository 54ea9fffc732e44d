"""Tables in LaTeX: a ``table`` environment for the packages booktabs and graphicx."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

#: A table that is wider than the text is made as wide as it.
_FITTED = "\\resizebox{\\ifdim\\width>\\textwidth \\textwidth\\else\\width\\fi}{!}{%\n"
#: What LaTeX would not print as it is. A bracket or a star after the end of a row would be read as its option.
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$", '"': "''",
    "θ": r"$\theta$", "−": "$-$", "×": r"$\times$", "–": "--", "’": "'", "…": r"\dots{}", "[": "{[}", "]": "{]}",
    "*": "{*}", "\n": " ",
})  # fmt: skip


def escape_latex(text: Any) -> str:
    """A text that LaTeX prints as it is, with a minus before a number."""
    signed = re.sub(r"(?<![\w-])-(?=\.?\d)", "−", str(text))
    return signed.replace("--", "-\0-").translate(_LATEX).replace("\0", "{}")


def to_latex(sheet: pd.DataFrame, heading: str, label: str, notes: list[str]) -> str:
    """A ``table`` environment, at most as wide as the text; the best values are bold."""
    sheet = sheet.rename(index=escape_latex, columns=escape_latex)
    sheet.index.names = [escape_latex(name) for name in sheet.index.names]
    styler = sheet.style.format(lambda text: escape_latex(text.rstrip("*")))
    styler = styler.map(lambda text: "font-weight: bold" if text.endswith("*") else "")
    form = "l" * sheet.index.nlevels + "r" * sheet.shape[1]
    table = styler.to_latex(
        hrules=True, caption=escape_latex(heading), label=label, column_format=form, position_float="centering",
        sparse_index=False, multicol_align="c", convert_css=True,
    ).rstrip()  # fmt: skip
    table = table.replace(r"\begin{tabular}", _FITTED + "\\begin{tabular}").replace(r"\end{tabular}", "\\end{tabular}}")
    below = " \\\\\n".join(escape_latex(note).replace("{*}: the best", "bold: the best") for note in notes)
    note = rf"\par\medskip\begin{{minipage}}{{\linewidth}}\footnotesize\raggedright {below}\end{{minipage}}"
    return table.replace(r"\end{table}", f"{note}\n\\end{{table}}") if notes else table
