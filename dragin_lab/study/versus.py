"""One method against another on the same questions."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING

from dragin_lab.errors import SettingError
from dragin_lab.run.intervals import bracket
from dragin_lab.study.comparisons import PairedTest
from dragin_lab.study.table import Cell, Row, Table

if TYPE_CHECKING:
    import pandas as pd

_QUESTION = 80  # characters of a question in a listing


@dataclass(frozen=True)
class Comparison:
    """Method ``a`` against method ``b`` on the questions that both answered.

    ``tests`` are paired tests of a - b by measure: em by McNemar's exact test, f1 and own metrics by permutation.
    ``won``, ``lost`` and ``tied`` count questions by exact match. ``leads`` says for each method how many of the
    questions that it won the other one lost by which cause. Where what one of them answered chose the questions,
    ``tests`` is empty and ``answers`` has a row per question (pandas.DataFrame): question, gold, a, b, right_a and
    right_b.
    """

    a: str
    b: str
    tests: dict[str, PairedTest]
    won: int
    lost: int
    tied: int
    leads: dict[str, dict[str, int]]
    left_out: int = 0  # questions that only one of them answered
    answers: pd.DataFrame | None = None
    about: tuple[str, ...] = ()  # how the questions were chosen, and what is not the same in both runs

    @property
    def em(self) -> PairedTest:
        """Of exact match. Raises ``SettingError`` where nothing was tested."""
        return self._test("em")

    @property
    def f1(self) -> PairedTest:
        """Of F1. Raises ``SettingError`` where nothing was tested."""
        return self._test("f1")

    def _test(self, key: str) -> PairedTest:
        if self.answers is not None:
            raise SettingError("; ".join(self.about))
        return self.tests[key]

    @property
    def table(self) -> Table:
        """The comparison in every form that tables have; without a test, the questions with both answers."""
        if self.answers is not None:
            return self._listing(self.answers)
        rows = []
        for key, test in self.tests.items():
            exact = key == "em"
            counts = [str(count) for count in (self.won, self.lost, self.tied)] if exact else [""] * 3
            interval = bracket(test.low, test.high, sign=True)
            kind = "McNemar, exact" if exact else "permutation"
            cells = (f"{test.difference:+.3f}", interval, test.p.removeprefix("= "), kind, *counts)
            name = key.upper() if key in ("em", "f1") else key
            rows.append(Row((name,), tuple(Cell(setting=cell) for cell in cells)))
        columns = [("", name) for name in ("difference", "95 %", "p", "test", "won", "lost", "tied")]
        about = [f"n = {self.em.n} questions that both answered, with 95 % bootstrap intervals, two-sided tests"]
        return Table(0, f"{self.a} − {self.b}", ("",), tuple(columns), rows, about + self._below())

    def _listing(self, answers: pd.DataFrame) -> Table:
        """One row per question."""
        rows = []
        for (_, qid), row in zip(answers.index, answers.itertuples(index=False), strict=True):
            texts = [shorten(row.question, _QUESTION, placeholder="…"), row.gold]
            texts += [f"{answer} ({_outcome(right)})" for answer, right in ((row.a, row.right_a), (row.b, row.right_b))]
            rows.append(Row((qid,), tuple(Cell(setting=" ".join(text.split())) for text in texts)))
        columns = tuple(("", name) for name in ("question", "gold", self.a, self.b))
        counts = f"{self.a} alone right on {self.won}, {self.b} alone on {self.lost}, tied on {self.tied}"
        return Table(0, f"{self.a} and {self.b}", ("id",), columns, rows, [counts, *self._below()])

    def _below(self) -> list[str]:
        about = list(self.about)
        if self.left_out:
            about.append(f"{self.left_out} questions that only one of them answered are left out")
        for name, other in ((self.a, self.b), (self.b, self.a)):
            if counts := self.leads[name]:
                causes = ", ".join(f"{cause} {count}" for cause, count in counts.items())
                about.append(f"{name} alone right on {sum(counts.values())}; why {other} was wrong there: {causes}")
        return about

    def __str__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table.show("html")


def _outcome(right: bool) -> str:
    return "right" if right else "wrong"
