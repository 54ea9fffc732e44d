"""The paper's tables with our own values beside the paper's, from run directories.

A cell has three parts: the paper's value as printed, ours, and our 95 % interval over the questions. What keeps ours
from being comparable (Almanac's questions, a run that is not complete, another retriever) is marked at the cell and
explained below the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragin_lab.catalog.methods import method
from dragin_lab.checks import choice, count, several, text
from dragin_lab.core import answers as metrics
from dragin_lab.core.method import METHODS
from dragin_lab.data import paper
from dragin_lab.data.exemplars import SHOTS
from dragin_lab.data.presets import find_preset
from dragin_lab.errors import SettingError
from dragin_lab.run.lines import readable
from dragin_lab.run.rundir import RunRecord, find_runs
from dragin_lab.study.conditions import differing_conditions, never_fired
from dragin_lab.study.means import INTERVALS, comparing
from dragin_lab.study.paper_layouts import BM25, LABELS, MEASURES, NAMES, Layout, Line, layout
from dragin_lab.study.sources import ALONE, OWN_TRIGGER, Source, Sources
from dragin_lab.study.table import Cell, Row, Table


def table(
    number: int,
    runs: str | Path | Iterable[str | Path | RunRecord] = (),
    *,
    as_model: str | None = None,
    compare: str | None = None,
    variant: str | None = None,
    benchmark: str | None = None,
) -> Table:
    """The paper's table ``number`` (1 to 9) with the runs' values beside the paper's.

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
    remedy = "give folders that 'dragin-lab run --output' wrote"
    items = several("runs", runs, str | Path | RunRecord, remedy, alone=True)
    paths = [item for item in items if isinstance(item, str | Path)]
    records = [item for item in items if isinstance(item, RunRecord)] + (find_runs(paths) if paths else [])
    number = count("table", number)
    sources = Sources(records, as_model=as_model, variant=variant)
    if number not in LABELS:
        if compare is not None or benchmark is not None:
            raise SettingError(f"Table {number} is about settings; it takes neither compare nor benchmark")
        return _settings_table(number, sources)
    thetas = sorted({s.settings["threshold"] for s in sources.all if s.settings["when"] == OWN_TRIGGER})
    return _Filling(layout(number, benchmark, thetas), sources, compare).table()


