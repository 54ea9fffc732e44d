"""The cells of the paper's tables: what each is about, and the runs that it can be filled from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragin_lab.core.method import METHODS
from dragin_lab.data import paper
from dragin_lab.data.datasets import BENCHMARKS, FILES
from dragin_lab.data.presets import plain_name
from dragin_lab.errors import SettingError
from dragin_lab.run.rundir import RunRecord
from dragin_lab.study.run_tables import mean_cell
from dragin_lab.study.table import Cell, Row

#: Of each table the columns of its CSV file that label a row.
LABELS = {
    1: ("method",),
    2: ("llm", "method"),
    3: ("llm", "method"),
    4: ("llm", "method"),
    5: ("threshold",),
    6: ("llm", "method"),
    7: ("dataset", "retriever"),
    8: ("part", "setting"),
    9: ("llm", "hyperparameter"),
}
#: The tables about results. The others are about settings, and no run fills them.
RESULTS = range(2, 8)
#: The benchmark that Tables 4 to 6 are on. The paper names none for Table 6 (paper/README.md).
ON = {4: "iirc", 5: "hotpotqa", 6: "hotpotqa"}
NAMES = {"2wikimultihopqa": "2WikiMultihopQA", "hotpotqa": "HotpotQA", "strategyqa": "StrategyQA", "iirc": "IIRC"}
_SHORT = {"2wikimultihopqa": "2WMQA", "hotpotqa": "HQA", "strategyqa": "SQA", "iirc": "IIRC"}
#: The paper's name of a measure, and the key of a prediction line that it is the mean of.
MEASURES = {
    "em": ("EM", "em"),
    "f1": ("F1", "f1"),
    "precision": ("Prec.", "precision"),
    "recall": ("Recall", "recall"),
    "accuracy": ("Accuracy", "em"),  # the exact match of yes or no
    "num": ("#Num", "retrievals"),
}
#: The formulators of Table 6 by the method that its rows name.
_FORMULATORS = {
    "FLARE": "confident-sentence",
    "Full Context": "full-context",
    "FS-RAG": "last-sentence",
    "FL-RAG": "last-n",
    "DRAGIN": "qfs",
}
BM25, DENSE = "bm25", "dense"
#: The paper's model in Tables 5 and 7, which compare none.
ALONE = "llama2-13b-chat"
OWN_TRIGGER = METHODS["dragin"][0]
_SPLITS = ("-train", "-dev", "-test")


@dataclass(frozen=True)
class Want:
    """The runs that a cell can be filled from, and the key of their prediction lines that it is the mean of."""

    model: str | None  # the paper's; None where the table is about one model only
    benchmark: str
    when: str
    what: str
    measure: str
    threshold: float | None = None  # None: any
    retriever: str | None = None  # None: any


@dataclass(frozen=True)
class Line:
    """A row before it is filled: its cells with the paper's values alone, and the runs that each can be filled from.

    ``group`` names the rows it is compared with, ``key`` itself among them; in a table about settings all are empty.
    """

    row: Row
    wants: tuple[Want, ...] = ()
    group: str = ""
    key: str = ""


@dataclass(frozen=True)
class Layout:
    """A table before it is filled; ``columns`` are (heading, measure)."""

    number: int
    labels: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]


def layout(number: int, benchmark: str | None = None, thresholds: Iterable[float] = ()) -> Layout:
    """The layout of a table. ``benchmark`` replaces that of Tables 4 to 6; Table 5 gets a row for each of our
    ``thresholds`` that the paper does not have.

    Raises ``SettingError`` for a benchmark that does not exist, and for one where the table is not on one.
    """
    if benchmark is not None and number not in ON:
        raise SettingError(f"Table {number} is not on one benchmark; leave benchmark={benchmark!r} out")
    if benchmark is not None and benchmark not in NAMES:
        raise SettingError(f"benchmark {benchmark!r} does not exist; one of {', '.join(NAMES)}")
    rows = paper.rows(number)
    if number == 5:
        known = {float(row["threshold"]) for row in rows}
        rows += [dict.fromkeys(rows[0], "") | {"threshold": f"{theta:g}"} for theta in thresholds if theta not in known]
        rows.sort(key=lambda row: float(row["threshold"]))
    labels, measured = LABELS[number], [name for name in rows[0] if name not in (*LABELS[number], "best", "note")]
    columns = [_read_column(number, name) for name in measured]
    lines = []
    for row in rows:
        best = row.get("best", "").split()
        cells = tuple(Cell(row[name], name in best) for name in measured)
        plain = Row(tuple(row[label] for label in labels), cells, row["note"])
        if number not in RESULTS:
            lines.append(Line(plain))
            continue
        key, run = _run_of(number, row)
        model = paper.MODELS.get(row.get("llm", ""))
        wants = []
        for asked, measure in columns:
            want = {"model": model, "benchmark": asked or benchmark or ON.get(number), "measure": MEASURES[measure][1]}
            wants.append(Want(**want | run))
        lines.append(Line(plain, tuple(wants), plain.labels[0] if len(labels) > 1 else "", key))
    names = _SHORT if number == 3 else NAMES
    headings = {"llm": "LLM", "method": "RAG Method" if number == 2 else "Method"}
    return Layout(
        number,
        tuple(headings.get(name, name.capitalize()) for name in labels),
        tuple((names.get(asked, asked.capitalize()), MEASURES.get(measure, ("",))[0]) for asked, measure in columns),
        tuple(lines),
    )


def _read_column(number: int, name: str) -> tuple[str, str]:
    """The benchmark ("" for the table's own) and the measure of a column of the paper's CSV file."""
    if number not in RESULTS:
        return name, ""
    if number == 2:
        benchmark, _, measure = name.partition(".")
        return benchmark, measure
    return (name, "num") if number == 3 else ("", name)


def _run_of(number: int, row: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """The key of a row, and what the runs that fill it are set to (entries of ``Want``)."""
    when, what = METHODS["dragin"]
    if number == 5:
        return row["threshold"], {"when": when, "what": what, "threshold": float(row["threshold"])}
    if number == 7:
        benchmark = next(name for name, short in _SHORT.items() if short == row["dataset"])
        retriever = BM25 if row["retriever"] == "BM25" else DENSE
        parts = {"when": when, "what": what, "benchmark": benchmark, "retriever": retriever}
        return row["retriever"].lower(), parts
    key = row["method"].removesuffix(" (Ours)").lower().replace(" ", "-")
    if row["method"] == "Avg. Tokens":  # FL-RAG keeps all it writes, so the tokens of its runs are its responses'
        when, what = METHODS["fl-rag"]
        return "tokens", {"when": when, "what": what, "measure": "tokens"}
    if number == 6:
        return key, {"when": when, "what": _FORMULATORS[row["method"]]}
    return key, {"when": METHODS[key][0], "what": "last-sentence" if number == 4 else METHODS[key][1]}


# -- runs --------------------------------------------------------------------------------------------------------------


class Source:
    """A run that a table's cells may be filled from.

    ``asked`` counts its questions, ``benchmark`` is the one whose columns it fills (None: of none), ``paper_model`` the
    model of the paper that it is of or ``named`` to be compared with, ``retriever`` is ``BM25`` or ``DENSE`` (None
    where the method searches nothing), ``searched_with`` the retriever's name.
    """

    def __init__(self, record: RunRecord, named: str | None = None) -> None:
        config, used = record.config, record.config.get("retriever") or {}
        self.record, self.folder, self.settings = record, record.folder, config["method"]
        self.dataset, self.asked = str(config["dataset"]["name"]), int(config["dataset"]["questions"])
        self.almanac = self.dataset.startswith("almanac/")
        self.benchmark = _benchmark(self.dataset)
        self.model = str(config["model"]["model"])
        known = plain_name(self.model) if plain_name(self.model) in paper.MODELS.values() else None
        self.paper_model = named or known
        kind = str(used.get("kind") or "none")
        self.searched_with = f"{kind}:{used['model']}" if used.get("model") else kind
        searches = config.get("retriever") is not None
        self.retriever = (BM25 if BM25 in kind.lower() else DENSE) if searches else None
        self._cells: dict[tuple[str, Path | None], Cell] = {}

    @property
    def called(self) -> str:
        """The model's name, with that of the paper's model that it stands beside."""
        beside = self.paper_model
        return self.model if beside is None or beside in self.model.lower() else f"{self.model} as {beside}"

    def cell(self, measure: str, base: Source | None) -> Cell:
        """The mean per question, tested against ``base`` where both were asked the same questions."""
        at = (measure, None if base is None else base.folder)
        if at not in self._cells:
            theirs = base.record.predictions if base is not None and base.dataset == self.dataset else None
            places = 3 if measure in ("em", "f1", "precision", "recall") else 2
            self._cells[at] = mean_cell(measure, self.record.predictions, theirs, places)
        return self._cells[at]

    def fits(self, want: Want) -> bool:
        """Whether the cell can be filled from this run, as far as everything but its model goes."""
        return (
            self.benchmark == want.benchmark
            and (self.settings["when"], self.settings["what"]) == (want.when, want.what)
            and want.threshold in (None, self.settings["threshold"])
            and want.retriever in (None, self.retriever)
        )

    def caveats(self, want: Want, n: int) -> list[str]:
        """What keeps a value of ours, over ``n`` questions, from being comparable to the paper's."""
        remarks = []
        if self.almanac:
            remarks.append("on Almanac's questions: the form of this benchmark, a world and passages of their own")
        if n < self.asked:
            why = f"{len(self.record.failed)} failed" if self.record.failed else "the run is not complete"
            remarks.append(f"n = {n} of {self.asked} questions ({self.folder}: {why})")
        if want.retriever is None and self.retriever not in (None, BM25):
            remarks.append(f"passages by {self.searched_with}, where the paper has BM25")
        if want.retriever not in (None, BM25) and "sgpt" not in self.searched_with.lower():
            remarks.append(f"passages by {self.searched_with}, where the paper has SGPT")
        if self.settings["variant"] != "reference":
            remarks.append(f"{self.settings['variant']} variant")
        return remarks


def _benchmark(dataset: str) -> str | None:
    """The benchmark that a data set is, by its name or that of the file as released."""
    name = dataset.removeprefix("almanac/")
    for split in _SPLITS:
        name = name.removesuffix(split)
    stems = {Path(file).stem: kind for kind, file in FILES.items() if Path(file).stem != "dev"}
    stems |= {stem.removesuffix(split): kind for stem, kind in stems.items() for split in _SPLITS}
    return name if name in BENCHMARKS else stems.get(name)
