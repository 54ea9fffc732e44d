"""The RIND heatmap: tokens as columns on one axis, under them entropy, attention, stop flag and score with θ.

A page breaks the columns into as many lines as its width needs, and repeats the labels for each. Bars are heights,
flags are signs, θ is a line: nothing relies on colour alone.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from wcwidth import width as terminal_width

from dragin_lab.checks import count
from dragin_lab.errors import SettingError
from dragin_lab.run.sensitivity import Effect, Sensitivity
from dragin_lab.trace.kept import kept_of, written
from dragin_lab.trace.trace import Draft, Step, Trace
from dragin_lab.views.canvas import MAX_STEPS, MAX_TOKENS, Canvas
from dragin_lab.views.frame import View, open_trace
from dragin_lab.views.heat import find_largest
from dragin_lab.views.html import class_attribute, esc, printable, short
from dragin_lab.views.rendering import GEM, render_template
from dragin_lab.views.tokens import Cell, Look, Unit, show_spaces
from dragin_lab.views.trace import draw_trace

NARROWEST = 16  # characters of a line in the narrowest card, of 330 px
#: What the signs under a token that was tried mean.
CHOICES = "▲ another answer · ◇ other passages · ✓ now right · ✗ now wrong · = nothing"
SNIP = '<i class="snip" title="cut here"><b>✂</b></i>'


def heatmap(trace: Trace | str | Path, *, max_tokens: int = MAX_TOKENS, sensitivity: Sensitivity | None = None) -> View:
    """Each draft and continuation as coloured text over bars: entropy, attention received, stop flag, score, θ.

    The figures of a token, its likeliest alternatives among them, appear on hover; no script is needed. At most
    ``max_tokens`` tokens are drawn one by one, around what fired; the view says how many it left out. With the trace's
    ``sensitivity`` a second strip says under each token that was tried what the other one would have changed. A path
    that holds no readable trace gives its message in place. Raises ``SettingError`` for another trace's sensitivity.
    """
    max_tokens = count("max_tokens", max_tokens)
    card = partial(_fill_template, most=max_tokens, sensitivity=sensitivity)
    if sensitivity is not None and open_trace(trace).fingerprint != sensitivity.trace.fingerprint:
        raise SettingError("the sensitivity is another trace's; draw views.heatmap(result.trace, sensitivity=result)")
    return draw_trace("RIND heatmap", trace, card, "strip")


def _fill_template(trace: Trace, most: int, sensitivity: Sensitivity | None) -> str:
    canvas = Canvas.of(trace, "heatmap", most)
    shown = list(written(trace.steps[:MAX_STEPS]))
    axes = axes_of([canvas.look(continuation, step) for step, _, continuation in shown])
    effects = [] if sensitivity is None else sensitivity.effects

    def choices_of(step: Step, name: str) -> list[Effect]:
        return [one for one in effects if (one.place.step, one.place.source) == (step.index, name)]

    tools = (find_columns, find_cut, row_labels, most_lines, render_columns, choices_of, render_choices)
    values: dict[str, Any] = {tool.__name__: tool for tool in tools} | {"direction_of": text_direction}
    values |= {"canvas": canvas, "written": shown, "axes": axes, "most": MAX_STEPS, "choices": CHOICES}
    return render_template("heatmap.html", **values)


def find_cut(step: Step, name: str, continuation: Draft) -> int | None:
    """The character after which a text was thrown away; None where nobody has decided, or all was kept."""
    end = kept_of(step).of(name)
    return None if end is None or end >= len(continuation.text) else end


# -- columns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axes:
    """Where the bars of a view end, so that all its strips have one scale. NaN: nothing was measured."""

    entropy: float  # nats
    received: float  # attention, Eq. 3
    read: float  # attention as the reference variant's trigger read it
    score: float
    threshold: float  # θ, NaN where there is none
    score_name: str = "score"
    base: float = 0.0  # where the bars of scores begin

    @property
    def theta(self) -> float:
        """θ as a share of the score's row; below 0 where there is none."""
        return min(self.share_of_score(self.threshold), 1) if math.isfinite(self.threshold) else -9.0

    def share_of_score(self, value: float) -> float:
        """How much of a full bar a score fills."""
        return (value - self.base) / (self.score - self.base) if self.score > self.base else -9.0

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
    apart: float  # how far its bounds are from the entropy
    attention: float
    score: float
    stop: bool
    gone: bool  # thrown away
    snip: bool  # whether it is the first one thrown away after others that were kept


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
    theta, base = (scored.word_threshold, scored.base) if scored else (math.nan, 0.0)
    return Axes(
        entropy=find_largest(look.continuation.entropy + look.bounds for look in looks) or math.nan,
        received=find_largest(attention_of(look) for look in looks if not look.second_reading) or math.nan,
        read=find_largest(attention_of(look) for look in looks if look.second_reading) or math.nan,
        score=max(scored.top, base if math.isnan(theta) else base + 1.25 * (theta - base)) if scored else math.nan,
        threshold=theta,
        score_name=scored.name if scored else "score",
        base=base,
    )


