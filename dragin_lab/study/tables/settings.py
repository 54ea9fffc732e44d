"""The paper's tables of settings (1, 8 and 9) beside what this package, or the runs at hand, are set to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dragin_lab.core import answers as metrics
from dragin_lab.core.method import METHODS, method
from dragin_lab.data import paper
from dragin_lab.data.exemplars import SHOTS
from dragin_lab.data.presets import find_preset
from dragin_lab.study.tables.cells import Cell, Row
from dragin_lab.study.tables.layouts import BM25, MEASURES, NAMES
from dragin_lab.study.tables.runs import Source, Sources
from dragin_lab.study.tables.shown import Table

_SETTINGS = {"generate length": "max_new_tokens", "θ": "threshold", "top n tokens": "top_n"}
_METRICS = {key: name for key, (name, _) in MEASURES.items()} | {"recall": "Rec."}
ALMANAC = "on Almanac's questions"


def settings_table(number: int, sources: Sources) -> Table:
    """Tables 1, 8 and 9; without runs, ours are the package's own settings, and in Table 9 its presets of the released
    configurations (those of the paper are the paper's). Raises ``SettingError`` for others."""
    rows = paper.rows(number)
    if number == 1:
        headings = (("", "Timing for Retrieval"), ("", "Query Formulation"))
        return Table(1, paper.TITLES[1], ("",), headings, _methods(rows), ["ours: when and what in the registry"])
    benchmarks = [name for name in rows[0] if name in NAMES]
    columns = tuple((NAMES[name], "") for name in benchmarks)
    labels, keys, cell, own = _ABOUT[number]
    filled = [
        Row(tuple(row[key] for key in keys), tuple(cell(row, name, sources) for name in benchmarks), row["note"])
        for row in rows
    ]
    whose = own if not sources.all else "of the runs given" + (", else of the package" if number == 8 else "")
    marks = {"a": ALMANAC} if any(cell.marks for row in filled for cell in row.cells) else {}
    return Table(number, paper.TITLES[number], labels, columns, filled, [f"ours: settings {whose}"], marks)


def _methods(rows: list[dict[str, str]]) -> list[Row]:
    """The paper's methods, then those of the registry that its table does not have."""
    known = {row["method"].lower(): row for row in rows}
    found = []
    for key in [*known, *(name for name in METHODS if name not in known)]:
        row = known.get(key, {"method": key, "timing": "", "query": "", "note": ""})
        cells = (Cell(row[part], setting=ours) for part, ours in zip(("timing", "query"), METHODS[key], strict=True))
        found.append(Row((row["method"],), tuple(cells), row["note"]))
    return found


def _data_cell(row: dict[str, str], benchmark: str, sources: Sources) -> Cell:
    """A cell of Table 8, from all runs on the benchmark."""
    found = [source for source in sources.all if source.benchmark == benchmark]
    configs = [source.record.config for source in found]
    searched = [config for config in configs if config.get("retriever")]
    ours: dict[str, Callable[[], Iterable[Any]]] = {
        "Task": list,
        "#Examples": lambda: (config["dataset"]["questions"] for config in configs),
        "Metrics": lambda: [", ".join(_METRICS[key] for key in metrics.MEASURES[benchmark])],
        "Corpus": lambda: (config["retriever"].get("corpus") for config in searched),
        "Retriever": lambda: ("BM25" if s.retriever == BM25 else s.searched_with for s in found if s.retriever),
        "Top-k": lambda: (config["method"]["top_k"] for config in searched) if found else [method().top_k],
        "#Examplars": lambda: (
            [len(config["template"]["exemplars"]) for config in configs] if found else [SHOTS[benchmark]]
        ),
    }
    return _cell(row[benchmark], ours[row["setting"]](), [] if row["setting"] == "Metrics" else found)


def _dragin_cell(row: dict[str, str], benchmark: str, sources: Sources) -> Cell:
    """A cell of Table 9, from the DRAGIN runs that stand beside the row's model."""
    name = _SETTINGS[row["hyperparameter"]]
    model = paper.MODELS[row["llm"]]
    if not sources.all:
        return _cell(row[benchmark], [find_preset(model, benchmark, source="released").settings[name]], [])
    beside = sources.of(model)
    found = [
        s for s in beside if s.benchmark == benchmark and (s.settings["when"], s.settings["what"]) == METHODS["dragin"]
    ]
    return _cell(row[benchmark], (source.settings[name] for source in found), found)


def _cell(printed: str, values: Iterable[Any], found: list[Source]) -> Cell:
    """All values that occur, each once, in order."""
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in sorted(set(values))]
    marks = ("a",) if shown and any(source.almanac for source in found) else ()
    return Cell(printed, setting=" / ".join(shown), marks=marks)


#: Of Tables 8 and 9: headings of the labels, the columns they stand in, what makes a cell, and whose settings ours are.
_ABOUT: dict[int, tuple[tuple[str, ...], tuple[str, ...], Callable[[dict[str, str], str, Sources], Cell], str]] = {
    8: (("", ""), ("part", "setting"), _data_cell, "of the package"),
    9: (
        ("LLM", "Hyperparameters"), ("llm", "hyperparameter"), _dragin_cell,
        'of the released configurations (presets of source="released")',
    ),
}  # fmt: skip
