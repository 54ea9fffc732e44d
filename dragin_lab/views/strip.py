"""Pieces as columns on one axis: the text on top, under it rows for entropy, attention, stop flag and score with θ.

A line holds as many columns as fit into ``LINE`` characters, so that every line has its own labels. Bars are heights,
flags are signs, θ is a line: nothing is told by colour alone.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dragin_lab.views.html import esc, printable, short
from dragin_lab.views.pieces import GEM, Cell, Look
from dragin_lab.views.plain import terminal_width

LINE = 84  # characters of a line
BLOCKS = " ▁▂▃▄▅▆▇█"
SNIP = '<i class="snip" title="cut here"><b>✂</b></i>'


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
        """θ as a share of the score's row."""
        return self.threshold / self.score if self.score > 0 and math.isfinite(self.threshold) else math.nan

    def attention(self, look: Look) -> float:
        """Where the attention row of a strip ends."""
        return self.read if second_reading(look) else self.received


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
    hit: bool
    fired: bool
    gone: bool  # thrown away
    level: int
    width: int  # characters of a line: at least two, and one for the sign of a hit


def second_reading(look: Look) -> bool:
    """Whether a draft's attention is the reference variant's: each word's, from reading the draft by itself."""
    return look.reference and bool(np.isfinite(look.words.attention).any())


def attention_of(look: Look) -> np.ndarray:
    """What the attention row shows of each piece, (n,) float64: what its trigger held against it, where it had that.

    Otherwise what the piece received while the text was written (Eq. 3).
    """
    if second_reading(look):
        return np.append(np.asarray(look.words.attention, np.float64), np.nan)[look.owner]
    return np.asarray(look.made.received, np.float64)


def axes_of(looks: Sequence[Look]) -> Axes:
    """The scales of all strips of a view."""
    scored = looks[0].scale if looks and looks[0].scale.kind == "score" else None
    theta = scored.threshold if scored else math.nan
    return Axes(
        entropy=_top([look.made.entropy for look in looks]),
        received=_top([attention_of(look) for look in looks if not second_reading(look)]),
        read=_top([attention_of(look) for look in looks if second_reading(look)]),
        score=max(scored.top, 0.0 if math.isnan(theta) else 1.25 * theta) if scored else math.nan,
        threshold=theta,
        score_name=scored.name if scored else "score",
    )


def _top(arrays: list[np.ndarray]) -> float:
    flat = np.concatenate([np.asarray(a, np.float64) for a in arrays]) if arrays else np.zeros(0)
    flat = flat[np.isfinite(flat)]
    return float(flat.max()) if flat.size and flat.max() > 0 else math.nan


def columns(look: Look, start: int, stop: int, cut: int | None) -> list[Column]:
    """The columns of the cells that begin at the characters ``start`` to ``stop``; behind ``cut`` they are gone."""
    made, words, owner = look.made, look.words, look.owner.tolist()
    entropy, attention = made.entropy.tolist(), attention_of(look).tolist()
    score = look.values.tolist() if look.scale.kind == "score" else [math.nan] * len(made)
    levels, stops = look.levels.tolist(), words.stop.tolist()
    out: list[Column] = []
    last = -2
    for cell in look.cells:
        if cell.start < start or cell.start > stop or (cell.start == stop and cell.stop > cell.start):
            continue
        text = look.text(cell)
        if not text:
            continue
        inside = slice(cell.first, cell.last)
        word, hit = owner[cell.first], look.hit(cell.first)
        spaced = cell.start > 0 and made.text[cell.start - 1].isspace()
        opens = (word != last if word >= 0 else spaced) or not out
        out.append(
            Column(
                cell,
                text,
                opens,
                _most(entropy[inside]),
                _most(attention[inside]),
                _most(score[inside]),
                word >= 0 and stops[word],
                hit,
                look.fired is not None and cell.first <= look.fired < cell.last,
                cut is not None and cell.start >= cut,
                max(levels[inside]),
                max(2, terminal_width(text)) + (hit and opens),
            )
        )
        last = word
    return out


def _most(values: list[float]) -> float:
    """The largest of a cell's pieces; NaN where none was measured."""
    return max((v for v in values if math.isfinite(v)), default=math.nan)


def lines(cols: Sequence[Column], limit: int) -> Iterator[list[Column]]:
    """The columns in lines of at most ``limit`` characters; a word is not broken where it fits into a line."""
    line: list[Column] = []
    used, place = 0.0, 0
    while place < len(cols):
        end = place + 1
        while end < len(cols) and not cols[end].opens:
            end += 1
        word = cols[place:end]
        size = sum(col.width for col in word) + 1
        if line and used + size > limit:
            yield line
            line, used = [], 0.0
        for col in word:
            if line and used + col.width > limit:
                yield line
                line, used = [], 0.0
            line.append(col)
            used += col.width
        used += 1
        place = end
    if line:
        yield line


def direction(text: str) -> str:
    """``"rtl"`` where the first letter with a direction is written from right to left, else ``"ltr"``."""
    kinds = (unicodedata.bidirectional(c) for c in text)
    return "rtl" if next((k for k in kinds if k in ("L", "R", "AL")), "L") != "L" else "ltr"


