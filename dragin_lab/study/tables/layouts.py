"""What the result tables of the paper (2 to 7) look like, and which run each of their cells is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dragin_lab.core.method import METHODS
from dragin_lab.data import paper
from dragin_lab.errors import SettingError

RESULTS = (2, 3, 4, 5, 6, 7)
#: The benchmark that Tables 4 to 6 are on. The paper names none for Table 6 (paper/README.md).
ON = {4: "iirc", 5: "hotpotqa", 6: "hotpotqa"}
#: The paper's model in Tables 5 and 7, which compare none.
ALONE = "llama2-13b-chat"

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
_WHAT = {
    "FLARE": "confident-sentence",
    "Full Context": "full-context",
    "FS-RAG": "last-sentence",
    "FL-RAG": "last-n",
    "DRAGIN": "qfs",
}
OWN_WHEN = METHODS["dragin"][0]
TOKENS = "Avg. Tokens"
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
class Slot:
    """A cell before it is filled: the paper's value as printed ("" for none), and what ours would be."""

    printed: str
    best: bool
    want: Want


@dataclass(frozen=True)
class Line:
    """A row before it is filled. ``group`` names the rows it is compared with, ``key`` itself among them."""

    labels: tuple[str, ...]
    group: str
    key: str
    slots: tuple[Slot, ...]
    note: str = ""


@dataclass(frozen=True)
class Layout:
    """A result table before it is filled; ``columns`` are (heading, measure)."""

    number: int
    labels: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]


def layout(number: int, benchmark: str | None = None, thresholds: Iterable[float] = ()) -> Layout:
    """The layout of a result table. ``benchmark`` replaces that of Tables 4 to 6; Table 5 gets a row for each of our
    ``thresholds`` that the paper has not.

    Raises ``SettingError`` for a benchmark that does not exist, and for one where the table is not on one.
    """
    if benchmark is not None and number not in ON:
        raise SettingError(f"Table {number} is not on one benchmark; leave benchmark={benchmark!r} out")
    if benchmark is not None and benchmark not in NAMES:
        raise SettingError(f"benchmark {benchmark!r} does not exist; one of {', '.join(NAMES)}")
    on = benchmark or ON.get(number, "")
    rows = paper.rows(number)
    if number == 2:
        names = [name for name in rows[0] if "." in name]
        columns = [(NAMES[name.partition(".")[0]], MEASURES[name.partition(".")[2]][0]) for name in names]
        return Layout(2, ("LLM", "RAG Method"), tuple(columns), tuple(_main(row, names) for row in rows))
    if number == 3:
        columns = [(_SHORT[name], "#Num") for name in _SHORT]
        return Layout(3, ("LLM", "Method"), tuple(columns), tuple(_counts(row) for row in rows))
    names = ["em", "f1", "precision", "recall"] + ["num"] * (number == 5)
    columns = [("", MEASURES[name][0]) for name in names]
    if number == 5:
        known = {float(row["threshold"]) for row in rows}
        empty = dict.fromkeys((*names, "best", "note"), "")
        rows += [{"threshold": f"{theta:g}", **empty} for theta in thresholds if theta not in known]
        rows.sort(key=lambda row: float(row["threshold"]))
    labels = {4: ("LLM", "Method"), 5: ("Threshold",), 6: ("LLM", "Method"), 7: ("Dataset", "Retriever")}[number]
    lines = tuple(_ablation(number, row, labels, names, on) for row in rows)
    return Layout(number, labels, tuple(columns), lines)


def _main(row: dict[str, str], names: list[str]) -> Line:
    key = row["method"].removesuffix(" (Ours)").lower()
    slots = []
    for name in names:
        benchmark, _, measure = name.partition(".")
        want = Want(paper.MODELS[row["llm"]], benchmark, *METHODS[key], MEASURES[measure][1])
        slots.append(Slot(row[name], name in row["best"].split(), want))
    return Line((row["llm"], row["method"]), row["llm"], key, tuple(slots), row["note"])


def _counts(row: dict[str, str]) -> Line:
    """A line of Table 3. FL-RAG keeps all it writes, so the tokens of its runs are those of its responses."""
    key, measure = ("fl-rag", "tokens") if row["method"] == TOKENS else (row["method"].lower(), "retrievals")
    model = paper.MODELS[row["llm"]]
    slots = tuple(Slot(row[name], False, Want(model, name, *METHODS[key], measure)) for name in _SHORT)
    return Line((row["llm"], row["method"]), row["llm"], "tokens" if measure == "tokens" else key, slots, row["note"])


def _ablation(number: int, row: dict[str, str], labels: tuple[str, ...], names: list[str], on: str) -> Line:
    """A line of Tables 4 to 7: one part of the method, or one setting, exchanged."""
    model = threshold = retriever = None
    (when, what), group = METHODS["dragin"], row.get("llm") or row.get("dataset") or ""
    if number in (4, 6):
        model, key = paper.MODELS[group], row["method"].lower().replace(" ", "-")
        when, what = (METHODS[key][0], "last-sentence") if number == 4 else (when, _WHAT[row["method"]])
    elif number == 5:
        threshold, key = float(row["threshold"]), row["threshold"]
    else:
        on = next(name for name, short in _SHORT.items() if short == group)
        retriever, key = BM25 if row["retriever"] == "BM25" else DENSE, row["retriever"].lower()
    wants = [Want(model, on, when, what, MEASURES[name][1], threshold, retriever) for name in names]
    best = row["best"].split()
    slots = tuple(Slot(row[name], name in best, want) for name, want in zip(names, wants, strict=True))
    return Line(tuple(row[label.lower()] for label in labels), group, key, slots, row["note"])
