"""Means over questions: the cells of every table, and the table of runs of any benchmark, one row per method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dragin_lab.run.lines import SCORES, Line, interval_of, own_metrics, readable, value_of
from dragin_lab.run.rundir import RunRecord
from dragin_lab.study.comparisons import paired
from dragin_lab.study.conditions import At, differing_conditions, never_fired
from dragin_lab.study.table import Cell, Row, Table

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
    about = _about(records.values(), {len(answered) for answered in lines.values()}, base)
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


def _about(records: Iterable[RunRecord], counts: set[int], base: str) -> list[str]:
    n = f"{min(counts):,}" + (f" to {max(counts):,}" if len(counts) > 1 else "")
    lines = [f"n = {n} question{'' if n == '1' else 's'}; {INTERVALS}"]
    if "strategyqa" in [record.config["template"].get("answer_rule") for record in records]:
        lines.append("unreadable answers to yes-or-no questions count as no, as in the released code")
    if base:
        lines.append(comparing(base, "test (EM: McNemar, exact; else by permutation)"))
    return lines
