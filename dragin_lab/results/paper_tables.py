"""The paper's tables with our own values beside the paper's, from run directories.

What keeps our value from being comparable (Almanac's questions, a run that is not complete, another
retriever) is marked at the cell and explained below the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NoReturn

import pandas as pd

from dragin_lab.checks import check_text, choice, count, several
from dragin_lab.core.method import METHODS
from dragin_lab.data import paper
from dragin_lab.data.datasets import BENCHMARKS
from dragin_lab.data.presets import plain_name
from dragin_lab.errors import SettingError
from dragin_lab.results.compared import (
    At,
    Compared,
    check_same_golds,
    list_differences,
    list_first,
    list_idle_thresholds,
    name_runs,
)
from dragin_lab.results.table import (
    INTERVALS,
    TESTED,
    Columns,
    Parts,
    Table,
    comparing,
    numbers_of,
    spread,
    texts_of,
)
from dragin_lab.run.rundir import SCORES, Facts, RunRecord, find_runs

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
BM25 = "bm25"
DENSE = "dense"
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
    listed = several("runs", runs, str | Path | RunRecord, remedy, alone=True)
    records = [run for run in listed if isinstance(run, RunRecord)]
    paths = [run for run in listed if not isinstance(run, RunRecord)]
    if paths:
        records += find_runs(paths)
    number = count("table", number)
    if number in paper.TITLES and number not in paper.RESULTS and (records or compare):
        raise SettingError(f"Table {number} is about settings; it takes neither runs nor compare")
    if as_model is not None:
        choice("model of the paper", as_model, sorted(set(paper.MODELS.values())))
    every = [Source(at, record, as_model) for at, record in name_runs(records).items()]
    sources = [source for source in every if variant in (None, source.settings["variant"])]
    if every and not sources:
        raise SettingError(
            f"none of the {len(every)} runs is of the {variant} variant; leave variant out"
        )
    return _Filling(number, sources, compare).table()


# -- a table before it is filled -------------------------------------------------------------------


def _add_thresholds(values: pd.DataFrame, sources: Sequence[Source]) -> pd.DataFrame:
    """Table 5 with a row for each threshold of ours that it has not."""
    rows = [values]
    first = values[values["row"] == 0]
    empty = first.assign(printed="", value=float("nan"), best=False, note="")
    known = {*values["threshold"].astype(float)}
    for source in sources:
        theta = source.settings["threshold"]
        if source.settings["when"] == METHODS["dragin"][0] and theta not in known:
            known.add(theta)
            rows.append(empty.assign(threshold=f"{theta:g}"))
    every = pd.concat(rows, ignore_index=True)
    return every.sort_values("threshold", key=lambda column: column.astype(float), kind="stable")


def _run_of(number: int, row: Any) -> tuple[str, Facts]:
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
    if number == 6:
        own_when = when
    if number == 4:
        own_what = "last-sentence"
    return key, {"when": own_when, "what": own_what}


class Source:
    """A run that a table's cells may be filled from.

    ``at`` is what its data set and method are called among all runs. ``benchmark`` is the one whose
    columns it fills (None: of none), ``paper_model`` the model of the paper that it is of or
    ``named`` to be compared with, ``retriever`` is ``BM25`` or ``DENSE`` (None where nothing is
    searched).
    """

    def __init__(self, at: At, record: RunRecord, named: str | None = None) -> None:
        config = record.config
        dataset = record.config["dataset"]
        self.record = record
        self.settings = config["method"]
        self.dataset = record.dataset
        self.at = at
        kind = dataset.get("kind", self.dataset.removeprefix("almanac/"))  # or by the name
        self.benchmark = kind if kind in BENCHMARKS else None
        self.model = str(config["model"]["model"])
        known = plain_name(self.model)
        self.paper_model = known if named is None and known in paper.MODELS.values() else named
        self.searched_with, self.retriever = _read_retriever(config.get("retriever"))

    @property
    def called(self) -> str:
        """The model's name, with that of the paper's model that it stands beside."""
        beside = self.paper_model
        if beside is None or beside in self.model.lower():
            return self.model
        return f"{self.model} as {beside}"

    def fits(self, run: Facts, benchmark: str) -> bool:
        """Whether it can fill the cells of such a run, as far as everything but its model goes."""
        settings = self.settings | {"retriever": self.retriever}
        return self.benchmark == benchmark and settings | run == settings

    def caveats(self, wanted: str | None, n: int) -> list[str]:
        """What keeps a value of ours, over ``n`` questions, from being comparable with the
        paper.
        """
        remarks = []
        if self.dataset.startswith("almanac/"):
            remarks.append(
                "on Almanac's questions: the form of this benchmark, a world and passages of"
                " their own"
            )
        if n < self.record.asked:
            remarks.append(f"n = {n} of {self.record.asked} questions ({self._why_fewer()})")
        if wanted is None and self.retriever not in (None, BM25):
            remarks.append(f"passages by {self.searched_with}, where the paper has BM25")
        if wanted == DENSE and "sgpt" not in self.searched_with.lower():
            remarks.append(f"passages by {self.searched_with}, where the paper has SGPT")
        if self.settings["variant"] != "reference":
            remarks.append(f"{self.settings['variant']} variant")
        return remarks

    def _why_fewer(self) -> str:
        if failed := len(self.record.failed):
            return f"{failed} failed"
        whole = len(self.record.predictions) == self.record.asked
        return "others are not in all runs" if whole else "the run is not complete"


def _read_retriever(facts: Facts | None) -> tuple[str, str | None]:
    """What a run searched with, and whether that is ``BM25`` or ``DENSE``; None for neither."""
    if facts is None:
        return "none", None
    search = str(facts.get("kind") or "none")
    kind = BM25 if BM25 in search.lower() else DENSE
    return (f"{search}:{facts['model']}" if facts.get("model") else search), kind


# -- filling ---------------------------------------------------------------------------------------


class _Filling:
    """Fills a table from runs, and collects the remarks that belong below it."""

    def __init__(self, number: int, sources: Sequence[Source], compare: str | None) -> None:
        check_same_golds({source.at: source.record for source in sources})
        self.number = number
        self.sources = sources
        self.values = paper.values(number)
        if number == 5:
            self.values = _add_thresholds(self.values, sources)
        self.labels = [name for name in paper.LABELS if any(self.values[name])]
        self.cells: list[Any] = [*self.values.itertuples()]
        #: What the runs of each row are set to, by the row's key.
        self.runs = {}
        if number in paper.RESULTS:
            self.runs = dict(_run_of(number, cell) for cell in self.cells)
        self.by_model = _group_by_model(sources)
        self.base = "" if compare is None else self._find_row(compare)
        self.filling = []  # the source of each cell
        self.used = {}
        for cell in self.cells:
            source = self._find_source(self._settings_of(cell), cell)
            self.filling.append(source)
            if source is not None:
                self.used[source.at] = source
        if sources and not self.used:
            self._refuse()
        lines = {at: source.record.by_id for at, source in self.used.items()}
        self.compared = Compared(lines)
        self.tests = cache(self.compared.tests)
        self.marks: dict[str, str] = {}  # remark -> its mark

    def _settings_of(self, cell: Any) -> Facts:
        return _run_of(self.number, cell)[1] if self.runs else {}

    def _refuse(self) -> NoReturn:
        pairs = {
            f"{source.settings['when']} × {source.settings['what']}" for source in self.sources
        }
        datasets = {source.dataset for source in self.sources}
        models = {source.called for source in self.sources}
        raise SettingError(
            f"Table {self.number} has no cell for the runs given, which are of"
            f" {list_first(sorted(pairs))} on {list_first(sorted(datasets))} by"
            f" {list_first(sorted(models))}"
        )

    def table(self) -> Table:
        numbers: Columns = {}
        texts: Columns = {}
        for cell, source in zip(self.cells, self.filling, strict=True):
            column = self._column_of(cell)
            printed = cell.value if self.number in paper.RESULTS else cell.printed
            own_numbers: Parts = {"paper": printed}
            own_texts: Parts = {"paper": cell.printed + "*" * cell.best}
            if source is not None:
                self._fill(cell, source, own_numbers, own_texts)
            numbers.setdefault(column, []).append(own_numbers)
            texts.setdefault(column, []).append(own_texts)
        rows = self.values.drop_duplicates(self.labels)
        footnotes: dict[str, str] = {}  # of what is odd in the paper's rows
        for note in filter(None, rows["note"].unique()):
            footnotes[note] = f"({len(footnotes) + 1})"
        marked = rows[self.labels].copy()
        marked[self.labels[-1]] += [f" {footnotes[note]}" if note else "" for note in rows["note"]]
        title = f"{paper.TITLES[self.number]} (Table {self.number} of DRAGIN, ACL 2024)"
        about = self._about()
        about += [f"({mark}) {remark}" for remark, mark in self.marks.items()]
        if self.values["best"].any():
            about.append("*: the best of the paper's values")
        about += [f"{mark} on the paper's values: {note}" for note, mark in footnotes.items()]
        frame = spread(numbers, self._index(rows))
        sheet = spread(texts, self._index(marked)).fillna("")
        return Table(title, frame, sheet, about, f"tab:dragin-{self.number}")

    def _index(self, rows: pd.DataFrame) -> pd.Index:
        names = {"llm": "LLM", "method": "RAG Method" if self.number == 2 else "Method"}
        headings = [names.get(name, name.capitalize()) for name in self.labels]
        if len(headings) == 1:
            return pd.Index(rows[self.labels[0]], name=headings[0])
        return pd.MultiIndex.from_frame(rows[self.labels], names=headings)

    def _column_of(self, cell: Any) -> tuple[str, str]:
        if self.number not in paper.RESULTS:
            return NAMES.get(cell.metric, cell.metric.capitalize()), ""
        names = {2: NAMES, 3: paper.SHORT}.get(self.number, {})
        return names.get(cell.on, ""), MEASURES[cell.metric][0]

    def _find_row(self, name: str) -> str:
        """The key of a row."""
        keys = [key for key in self.runs if key != TOKENS]
        return choice(
            f"row of Table {self.number}", check_text("compare", name).strip().lower(), keys
        )

    def _fill(self, cell: Any, source: Source, numbers: Parts, texts: Parts) -> None:
        """Puts our value beside the paper's."""
        measure = MEASURES[cell.metric][1]
        mean = self.compared.intervals.get((source.at, measure))
        if mean is None:
            return
        test = None
        other = self._find_source(self.runs[self.base], cell) if self.base else None
        if other is not None:
            test = self.tests(other.at[1]).get((source.at, measure))
        marks = []
        wanted = self._settings_of(cell).get("retriever")
        for remark in source.caveats(wanted, mean.n):
            marks.append(self.marks.setdefault(remark, _letters(len(self.marks))))
        places = 3 if measure in SCORES else 2
        numbers |= numbers_of("ours", mean, self.base, test)
        texts |= texts_of("ours", mean, self.base, test, places)
        if marks:
            texts["ours"] += f" ({', '.join(marks)})"

    def _find_source(self, run: Facts, cell: Any) -> Source | None:
        """The run for a cell. Raises ``SettingError`` where several fit.

        Beside a model of the paper stand its own runs, else those of a model that the paper does
        not have; in a table about one model those of any other too, when there is just one.
        """
        beside = self.by_model.get(cell.model) or self.by_model.get(None) or []
        if not beside and self.number in (5, 7) and len(self.by_model) == 1:
            [beside] = self.by_model.values()
        fitting = [source for source in beside if source.fits(run, cell.on)]
        if len(fitting) > 1:
            folders = ", ".join(str(source.record.folder) for source in fitting)
            raise SettingError(
                f"{len(fitting)} runs fit {run['when']} × {run['what']} on {NAMES[cell.on]}:"
                f" {folders}; give the folders of those you mean, or variant="
            )
        return fitting[0] if fitting else None

    def _about(self) -> list[str]:
        used = list(self.used.values())
        number = self.number
        if not used:
            return []
        variants = " and ".join(sorted({source.settings["variant"] for source in used}))
        models = ", ".join(dict.fromkeys(source.called for source in used))
        counts = sorted({source.record.asked for source in used})
        n = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
        lines = [f"ours: {models}, {variants} variant; {n} questions a cell; {INTERVALS}"]
        beside = {source.paper_model for source in used}
        if None in beside and self.labels[0] == "llm":
            lines.append(
                "the model is none of the paper's and stands beside each of them; as_model= names"
                " one"
            )
        answers = [line for source in used for line in source.record.sound]
        unreadable = sum(not line["readable"] for line in answers)
        if unreadable:
            remark = f"{unreadable:,} of {len(answers):,} answers could not be read"
            if any(source.benchmark == "strategyqa" for source in used):
                remark += "; on StrategyQA they count as no, as in the released code"
            lines.append(remark)
        shown = {source.at: source.record for source in used}
        lines += self.compared.about
        lines += list_differences(shown) + list_idle_thresholds(shown)
        if number in (5, 7) and beside != {paper.ALONE}:
            lines.append(f"the paper's values are {paper.ALONE}'s")
        if number == 3:
            lines.append(
                "ours in Avg. Tokens: the tokens that FL-RAG generated, which keeps all it writes"
            )
        if self.base:
            lines.append(comparing(self.base, TESTED))
        unused = {source.dataset for source in self.sources if source.benchmark is None}
        if unused:
            lines.append(f"data sets of no table: {', '.join(sorted(unused))}")
        return lines


def _group_by_model(sources: Sequence[Source]) -> dict[str | None, list[Source]]:
    """Runs by the paper's model that they stand beside. Raises ``SettingError`` for two models."""
    groups: dict[str | None, list[Source]] = {}
    for source in sources:
        if source.benchmark is not None:
            groups.setdefault(source.paper_model, []).append(source)
    for beside, group in groups.items():
        names = sorted({source.model for source in group})
        if len(names) > 1:
            place = f"beside {beside or 'the paper’s'}"
            raise SettingError(
                f"runs of {len(names)} models ({', '.join(names)}); give those of one {place}"
            )
    return groups


def _letters(number: int) -> str:
    letter = ascii_lowercase[number % 26]
    return _letters(number // 26 - 1) + letter if number >= 26 else letter
