"""A continuation as coloured text: one cell a visible piece, its figures on hover and in a table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dragin_lab.core.trace import Continuation, Words
from dragin_lab.views.heat import Scale, piece_words
from dragin_lab.views.html import clipped, count, esc, num

_MARKER_ONLY = re.compile("^[▁Ġ\\s]*$")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
SHOWN_ALTERNATIVES = 4
PLAIN_CHARS = 20000
GEM = '<span class="gem" aria-hidden="true">◆</span>'


@dataclass(frozen=True)
class Cell:
    """Pieces ``first`` to ``last`` (half-open) that show as characters ``start`` to ``stop`` of the text.

    The space that a piece begins with is not its own: a cut "before the word" may stand on either side of it.
    More than one piece where each is only a part of a character; no characters for a special piece like ``</s>``.
    """

    start: int
    stop: int
    first: int
    last: int


def cells(made: Continuation) -> list[Cell]:
    """The visible cells of a continuation, in order."""
    out: list[Cell] = []
    for i, (start, stop) in enumerate(made.offsets.tolist()):
        body = made.text[start:stop].lstrip(" ")
        start = stop - len(body) if body else start
        if out and stop > start and start < out[-1].stop:
            last = out.pop()
            out.append(Cell(last.start, max(stop, last.stop), last.first, i + 1))
        else:
            out.append(Cell(start, stop, i, i + 1))
    return out


@dataclass
class Look:
    """A continuation with everything that a view says about its pieces."""

    made: Continuation
    words: Words
    scale: Scale
    values: np.ndarray  # (n,) float64, the measure behind the colour
    levels: np.ndarray  # (n,) int, 0 to 9
    owner: np.ndarray  # (n,) int, the word of each piece, -1 for none
    cells: list[Cell]
    fired: int | None = None  # the piece that fired, where one did
    reference: bool = False  # whether the reference variant judged it
    _alternatives: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, made: Continuation, words: Words, scale: Scale, fired: int | None = None, reference: bool = False
    ) -> Look:
        """The look of a continuation; ``words`` are empty where nothing judged it."""
        values = scale.values(made, words)
        owner = piece_words(made, words)
        return cls(made, words, scale, values, scale.levels(values), owner, cells(made), fired, reference)

    def hit(self, piece: int) -> bool:
        """Whether a piece belongs to a flagged word."""
        word = self.owner[piece]
        return bool(word >= 0 and self.words.hit[word])

    def text(self, cell: Cell) -> str:
        """What a cell shows; a special piece shows its name, a lone space marker nothing."""
        if cell.stop > cell.start:
            return self.made.text[cell.start : cell.stop]
        raw = self.made.pieces[cell.first]
        return "" if _MARKER_ONLY.match(raw) else raw

    def alternatives(self, piece: int) -> str:
        """``Gewair 41 % · Bel 10 %``: the likeliest pieces in the place of this one."""
        if piece in self._alternatives:
            return self._alternatives[piece]
        if piece >= len(self.made.alternative_ids):
            return ""
        named = self.made.alternative_pieces
        names: Iterable[str] = (
            named[piece] if piece < len(named) else [f"id {i}" for i in self.made.alternative_ids[piece].tolist()]
        )
        probs = self.made.alternative_probs[piece].tolist()
        shown = list(zip(names, probs, strict=False))[:SHOWN_ALTERNATIVES]
        self._alternatives[piece] = " · ".join(f"{visible(name)} {percent(p)}" for name, p in shown)
        return self._alternatives[piece]

    def about(self, cell: Cell) -> str:
        """The lines of a cell's tooltip."""
        made = self.made
        i = max(range(cell.first, cell.last), key=lambda k: made.entropy[k])
        several = f" ({cell.last - cell.first} pieces make this character)" if cell.last - cell.first > 1 else ""
        p = float(np.exp(made.logprob[i]))
        lines = [
            f"{visible(self.text(cell).strip() or made.pieces[i])}   piece {i + 1}{several}",
            f"entropy {num(made.entropy[i])}   attention received {num(made.received[i])}   probability {percent(p)}",
        ]
        word = self.owner[i]
        if word >= 0:
            w = self.words
            figures = [
                f"{name} {num(values[word])}"
                for name, values in (("entropy", w.entropy), ("attention", w.attention), ("score", w.score))
                if np.isfinite(values[word])
            ]
            flags = [flag for flag, on in (("stop word", w.stop[word]), ("HIT", w.hit[word])) if on]
            lines.append(f"word “{w.text[word]}”   " + "   ".join([*figures, *flags]))
        elif self.scale.kind != "score" and np.isfinite(self.values[i]):
            lines.append(f"{self.scale.name} {num(self.values[i])}")
        other = self.alternatives(i)
        if other:
            lines.append(f"likeliest: {other}")
        return "\n".join(lines)


def visible(text: str) -> str:
    """A piece among figures: its white space as signs, right-to-left text isolated from what stands around it."""
    shown = text.replace("\n", "↵").replace("\t", "⇥") or "∅"
    return f"\u2068{shown}\u2069" if _RIGHT_TO_LEFT.search(shown) else shown


def percent(p: float) -> str:
    """A probability for people: 41 %, 0.3 %, under 0.1 %."""
    return f"{100 * p:.0f} %" if p >= 0.0995 else f"{100 * p:.1f} %" if p >= 0.0005 else "<0.1 %"


