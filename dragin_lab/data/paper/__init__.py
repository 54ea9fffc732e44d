"""The tables of the DRAGIN paper as data: one CSV file a table, every cell as printed (README.md
says from where).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dragin_lab.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

#: What each table shows, in our words.
TITLES = {
    1: "When each method retrieves, and what it asks",
    2: "All methods on the four benchmarks",
    3: "Retrievals a question (#Num)",
    4: "When to retrieve, on IIRC",
    5: "Thresholds of RIND, on HotpotQA",
    6: "What to ask, when RIND says when",
    7: "Retrievers",
    8: "Data sets and settings",
    9: "Hyperparameters of DRAGIN",
}
#: The paper's models by the names that its tables print.
MODELS = {
    "Llama2-13b-chat": "llama2-13b-chat",
    "L13B": "llama2-13b-chat",
    "Llama2-7b-chat": "llama2-7b-chat",
    "L7B": "llama2-7b-chat",
    "Vicuna-13b-v1.5": "vicuna-13b-v1.5",
    "V13B": "vicuna-13b-v1.5",
}


#: The columns of the files that label a row.
LABELS = ("llm", "method", "threshold", "dataset", "retriever", "part", "setting", "hyperparameter")
#: The tables about results. The others are about settings.
RESULTS = range(2, 8)
SHORT = {"2wikimultihopqa": "2WMQA", "hotpotqa": "HQA", "strategyqa": "SQA", "iirc": "IIRC"}
_LONG = {short: name for name, short in SHORT.items()}
#: The data set of Tables 4 to 6, and the model of Tables 5 and 7. The paper names no data set for
#: Table 6 (README.md).
ON = {4: "iirc", 5: "hotpotqa", 6: "hotpotqa"}
ALONE = "llama2-13b-chat"


def rows(number: int) -> list[dict[str, str]]:
    """The rows of a table, column -> cell as printed; ``best`` and ``note`` are ours (README.md).

    Raises ``SettingError`` for a table that the paper does not have.
    """
    if number not in TITLES:
        raise SettingError(
            f"the paper has no table {number!r}; give a number from 1 to {max(TITLES)}"
        )
    text = files(__name__).joinpath(f"table{number}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("# ")))


def values(number: int | None = None) -> pd.DataFrame:
    """Every value of a table, or of all (pandas.DataFrame), a row each, in the order of the paper.
    Errors as ``rows``.

    table, row (its number in the table), ``LABELS`` as printed ("" where the table has none),
    model, on (data set), metric (as the file names it), printed, value (float64, missing for a
    text), best, note, source.
    """
    import pandas as pd

    cells: list[dict[str, Any]] = []
    for table in TITLES if number is None else [number]:
        for place, row in enumerate(rows(table)):
            cells += _list_cells(table, place, row)
    frame = pd.DataFrame(cells)
    return frame.assign(value=pd.to_numeric(frame["printed"], errors="coerce"))


def _list_cells(table: int, place: int, row: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The values of a row of a table."""
    labels = {name: row.get(name, "") for name in LABELS}
    alone = ALONE if table in RESULTS else ""
    shared: dict[str, Any] = {"table": table, "row": place, **labels}
    shared["model"] = MODELS.get(labels["llm"], alone)
    shared["note"] = row["note"]
    best = row.get("best", "").split()
    for name, printed in row.items():
        if name in (*LABELS, "best", "note"):
            continue
        on, _, metric = name.rpartition(".")
        if table == 3:
            on = name
            metric = "tokens" if labels["method"] == "Avg. Tokens" else "num"
        if not on:
            on = _LONG.get(labels["dataset"], ON.get(table, ""))
        cell = {"on": on, "metric": metric, "printed": printed, "best": name in best}
        yield shared | cell | {"source": f"Table {table} of DRAGIN, ACL 2024"}
