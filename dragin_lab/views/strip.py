"""Tokens as columns on one axis: the text on top, under it rows for entropy, attention, stop flag and score with θ.

A page breaks the columns into as many lines as its width needs, and repeats the labels for each. Bars are heights,
flags are signs, θ is a line: nothing relies on colour alone.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from wcwidth import width as terminal_width

from dragin_lab.views.heat import find_largest
from dragin_lab.views.html import printable, short
from dragin_lab.views.tokens import Cell, Look

NARROWEST = 16  # characters of a line in the narrowest card, of 330 px
BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Axes:
    """Where the bars of a view end, so that all its strips have one scale. NaN: nothing was measured."""

    entropy: float  # nats
    received: float  # attention, Eq. 3
    read: float  # attention as the reference variant's trigger read it
    score: float
    threshold: float  # θ, NaN where there is none
    score_name: str = "score"

    @property
    def theta(self) -> float:
        """θ as a share of the score's row; below 0 where there is none."""
        return min(self.threshold / self.score, 1) if self.score > 0 and math.isfinite(self.threshold) else -9.0

    def attention(self, look: Look) -> float:
        """Where the attention row of a strip ends."""
        return self.read if look.second_reading else self.received


@dataclass(frozen=True, slots=True)
class Column:
    """One cell of a strip with what its rows show; NaN where a row has no value."""

    cell: Cell
    text: str
    opens: bool  # whether it begins a word
    entropy: float
    attention: float
    score: float
    stop: bool
    gone: bool  # thrown away
    snip: bool  # whether it is the first one thrown away after others that were kept
    width: int  # characters of a line of text: at least two, and one for each sign beside it

    def over(self, axes: Axes) -> bool:
        """Whether its score is above θ."""
        return self.score > axes.threshold


def attention_of(look: Look) -> np.ndarray:
    """(n,) float64 the attention row of each token: what its trigger read, where that is recorded.

    Otherwise what the token received while the text was written (Eq. 3).
    """
    if look.second_reading:
        return np.append(np.asarray(look.words.attention, np.float64), np.nan)[look.owner]
    return np.asarray(look.continuation.received, np.float64)


def axes_of(looks: Sequence[Look]) -> Axes:
    """The scales of all strips of a view."""
    scored = looks[0].scale if looks and looks[0].scale.kind == "score" else None
    theta = scored.word_threshold if scored else math.nan
    score = max(scored.top, 0.0 if math.isnan(theta) else 1.25 * theta) if scored else math.nan
    return Axes(
        entropy=_axis_end(look.continuation.entropy for look in looks),
        received=_axis_end(attention_of(look) for look in looks if not look.second_reading),
        read=_axis_end(attention_of(look) for look in looks if look.second_reading),
        score=score,
        threshold=theta,
        score_name=scored.name if scored else "score",
    )


def _axis_end(arrays: Iterable[np.ndarray]) -> float:
    return find_largest(arrays) or math.nan


def strip_columns(look: Look, start: int, stop: int, cut: int | None) -> list[Column]:
    """The columns of the cells that begin at the characters ``start`` to ``stop``; after ``cut`` they are gone."""
    continuation, stops = look.continuation, look.words.stop.tolist()
    entropy, attention = continuation.entropy.tolist(), attention_of(look).tolist()
    score = look.values.tolist() if look.scale.kind == "score" else [math.nan] * len(continuation)
    out: list[Column] = []
    for cell in look.between(start, stop):
        inside = slice(cell.first, cell.last)
        spaced = cell.start > 0 and continuation.text[cell.start - 1].isspace()
        opens = not out or (cell.word != out[-1].cell.word if cell.word >= 0 else spaced)
        shown = printable(cell.text.replace("\n", "↵"))
        width = max(2, terminal_width(shown)) + (cell.hit and opens) + cell.begins + cell.ends
        most = [_largest_value(values[inside]) for values in (entropy, attention, score)]
        stop_word, gone = cell.word >= 0 and stops[cell.word], cut is not None and cell.start >= cut
        snip = gone and bool(out) and not out[-1].gone
        out.append(Column(cell, shown, opens, most[0], most[1], most[2], stop_word, gone, snip, width))
    return out


