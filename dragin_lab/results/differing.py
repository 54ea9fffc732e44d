"""``Difference``: the questions that one method has right and another wrong, with both answers
and causes.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from statistics import fmean
from typing import Any

import pandas as pd

from dragin_lab.drawn import Drawn
from dragin_lab.results.causes import Cause
from dragin_lab.results.statistics import paired
from dragin_lab.run.rundir import Line

SHOWN = ("answer", "retrievals", "tokens")  # of both methods
COUNTED = ("both right", "both wrong", "won", "lost")


@dataclass(frozen=True, repr=False)
class Difference:
    """Two methods on the questions that both answered: ``table`` has those that flipped, ``counts``
    how all came out.

    ``counts`` are by ``COUNTED``: a question is won where ``other`` alone is right, lost where
    ``one`` alone is.
    """

    one: str
    other: str
    table: pd.DataFrame
    counts: dict[str, int]
    # of em, retrievals and tokens a question, over all questions
    means: dict[str, tuple[float, float]]
    p: str  # of McNemar's exact test, as text
    about: list[str]
    runs: Any  # the ``Runs`` that it is of

    # Both traces of a question side by side; what was won, lost and paid, question by question.
    compare = Drawn()
    plot = Drawn()

    def __str__(self) -> str:
        return "\n".join(
            [self.title, "", self.table.to_string(index=False, max_colwidth=40), "", *self.about]
        ).rstrip()

    @property
    def title(self) -> str:
        """What was won and lost, and for how many more retrievals, in a line."""
        em, cost = (self.means[name][1] - self.means[name][0] for name in ("em", "retrievals"))
        return (
            f"{self.other} against {self.one}: {self.counts['won']:,} won, {self.counts['lost']:,}"
            f" lost of {sum(self.counts.values()):,} (EM {em:+z.3f}, p {self.p}) for {cost:+z.2f}"
            " retrievals a question"
        )

    def __repr__(self) -> str:
        return f"Difference({self.title})"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(line, quote=False)}</p>" for line in self.about)
        return f"<p><b>{escape(self.title)}</b></p>{self.table.to_html(index=False)}{notes}"


def read_difference(
    runs: Any, one: str, other: str, pairs: list[tuple[str, Line, Line]], about: list[str]
) -> Difference:
    """The difference of scored lines of two methods, in pairs with their data set.

    The table has a row for each question that flipped: dataset, id, question, gold, outcome ("won",
    "lost"), then of ``one`` and ``other`` answer, retrievals and tokens, and why the wrong one of
    them is wrong.
    """
    counts = dict.fromkeys(COUNTED, 0)
    rows = []
    for dataset, a, b in pairs:
        first = a["em"] >= 1
        second = b["em"] >= 1
        if first == second:
            counts["both right" if first else "both wrong"] += 1
            continue
        outcome = "won" if second else "lost"
        counts[outcome] += 1
        name, wrong = (one, a) if second else (other, b)
        cause = runs.cause(wrong["id"], name, dataset) or Cause("", "")
        row = [dataset, a["id"], a["question"], " | ".join(a["gold"]), outcome]
        for key in SHOWN:
            row += [a[key], b[key]]
        rows.append([*row, cause.kind, cause.why])
    columns = ["dataset", "id", "question", "gold", "outcome"]
    for key in SHOWN:
        columns += [f"{key} {one}", f"{key} {other}"]
    table = pd.DataFrame(rows, columns=[*columns, "cause", "why"])
    _, firsts, seconds = zip(*pairs, strict=True)
    means = {}
    for key in ("em", "retrievals", "tokens"):
        means[key] = fmean(line[key] for line in firsts), fmean(line[key] for line in seconds)
    test = paired([b["em"] for b in seconds], [a["em"] for a in firsts], scores=True)
    return Difference(
        one, other, table.sort_values("outcome", kind="stable"), counts, means, test.p, about, runs
    )
