"""What came of each value of one setting: a sweep's runs, as a table and as a figure."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any

import pandas as pd

from dragin_lab.core.method import Method
from dragin_lab.drawn import Drawn
from dragin_lab.results.runs import Runs
from dragin_lab.run.benchmark import Benchmark
from dragin_lab.run.cache import Counts
from dragin_lab.run.intervals import describe_failures, summarize_lines
from dragin_lab.run.rundir import RunRecord
from dragin_lab.run.setup import Setup
from dragin_lab.run.sweeps import on_a_scale, run_methods


@dataclass(frozen=True)
class Sweep:
    """What came of each value: ``methods`` and ``records``, their runs, have one entry per value of
    ``setting``.

    ``counts`` says what the cache served; None where there was none. Runs without a folder have no
    traces.
    """

    setting: str  # such as "threshold"
    methods: tuple[Method, ...]
    benchmark: str  # name of the questions
    counts: Counts | None = field(default=None, compare=False)
    records: tuple[RunRecord, ...] = field(default=(), repr=False)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values, in the order they were given; triggers or formulators of one name in their
        written form.
        """
        values = tuple(method.settings[self.setting] for method in self.methods)
        part = {"when": "trigger", "what": "formulator"}.get(self.setting)
        if part is None or len(set(values)) == len(values):
            return values
        return tuple(str(getattr(method, part)) for method in self.methods)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per value (pandas.DataFrame): setting, value, n, scored, then means per question
        with 95 % intervals.

        em, em_low, em_high, the same of f1 and of retrievals, and tokens (generated); see
        ``intervals.summarize_lines``. The means are over the questions that failed at no value;
        ``failed`` counts those that did at this one, and ``attrs["notes"]`` says why.
        """
        lost = set[str]()
        for record in self.records:
            if len(record.failed) < len(record.predictions):
                lost.update(line["id"] for line in record.failed)
        rows = []
        for value, record in zip(self.values, self.records, strict=True):
            lines = [line for line in record.predictions if line["id"] not in lost]
            means = summarize_lines(lines)
            known = {"setting": self.setting, "value": value}
            rows.append(known | means | {"failed": len(record.failed)})
        table = pd.DataFrame(rows).drop(columns=["tokens_low", "tokens_high"])
        if not on_a_scale(self.values):
            table["value"] = pd.Series(self.values, dtype=object)
        table.attrs["notes"] = self._list_failures()
        return table

    def _list_failures(self) -> list[str]:
        return describe_failures(line for record in self.records for line in record.predictions)

    @property
    def runs(self) -> Runs:
        """The runs of the sweep, a method for each value: their questions, traces and
        comparisons.
        """
        return Runs(self.records)

    plot = Drawn()  # ``views.sweep``, with the paper's Table 5 by ``paper=True``

    def __repr__(self) -> str:
        failures = "".join(f"; {line}" for line in self._list_failures())
        return (
            f"Sweep({self.methods[0].name}, {self.setting} in {list(self.values)},"
            f" {self.benchmark}{failures})"
        )

    def _repr_html_(self) -> str:
        table = self.table if self.table["failed"].any() else self.table.drop(columns="failed")
        notes = "".join(f"<p>{escape(line)}</p>" for line in self._list_failures())
        return str(table.to_html(index=False, float_format="{:.3f}".format)) + notes


def run_values(
    setup: Setup,
    asked: Benchmark,
    setting: str,
    methods: tuple[Method, ...],
    output: Any,
    batch_size: int,
    progress: bool,
) -> Sweep:
    """``Lab.sweep`` over methods that differ in one setting."""
    before = Counts() if setup.cache is None else replace(setup.cache.counts)
    records = run_methods(setup, asked, methods, output, progress, batch_size=batch_size)
    counts = None if setup.cache is None else setup.cache.counts.since(before)
    if counts is not None and counts.drafts and progress:
        print(counts, file=sys.stderr)
    return Sweep(setting, methods, asked.name, counts, tuple(records))
