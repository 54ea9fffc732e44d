"""LaTeX: a ``table`` environment for booktabs and graphicx."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

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
