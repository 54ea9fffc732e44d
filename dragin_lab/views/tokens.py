"""A continuation token by token: text, colour and figures of each, and which ones a view has room for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import isfinite

import numpy as np

from dragin_lab.text import write_compared
from dragin_lab.trace.trace import Decision, Draft, Words
from dragin_lab.views.heat import Scale, token_words
from dragin_lab.views.html import num, percent, short

_MARKER_ONLY = re.compile("^[▁Ġ\\s]*$")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
SHOWN_ALTERNATIVES = 4
UNJUDGED = "not judged"
SAME = 0.01  # factors that differ by less are the same


@dataclass(frozen=True, slots=True)
class Cell:
    """Tokens ``first`` to ``last`` (half-open) that show as characters ``start`` to ``stop`` of the text.

    The space that a token begins with is not its own: a cut "before the word" may stand on either side of it.
    More than one token where each is only a part of a character; no characters for a special token like ``</s>``.
    """

    start: int
    stop: int
    first: int
    last: int
    text: str  # what it shows: a special token its name, a lone space marker nothing
    word: int  # the word it belongs to, -1 for none
    level: int  # of colour, 0 to 9
    hit: bool  # whether its word is flagged
    fired: bool  # whether it holds the token that fired
    unit: int = -1  # the judged unit it belongs to, -1 for none
    begins: bool = False  # whether it is the first one of its unit
    ends: bool = False  # whether it is the last one
    unjudged: bool = False  # whether its word may not fire

    @property
    def special(self) -> bool:
        """Whether it has no characters of its own."""
        return self.stop == self.start


#: The first five fields of a cell.
Extent = tuple[int, int, int, int, str]


def find_extents(continuation: Draft) -> list[Extent]:
    """Where the visible cells of a continuation lie, in order, with their texts."""
    out: list[Extent] = []
    text = continuation.text
    for i, (start, stop) in enumerate(continuation.offsets.tolist()):
        body = text[start:stop].lstrip(" ")
        start = stop - len(body) if body else start
        if out and start < stop and start < out[-1][1]:
            begin, end, first, *_ = out.pop()
            end = max(stop, end)
            out.append((begin, end, first, i + 1, text[begin:end]))
        else:
            raw = text[start:stop] or ("" if _MARKER_ONLY.match(continuation.pieces[i]) else continuation.pieces[i])
            out.append((start, stop, i, i + 1, raw))
    return out


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence, or a whole draft, whose score was compared with θ. It covers the tokens ``first`` to ``last``."""

    name: str  # "sentence 2", "draft"
    first: int
    last: int
    score: float  # NaN: not measured
    threshold: float  # NaN: the trigger has none

    @property
    def above(self) -> bool:
        """Whether it fires."""
        return self.score > self.threshold

    @property
    def verdict(self) -> str:
        """``0.446 > θ 0.3``."""
        if not isfinite(self.score):
            return "not scored" if math.isnan(self.score) else "not judged"
        if math.isnan(self.threshold):
            return short(self.score)
        return f" {'>' if self.above else '≤'} θ ".join(write_compared(self.score, self.threshold)).replace("-", "−")

    def __str__(self) -> str:
        return f"{self.name}: {self.verdict}"


def judged_units(words: Words, decision: Decision | None, scale: Scale) -> list[Unit]:
    """The sentences of a draft, or the draft, with the scores that were compared with θ; none where words were."""
    if scale.unit == "word" or decision is None:
        return []
    alone = len(decision.peaks) == 1
    units = []
    for number, score in enumerate(decision.peaks):
        inside = words.spans[slice(None) if alone else words.sentence == number]
        if len(inside):
            name = scale.unit if alone else f"{scale.unit} {number + 1}"
            units.append(Unit(name, int(inside[0, 0]), int(inside[-1, 1]), score, scale.threshold))
    return units