class _Filling:
    """Fills a layout from runs, and collects the remarks that belong below it."""

    def __init__(self, plan: Layout, sources: Sources, compare: str | None) -> None:
        self.plan, self.sources = plan, sources
        self.base = "" if compare is None else self._find_row(compare)
        self.used: dict[Path, Source] = {}
        self.marks: dict[str, str] = {}  # remark -> its mark

    def table(self) -> Table:
        rows = [self._row(line) for line in self.plan.lines]
        number, sources = self.plan.number, self.sources
        if sources.all and not self.used:
            kinds = (
                {f"{s.settings['when']} × {s.settings['what']}" for s in sources.all},
                {s.dataset for s in sources.all},
                {s.called for s in sources.all},
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

    def _row(self, line: Line) -> Row:
        base = next((other for other in self.plan.lines if (other.group, other.key) == (line.group, self.base)), None)
        cells = []
        for place, (printed, want) in enumerate(zip(line.row.cells, line.wants, strict=True)):
            source = self.sources.find(want)
            if source is None:
                cells.append(printed)
                continue
            other = self.sources.find(base.wants[place]) if base is not None and base is not line else None
            cell, marks = source.cell(want.measure, other), []
            if cell.ours is not None:
                self.used[source.folder] = source
                marks = [self._mark(remark) for remark in source.caveats(want, cell.ours.n)]
            cells.append(replace(cell, printed=printed.printed, best=printed.best, marks=tuple(marks)))
        return replace(line.row, cells=tuple(cells))

    def _mark(self, remark: str) -> str:
        return self.marks.setdefault(remark, _letters(len(self.marks)))

    def _about(self) -> list[str]:
        """Lines that describe our values."""
        used = list(self.used.values())
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
        if self.plan.number in (5, 7) and beside != {ALONE}:
            lines.append(f"the paper's values are {ALONE}'s")
        if self.plan.number == 3:
            lines.append("ours in Avg. Tokens: the tokens that FL-RAG generated, which keeps all it writes")
        if self.base:
            lines.append(comparing(self.base, "randomisation test"))
        if left := [str(folder) for folder in self.sources.left_out if folder not in self.used]:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            lines.append(f"runs that fit too and were not taken: {', '.join(left[:3])}{more}")
        if unused := self.sources.unused:
            lines.append(f"data sets of no table: {', '.join(sorted({source.dataset for source in unused}))}")
        return lines


def _letters(number: int) -> str:
    """a, b, … z, aa, ab, …"""
    return (_letters(number // 26 - 1) if number >= 26 else "") + "abcdefghijklmnopqrstuvwxyz"[number % 26]


# -- settings ---------------------------------------------------------------------------------------------------------

_SETTINGS = {"generate length": "max_new_tokens", "θ": "threshold", "top n tokens": "top_n"}
_METRICS = {key: name for key, (name, _) in MEASURES.items()} | {"recall": "Rec."}


def _settings_table(number: int, sources: Sources) -> Table:
    """Tables 1, 8 and 9; without runs, ours are the package's own settings, and in Table 9 its presets of the released
    configurations (those of the paper are the paper's). Raises ``SettingError`` for others."""
    rows = paper.rows(number)
    if number == 1:
        return _methods_table(rows)
    benchmarks = [name for name in rows[0] if name in NAMES]
    if number == 8:
        labels, keys, fill, own = ("", ""), ("part", "setting"), _data_cell, "of the package"
    else:
        labels, keys, fill = ("LLM", "Hyperparameters"), ("llm", "hyperparameter"), _dragin_cell
        own = 'of the released configurations (presets of source="released")'
    filled = [
        Row(tuple(row[key] for key in keys), tuple(fill(row, name, sources) for name in benchmarks), row["note"])
        for row in rows
    ]
    whose = own if not sources.all else "of the runs given" + (", else of the package" if number == 8 else "")
    marks = {"a": "on Almanac's questions"} if any(cell.marks for row in filled for cell in row.cells) else {}
    columns = tuple((NAMES[name], "") for name in benchmarks)
    return Table(number, paper.TITLES[number], labels, columns, filled, [f"ours: settings {whose}"], marks)


def _methods_table(rows: list[dict[str, str]]) -> Table:
    """Table 1: the paper's methods, then those of the registry that it does not have."""
    known = {row["method"].lower(): row for row in rows}
    filled = []
    for key in [*known, *(name for name in METHODS if name not in known)]:
        row = known.get(key, {"method": key, "timing": "", "query": "", "note": ""})
        cells = (Cell(row[part], setting=ours) for part, ours in zip(("timing", "query"), METHODS[key], strict=True))
        filled.append(Row((row["method"],), tuple(cells), row["note"]))
    columns = (("", "Timing for Retrieval"), ("", "Query Formulation"))
    about = ["ours: trigger and query formulator in the registry"]
    return Table(1, paper.TITLES[1], ("",), columns, filled, about)


def _data_cell(row: dict[str, str], benchmark: str, sources: Sources) -> Cell:
    """A cell of Table 8, from all runs on the benchmark."""
    runs = [source for source in sources.all if source.benchmark == benchmark]
    configs = [source.record.config for source in runs]
    searched = [config for config in configs if config.get("retriever")]
    ours: dict[str, Callable[[], Iterable[Any]]] = {
        "Task": list,
        "#Examples": lambda: (config["dataset"]["questions"] for config in configs),
        "Metrics": lambda: [", ".join(_METRICS[key] for key in metrics.MEASURES[benchmark])],
        "Corpus": lambda: (config["retriever"].get("corpus") for config in searched),
        "Retriever": lambda: ("BM25" if s.retriever == BM25 else s.searched_with for s in runs if s.retriever),
        "Top-k": lambda: (config["method"]["top_k"] for config in searched) if runs else [method().top_k],
        "#Examplars": lambda: (
            [len(config["template"]["exemplars"]) for config in configs] if runs else [SHOTS[benchmark]]
        ),
    }
    return _setting_cell(row[benchmark], ours[row["setting"]](), [] if row["setting"] == "Metrics" else runs)


def _dragin_cell(row: dict[str, str], benchmark: str, sources: Sources) -> Cell:
    """A cell of Table 9, from the DRAGIN runs that stand beside the row's model."""
    name = _SETTINGS[row["hyperparameter"]]
    model = paper.MODELS[row["llm"]]
    if not sources.all:
        preset = find_preset(model, benchmark, source="released")
        return _setting_cell(row[benchmark], [preset.settings[name]], [])
    runs = [s for s in sources.of(model) if s.benchmark == benchmark]
    runs = [s for s in runs if (s.settings["when"], s.settings["what"]) == METHODS["dragin"]]
    return _setting_cell(row[benchmark], (source.settings[name] for source in runs), runs)


def _setting_cell(printed: str, values: Iterable[Any], runs: list[Source]) -> Cell:
    """All values that occur, each once, in order."""
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in sorted(set(values))]
    marks = ("a",) if texts and any(source.almanac for source in runs) else ()
    return Cell(printed, setting=" / ".join(texts), marks=marks)
