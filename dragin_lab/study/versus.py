"""One method against another on the same questions."""

from __future__ import annotations

from dataclasses import dataclass

from dragin_lab.study.comparisons import PairedTest
from dragin_lab.study.tables.cells import Cell, Row
from dragin_lab.study.tables.shown import Table


@dataclass(frozen=True)
class Comparison:
    """Method ``a`` against method ``b`` on the questions that both answered.

    ``em`` and ``f1`` are paired tests of a - b; that of em is McNemar's exact test, that of f1 a permutation test.
    ``won``, ``lost`` and ``tied`` count questions by exact match. ``leads`` says for each method how many of the
    questions that it won the other one lost by which cause.
    """

    a: str
    b: str
    em: PairedTest
    f1: PairedTest
    won: int
    lost: int
    tied: int
    leads: dict[str, dict[str, int]]
    left_out: int = 0  # questions that only one of them answered

    @property
    def table(self) -> Table:
        """The comparison in every form that tables have."""
        rows = []
        for name, test, kind in (("EM", self.em, "McNemar, exact"), ("F1", self.f1, "permutation")):
            cells = (
                f"{test.difference:+.3f}", f"[{test.low:+.3f}, {test.high:+.3f}]", f"{test.p_value:.2g}", kind,
                *((str(self.won), str(self.lost), str(self.tied)) if name == "EM" else ("", "", "")),
            )  # fmt: skip
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
