"""Means of runs of any benchmark: one row per method, for each data set its measures with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dragin_lab.run.lines import Line, own_metrics, readable
from dragin_lab.run.rundir import RunRecord
from dragin_lab.study.conditions import At, differing_conditions, never_fired
from dragin_lab.study.tables.cells import INTERVALS, Cell, Row, comparing, mean_cell, measured
from dragin_lab.study.tables.shown import Table

#: What a table has of each data set: heading, entry of a prediction line, decimals.
_SCORES = (("EM", "em", 3), ("F1", "f1", 3))
_COUNTS = (("retrievals", "retrievals", 2), ("tokens", "tokens", 1))


def means_table(records: Mapping[At, RunRecord], lines: Mapping[At, Mapping[str, Line]], base: str = "") -> Table:
    """Exact match, F1, custom metrics, retrievals and tokens per question, and how many answers are unreadable.

    ``lines`` are those that count, by question id; the methods are tested against ``base`` on the same questions.
    """
    datasets, names = (tuple(dict.fromkeys(of)) for of in zip(*records, strict=True))
    columns, cells = [], {name: list[Cell]() for name in names}
    for dataset in datasets:
        known = {name: lines.get((dataset, name), {}) for name in names}
        heading = "" if len(datasets) == 1 else dataset  # the title names it
        for measure, key, places in _measures([line for of in known.values() for line in of.values()]):
            columns.append((heading, measure))
            values = {name: measured(of, key) for name, of in known.items()}
            for name, own in values.items():
                cells[name].append(mean_cell(key, own, values.get(base) if name != base else None, places))
        columns.append((heading, "unreadable"))
        for name, of in known.items():
            count = sum(not readable(line) for line in of.values())
            cells[name].append(Cell(setting=f"{count} of {len(of)}") if of else Cell())
    rows = [Row((_remarked(name, [r for (_, n), r in records.items() if n == name]),), tuple(cells[name]))
            for name in names]  # fmt: skip
    sets = ", ".join(datasets) if len(datasets) < 4 else f"{len(datasets)} data sets"
    about = _about(records.values(), {len(of) for of in lines.values()}, base)
    about += differing_conditions(records) + never_fired(records)
    return Table(0, f"{sets}: means per question", ("method",), tuple(columns), rows, about, compared_with=base)


def _measures(lines: list[Line]) -> list[tuple[str, str, int]]:
    scores = _SCORES if any(line["em"] is not None for line in lines) else ()
    return [*scores, *((name, name, 3) for name in own_metrics(lines)), *_COUNTS]


def _remarked(name: str, records: list[RunRecord]) -> str:
    """A method's name with what keeps its means from being those of all questions."""
    asked = sum(record.config["dataset"]["questions"] for record in records)
    done = sum(len(record.predictions) for record in records)
    failed = sum(len(record.failed) for record in records)
    small = sum("window" in line for record in records for line in record.predictions)
    said = [f"{done} of {asked}"] * (done < asked) + [f"{failed} failed"] * (failed > 0)
    said += [f"window too small for {small}"] * (small > 0)
    return name + (f" ({', '.join(said)})" if said else "")


def _about(records: Iterable[RunRecord], counts: set[int], base: str) -> list[str]:
    n = f"{min(counts):,}" + (f" to {max(counts):,}" if len(counts) > 1 else "")
    lines = [f"n = {n} question{'' if n == '1' else 's'}; {INTERVALS}"]
    if "strategyqa" in [record.config["template"].get("answer_rule") for record in records]:
        lines.append("unreadable answers to yes-or-no questions count as no, as in the released code")
    if base:
        lines.append(comparing(base, "test (EM: McNemar, exact; else by permutation)"))
    return lines
