"""``browse``: every answer of some runs as a list to search and sort, and the chosen one beside another method's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import ipywidgets as ipw
import pandas as pd

from dragin_lab.study.runs import Runs
from dragin_lab.views.comparing import describe_answers, question_table
from dragin_lab.views.facts import count
from dragin_lab.views.pages import show_part
from dragin_lab.widgets.control import Control, row

ROWS = 500  # questions that stand in the list at once
WIDTHS = {"right": 1, "method": 14, "answer": 26, "retrievals": 3, "question": 90}


class Browser(Control):
    """The box. ``table`` is the list; the row that is chosen is shown, beside another method's answer."""

    def __init__(self, runs: Runs) -> None:
        self.runs, self.rows = runs, question_table(runs)
        self.search = ipw.Text(description="search", placeholder="words of a question, answer or method")
        self.order = ipw.Dropdown(description="sort by", options=["(as run)", *self.rows.columns])
        self.found = ipw.HTML()
        wide = {"width": "auto", "max_width": "1180px"}
        self.table = ipw.Select(
            rows=14,
            layout=wide,
            tooltip="right, method, answer, retrievals, question; the cause is shown with a chosen one",
        )
        self.beside = ipw.Dropdown(description="beside", options=["(nothing)", *runs.names], value=runs.names[-1])
        self.page = ipw.HTML()
        means = ipw.HTML(show_part(runs.table()))
        self.table.add_class("dl-rows")
        controls = [means, row(self.search, self.order, self.found), self.table, self.beside]
        super().__init__(controls, [self.page], lambda: self.rows[[*WIDTHS]])  # a plain table
        self.stop_button.layout.display = "none"  # no model runs here
        for one in (self.search, self.order):
            one.observe(lambda _: self.list_rows(), "value")
        for one in (self.table, self.beside):
            one.observe(lambda _: self.guard(self.show_answers), "value")
        self.list_rows()

    def list_rows(self) -> None:
        """The rows that hold every word of the search, in the chosen order."""
        rows = self.rows if self.order.value not in self.rows else self.rows.sort_values(self.order.value)
        words = rows.astype(str).fillna("")
        texts = pd.Series(map(" ".join, words.to_numpy()), index=rows.index, dtype=str).str.casefold()
        for word in self.search.value.casefold().split():
            rows, texts = rows[texts.str.contains(word, regex=False)], texts[texts.str.contains(word, regex=False)]
        shown = rows[:ROWS].round(2)
        lines = ["  ".join(str(row[name])[:width].ljust(width) for name, width in WIDTHS.items())
                 for _, row in shown.iterrows()]  # fmt: skip
        self.table.options = list(zip(lines, shown.index.tolist(), strict=True))
        self.table.value = None
        more = f", the first {ROWS} are listed" if len(rows) > ROWS else ""
        self.found.value = f"{len(rows):,} of {count(len(self.rows), 'answer')}{more}"

    def show_answers(self) -> None:
        """The answers to the chosen question, with cause and first difference."""
        if self.table.value is not None:
            row = self.rows.loc[self.table.value]
            methods = list(dict.fromkeys([row["method"], self.beside.value]))
            names = [name for name in methods if name in self.runs.names]
            self.page.value = describe_answers(self.runs, row["dataset"], row["qid"], names)


def browse(runs: Runs | str | Path | Iterable[str | Path]) -> Browser:
    """Every answer of some runs as a list to sort and search; the chosen one is shown beside another method's.

    ``runs`` are ``Runs`` or what ``Runs.load`` takes. Raises ``RunError`` for a folder without runs.
    """
    return Browser(runs if isinstance(runs, Runs) else Runs.load(runs))
