"""A table in every form that it can be shown in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragin_lab.errors import SettingError
from dragin_lab.study.tables import formats
from dragin_lab.study.tables.cells import Cells

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("text", "markdown", "latex", "csv", "dataframe")


class Table(Cells):
    """A table of the paper, filled as far as runs allow. Printing it gives text; a notebook shows Markdown."""

    @property
    def frame(self) -> pd.DataFrame:
        """One frame row per row (pandas.DataFrame): labels as index; columns (heading, measure, part).

        Parts: ``paper``, ``ours``, ``low``, ``high``, ``n`` and, where methods are compared, ``difference``, its
        ``low`` and ``high`` and ``p``; only those that some cell has. Settings are text, results float64.
        """
        return formats.to_frame(self)

    def show(self, form: str = "text", *, width: int | None = None) -> str:
        """The table in one of ``FORMATS``; as text it is folded between columns to at most ``width`` characters."""
        if form not in FORMATS:
            raise SettingError(f"format {form!r} does not exist; one of {', '.join(FORMATS)}")
        if form == "text":
            return formats.to_text(self, width)
        if form == "dataframe":
            frame = self.frame
            return str(frame.astype(object).where(frame.notna(), "").to_string())
        return {
            "markdown": formats.to_markdown,
            "latex": formats.to_latex,
            "csv": formats.to_csv,
        }[form](self)

    def __str__(self) -> str:
        return self.show()

    def __repr__(self) -> str:
        cells = sum(len(row.cells) for row in self.rows)
        return f"Table({self.number}, {self.title}: {self.filled} of {cells} cells are ours)"

    def _repr_markdown_(self) -> str:
        return self.show("markdown")
