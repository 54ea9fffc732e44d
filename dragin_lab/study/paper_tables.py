"""The paper's tables with our own values beside the paper's, from run directories.

A cell has three parts: the paper's value as printed, ours, and our 95 % interval over the questions. What keeps ours
from being comparable (Almanac's questions, a run that is not complete, another retriever) is marked at the cell and
explained below the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from dragin_lab.checks import choice, count, several, text
from dragin_lab.data import paper
from dragin_lab.errors import SettingError
from dragin_lab.run.lines import readable
from dragin_lab.run.rundir import RunRecord, find_runs
from dragin_lab.study.conditions import check_same_questions, differing_conditions, never_fired
from dragin_lab.study.paper_cells import (
    ALONE,
    NAMES,
    OWN_TRIGGER,
    RESULTS,
    Layout,
    Line,
    Source,
    Want,
    layout,
)
from dragin_lab.study.run_tables import INTERVALS, comparing
from dragin_lab.study.table import Row, Table


def table(
    number: int,
    runs: str | Path | Iterable[str | Path | RunRecord] = (),
    *,
    as_model: str | None = None,
    compare: str | None = None,
    variant: str | None = None,
    benchmark: str | None = None,
) -> Table:
    """The paper's table ``number`` (1 to 9); in the result tables (2 to 7) with the runs' values beside the paper's.

    Args:
        runs: run directories, folders of them, or ``RunRecord``s; none shows the paper's values alone.
        as_model: the paper's model that the runs are compared with ("llama2-13b-chat", "llama2-7b-chat",
            "vicuna-13b-v1.5"). The paper's own models are known by their Hugging Face ids; any other stands beside the
            rows of all three.
        compare: a row, such as "dragin", that the others are tested against on the same questions.
        variant: take runs of this variant only.
        benchmark: what Tables 4 to 6 are taken from instead of the paper's data set.

    Raises:
        SettingError: a table, model, row or benchmark that does not exist; runs for a table about settings; runs that
            cannot stand side by side; two that fit one cell; runs of which none fills a cell.
        RunError: a folder that holds no run, or a damaged one.
    """
    remedy = "give folders that 'dragin-lab run --output' wrote"
    items = several("runs", runs, str | Path | RunRecord, remedy, alone=True)
    paths = [item for item in items if isinstance(item, str | Path)]
    records = [item for item in items if isinstance(item, RunRecord)] + (find_runs(paths) if paths else [])
    number = count("table", number)
    if number in paper.TITLES and number not in RESULTS and (records or compare or benchmark):
        raise SettingError(f"Table {number} is about settings; it takes neither runs nor compare nor benchmark")
    if as_model is not None:
        choice("model of the paper", as_model, sorted(set(paper.MODELS.values())))
    every = [Source(record, as_model) for record in records]
    sources = [source for source in every if variant in (None, source.settings["variant"])]
    if every and not sources:
        raise SettingError(f"none of the {len(every)} runs is of the {variant} variant; leave variant out")
    thetas = sorted({s.settings["threshold"] for s in sources if s.settings["when"] == OWN_TRIGGER})
    return _Filling(layout(number, benchmark, thetas), sources, compare).table()


class _Filling:
    """Fills a layout from runs, and collects the remarks that belong below it."""

    def __init__(self, plan: Layout, sources: Sequence[Source], compare: str | None) -> None:
        self.plan, self.sources = plan, sources
        for dataset in {s.dataset for s in sources}:
            same = [s for s in sources if s.dataset == dataset]
            check_same_questions({str(s.folder): {line["qid"]: line for line in s.record.predictions} for s in same})
        self.by_model: dict[str | None, list[Source]] = {}
        for source in sources:
            if source.benchmark is not None:
                self.by_model.setdefault(source.paper_model, []).append(source)
        for beside, own in self.by_model.items():
            names = sorted({s.model for s in own})
            if len(names) > 1:
                place = f"beside {beside or 'the paper’s'}"
                raise SettingError(f"runs of {len(names)} models ({', '.join(names)}); give those of one {place}")
        self.base = "" if compare is None else self._find_row(compare)
        self.used: dict[Path, Source] = {}
        self.marks: dict[str, str] = {}  # remark -> its mark

    def table(self) -> Table:
        rows = [self._fill_row(line) for line in self.plan.lines]
        number, sources = self.plan.number, self.sources
        if sources and not self.used:
            kinds = (
                {f"{s.settings['when']} × {s.settings['what']}" for s in sources},
                {s.dataset for s in sources},
                {s.called for s in sources},
            )
            pairs, datasets, models = (", ".join(sorted(of)[:4]) + (" …" if len(of) > 4 else "") for of in kinds)
            raise SettingError(
                f"Table {number} has no cell for the runs given, which are of {pairs} on {datasets} by {models}"
            )
        marks = {mark: remark for remark, mark in self.marks.items()}
        return Table(
            number, paper.TITLES[number], self.plan.labels, self.plan.columns, rows, self._about(), marks, self.base
        )

    def _find_row(self, name: str) -> str:
        """The key of the row that the others are compared with; a threshold may be written in any way."""
        keys = list(dict.fromkeys(line.key for line in self.plan.lines if line.key != "tokens"))
        wanted = text("compare", name).strip().lower()
        if self.plan.number == 5 and wanted.replace(".", "", 1).isdecimal():
            wanted = next((key for key in keys if float(key) == float(wanted)), wanted)
        return choice(f"row of Table {self.plan.number}", wanted, keys)

    def _fill_row(self, line: Line) -> Row:
        base = next((other for other in self.plan.lines if (other.group, other.key) == (line.group, self.base)), None)
        cells = list(line.row.cells)
        for place, want in enumerate(line.wants):
            source = self._find_source(want)
            if source is None:
                continue
            other = self._find_source(base.wants[place]) if base is not None and base is not line else None
            cell, marks = source.cell(want.measure, other), []
            if cell.ours is not None:
                self.used[source.folder] = source
                marks = [
                    self.marks.setdefault(remark, _letters(len(self.marks)))
                    for remark in source.caveats(want, cell.ours.n)
                ]
            cells[place] = replace(cell, printed=cells[place].printed, best=cells[place].best, marks=tuple(marks))
        return replace(line.row, cells=tuple(cells))

    def _runs_beside(self, model: str | None) -> list[Source]:
        """The runs that stand beside a model of the paper: its own, else those of a model that the paper does not have.

        None is for tables about one model (``ALONE``): there the runs of any other do too, when there is just one.
        """
        own = self.by_model.get(model or ALONE) or self.by_model.get(None)
        if own is None and model is None and len(self.by_model) == 1:
            own = next(iter(self.by_model.values()))
        return own or []

    def _find_source(self, want: Want) -> Source | None:
        """The run for a cell. Raises ``SettingError`` where several fit."""
        fitting = [source for source in self._runs_beside(want.model) if source.fits(want)]
        if len(fitting) > 1:
            folders = ", ".join(str(source.folder) for source in fitting)
            variants = len({source.settings["variant"] for source in fitting}) > 1
            raise SettingError(
                f"{len(fitting)} runs fit {want.when} × {want.what} on {NAMES[want.benchmark]}: {folders}; "
                f"give the folders of those you mean{', or variant=' if variants else ''}"
            )
        return fitting[0] if fitting else None

    def _about(self) -> list[str]:
        """Lines that describe our values."""
        used, number = list(self.used.values()), self.plan.number
        if not used:
            return []
        variants = " and ".join(sorted({source.settings["variant"] for source in used}))
        models = ", ".join(dict.fromkeys(source.called for source in used))
        counts = sorted({source.asked for source in used})
        n = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
        lines = [f"ours: {models}, {variants} variant; {n} questions a cell; {INTERVALS}"]
        beside = {source.paper_model for source in used}
        if None in beside and self.plan.labels[0] == "LLM":
            lines.append("the model is none of the paper's and stands beside each of them; --as (as_model=) names one")
        answers = [line for source in used for line in source.record.predictions if line["ended"] != "error"]
        if unreadable := sum(not readable(line) for line in answers):
            yes_or_no = any(source.benchmark == "strategyqa" for source in used)
            counts_as = "; on StrategyQA they count as no, as in the released code" if yes_or_no else ""
            lines.append(f"{unreadable:,} of {len(answers):,} answers could not be read{counts_as}")
        shown = {(s.dataset, str(s.folder)): s.record for s in used}
        lines += differing_conditions(shown) + never_fired(shown)
        if number in (5, 7) and beside != {ALONE}:
            lines.append(f"the paper's values are {ALONE}'s")
        if number == 3:
            lines.append("ours in Avg. Tokens: the tokens that FL-RAG generated, which keeps all it writes")
        if self.base:
            lines.append(comparing(self.base, "randomisation test"))
        if unused := sorted({source.dataset for source in self.sources if source.benchmark is None}):
            lines.append(f"data sets of no table: {', '.join(unused)}")
        return lines


def _letters(number: int) -> str:
    """a, b, … z, aa, ab, …"""
    return (_letters(number // 26 - 1) if number >= 26 else "") + "abcdefghijklmnopqrstuvwxyz"[number % 26]
