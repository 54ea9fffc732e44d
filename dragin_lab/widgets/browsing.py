"""``browse``: every question of some runs as a table to sort and search, and the answers to one side by side."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ipywidgets as ipw

from dragin_lab.study.runs import Runs
from dragin_lab.views.comparing import describe_answers, question_table
from dragin_lab.views.pages import load_stylesheet, show_part
from dragin_lab.widgets.control import Control


class Browser(Control):
    """The box. ``table`` is itables' widget; the row that is clicked is shown, beside another method's answer."""

    def __init__(self, runs: Runs) -> None:
        from itables.widget import ITable

        self.runs, self.rows = runs, question_table(runs)
        look: dict[str, Any] = {"maxBytes": 0, "classes": "display compact nowrap", "column_filters": "header"}
        self.table = ITable(self.rows, select="single", showIndex=False, **look)
        self.beside = ipw.Dropdown(description="beside", options=["(nothing)", *runs.names])
        self.beside.value = runs.names[-1]
        self.page = ipw.HTML()
        means = ipw.HTML(f"<style>{load_stylesheet()}</style>{show_part(runs.table())}")
        super().__init__([means, self.table, self.beside], [self.page], lambda: self.rows)  # a plain table
        self.stop_button.layout.display = "none"  # no model runs here
        self.table.observe(lambda _: self.guard(self.show_answers), "selected_rows")
        self.beside.observe(lambda _: self.guard(self.show_answers), "value")

    def show_answers(self) -> None:
        """The answers to the chosen question, with cause and first difference."""
        if self.table.selected_rows:
            row = self.rows.iloc[self.table.selected_rows[0]]
            methods = list(dict.fromkeys([row["method"], self.beside.value]))
            names = [name for name in methods if name in self.runs.names]
            self.page.value = describe_answers(self.runs, row["dataset"], row["qid"], names)


def browse(runs: Runs | str | Path | Iterable[str | Path]) -> Browser:
    """Every question of some runs as a table to sort and search; a click shows its answer beside another method's.

    ``runs`` are ``Runs`` or what ``Runs.load`` takes. Without a kernel: ``views.browse_page(runs, path)``. Raises
    ``RunError`` for a folder without runs.
    """
    return Browser(runs if isinstance(runs, Runs) else Runs.load(runs))