def find_columns(look: Look, start: int, stop: int, cut: int | None) -> list[Column]:
    """The columns of the cells that begin at the characters ``start`` to ``stop``; after ``cut`` they are gone."""
    continuation, stops = look.continuation, look.words.stop.tolist()
    entropy, bounds, attention = continuation.entropy.tolist(), look.bounds.tolist(), attention_of(look).tolist()
    score = look.values.tolist() if look.scale.kind == "score" else [math.nan] * len(continuation)
    out: list[Column] = []
    for cell in look.between(start, stop):
        inside = slice(cell.first, cell.last)
        spaced = cell.start > 0 and continuation.text[cell.start - 1].isspace()
        opens = not out or (cell.word != out[-1].cell.word if cell.word >= 0 else spaced)
        shown = printable(cell.text.replace("\n", "↵"))
        highest = [_largest_value(values[inside]) for values in (entropy, bounds, attention, score)]
        stop_word, gone = cell.word >= 0 and stops[cell.word], cut is not None and cell.start >= cut
        snip = gone and bool(out) and not out[-1].gone
        out.append(Column(cell, shown, opens, highest[0], highest[1], highest[2], highest[3], stop_word, gone, snip))
    return out


def _largest_value(values: list[float]) -> float:
    """The largest of a cell's tokens; NaN where none was measured."""
    return max((v for v in values if math.isfinite(v)), default=math.nan)


