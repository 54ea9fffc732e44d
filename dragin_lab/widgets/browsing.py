"""``browse``: every answer of some runs as a list to search and sort, and the chosen one beside
another method's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import ipywidgets as ipw
import pandas as pd

from dragin_lab.checks import instance, several
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.results.runs import Runs
from dragin_lab.run.rundir import GIVE, stamp_runs
from dragin_lab.run.setup import MakesSetups
from dragin_lab.views.comparing import COLUMNS, describe_answers, question_table
from dragin_lab.views.facts import plural
from dragin_lab.views.pages import show_part
from dragin_lab.widgets.control import Control, row
from dragin_lab.widgets.exploring import explore

ROWS = 500  # questions that stand in the list at once
WIDTHS = {"right": 1, "method": 14, "answer": 26, "retrievals": 3, "question": 90}
EVERY = 2.0  # seconds between two looks at folders that are followed
NOTHING = "(nothing)"

Folders = str | Path | Iterable[str | Path]


class Browser(Control):
    """The box. ``table`` is the list; the answer that is chosen is shown, beside another method's.

    The value of ``table`` is data set, question's id and method of the chosen answer.
    """

    def __init__(self, runs: Runs | Folders, lab: MakesSetups | None, follow: bool) -> None:
        self.runs: Runs | None = None
        self.rows = pd.DataFrame(columns=COLUMNS)
        self.lab = lab
        self.listing = False
        self.means = ipw.HTML()
        self.found = ipw.HTML()
        self.page = ipw.HTML()
        self.search = ipw.Text(
            description="search", placeholder="words of a question, answer or method"
        )
        self.order = ipw.Dropdown(description="sort by", options=["(as run)", *COLUMNS])
        self.table = ipw.Select(
            rows=14,
            layout={"width": "auto", "max_width": "1180px"},
            tooltip=(
                "right, method, answer, retrievals, question; the cause is shown with a chosen one"
            ),
        )
        self.beside = ipw.Dropdown(description="beside", options=[NOTHING])
        self.explored = ipw.VBox()
        self.table.add_class("dl-rows")
        offers = [
            self.offer("explore this answer", lambda: self.explore(0)),
            self.offer("explore the one beside it", lambda: self.explore(1)),
        ]
        controls = [
            self.means,
            row(self.search, self.order, self.found),
            self.table,
            row(self.beside, *offers),
        ]
        # a plain table
        super().__init__(controls, [self.page, self.explored], lambda: self.rows[[*WIDTHS]])
        for control in (self.search, self.order):
            self.on_value(control, self.list_rows)
        for control in (self.table, self.beside):
            self.on_value(control, self.show_answers)
        if not follow:
            self.stop_button.layout.display = "none"  # no model runs here
            self.fill(runs if isinstance(runs, Runs) else Runs.load(runs))
            return
        self.stop_button.disabled = False
        self._worker = threading.Thread(target=self.follow, args=[runs], daemon=True)
        self._worker.start()

    def follow(self, folders: Folders) -> None:
        """Read the folders again whenever a line has come, until it is stopped."""
        seen: object = None
        while not self._stop.is_set():
            now = stamp_runs(folders)
            if now != seen:
                seen = now
                try:
                    self.fill(Runs.load(folders))
                except DraginLabError as error:  # no run there yet, or none with an answer
                    self.found.value = f"waiting: {error}"
            self._stop.wait(EVERY)
        self.stop_button.disabled = True

    def fill(self, runs: Runs) -> None:
        """List what the runs hold; what was searched for and chosen stays."""
        rows = question_table(runs)
        means = show_part(runs.table())
        self.runs = runs
        self.rows = rows
        self.means.value = means
        beside = self.beside.value
        names = runs.names
        self.listing = True
        self.beside.options = [NOTHING, *names]
        self.beside.value = beside if beside in names else names[-1]
        self.list_rows()

    def list_rows(self) -> None:
        """The rows that hold every word of the search, in the chosen order."""
        rows = self.rows
        if self.order.value in rows:
            rows = rows.sort_values(self.order.value)
        sought = self.search.value.casefold().split()
        texts = map(" ".join, rows.astype(str).fillna("").to_numpy())
        held = [all(word in text.casefold() for word in sought) for text in texts]
        rows = rows.loc[held]
        shown = rows[:ROWS].round(2)
        chosen = self.table.value
        lines = [
            "  ".join(str(row[name])[:width].ljust(width) for name, width in WIDTHS.items())
            for _, row in shown.iterrows()
        ]
        keys = list(zip(shown["dataset"], shown["id"], shown["method"], strict=True))
        self.listing = True  # exchanged options choose the first of them
        self.table.options = list(zip(lines, keys, strict=True))
        self.table.value = chosen if chosen in keys else None
        self.listing = False
        more = f", the first {ROWS} are listed" if len(rows) > ROWS else ""
        self.found.value = f"{len(rows):,} of {plural(len(self.rows), 'answer')}{more}"

    def list_shown(self) -> list[tuple[str, str, str]]:
        """Data set, id and method of what is shown: the chosen answer, and another method's to
        the same question.
        """
        if self.table.value is None or self.runs is None:
            return []
        dataset, id, method = self.table.value
        shown = [(dataset, id, method)]
        other = self.beside.value
        if other not in (NOTHING, method):
            same = self.runs.same(id, method, other, dataset)
            if same is not None:
                shown.append((dataset, same, other))
        return shown

    def show_answers(self) -> None:
        """The answers to the chosen question, with cause and first difference."""
        shown = self.list_shown()
        if self.runs is None or self.listing or not shown:
            return
        self.page.value = describe_answers(self.runs, shown)
        if len(shown) < 2 and self.beside.value not in (NOTHING, shown[0][2]):
            self.say(f"{self.beside.value} has not answered it")

    def explore(self, place: int) -> None:
        """Open one of the shown answers token by token (``dl.explore``)."""
        shown = self.list_shown()
        if self.runs is None or not shown:
            raise SettingError("choose an answer above")
        if len(shown) <= place:
            raise SettingError("no answer is shown beside it")
        dataset, id, method = shown[place]
        opened = explore(self.runs.trace(id, method, dataset), self.lab)
        for explorer in self.explored.children:
            explorer.close()
        self.explored.children = (opened,)


def browse(
    runs: Runs | Folders, *, lab: MakesSetups | None = None, follow: bool = False
) -> Browser:
    """Every answer of some runs as a list to sort and search; the chosen one is shown beside
    another method's.

    ``runs`` are ``Runs`` or what ``Runs.load`` takes. Two buttons open what is shown token by token
    (``dl.explore``); with the ``lab`` that answered, it can be written on from there. With
    ``follow`` the list fills while others write to the folders, which may still be empty, until
    Stop.

    Raises ``RunError`` for a folder without runs, ``SettingError`` for ``follow`` of runs that were
    read before.
    """
    instance("lab", lab, MakesSetups | None, "give the dl.Lab that answered")
    if follow and isinstance(runs, Runs):
        raise SettingError(
            "these runs were read before, so nothing can come; give their folder with follow=True"
        )
    if not isinstance(runs, Runs):
        runs = several("runs", runs, str | Path, f"{GIVE}, or a list", alone=True)
    return Browser(runs, lab, follow)
