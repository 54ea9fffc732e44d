"""Results as tables: means over questions, one row per method, and one method against another on the same questions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from dragin_lab.errors import SettingError
from dragin_lab.run.intervals import bracket, interval_of
from dragin_lab.run.lines import SCORES, Line, own_metrics, readable, value_of
from dragin_lab.run.rundir import RunRecord
from dragin_lab.study.conditions import At, differing_conditions, never_fired
from dragin_lab.study.statistics import PairedTest, paired
from dragin_lab.study.table import Cell, Row, Table

if TYPE_CHECKING:
    import pandas as pd

_QUESTION = 80  # characters of a question in a listing
#: What the brackets of a table hold; a line below it.
INTERVALS = (
    "brackets: 95 % intervals over the questions (Wilson where values are 0 or 1, else bootstrap; "
    "– where all are equal)"
)
#: What a table has of each data set: heading, entry of a prediction line, decimals.
_SCORES = (("EM", "em", 3), ("F1", "f1", 3))
_COUNTS = (("retrievals", "retrievals", 2), ("tokens", "tokens", 1))


def comparing(base: str, test: str) -> str:
    """The line below a table whose rows are tested against one."""
    return (
        f"− {base}: difference to that row on the same questions, with the p value of a two-sided {test}, not "
        "corrected for how many there are"
    )


def mean_cell(
    measure: str,
    own: Iterable[Mapping[str, Any]],
    base: Iterable[Mapping[str, Any]] | None = None,
    places: int = 3,
) -> Cell:
    """The mean of an entry of prediction lines, and its difference to ``base`` on the questions of both.

    Lines of failed episodes and lines without the entry are left out; the cell is empty where none is left.
    """
    values, others = _values(measure, own), _values(measure, base or ())
    if not values:
        return Cell()
    both = [qid for qid in values if qid in others]
    pairs = [values[qid] for qid in both], [others[qid] for qid in both]
    test = paired(*pairs, scores=measure in SCORES) if both else None
    return Cell(ours=interval_of(measure, list(values.values())), test=test, places=places)


def _values(measure: str, lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    values = {line["qid"]: value_of(line, measure) for line in lines if line["ended"] != "error"}
    return {qid: value for qid, value in values.items() if value is not None}


def means_table(records: Mapping[At, RunRecord], lines: Mapping[At, Mapping[str, Line]], base: str = "") -> Table:
    """Exact match, F1, custom metrics, retrievals and tokens per question, and how many answers are unreadable.

    ``lines`` are those that count, by question id; the methods are tested against ``base`` on the same questions.
    """
    datasets, names = (tuple(dict.fromkeys(level)) for level in zip(*records, strict=True))
    columns: list[tuple[str, str]] = []
    cells: dict[str, list[Cell]] = {name: [] for name in names}
    for dataset in datasets:
        heading = "" if len(datasets) == 1 else dataset  # the title names it
        answers = {name: list(lines.get((dataset, name), {}).values()) for name in names}
        every = [line for of_method in answers.values() for line in of_method]
        scores = _SCORES if any(line["em"] is not None for line in every) else ()
        for label, key, places in (*scores, *((name, name, 3) for name in own_metrics(every)), *_COUNTS):
            columns.append((heading, label))
            for name, own in answers.items():
                cells[name].append(mean_cell(key, own, answers.get(base) if name != base else None, places))
        columns.append((heading, "unreadable"))
        for name, own in answers.items():
            count = sum(not readable(line) for line in own)
            cells[name].append(Cell(setting=f"{count} of {len(own)}" if own else ""))
    rows = []
    for name in names:
        runs = [record for (_, method), record in records.items() if method == name]
        rows.append(Row((name + _incomplete(runs),), tuple(cells[name])))
    title = ", ".join(datasets) if len(datasets) < 4 else f"{len(datasets)} data sets"
    about = _about(records.values(), [list(answered.values()) for answered in lines.values()], base)
    about += differing_conditions(records) + never_fired(records)
    return Table(0, f"{title}: means per question", ("method",), tuple(columns), rows, about, compared_with=base)


def _incomplete(records: list[RunRecord]) -> str:
    """What keeps a method's means from being those of all questions, in brackets; "" for nothing."""
    asked = sum(record.config["dataset"]["questions"] for record in records)
    answered = sum(len(record.predictions) for record in records)
    failed = sum(len(record.failed) for record in records)
    small = sum("window" in line for record in records for line in record.predictions)
    remarks = [f"{answered} of {asked}"] * (answered < asked) + [f"{failed} failed"] * (failed > 0)
    remarks += [f"window too small for {small}"] * (small > 0)
    return f" ({', '.join(remarks)})" if remarks else ""