def most_lines(look: Look, cols: Sequence[Column]) -> int:
    """Into how many lines a page breaks these columns at most: words stay whole where one fits into a line."""
    widths = [max(2, terminal_width(c.text)) + (c.cell.hit and c.opens) + c.cell.begins + c.cell.ends for c in cols]
    lines, used = 1 + len(look.units), 0
    for size in np.add.reduceat(widths, [place for place, col in enumerate(cols) if col.opens]) + 1:
        if used and used + size > NARROWEST:
            lines, used = lines + 1, 0
        lines, used = lines + 2 * (size // NARROWEST), used + size % NARROWEST
    return int(lines)


# -- HTML: single tokens are built here, because loops of a template take twice as long --------------------------------


def text_direction(text: str) -> str:
    """``"rtl"`` where the first letter with a direction is written from right to left, else ``"ltr"``."""
    kinds = (unicodedata.bidirectional(c) for c in text)
    return "rtl" if next((k for k in kinds if k in ("L", "R", "AL")), "L") != "L" else "ltr"


def row_labels(look: Look, axes: Axes) -> list[tuple[str, str]]:
    """The labels of a strip's rows, each with where a full bar ends."""
    top = axes.attention(look)
    within = ", ± │" if look.bounds.any() else ""
    entropy = f"to {short(axes.entropy)} nats{within}" if axes.entropy > 0 else "not measured"
    rows = [("tokens", ""), ("entropy", entropy)]
    if look.second_reading:
        rows.append(("attention", f"the trigger’s, to {short(top)}"))
    else:
        rows.append(("attention received", f"to {short(top)}" if top > 0 else "not measured"))
    if look.judged:
        theta = f", θ {short(axes.threshold)} ┄" if axes.theta >= 0 else ""
        begins = f"{short(axes.base)} " * (axes.base < 0)
        rows += [("stop word", "●"), (axes.score_name, f"{begins}to {short(axes.score)}{theta}")]
    return rows


def render_columns(look: Look, cols: Sequence[Column], axes: Axes) -> Markup:
    """Cells over their bars, word by word; a judged unit between its name and score and its last cell's edge."""
    out: list[str] = []
    judged, full = look.judged, axes.attention(look)
    for col in cols:
        cell, first = col.cell, col.cell.hit and col.opens
        unit = look.units[cell.unit] if cell.unit >= 0 else None
        above = judged and cell.word >= 0 and look.above[cell.word]
        flags = {"w": col.opens, "s": col.stop and judged, "gone": col.gone, "over": above, "spared": cell.unjudged}
        if unit is not None:
            flags |= {"in": True, "end": cell.ends, "above": unit.above}
        css, style = class_attribute(**flags), _bar_style(col, axes, full, judged)
        focus, sign = (' tabindex="0"', f'{GEM}<bdi class="vh">hit: </bdi>') if first else ("", "")
        level = f"h{cell.level}" if cell.level else ""
        inner = class_attribute(level, hit=cell.hit, fired=cell.fired, sp=cell.special, unjudged=cell.unjudged)
        if col.opens or cell.begins:
            out.append("</span>" if out else "")
            out.append(_unit_label(unit) if unit is not None and cell.begins else "")
            out.append("<span>")
        tip, text = esc(look.about(cell)), esc(col.text)
        out.append(f'{SNIP if col.snip else ""}<i{css}{style} data-i="{tip}"{focus}><b{inner}>{sign}{text}</b></i>')
    return Markup("".join([*out, "</span>"]))


def _bar_style(col: Column, axes: Axes, full: float, judged: bool) -> str:
    """The heights of a column's bars as custom properties; none for nothing."""
    shares = [("e", col.entropy, axes.entropy), ("a", col.attention, full)]
    shares += [("s", axes.share_of_score(col.score), 1.0)] if judged else []
    shares += [("l", col.entropy - col.apart, axes.entropy), ("d", 2 * col.apart, axes.entropy)] if col.apart else []
    heights = [(name, value / top if top > 0 else 0.0) for name, value, top in shares]
    style = ";".join(f"--{name}:{min(height, 1):.2g}" for name, height in heights if height >= 0.005)
    return f' style="{style}"' if style else ""


def _unit_label(unit: Unit) -> str:
    value, _, limit = unit.verdict.partition(" ")
    css = class_attribute("unit", above=unit.above)
    return f"<b{css}>{esc(unit.name)}<small>{esc(value)}</small><small>{esc(limit)}</small></b>"


# -- second choices ---------------------------------------------------------------------------------------------------


def sign_effect(effect: Effect) -> str:
    """What the other token changes, as signs."""
    right = "✓" if effect.branch.scores.get("em") else "✗"
    signs = "▲" * effect.answer + "◇" * effect.retrievals + right * bool(effect.correct)
    return ("!" if effect.branch.ended == "error" else signs) or "="


def render_choices(look: Look, effects: Sequence[Effect]) -> Markup:
    """A text with each token that was tried over the other one and its signs."""
    tried = {effect.place.token: effect for effect in effects}
    out, place = list[str](), 0
    for cell in look.cells:
        effect = next((tried[token] for token in range(cell.first, cell.last) if token in tried), None)
        out.append(esc(look.continuation.text[place : cell.start]))
        place = max(place, cell.stop)
        if effect is None:
            out.append(esc(cell.text))
            continue
        says = f"{sign_effect(effect)} {show_spaces(printable(effect.place.other_text.strip())) or '␣'}"
        tip = f"{short(effect.place.margin)} less probable; the answer: {effect.branch.answer or effect.branch.error}"
        css = ' class="on"' if effect.decides else ""
        out.append(f'<ruby{css} title="{esc(printable(tip))}">{esc(cell.text)}<rt>{esc(says)}</rt></ruby>')
    return Markup("".join(out))
