"""One method against another on the same questions."""

from __future__ import annotations

from dataclasses import dataclass

from dragin_lab.core.intervals import bracket
from dragin_lab.study.comparisons import PairedTest
from dragin_lab.study.tables.cells import Cell, Row
from dragin_lab.study.tables.shown import Table


@dataclass(frozen=True)
class Comparison:
    """Method ``a`` against method ``b`` on the questions that both answered.

    ``tests`` are paired tests of a - b by measure: em by McNemar's exact test, f1 and own metrics by permutation.
    ``won``, ``lost`` and ``tied`` count questions by exact match. ``leads`` says for each method how many of the
    questions that it won the other one lost by which cause.
    """

    a: str
    b: str
    tests: dict[str, PairedTest]
    won: int
    lost: int
    tied: int
    leads: dict[str, dict[str, int]]
    left_out: int = 0  # questions that only one of them answered

    @property
    def em(self) -> PairedTest:
        """Of exact match."""
        return self.tests["em"]

    @property
    def f1(self) -> PairedTest:
        """Of F1."""
        return self.tests["f1"]

    @property
    def table(self) -> Table:
        """The comparison in every form that tables have."""
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
        if self.left_out:
            about.append(f"{self.left_out} questions that only one of them answered are left out")
        for name, other in ((self.a, self.b), (self.b, self.a)):
            if found := self.leads[name]:
                made = ", ".join(f"{cause} {count}" for cause, count in found.items())
                about.append(f"{name} alone right on {sum(found.values())}; why {other} was wrong there: {made}")
        return Table(0, f"{self.a} − {self.b}", ("",), tuple(columns), rows, about)

    def __str__(self) -> str:
        return str(self.table)

    def _repr_markdown_(self) -> str:
        return self.table.show("markdown")
