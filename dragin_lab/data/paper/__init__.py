"""The tables of the DRAGIN paper as data: one CSV file a table, every cell as printed (README.md says from where)."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import TYPE_CHECKING

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


def rows(number: int) -> list[dict[str, str]]:
    """The rows of a table, column -> cell as printed; ``best`` and ``note`` are ours (README.md).

    Raises ``SettingError`` for a table that the paper does not have.
    """
    if number not in TITLES:
        raise SettingError(f"the paper has no table {number!r}; give a number from 1 to {max(TITLES)}")
    text = files(__name__).joinpath(f"table{number}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("# ")))


def load(number: int) -> pd.DataFrame:
    """A table as a DataFrame: columns of numbers as float64, all others as text. Errors as ``rows``."""
    import pandas as pd

    frame = pd.DataFrame(rows(number))
    for name in frame.columns:
        numbers = pd.to_numeric(frame[name], errors="coerce")
        if numbers.notna().all():
            frame[name] = numbers.astype("float64")
    return frame
