"""The paper's tables with our own values beside the paper's, from run directories.

A cell has three parts: the paper's value as printed, ours, and our 95 % interval over the questions. What
keeps ours from being comparable (Almanac's questions, a run that is not complete, another retriever) is marked at the
cell and said below the table.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dragin_lab.checks import count, several, text
from dragin_lab.data import paper
from dragin_lab.errors import SettingError
from dragin_lab.run.lines import readable
from dragin_lab.run.rundir import RunRecord, find_runs
from dragin_lab.study.conditions import differing_conditions, never_fired
from dragin_lab.study.tables.cells import INTERVALS, Cell, Row, comparing
from dragin_lab.study.tables.layouts import ALONE, BM25, OWN_WHEN, RESULTS, Layout, Line, Want, layout
from dragin_lab.study.tables.runs import Source, Sources
from dragin_lab.study.tables.settings import settings_table
from dragin_lab.study.tables.shown import Table


def table(
    number: int,
    runs: str | Path | Iterable[str | Path | RunRecord] = (),
    *,
    as_model: str | None = None,
    compare: str | None = None,
    variant: str | None = None,
    benchmark: str | None = None,
) -> Table:
    """The paper's table ``number`` (1 to 9) beside what the runs gave.

    Args:
        runs: run directories, folders of them, or ``RunRecord``s; none shows the paper's values alone.
        as_model: the paper's model that the runs are compared with ("llama2-13b-chat", "llama2-7b-chat",
            "vicuna-13b-v1.5"). The paper's own models are known by their Hugging Face ids; any other stands beside the
            rows of all three.
        compare: a row, such as "dragin", that the others are tested against on the same questions.
        variant: take runs of this variant only; else the reference variant's where both are there.
        benchmark: what Tables 4 to 6 are taken from instead of the paper's data set.

    Raises:
        SettingError: a table, model, row or benchmark that does not exist; runs that cannot stand side by side; runs
            of which none fills a cell.
        RunError: a folder that holds no run, or a damaged one.
    """
    records = _records(runs)
    number = count("table", number)
    if number not in RESULTS:
        if compare is not None or benchmark is not None:
            raise SettingError(f"Table {number} is about settings; it takes neither compare nor benchmark")
        return settings_table(number, Sources(records, as_model=as_model, variant=variant))
    sources = Sources(records, as_model=as_model, variant=variant)
    thetas = sorted({s.settings["threshold"] for s in sources.all if s.settings["when"] == OWN_WHEN})
    return _Filling(layout(number, benchmark, thetas), sources, compare).table()


def _records(runs: str | Path | Iterable[str | Path | RunRecord]) -> list[RunRecord]:
    remedy = "give folders that 'dragin-lab run --output' wrote"
    given = several("runs", runs, str | Path | RunRecord, remedy, alone=True)
    paths = [one for one in given if isinstance(one, str | Path)]
    return [one for one in given if not isinstance(one, str | Path)] + (find_runs(paths) if paths else [])


class _Filling:
    """Fills a layout from runs, and keeps account of what has to be said about it."""

    def __init__(self, plan: Layout, sources: Sources, compare: str | None) -> None:
        self.plan, self.sources = plan, sources
        self.base = self._base(compare)
        self.used: dict[Path, Source] = {}
        self.marks: dict[str, str] = {}  # what is said -> its mark

    def table(self) -> Table:
        rows = [self._row(line) for line in self.plan.lines]
        number, sources = self.plan.number, self.sources
        if sources.all and not self.used:
            raise SettingError(_nothing(number, sources))
        return Table(
            number, paper.TITLES[number], self.plan.labels, self.plan.columns, rows, self._about(),
            {mark: text for text, mark in self.marks.items()}, self.base,
        )  # fmt: skip

    def _base(self, compare: str | None) -> str:
        """The key of the row that the others are compared with; "" for none."""
        if compare is None:
            return ""
        keys = list(dict.fromkeys(line.key for line in self.plan.lines if line.key != "tokens"))
        wanted = text("compare", compare).strip().lower()
        same = [key for key in keys if key == wanted or _number(key) == _number(wanted) is not None]
        if not same:
            near = difflib.get_close_matches(wanted, keys, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise SettingError(f"Table {self.plan.number} has no row {compare!r}; {hint}one of {', '.join(keys)}")
        return same[0]

    def _row(self, line: Line) -> Row:
        base = next((one for one in self.plan.lines if (one.group, one.key) == (line.group, self.base)), None)
        cells = []
        for place, slot in enumerate(line.slots):
            source = self.sources.find(slot.want)
            other = self.sources.find(base.slots[place].want) if base not in (None, line) else None
            cell = Cell() if source is None else source.cell(slot.want.measure, other)
            marks: tuple[str, ...] = ()
            if source is not None and cell.ours is not None:
                self.used[source.folder] = source
                marks = tuple(self._mark(text) for text in self._caveats(source, slot.want, cell.ours.n))
            cells.append(replace(cell, printed=slot.printed, best=slot.best, marks=marks))
        return Row(line.labels, tuple(cells), line.note)

    def _mark(self, text: str) -> str:
        return self.marks.setdefault(text, _letters(len(self.marks)))

    def _caveats(self, source: Source, want: Want, n: int) -> list[str]:
        """What keeps a value of ours from being what the paper's is."""
        said = []
        if source.almanac:
            said.append("on Almanac's questions: the form of this benchmark, a world and passages of their own")
        if n < source.asked:
            why = f"{len(source.record.failed)} failed" if source.record.failed else "the run is not complete"
            said.append(f"n = {n} of {source.asked} questions ({source.folder}: {why})")
        if want.retriever is None and source.retriever not in (None, BM25):
            said.append(f"passages by {source.searched_with}, where the paper has BM25")
        if want.retriever not in (None, BM25) and "sgpt" not in source.searched_with.lower():
            said.append(f"passages by {source.searched_with}, where the paper has SGPT")
        if source.settings["variant"] != "reference":
            said.append(f"{source.settings['variant']} variant")
        return said

    def _about(self) -> list[str]:
        """Lines on what our values are."""
        used = list(self.used.values())
        if not used:
            return []
        models = {source.model: source.paper_model for source in used}
        variants = " and ".join(sorted({source.settings["variant"] for source in used}))
        lines = [
            f"ours: {', '.join(map(_called, models.items()))}, {variants} variant; {_questions(used)}; {INTERVALS}"
        ]
        if None in models.values() and self.plan.labels[0] == "LLM":
            lines.append("the model is none of the paper's and stands beside each of them; --as (as_model=) names one")
        lines += _unreadable(used)
        shown = {(s.dataset, str(s.folder)): s.record for s in used}
        lines += differing_conditions(shown) + never_fired(shown)
        if self.plan.number in (5, 7) and set(models.values()) != {ALONE}:
            lines.append(f"the paper's values are {ALONE}'s")
        if self.plan.number == 3:
            lines.append("ours in Avg. Tokens: the tokens that FL-RAG generated, which keeps all it writes")
        if self.base:
            lines.append(comparing(self.base, "randomisation test"))
        if left := [str(source.folder) for folder, source in self.sources.left_out.items() if folder not in self.used]:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            lines.append(f"runs that fit too and were not taken: {', '.join(left[:3])}{more}")
        if unused := self.sources.unused:
            lines.append(f"data sets of no table: {', '.join(sorted({source.dataset for source in unused}))}")
        return lines