def heat(look: Look, start: int, stop: int, *, tips: bool = True, special: bool = True) -> str:
    """HTML of the cells that begin at the characters ``start`` to ``stop``, with the text between them.

    Hits are ``mark`` elements around the whole word: bold, underlined, with a ◆ and, for those who do not see, the
    word "hit"; they can be reached by keyboard. ``tips=False`` leaves the figures on hover out.
    """
    text, out, place, open_word = look.made.text, list[str](), start, -1
    for cell in look.cells:
        empty = cell.stop == cell.start
        if cell.start < start or cell.start > stop or (cell.start == stop and not empty):
            continue
        if empty and not (special and look.text(cell)):
            continue
        word = int(look.owner[cell.first]) if look.hit(cell.first) else -1
        if word != open_word and open_word >= 0:
            out.append("</mark>")
        out.append(esc(text[place : cell.start]))
        if word != open_word and word >= 0:
            said = f"hit, score {num(look.words.score[word])}: "
            out.append(f'<mark class="hit" tabindex="0">{GEM}<bdi class="vh">{said}</bdi>')
        open_word = word
        out.append(_cell(look, cell, tips))
        place = max(place, cell.stop)
    if open_word >= 0:
        out.append("</mark>")
    out.append(esc(text[place:stop]))
    return "".join(out)


def _cell(look: Look, cell: Cell, tips: bool) -> str:
    level = int(look.levels[cell.first : cell.last].max())
    names = [f"h{level}"] if level else []
    if cell.stop == cell.start:
        names.append("sp")
    if look.fired is not None and cell.first <= look.fired < cell.last:
        names.append("fired")
    css = f' class="{" ".join(names)}"' if names else ""
    tip = f' data-i="{esc(look.about(cell))}"' if tips else ""
    body = esc(look.text(cell).replace("\n", "↵\n"))
    return f"<span{css}{tip}>{body}</span>" if css or tip else body


def figures(look: Look, limit: int) -> tuple[str, int]:
    """The table of every piece's figures, for reading without a mouse; and how many rows it has at most ``limit``."""
    made, words, scored = look.made, look.words, look.scale.kind == "score" and len(look.words) > 0
    rows = []
    for cell in look.cells[:limit]:
        i, word = cell.first, int(look.owner[cell.first])
        score = words.score[word] if word >= 0 else np.nan
        last = [num(score) if scored else num(look.values[i]), _flags(look, i), look.alternatives(i)]
        row = [num(made.entropy[i]), num(made.received[i]), percent(float(np.exp(made.logprob[i]))), *last]
        shown = visible(look.text(cell).strip(" ") or made.pieces[i])
        cut = "".join(f"<td>{esc(v)}</td>" for v in row)
        rows.append(f'<tr><td>{i + 1}</td><th scope="row"><bdi>{esc(shown)}</bdi></th>{cut}</tr>')
    measure = "word’s score" if scored else look.scale.name
    names = ("piece", "entropy", "attention received", "probability", measure, "flags", "likeliest pieces")
    head = '<th scope="col">no.</th>' + "".join(f'<th scope="col">{esc(n)}</th>' for n in names)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>', len(
        rows
    )


def _flags(look: Look, piece: int) -> str:
    word = int(look.owner[piece])
    if word < 0:
        return ""
    flags = [name for name, on in (("◆ hit", look.words.hit[word]), ("stop word", look.words.stop[word])) if on]
    return ", ".join(flags)


# -- room for pieces ------------------------------------------------------------------------------------------


def windowed(look: Look, room: int, start: int, stop: int) -> list[tuple[int, int, str]]:
    """Ranges of characters and how to draw them ("heat" or "plain"), with ``room`` pieces drawn around what fired."""
    n = len(look.made)
    if n <= room:
        return [(start, stop, "heat")]
    hits = [i for i in range(n) if look.hit(i)]
    focus = look.fired if look.fired is not None else hits[0] if hits else 0
    first = max(0, min(focus - room // 2, n - room)) if focus >= room else 0
    left = int(look.made.offsets[first, 0]) if first else 0
    right = int(look.made.offsets[first + room, 0]) if first + room < n else len(look.made.text)
    cuts = [
        (start, min(left, stop), "plain"),
        (max(left, start), min(right, stop), "heat"),
        (max(right, start), stop, "plain"),
    ]
    return [c for c in cuts if c[0] < c[1]]


def stretch(look: Look, room: int, start: int, stop: int, *, tips: bool = True, special: bool = True) -> str:
    """The characters ``start`` to ``stop`` of a look; pieces that find no room stand as plain text, and say so."""
    out = []
    for a, b, how in windowed(look, room, start, stop):
        if how == "heat":
            out.append(heat(look, a, b, tips=tips, special=special))
        else:
            out.append(unpieced(look, a, b))
    return "".join(out)


def unpieced(look: Look, start: int, stop: int) -> str:
    """Characters of a look that found no room: folded plain text, with how many pieces it is."""
    left_out = int(((look.made.offsets[:, 0] >= start) & (look.made.offsets[:, 0] < stop)).sum())
    said = f"… {count(left_out, 'more piece')}, as plain text"
    inner = clipped(look.made.text[start:stop], PLAIN_CHARS)
    return f'<details class="more"><summary><bdi>{said}</bdi></summary>{inner}</details>'


def share_out(made: list[Continuation], pieces: int) -> dict[int, int]:
    """How many pieces of each continuation may be drawn so that all together draw at most ``pieces``.

    Short ones are drawn whole; what they leave is shared evenly among the longer ones.
    """
    room: dict[int, int] = {}
    left, waiting = pieces, sorted(made, key=len)
    for i, c in enumerate(waiting):
        room[id(c)] = min(len(c), left // (len(waiting) - i))
        left -= room[id(c)]
    return room