# -- HTML -------------------------------------------------------------------------------------------------------------


def strip(look: Look, cols: Sequence[Column], axes: Axes) -> str:
    """HTML of a strip: its lines, each with its labels at the left; figures on hover."""
    if not cols:
        return ""
    names, scored, full = _names(look, axes), judged(look), axes.attention(look)
    rows = 5 if scored else 3
    theta = f' style="--t:{min(axes.theta, 1):.3f}"' if rows == 5 and axes.theta == axes.theta else ""
    way, parts, gone = direction(look.made.text), [], cols[0].gone
    for number, line in enumerate(lines(cols, LINE)):
        body = ""
        for col in line:
            body += SNIP if col.gone and not gone else ""
            gone = col.gone
            body += _column(look, col, axes, full, scored)
        labels = f'<div class="names"{" aria-hidden=true" if number else ""}>{names}</div>'
        parts.append(f'<div class="line">{labels}<div class="cols" dir="{way}">{body}</div></div>')
    return f'<div class="strip rows{rows}"{theta}><div class="roll">{"".join(parts)}</div></div>'


def _names(look: Look, axes: Axes) -> str:
    top = axes.attention(look)
    rows = [("pieces", "")]
    rows.append(("entropy", f"to {short(axes.entropy)} nats" if axes.entropy == axes.entropy else "not measured"))
    rows.append(
        ("attention", f"the trigger’s, to {short(top)}")
        if second_reading(look)
        else ("attention received", f"to {short(top)}" if top == top else "not measured")
    )
    if judged(look):
        theta = f", θ {short(axes.threshold)} ┄" if axes.theta == axes.theta else ""
        rows += [("stop word", "●"), (axes.score_name, f"to {short(axes.score)}{theta}")]
    return "".join(f"<span>{esc(name)} <small>{esc(says)}</small></span>" for name, says in rows)


def judged(look: Look) -> bool:
    """Whether a trigger scored this text."""
    return look.scale.kind == "score" and bool(np.isfinite(look.values).any())


def _column(look: Look, col: Column, axes: Axes, full: float, scored: bool) -> str:
    """One column; ``full`` is the attention of a full bar, ``scored`` whether it has the rows of a trigger."""
    flags = [name for name, on in (("w", col.opens), ("s", col.stop and scored), ("gone", col.gone)) if on]
    bars = _share("e", col.entropy, axes.entropy) + _share("a", col.attention, full)
    if scored:
        bars += _share("s", col.score, axes.score)
        flags += ["over"] * (col.score > axes.threshold)
    css = f' class="{" ".join(flags)}"' if flags else ""
    style = f' style="{bars[:-1]}"' if bars else ""
    special = col.cell.stop == col.cell.start
    inner = [f"h{col.level}"] if col.level else []
    inner += [name for name, on in (("hit", col.hit), ("fired", col.fired), ("sp", special)) if on]
    names = f' class="{" ".join(inner)}"' if inner else ""
    first = col.hit and col.opens
    focus, sign = (' tabindex="0"', f'{GEM}<bdi class="vh">hit: </bdi>') if first else ("", "")
    shown = esc(col.text.replace("\n", "↵"))
    return f'<i{css}{style} data-i="{esc(look.about(col.cell))}"{focus}><b{names}>{sign}{shown}</b></i>'


def _share(name: str, value: float, top: float) -> str:
    """A bar as a custom property; none for nothing."""
    share = value / top if top > 0 else 0.0
    return f"--{name}:{min(share, 1):.2g};" if share >= 0.005 else ""


# -- text -------------------------------------------------------------------------------------------------------------


def strip_text(look: Look, cols: Sequence[Column], axes: Axes, width: int) -> list[str]:
    """The same as lines of text: bars are block characters, hits stand in ⟦ ⟧, the score's row marks what passes θ."""
    scored, full = judged(look), axes.attention(look)
    out: list[str] = []
    for line in lines(cols, max(width - 14, 20)):
        rows: dict[str, list[str]] = {"pieces": [], "entropy": [], "attention": []}
        if scored:
            rows |= {"stop word": [], "score": [], "above θ": []}
        for col in line:
            size = col.width
            gap = " " if col.opens else ""
            shown = ("◆" if col.hit and col.opens else "") + printable(col.text.replace("\n", "↵"))
            rows["pieces"].append(gap + shown + " " * (size - terminal_width(shown)))
            rows["entropy"].append(gap + _block(col.entropy, axes.entropy) * size)
            rows["attention"].append(gap + _block(col.attention, full) * size)
            if scored:
                rows["stop word"].append(gap + ("●" if col.stop else " ").ljust(size))
                rows["score"].append(gap + _block(col.score, axes.score) * size)
                rows["above θ"].append(gap + ("^" if col.score > axes.threshold else " ") * size)
        for name, parts in rows.items():
            if name == "above θ" and not any("^" in part for part in parts):
                continue
            out.append(f"{name:<13}{''.join(parts)}".rstrip())
        out.append("")
    return out


def _block(value: float, top: float) -> str:
    if not (top > 0 and math.isfinite(value) and value > 0):
        return " "
    return BLOCKS[max(1, min(8, round(8 * value / top)))]