def _about(records: Collection[RunRecord], answers: Sequence[Sequence[Line]], base: str) -> list[str]:
    n = _span([len(lines) for lines in answers])
    scored = _span([sum(line["em"] is not None for line in lines) for lines in answers])
    part = "" if scored in (n, "0") else f", {scored} of them scored"
    lines = [f"n = {n} question{'' if n == '1' else 's'}{part}; {INTERVALS}"]
    if "strategyqa" in [record.config["template"].get("answer_rule") for record in records]:
        lines.append("unreadable answers to yes-or-no questions count as no, as in the released code")
    answered = [(record, one) for record in records for one in record.predictions if one["ended"] != "error"]
    if silent := [record for record, one in answered if not one["text"].strip()]:
        hint = '; an instruct model may need layout="chat"'
        lines.append(
            f"{len(silent)} of {len(answered)} texts are empty: the model ended before it wrote anything, and the "
            "answer was asked for" + hint * any(record.config["template"].get("layout") != "chat" for record in silent)
        )
    if base:
        lines.append(comparing(base, "test (EM: McNemar, exact; else by permutation)"))
    return lines


def _span(counts: Sequence[int]) -> str:
    """The smallest and the largest count, as text."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


# -- one method against another --------------------------------------------------------------------------------------


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
    def table(self) -> pd.DataFrame:
        """One row per measure; without a test, one per question with both answers (pandas.DataFrame)."""
        import pandas as pd

        rows: dict[str, dict[str, Any]] = {}
        for key, test in self.tests.items() if self.answers is None else ():
            counts = {"won": self.won, "lost": self.lost, "tied": self.tied} if key == "em" else {}
            kind = "McNemar, exact" if key == "em" else "permutation"
            parts = {"difference": f"{test.difference:+.3f}", "95 %": bracket(test.low, test.high, sign=True)}
            parts |= {"p": test.p.removeprefix("= "), "test": kind} | {name: str(of) for name, of in counts.items()}
            rows[key.upper() if key in ("em", "f1") else key] = parts
        if self.answers is None:
            about = f"n = {self.em.n} questions that both answered, with 95 % bootstrap intervals, two-sided tests"
        else:
            about = f"{self.a} alone right on {self.won}, {self.b} alone on {self.lost}, tied on {self.tied}"
            for (_, qid), row in zip(self.answers.index, self.answers.itertuples(index=False), strict=True):
                texts = {"question": shorten(row.question, _QUESTION, placeholder="…"), "gold": row.gold}
                for name, answer, right in ((self.a, row.a, row.right_a), (self.b, row.b, row.right_b)):
                    texts[name] = f"{answer} ({'right' if right else 'wrong'})"
                rows[qid] = {name: " ".join(text.split()) for name, text in texts.items()}
        frame = pd.DataFrame.from_dict(rows, orient="index").fillna("")
        frame.attrs = {"title": f"{self.a} − {self.b}", "notes": [about, *self._below()]}
        return frame

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
        frame = self.table
        return "\n".join([frame.attrs["title"], "", frame.to_string(), "", *frame.attrs["notes"]])

    def _repr_html_(self) -> str:
        frame = self.table
        notes = [f"<p>{escape(note)}</p>" for note in frame.attrs["notes"]]
        return "\n".join([f"<p><b>{escape(frame.attrs['title'])}</b></p>", frame.to_html(), *notes])
