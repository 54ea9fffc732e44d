"""What a trace's model wrote, in pieces with their colour and marks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from dragin_lab.trace.kept import list_written
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views.rows import (
    measure_of,
    threshold_of,
    token_rows,
    unit_of,
    write_score,
)

LEVELS = 9  # of colour
BELOW = 5  # of them, at or below θ
_MARKER_ONLY = re.compile("^[▁Ġ\\s]*$")


class Texts:
    """The rows of everything that a trace's model wrote, with one scale of colour, whose levels
    end at ``bounds``.
    """

    most = 2000  # tokens that are coloured one by one

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.rows = dict[tuple[int, str], Any]()
        self.left_out = 0
        room = self.most
        for step, name, text in list_written(trace.steps):
            if len(text) <= room:
                self.rows[step.index, name] = token_rows(trace, step, name, text)
                room -= len(text)
            else:
                self.left_out += len(text)
        scored = any(np.isfinite(rows["compared"]).any() for rows in self.rows.values())
        for rows in self.rows.values():
            rows["value"] = (
                rows["compared"] if scored else rows["entropy"] * np.nan_to_num(rows["received"])
            )
        values = np.concatenate([np.zeros(1), *(rows["value"] for rows in self.rows.values())])
        self.measure = "entropy × attention received, as no trigger scored these"
        self.theta = math.nan
        if scored:
            self.measure = measure_of(trace)
            self.theta = threshold_of(trace)
        self.bounds = find_bounds(values[np.isfinite(values)], self.theta)
        for rows in self.rows.values():
            rows["level"] = np.where(
                rows["spared"], 0, find_levels(rows["value"].to_numpy(float), self.bounds)
            )


def find_bounds(values: np.ndarray, theta: float) -> np.ndarray:
    """Where the levels end, from the least value or 0: five below θ and four above, so that
    colour jumps at θ.
    """
    base = np.fmin(values.min(), theta).clip(max=0.0)
    top = values.max()
    if not theta > base:
        return np.linspace(base, max(top, base + 1e-6), LEVELS + 1)
    below = np.linspace(base, theta, BELOW + 1)
    if top <= theta:
        return below
    above = np.linspace(theta, top, LEVELS - BELOW + 1)
    return np.append(below, above[1:])


def find_levels(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The level, 0 to 9, of each value; 0 for the least, and for what was not measured."""
    return np.searchsorted(bounds[:-1], np.nan_to_num(values, nan=bounds[0]), side="left")


def find_cells(rows: Any) -> list[dict[str, Any]]:
    """The rows of what shows as one: several tokens where each is a part of a character, none
    for an empty one.
    """
    cells: list[dict[str, Any]] = []
    for row in rows.reset_index().to_dict("records"):
        row["tokens"] = 1
        if cells and row["start"] < min(row["stop"], cells[-1]["stop"]):
            cells.append(_join_cells(cells.pop(), row))
        elif row["start"] < row["stop"] or not _MARKER_ONLY.match(row["piece"]):
            cells.append(row)
    return cells


def _join_cells(cell: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """A cell and a row of the same character; the figures of the more uncertain stand for both."""
    joined = dict(max(cell, row, key=lambda figures: figures["entropy"]))
    for name in ("stop", "level", "mark", "fires"):
        joined[name] = max(cell[name], row[name])
    joined["start"] = cell["start"]
    joined["tokens"] = cell["tokens"] + 1
    return joined


def read_pieces(texts: Texts, step: Step, part: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A step's text in order: its kind, its characters, and the row that it belongs to.

    Kinds are "text", "token", "[" and "]" around what fired or was judged as a whole (with its
    verdict), and "cut" before what was thrown away.
    """
    text = getattr(step, part).text
    rows = texts.rows.get((step.index, part))
    end = step.kept_end(part)
    cut = len(text) if end is None else end
    unit = unit_of(texts.trace)
    gone = bool(text[cut:].strip())
    marked = False
    place = 0
    cells = [] if rows is None else find_cells(rows)
    none = {"mark": -1, "start": len(text)}
    for before, cell, after in zip(
        [none, *cells], [*cells, none], [*cells[1:], none, none], strict=True
    ):
        if gone and cell["start"] >= cut:
            yield "text", text[place:cut], none
            if marked and unit == "word":
                marked = False
                yield "]", "", cell
            yield "cut", "", none
            place = max(cut, place)
            gone = False
        yield "text", text[place : cell["start"]], none
        if cell is none:
            return
        if cell["mark"] not in (-1, before["mark"]):
            marked = True
            yield "[", "", cell
        yield "token", text[cell["start"] : cell["stop"]] or cell["piece"], cell
        if marked and cell["mark"] != after["mark"]:
            marked = False
            name = unit if unit == "draft" else f"{unit} {cell['sentence'] + 1}"
            yield (
                "]",
                "" if unit == "word" else f"{name}: {write_score(cell['compared'], texts.theta)}",
                cell,
            )
        place = max(place, cell["stop"])
