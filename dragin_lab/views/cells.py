"""A text in cells, as pages and terminals draw it: what a cell shows, its colour, and where hits begin and end."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from dragin_lab.trace.kept import written
from dragin_lab.trace.trace import Draft, Step, Trace
from dragin_lab.views.rows import compare, measure_of, threshold_of, token_rows, unit_of

LEVELS, BELOW = 9, 5  # levels of colour, and how many of them lie at or below θ
_MARKER_ONLY = re.compile("^[▁Ġ\\s]*$")


@dataclass(frozen=True)
class Cell:
    """Tokens that show as one: several where each is only a part of a character, none for a special token.

    The space that a token begins with is not its own: a cut "before the word" may stand on either side of it.
    """

    start: int  # half-open characters of the text
    stop: int
    text: str
    row: int  # of the token whose figures stand for it: the most uncertain
    tokens: int = 1
    level: int = 0
    fires: bool = False
    opens: bool = False  # begins what fired
    closes: bool = False  # ends it
    spared: bool = False
    unit: str = ""  # of a sentence or draft judged as a whole: "opens", "closes", "both", "inside"
    verdict: str = ""  # its score against θ, where the cell ends it

    @property
    def special(self) -> bool:
        """Whether it has no characters of its own."""
        return self.start == self.stop


@dataclass
class Texts:
    """Everything that a trace's model wrote, as rows and cells with one scale of colour."""

    trace: Trace
    rows: dict[tuple[int, str], pd.DataFrame] = field(default_factory=dict)
    most: int = 2000  # tokens that are drawn one by one
    left_out: int = 0

    def __post_init__(self) -> None:
        room = self.most
        for step, name, text in written(self.trace.steps):
            if len(text) <= room:
                self.rows[step.index, name] = token_rows(self.trace, step, name, text)
                room -= len(text)
            else:
                self.left_out += len(text)
        compared = np.concatenate([np.zeros(0), *(rows["compared"] for rows in self.rows.values())])
        self.scored = bool(np.isfinite(compared).any())
        values = np.concatenate([np.zeros(0), *map(self.values, self.rows.values())])
        values = values[np.isfinite(values)]
        self.theta = threshold_of(self.trace) if self.scored else math.nan
        self.top = float(values.max(initial=0.0))
        self.base = min(0.0, float(values.min(initial=0.0)), 0.0 if math.isnan(self.theta) else self.theta)

    @property
    def measure(self) -> str:
        """What the colour shows."""
        return measure_of(self.trace) if self.scored else "entropy × attention received, as no trigger scored these"

    def values(self, rows: pd.DataFrame) -> np.ndarray:
        """(n,) float64 what the colour of each token shows."""
        product = rows["entropy"] * np.nan_to_num(rows["received"])
        return (rows["compared"] if self.scored else product).to_numpy(float)

    def levels(self, values: np.ndarray) -> np.ndarray:
        """The level, 0 to 9, of each value: five below θ and four above, so that the jump in colour is the trigger."""
        bounds = np.array(self.bounds())
        good = np.isfinite(values) & (values > self.base)
        return np.where(good, np.searchsorted(bounds[:-1], np.nan_to_num(values), side="left").clip(1), 0)

    def bounds(self) -> list[float]:
        """Where the levels end, from the base to the top."""
        top = max(self.top, self.base + 1e-6)
        if not self.theta > self.base:
            return np.linspace(self.base, top, LEVELS + 1).tolist()
        above = np.linspace(self.theta, top, LEVELS - BELOW + 1)[1:] if top > self.theta else np.zeros(0)
        return [*np.linspace(self.base, self.theta, BELOW + 1).tolist(), *above.tolist()]

    def cells(self, step: Step, name: str) -> list[Cell] | None:
        """The cells of a step's text; None where there is no room for them."""
        rows, text = self.rows.get((step.index, name)), getattr(step, name)
        return None if rows is None else list(find_cells(text, rows, self, unit_of(self.trace), name == "draft"))


def find_cells(text: Draft, rows: pd.DataFrame, texts: Texts, unit: str, judged: bool) -> Iterator[Cell]:
    """The visible cells of a text in order."""
    cells: list[Cell] = []
    levels, entropy = texts.levels(texts.values(rows)).tolist(), rows["entropy"].tolist()
    fires, opens, spared = (rows[name].tolist() for name in ("fires", "opens", "spared"))
    compared = rows["compared"].tolist()
    number = rows["sentence"].tolist() if unit == "sentence" else [0] * len(rows)
    whole = unit != "word" and judged
    for i, (start, stop) in enumerate(text.offsets.tolist()):
        body = text.text[start:stop].lstrip(" ")
        start = stop - len(body) if body else start
        level = 0 if spared[i] else levels[i]
        if cells and start < stop and start < cells[-1].stop:
            last = cells.pop()
            row = i if entropy[i] > entropy[last.row] else last.row
            cells.append(
                replace(last, stop=max(stop, last.stop), text=text.text[last.start : max(stop, last.stop)], row=row,
                        tokens=last.tokens + 1, level=max(level, last.level), fires=fires[i] or last.fires)
            )  # fmt: skip
        else:
            shown = text.text[start:stop] or ("" if _MARKER_ONLY.match(text.pieces[i]) else text.pieces[i])
            if shown:
                cells.append(Cell(start, stop, shown, i, 1, level, fires[i], opens[i], False, spared[i]))
    for at, cell in enumerate(cells):
        after = cells[at + 1] if at + 1 < len(cells) else None
        closes = cell.fires and (after is None or not after.fires or after.opens)
        if whole and not cell.special and np.isfinite(compared[cell.row]):
            before = cells[at - 1] if at else None
            first = before is None or number[before.row] != number[cell.row]
            last_one = after is None or after.special or number[after.row] != number[cell.row]
            place = {(True, True): "both", (True, False): "opens", (False, True): "closes"}.get(
                (first, last_one), "inside"
            )
            name = f"{unit} {number[cell.row] + 1}" if unit == "sentence" else unit
            verdict = f"{name}: {compare(compared[cell.row], texts.theta)}" if last_one else ""
            yield replace(cell, fires=cell.fires, opens=False, closes=False, unit=place, verdict=verdict)
        else:
            yield replace(cell, closes=closes, fires=cell.fires and not whole, opens=cell.opens and not whole)