def _mark_units(cells: list[Cell]) -> list[Cell]:
    """The same cells, the first and the last one of each unit marked."""
    inside = [at for at, cell in enumerate(cells) if cell.unit >= 0 and cell.text]
    out = list(cells)
    for before, at, after in zip([-1, *inside], inside, [*inside[1:], -1], strict=False):
        own = cells[at].unit
        begins, ends = before < 0 or cells[before].unit != own, after < 0 or cells[after].unit != own
        if begins or ends:
            out[at] = replace(cells[at], begins=begins, ends=ends)
    return out


#: The cells of one flagged word, or of what lies between two (word -1), each with the text before it.
Run = tuple[int, list[tuple[str, Cell]]]


@dataclass
class Look:
    """A continuation with everything that a view shows of its tokens."""

    continuation: Draft
    words: Words
    scale: Scale
    values: np.ndarray  # (n,) float64, the measure that the colour shows
    owner: np.ndarray  # (n,) int, the word of each token, -1 for none
    cells: list[Cell]
    fired: int | None = None  # the token that fired, where one did
    units: list[Unit] = field(default_factory=list)  # the sentences or the draft that were judged as a whole

    @classmethod
    def of(cls, continuation: Draft, scale: Scale, words: Words, decision: Decision | None = None) -> Look:
        """The look of a continuation; ``words`` are empty where nothing judged it."""
        values, owner = scale.values(continuation, words), token_words(continuation, words)
        levels, word_of = scale.levels(values).tolist(), owner.tolist()
        by_word = scale.unit == "word"
        hits, unjudged = (words.hit & by_word).tolist(), (words.unjudged & by_word).tolist()
        fired = decision.token if decision is not None and by_word else None
        units = judged_units(words, decision, scale)
        unit_of = np.full(len(continuation) + 1, -1)
        for number, unit in enumerate(units):
            unit_of[unit.first : unit.last] = number
        cells = []
        for extent in find_extents(continuation):
            start, stop, first, last, _ = extent
            word, unit_here = word_of[first], int(unit_of[first]) if start < stop else -1
            here, bare = fired is not None and first <= fired < last, word >= 0 and unjudged[word]
            level, hit = 0 if bare else max(levels[first:last]), word >= 0 and hits[word]
            cells.append(Cell(*extent, word, level, hit, here, unit_here, unjudged=bare))
        return cls(continuation, words, scale, values, owner, _mark_units(cells), fired, units)

    @cached_property
    def judged(self) -> bool:
        """Whether a trigger scored this text."""
        return self.scale.kind == "score" and bool(np.isfinite(self.values).any())

    @cached_property
    def above(self) -> np.ndarray:
        """(w,) bool, the words that were compared with θ and score above it."""
        return np.asarray((self.words.hit | (self.words.score > self.scale.word_threshold)) & ~self.words.unjudged)

    @cached_property
    def second_reading(self) -> bool:
        """Whether its attention is the reference variant's: each word's, from reading the draft by itself."""
        return self.scale.second and bool(np.isfinite(self.words.attention).any())

    @cached_property
    def measured(self) -> list[tuple[float, float, float]]:
        """Entropy (nats), attention received and probability of each token."""
        continuation = self.continuation
        probability = np.exp(continuation.logprob.astype(np.float64)).tolist()
        return list(zip(continuation.entropy.tolist(), continuation.received.tolist(), probability, strict=True))

    @cached_property
    def bounds(self) -> np.ndarray:
        """(n,) float64 nats, how far the entropy of each token may be from the one shown; 0 where it is exact."""
        width = self.continuation.entropy_width
        return np.zeros(len(self.continuation)) if width is None else np.asarray(width, np.float64) / 2

    def entropy_of(self, token: int) -> str:
        """``1.230``, and where its bounds are apart ``1.230 ± 0.050``."""
        shown, apart = num(self.measured[token][0]), num(self.bounds[token])
        return shown if apart == num(0) else f"{shown} ± {apart}"

    def between(self, start: int, stop: int, *, special: bool = True) -> Iterable[Cell]:
        """The cells with something to show that begin at the characters ``start`` to ``stop``."""
        for cell in self.cells:
            inside = start <= cell.start < stop or (cell.special and cell.start == stop)
            if inside and cell.text and (special or not cell.special):
                yield cell

    def runs(self, start: int, stop: int, *, special: bool = True) -> tuple[list[Run], str]:
        """These cells, those of a flagged word together, and the text after the last."""
        place, spaced = start, []
        for cell in self.between(start, stop, special=special):
            spaced.append((self.continuation.text[place : cell.start], cell))
            place = max(place, cell.stop)
        flagged = groupby(spaced, key=lambda pair: pair[1].word if pair[1].hit else -1)
        return [(word, list(inside)) for word, inside in flagged], self.continuation.text[place:stop]

    def most_uncertain(self, cell: Cell) -> int:
        """The token whose figures stand for a cell: the most uncertain of its tokens."""
        if cell.last - cell.first == 1:
            return cell.first
        return max(range(cell.first, cell.last), key=lambda i: self.measured[i][0])

    def named(self, cell: Cell, token: int) -> str:
        """A cell among figures."""
        return show_spaces(cell.text.strip(" ") or self.continuation.pieces[token])

    def likeliest(self, token: int) -> Sequence[tuple[str, float]]:
        """The likeliest tokens in the place of this one, with their probabilities."""
        continuation = self.continuation
        if token >= len(continuation.alternative_ids):
            return []
        named = continuation.alternative_tokens
        names = (
            named[token] if token < len(named) else [f"id {i}" for i in continuation.alternative_ids[token].tolist()]
        )
        return list(zip(names, continuation.alternative_probs[token].tolist(), strict=False))

    @cached_property
    def alternatives(self) -> list[str]:
        """The likeliest tokens in the place of each one: ``Gewair 41 % · Bel 10 %``."""
        shown = (self.likeliest(token)[:SHOWN_ALTERNATIVES] for token in range(len(self.continuation)))
        return [" · ".join(f"{show_spaces(name)} {percent(p)}" for name, p in likeliest) for likeliest in shown]

    def about(self, cell: Cell) -> str:
        """The lines of a cell's tooltip."""
        i = self.most_uncertain(cell)
        _, received, p = self.measured[i]
        several = f" ({cell.last - cell.first} tokens make this character)" if cell.last - cell.first > 1 else ""
        lines = [
            f"{self.named(cell, i)}   token {i + 1}{several}",
            f"entropy {self.entropy_of(i)}   attention received {num(received)}   probability {percent(p)}",
        ]
        if cell.word >= 0:
            stop = self.words.stop[cell.word]
            flags = [name for name, on in (("stop word", stop), ("HIT", cell.hit), (UNJUDGED, cell.unjudged)) if on]
            lines.append("   ".join([f"word “{self.words.text[cell.word]}”", *self.reckoned[cell.word], *flags]))
        elif self.scale.kind != "score" and np.isfinite(self.values[i]):
            lines.append(f"{self.scale.name} {num(self.values[i])}")
        if cell.unit >= 0:
            lines.append(str(self.units[cell.unit]))
        other = self.alternatives[i]
        return "\n".join([*lines, f"likeliest: {other}"] if other else lines)

    @cached_property
    def reckoned(self) -> list[list[str]]:
        """How each word got its score: a product where it is one, else each figure by itself; nothing unmeasured."""
        w, reckoned = self.words, []
        figures = (w.entropy, w.attention, w.score, self.factors, w.stop)
        for entropy, attention, score, factor, stop in zip(*(values.tolist() for values in figures), strict=True):
            measured = (("entropy", entropy), ("attention", attention), ("score", score))
            shown = [f"{name} {value:.4g}" for name, value in measured if isfinite(value)]
            if len(shown) == len(measured) and isfinite(factor):
                *product, total = shown
                if stop and score == 0:
                    product.append("stop word 0")
                elif abs(factor - 1) > SAME:
                    product.append(f"sentence {factor:.4g}")
                shown = [f"{' × '.join(product)} = {total}"]
            reckoned.append(shown)
        return reckoned

    @cached_property
    def factors(self) -> np.ndarray:
        """(w,) float64: by what entropy × attention of each word was multiplied to give its score; NaN: not so made.

        The words of a sentence share a factor: 1 in the paper (Eq. 5), in the released code their number over the sum
        of their attention (reference-behaviour §2.5).
        """
        w, out = self.words, np.full(len(self.words), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = w.score.astype(np.float64) / (w.entropy.astype(np.float64) * w.attention)  # (w,)
        for number in np.unique(w.sentence):
            inside = w.sentence == number  # (w,)
            known = ratio[inside & np.isfinite(ratio) & (w.score > 0)]
            if known.size and np.ptp(known) > SAME * known[0]:
                return np.full(len(w), np.nan)
            out[inside] = known[0] if known.size else 1.0
        return out

    def figures(self, limit: int) -> tuple[list[str], list[list[str]]]:
        """At most ``limit`` tokens as a table, for reading without a mouse: names of its columns, rows."""
        words, scored = self.words, self.scale.kind == "score" and len(self.words) > 0
        measure = "word’s score" if scored else self.scale.name
        names = ["no.", "token", "entropy", "attention received", "probability", measure, "flags", "likeliest tokens"]
        rows = []
        for cell in self.cells[:limit]:
            i, word = cell.first, cell.word
            flags = [("◆ hit", cell.hit), ("stop word", word >= 0 and words.stop[word]), (UNJUDGED, cell.unjudged)]
            _, received, p = self.measured[i]
            reckoned = self.reckoned[word] if scored and word >= 0 else []
            score = (words.score[word] if word >= 0 else np.nan) if scored else self.values[i]
            shown = reckoned[0] if len(reckoned) == 1 and "=" in reckoned[0] else num(score)
            flagged = ", ".join(name for name, on in flags if on)
            measured = [self.entropy_of(i), num(received), percent(p), shown]
            rows.append([str(i + 1), self.named(cell, i), *measured, flagged, self.alternatives[i]])
        return names, rows


def show_spaces(text: str) -> str:
    """A token among figures: its white space as signs, right-to-left text isolated from what stands around it."""
    shown = text.replace("\n", "↵").replace("\t", "⇥") or "∅"
    return f"\u2068{shown}\u2069" if _RIGHT_TO_LEFT.search(shown) else shown


# -- room for tokens --------------------------------------------------------------------------------------------------


def window_ranges(look: Look, room: int, start: int, stop: int) -> list[tuple[int, int, int]]:
    """Ranges of characters, each with how many of its tokens are left out (0: drawn one by one).

    At most ``room`` tokens are drawn, around what fired.
    """
    n, offsets = len(look.continuation), look.continuation.offsets
    if n <= room:
        return [(start, stop, 0)]
    above = next((unit.first for unit in look.units if unit.above), None)
    focus = above if above is not None else look.fired
    focus = next((c.first for c in look.cells if c.hit), 0) if focus is None else focus
    first = max(0, min(focus - room // 2, n - room)) if focus >= room else 0
    left = int(offsets[first, 0]) if first else 0
    right = int(offsets[first + room, 0]) if first + room < n else len(look.continuation.text)
    cuts = [(start, min(left, stop)), (max(left, start), min(right, stop)), (max(right, start), stop)]
    return [
        (a, b, 0 if one_by_one else int(((offsets[:, 0] >= a) & (offsets[:, 0] < b)).sum()))
        for (a, b), one_by_one in zip(cuts, (False, True, False), strict=True)
        if a < b
    ]


def share_out(continuations: Sequence[Draft], tokens: int) -> dict[int, int]:
    """How many tokens of each continuation may be drawn so that all together draw at most ``tokens``.

    Short ones are drawn whole; what they leave is shared evenly among the longer ones.
    """
    room: dict[int, int] = {}
    left, waiting = tokens, sorted(continuations, key=len)
    for i, c in enumerate(waiting):
        room[id(c)] = min(len(c), left // (len(waiting) - i))
        left -= room[id(c)]
    return room