def _called(item: tuple[str, str | None]) -> str:
    model, beside = item
    return model if beside is None or beside in model.lower() else f"{model} as {beside}"


def _questions(used: list[Source]) -> str:
    counts = sorted({source.asked for source in used})
    return f"n = {counts[0]}" + (f" to {counts[-1]} questions a cell" if len(counts) > 1 else " questions a cell")


def _unreadable(used: list[Source]) -> list[str]:
    """How many answers could not be read from the text, where there are any, and how they count."""
    every = [line for source in used for line in source.record.predictions if line["ended"] != "error"]
    count = sum(not readable(line) for line in every)
    yes_or_no = any(source.benchmark == "strategyqa" for source in used)
    counts = "; on StrategyQA they count as no, as in the released code" if yes_or_no else ""
    return [f"{count:,} of {len(every):,} answers could not be read{counts}"] if count else []


def _nothing(number: int, sources: Sources) -> str:
    """What the runs are, where the table has no place for any of them."""
    of = [
        sorted(values)
        for values in (
            {f"{s.settings['when']} × {s.settings['what']}" for s in sources.all},
            {s.dataset for s in sources.all},
            {_called((s.model, s.paper_model)) for s in sources.all},
        )
    ]
    pairs, datasets, models = (", ".join(values[:4]) + (" …" if len(values) > 4 else "") for values in of)
    return f"Table {number} has no cell for the runs given, which are of {pairs} on {datasets} by {models}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _letters(count: int) -> str:
    """a, b, … z, aa, ab, …"""
    return (_letters(count // 26 - 1) if count >= 26 else "") + "abcdefghijklmnopqrstuvwxyz"[count % 26]
