"""The paper's tables before they are filled: rows, columns, and which run each cell of a result table is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dragin_lab.core.method import METHODS
from dragin_lab.data import paper
from dragin_lab.errors import SettingError
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