def _largest_value(values: list[float]) -> float:
    """The largest of a cell's tokens; NaN where none was measured."""
    return max((v for v in values if math.isfinite(v)), default=math.nan)


def break_lines(cols: Sequence[Column], limit: int) -> Iterator[list[Column]]:
    """The columns in lines of at most ``limit`` characters; a word is not broken where it fits into a line."""
    line: list[Column] = []
    used, place = 0, 0
    while place < len(cols):
        end = next((i for i in range(place + 1, len(cols)) if cols[i].opens), len(cols))
        size = sum(col.width for col in cols[place:end]) + 1
        if line and used + size > limit:
            yield line
            line, used = [], 0
        for col in cols[place:end]:
            if line and used + col.width > limit:
                yield line
                line, used = [], 0
            line.append(col)
            used += col.width
        used += 1
        place = end
    if line:
        yield line


def most_lines(look: Look, cols: Sequence[Column]) -> int:
    """Into how many lines a page breaks these columns at most."""
    return sum(1 for _ in break_lines(cols, NARROWEST)) + len(look.units)


def text_direction(text: str) -> str:
    """``"rtl"`` where the first letter with a direction is written from right to left, else ``"ltr"``."""
    kinds = (unicodedata.bidirectional(c) for c in text)
    return "rtl" if next((k for k in kinds if k in ("L", "R", "AL")), "L") != "L" else "ltr"


def row_labels(look: Look, axes: Axes) -> list[tuple[str, str]]:
    """The labels of a strip's rows, each with where a full bar ends."""
    top = axes.attention(look)
    rows = [("tokens", ""), ("entropy", f"to {short(axes.entropy)} nats" if axes.entropy > 0 else "not measured")]
    if look.second_reading:
        rows.append(("attention", f"the trigger’s, to {short(top)}"))
    else:
        rows.append(("attention received", f"to {short(top)}" if top > 0 else "not measured"))
    if look.judged:
        theta = f", θ {short(axes.threshold)} ┄" if axes.theta >= 0 else ""
        rows += [("stop word", "●"), (axes.score_name, f"to {short(axes.score)}{theta}")]
    return rows


def bar_heights(look: Look, col: Column, axes: Axes) -> str:
    """The heights of a column's bars as custom properties; none for nothing."""
    shares = [("e", col.entropy, axes.entropy), ("a", col.attention, axes.attention(look))]
    shares += [("s", col.score, axes.score)] if look.judged else []
    heights = [(name, value / top if top > 0 else 0.0) for name, value, top in shares]
    return ";".join(f"--{name}:{min(height, 1):.2g}" for name, height in heights if height >= 0.005)


def strip_text(look: Look, cols: Sequence[Column], axes: Axes, width: int) -> list[str]:
    """The same as lines of text: bars are block characters, hits have a ◆, the score's row marks what passes θ."""
    full, out = axes.attention(look), list[str]()
    for line in break_lines(cols, max(width - 14, 20)):
        rows: dict[str, list[str]] = {name: [] for name in ("tokens", "entropy", "attention")}
        if look.judged:
            rows |= {"stop word": [], "score": [], "above θ": []}
        for col in line:
            shown = ("◆" if col.cell.hit and col.opens else "") + col.text
            shown = "⟦" * col.cell.begins + shown + "⟧" * col.cell.ends
            signs = {
                "tokens": shown + " " * (col.width - terminal_width(shown)),
                "entropy": _bar_character(col.entropy, axes.entropy) * col.width,
                "attention": _bar_character(col.attention, full) * col.width,
                "stop word": ("●" if col.stop else "").ljust(col.width),
                "score": _bar_character(col.score, axes.score) * col.width,
                "above θ": ("^" if col.over(axes) else " ") * col.width,
            }
            for name, row in rows.items():
                row.append(" " * col.opens + signs[name])
        shown_rows = {name: "".join(row) for name, row in rows.items()}
        out += [f"{name:<13}{row}".rstrip() for name, row in shown_rows.items() if name != "above θ" or "^" in row]
        out.append("")
    return out


def _bar_character(value: float, top: float) -> str:
    if not (top > 0 and math.isfinite(value) and value > 0):
        return " "
    return BLOCKS[max(1, min(8, round(8 * value / top)))]
