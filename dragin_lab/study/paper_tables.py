"""The paper's tables with our own values beside the paper's, from run directories.

What keeps our value from being comparable (Almanac's questions, a run that is not complete, another
retriever) is marked at the cell and explained below the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import choice, count, several, text
from dragin_lab.core.method import METHODS
from dragin_lab.data import paper
from dragin_lab.data.datasets import BENCHMARKS
from dragin_lab.data.presets import plain_name
from dragin_lab.errors import SettingError
from dragin_lab.run.finding import find_runs
from dragin_lab.run.rundir import SCORES, RunRecord
from dragin_lab.study.compared import Compared
from dragin_lab.study.conditions import check_same_golds, list_differences, list_idle_thresholds
from dragin_lab.study.table import INTERVALS, TESTED, Cell, Row, Table, comparing

if TYPE_CHECKING:
    import pandas as pd

NAMES = {
    "2wikimultihopqa": "2WikiMultihopQA",
    "hotpotqa": "HotpotQA",
    "strategyqa": "StrategyQA",
    "iirc": "IIRC",
}
#: The paper's name of a measure, and the key of a prediction line that it is the mean of.
MEASURES = {
    "em": ("EM", "em"),
    "f1": ("F1", "f1"),
    "precision": ("Prec.", "precision"),
    "recall": ("Recall", "recall"),
    "accuracy": ("Accuracy", "em"),  # the exact match of yes or no
    "num": ("#Num", "retrievals"),
    "tokens": ("#Num", "tokens"),  # a row of Table 3
}
BM25, DENSE = "bm25", "dense"
TOKENS = "tokens"  # the key of Table 3's row of tokens


def table(
    number: int,
    runs: str | Path | Iterable[str | Path | RunRecord] = (),
    *,
    as_model: str | None = None,
    compare: str | None = None,
    variant: str | None = None,
) -> Table:
    """The paper's table ``number`` (1 to 9); in the result tables (2 to 7) with the runs' values
    beside the paper's.

    Args:
        runs: run directories, folders of them, or ``RunRecord``s; none shows the paper's values
            alone. as_model: the paper's model that the runs are compared with ("llama2-13b-chat",
            "llama2-7b-chat",
            "vicuna-13b-v1.5"). The paper's own models are known by their Hugging Face ids; any
            other stands beside the rows of all three.
        compare: a row, such as "dragin", that the others are tested against on the same questions.
        variant: take runs of this variant only.

    Raises:
        SettingError: a table, model or row that does not exist; runs for a table about settings;
            runs that
            cannot stand side by side; two that fit one cell; runs of which none fills a cell.
        RunError: a folder that holds no run, or a damaged one.
    """
    remedy = "give folders that 'dragin-lab run --output' wrote"
    given = several("runs", runs, str | Path | RunRecord, remedy, alone=True)
    records = [one for one in given if isinstance(one, RunRecord)]
    records += (
        find_runs(paths)
        if (paths := [one for one in given if not isinstance(one, RunRecord)])
        else []
    )
    number = count("table", number)
    if number in paper.TITLES and number not in paper.RESULTS and (records or compare):
        raise SettingError(f"Table {number} is about settings; it takes neither runs nor compare")
    if as_model is not None:
        choice("model of the paper", as_model, sorted(set(paper.MODELS.values())))
    every = [Source(record, as_model) for record in records]
    sources = [source for source in every if variant in (None, source.settings["variant"])]
    if every and not sources:
        raise SettingError(
            f"none of the {len(every)} runs is of the {variant} variant; leave variant out"
        )
    return _Filling(number, sources, compare).table()


# -- a table before it is filled -------------------------------------------------------------------


@dataclass
class _Line:
    """A row with the paper's values alone, and what fills its cells; in a table about settings
    nothing does.

    ``run`` is what the runs are set to (``Source.fits``), ``wants`` the benchmark and the key of
    prediction lines of each cell, ``model`` the paper's. ``group`` names the rows that it is
    compared with, ``key`` itself among them.
    """

    row: Row
    group: str = ""
    key: str = ""
    model: str = ""
    run: dict[str, Any] = field(default_factory=dict)
    wants: list[tuple[str, str]] = field(default_factory=list)


def _read_rows(values: pd.DataFrame, number: int, sources: Sequence[Source]) -> list[_Line]:
    """Table 5 gets a row for each threshold of ours that it has not."""
    rows, lines = [own for _, own in values.groupby("row")], list[_Line]()
    if number == 5:
        ours = {
            s.settings["threshold"] for s in sources if s.settings["when"] == METHODS["dragin"][0]
        }
        new = sorted(ours - {*values["threshold"].astype(float)})
        rows += [
            rows[0].assign(threshold=f"{theta:g}", printed="", best=False, note="") for theta in new
        ]
        rows.sort(key=lambda own: float(own["threshold"].iloc[0]))
    for own in rows:
        cells, labels = [*own.itertuples()], tuple(own[_labels(values)].iloc[0])
        lines.append(
            line := _Line(
                Row(labels, tuple(Cell(cell.printed, cell.best) for cell in cells), cells[0].note)
            )
        )
        if number in paper.RESULTS:
            line.key, line.run = _run_of(number, cells[0])
            line.group, line.model = labels[0] if len(labels) > 1 else "", cells[0].model
            line.wants = [(cell.on, MEASURES[cell.metric][1]) for cell in cells]
    return lines


def _labels(values: pd.DataFrame) -> list[str]:
    return [name for name in paper.LABELS if any(values[name])]


def _run_of(number: int, row: Any) -> tuple[str, dict[str, Any]]:
    """The key of a row, and what the runs that fill it are set to."""
    when, what = METHODS["dragin"]
    if number == 5:
        return row.threshold, {"when": when, "what": what, "threshold": float(row.threshold)}
    if number == 7:
        retriever = BM25 if row.retriever == "BM25" else DENSE
        return row.retriever.lower(), {"when": when, "what": what, "retriever": retriever}
    # FL-RAG keeps all it writes, so the tokens of its runs are its responses'
    if row.metric == TOKENS:
        return TOKENS, dict(zip(("when", "what"), METHODS["fl-rag"], strict=True))
    key = row.method.removesuffix(" (Ours)").lower().replace(" ", "-")
    # "full-context" is a row of Table 6 and a formulator
    own_when, own_what = METHODS.get(key, (when, key))
    return key, {
        "when": when if number == 6 else own_when,
        "what": "last-sentence" if number == 4 else own_what,
    }


class Source:
    """A run that a table's cells may be filled from.

    ``benchmark`` is the one whose columns it fills (None: of none), ``paper_model`` the model of
    the paper that it is of or ``named`` to be compared with, ``retriever`` is ``BM25`` or ``DENSE``
    (None where nothing is searched).
    """

    def __init__(self, record: RunRecord, named: str | None = None) -> None:
        config, used = record.config, record.config.get("retriever") or {}
        self.record, self.folder, self.settings = record, record.folder, config["method"]
        self.dataset, self.asked = (
            str(config["dataset"]["name"]),
            int(config["dataset"]["questions"]),
        )
        self.at = self.dataset, str(self.folder)  # which is its name here
        self.almanac = self.dataset.startswith("almanac/")
        # or by the name
        kind = config["dataset"].get("kind", self.dataset.removeprefix("almanac/"))
        self.benchmark = kind if kind in BENCHMARKS else None
        self.model = str(config["model"]["model"])
        known = plain_name(self.model) if plain_name(self.model) in paper.MODELS.values() else None
        self.paper_model = named or known
        search = str(used.get("kind") or "none")
        self.searched_with = f"{search}:{used['model']}" if used.get("model") else search
        searches = config.get("retriever") is not None
        self.retriever = (BM25 if BM25 in search.lower() else DENSE) if searches else None

    @property
    def called(self) -> str:
        """The model's name, with that of the paper's model that it stands beside."""
        beside = self.paper_model
        return (
            self.model
            if beside is None or beside in self.model.lower()
            else f"{self.model} as {beside}"
        )

    def fits(self, run: dict[str, Any], benchmark: str) -> bool:
        """Whether it can fill the cells of such a run, as far as everything but its model goes."""
        own = self.settings | {"retriever": self.retriever}
        return self.benchmark == benchmark and all(own[key] == value for key, value in run.items())

    def caveats(self, wanted: str | None, n: int) -> list[str]:
        """What keeps a value of ours, over ``n`` questions, from being comparable with the
        paper.
        """
        remarks = []
        if self.almanac:
            remarks.append(
                "on Almanac's questions: the form of this benchmark, a world and passages of"
                " their own"
            )
        if n < self.asked:
            failed, whole = len(self.record.failed), len(self.record.predictions) == self.asked
            why = (
                f"{failed} failed"
                if failed
                else "others are not in all runs"
                if whole
                else "the run is not complete"
            )
            remarks.append(f"n = {n} of {self.asked} questions ({self.folder}: {why})")
        if wanted is None and self.retriever not in (None, BM25):
            remarks.append(f"passages by {self.searched_with}, where the paper has BM25")
        if wanted == DENSE and "sgpt" not in self.searched_with.lower():
            remarks.append(f"passages by {self.searched_with}, where the paper has SGPT")
        if self.settings["variant"] != "reference":
            remarks.append(f"{self.settings['variant']} variant")
        return remarks


# -- filling ---------------------------------------------------------------------------------------


class _Filling:
    """Fills a table from runs, and collects the remarks that belong below it."""

    def __init__(self, number: int, sources: Sequence[Source], compare: str | None) -> None:
        self.number, self.sources, self.values = number, sources, paper.values(number)
        self.lines = lines = _read_rows(self.values, number, sources)
        check_same_golds({s.at: s.record for s in sources})
        self.by_model: dict[str | None, list[Source]] = {}
        for source in sources:
            if source.benchmark is not None:
                self.by_model.setdefault(source.paper_model, []).append(source)
        for beside, own in self.by_model.items():
            if len(names := sorted({s.model for s in own})) > 1:
                place = f"beside {beside or 'the paper’s'}"
                raise SettingError(
                    f"runs of {len(names)} models ({', '.join(names)}); give those of one {place}"
                )
        self.base = "" if compare is None else self._find_row(compare)
        every = [self._find_source(line, on) for line in lines for on, _ in line.wants]
        self.used = {source.at: source for source in every if source is not None}
        self.compared = Compared({source.at: source.record.by_id for source in self.used.values()})
        # of a folder, which is its name here
        self.tests = cache(lambda base: self.compared.tests(str(base.folder)))
        self.marks: dict[str, str] = {}  # remark -> its mark

    def table(self) -> Table:
        number, sources, rows = (
            self.number,
            self.sources,
            [self._fill_row(line) for line in self.lines],
        )
        if sources and not self.used:
            kinds = (
                {f"{s.settings['when']} × {s.settings['what']}" for s in sources},
                {s.dataset for s in sources},
                {s.called for s in sources},
            )
            pairs, datasets, models = (
                ", ".join(sorted(of)[:4]) + (" …" if len(of) > 4 else "") for of in kinds
            )
            raise SettingError(
                f"Table {number} has no cell for the runs given, which are of {pairs} on {datasets}"
                f" by {models}"
            )
        headings = {"llm": "LLM", "method": "RAG Method" if number == 2 else "Method"}
        labels = tuple(headings.get(name, name.capitalize()) for name in _labels(self.values))
        names = {2: NAMES, 3: paper.SHORT}.get(number, {})
        columns = tuple(
            (
                (names.get(cell.on, ""), MEASURES[cell.metric][0])
                if number in paper.RESULTS
                else (NAMES.get(cell.metric, cell.metric.capitalize()), "")
            )
            for cell in self.values[self.values["row"] == 0].itertuples()
        )
        marks = {mark: remark for remark, mark in self.marks.items()}
        return Table(
            number,
            paper.TITLES[number],
            labels,
            columns,
            rows,
            self._about(labels),
            marks,
            self.base,
        )

    def _find_row(self, name: str) -> str:
        """The key of a row; a threshold may be written in any way."""
        keys = list(dict.fromkeys(line.key for line in self.lines if line.key != TOKENS))
        wanted = text("compare", name).strip().lower()
        if self.number == 5 and wanted.replace(".", "", 1).isdecimal():
            wanted = next((key for key in keys if float(key) == float(wanted)), wanted)
        return choice(f"row of Table {self.number}", wanted, keys)

    def _fill_row(self, line: _Line) -> Row:
        base = next(
            (other for other in self.lines if (other.group, other.key) == (line.group, self.base)),
            line,
        )
        cells = list(line.row.cells)
        for place, (benchmark, measure) in enumerate(line.wants):
            if (source := self._find_source(line, benchmark)) is None:
                continue
            other = None if base is line else self._find_source(base, base.wants[place][0])
            if (mean := self.compared.intervals.get((source.at, measure))) is None:
                continue
            remarks = source.caveats(line.run.get("retriever"), mean.n)
            marks = tuple(
                self.marks.setdefault(remark, _letters(len(self.marks))) for remark in remarks
            )
            test = None if other is None else self.tests(other).get((source.at, measure))
            cells[place] = replace(
                cells[place],
                ours=mean,
                marks=marks,
                test=test,
                places=3 if measure in SCORES else 2,
            )
        return replace(line.row, cells=tuple(cells))

    def _find_source(self, line: _Line, benchmark: str) -> Source | None:
        """The run for a cell. Raises ``SettingError`` where several fit.

        Beside a model of the paper stand its own runs, else those of a model that the paper does
        not have; in a table about one model those of any other too, when there is just one.
        """
        beside = self.by_model.get(line.model) or self.by_model.get(None) or []
        if not beside and self.number in (5, 7) and len(self.by_model) == 1:
            beside = next(iter(self.by_model.values()))
        fitting = [source for source in beside if source.fits(line.run, benchmark)]
        if len(fitting) > 1:
            folders = ", ".join(str(source.folder) for source in fitting)
            variants = len({source.settings["variant"] for source in fitting}) > 1
            raise SettingError(
                f"{len(fitting)} runs fit {line.run['when']} × {line.run['what']} on"
                f" {NAMES[benchmark]}: {folders}; give the folders of those you"
                f" mean{', or variant=' if variants else ''}"
            )
        return fitting[0] if fitting else None

    def _about(self, labels: Sequence[str]) -> list[str]:
        used, number = list(self.used.values()), self.number
        if not used:
            return []
        variants = " and ".join(sorted({source.settings["variant"] for source in used}))
        models = ", ".join(dict.fromkeys(source.called for source in used))
        counts = sorted({source.asked for source in used})
        n = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
        lines = [f"ours: {models}, {variants} variant; {n} questions a cell; {INTERVALS}"]
        beside = {source.paper_model for source in used}
        if None in beside and labels[0] == "LLM":
            lines.append(
                "the model is none of the paper's and stands beside each of them; as_model="
                " names one"
            )
        answers = [
            line
            for source in used
            for line in source.record.predictions
            if line["ended"] != "error"
        ]
        if unreadable := sum(not line["readable"] for line in answers):
            yes_or_no = any(source.benchmark == "strategyqa" for source in used)
            counts_as = (
                "; on StrategyQA they count as no, as in the released code" if yes_or_no else ""
            )
            lines.append(f"{unreadable:,} of {len(answers):,} answers could not be read{counts_as}")
        shown = {source.at: source.record for source in used}
        lines += self.compared.about + list_differences(shown) + list_idle_thresholds(shown)
        if number in (5, 7) and beside != {paper.ALONE}:
            lines.append(f"the paper's values are {paper.ALONE}'s")
        if number == 3:
            lines.append(
                "ours in Avg. Tokens: the tokens that FL-RAG generated, which keeps all it writes"
            )
        if self.base:
            lines.append(comparing(self.base, TESTED))
        if unused := sorted(
            {source.dataset for source in self.sources if source.benchmark is None}
        ):
            lines.append(f"data sets of no table: {', '.join(unused)}")
        return lines


def _letters(number: int) -> str:
    return (_letters(number // 26 - 1) if number >= 26 else "") + "abcdefghijklmnopqrstuvwxyz"[
        number % 26
    ]
