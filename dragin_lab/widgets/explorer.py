"""``explore``: an episode token by token; all its data is sent once, so nothing waits for Python."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab.checks import position, shown
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.text import write_compared
from dragin_lab.trace.kept import kept_of, written
from dragin_lab.trace.trace import Draft, Prompt, Step, Trace
from dragin_lab.trace.words import character_words
from dragin_lab.views import sections
from dragin_lab.views.canvas import Canvas
from dragin_lab.views.frame import View, make_message, open_trace, render_head
from dragin_lab.views.heatmaps import axes_of, heatmap
from dragin_lab.views.html import count, printable
from dragin_lab.views.rendering import render_macro
from dragin_lab.views.tokens import UNJUDGED, Cell, Look, show_spaces
from dragin_lab.widgets.base import Card, load_script, load_style

TOKENS = 5000  # of a trace, in all; the rest is left out, and the widget says so
ATTENDED = 8  # words that a token attends to most
SHARE = 0.002  # attention below this is not listed


class Explore(Card):
    """The widget; ``data`` is everything it shows, ``trace`` where it comes from (None for an unreadable file)."""

    _esm = load_script("explorer")
    _css = load_style()

    def __init__(
        self, trace: Trace | str | Path, *, step: int | None = None, text: str = "", token: int | None = None
    ) -> None:
        try:
            self.trace: Trace | None = open_trace(trace)
            self._static = partial(heatmap, self.trace)
            data = explorer_data(self.trace)
            data["at"] = check_place(data["texts"], step, text, token)
        except TraceFileError as error:
            self.trace, data = None, {"error": str(error)}
            self._static = partial(make_message, f"explore {trace}", str(error))
        super().__init__(data=data)

    def static(self) -> View:
        return self._static()


def check_place(texts: list[dict[str, Any]], step: int | None, text: str, token: int | None) -> dict[str, Any]:
    """Where to begin, by step, text and token, each counted from 1; empty for the first hit."""
    if not isinstance(text, str):
        raise SettingError(f"text={shown(text)} is {type(text).__name__}; give 'draft' or 'continuation'")
    if step is None and (text or token is not None):
        raise SettingError("text and token are those of a step; give step=1 or another one as well")
    if step is None:
        return {}
    there = {(own["step"], own["name"]): own["tokens"] for own in texts}
    number = position("step", step, max((key[0] for key in there), default=0), "the trace") + 1
    place = next((key for key in there if key[0] == number and text in ("", key[1])), None)
    if place is None:
        known = ", ".join(f"{name} of step {number}" for number, name in there) or "none yet"
        raise SettingError(f"step={step}{f', text={text!r}' if text else ''} does not exist; the texts are: {known}")
    at = {"step": place[0], "text": place[1]}
    whose = f"the {place[1]} of step {number}"
    return at if token is None else at | {"token": position("token", token, there[place], whose) + 1}


def explorer_data(trace: Trace, *, most: int = TOKENS) -> dict[str, Any]:
    """What ``explore`` shows of a trace, as plain data: its texts in order, each with its tokens.

    Numbers are rounded to four digits; None where a figure was not measured. At most ``most`` tokens are sent.
    """
    canvas = Canvas.of(trace, "explore")
    shown = [(step, name, canvas.look(continuation, step)) for step, name, continuation in written(trace.steps)]
    axes = axes_of([look for _, _, look in shown])
    texts, room = [], most
    for step, name, look in shown:
        texts.append(_text_data(canvas, step, name, look, max(room, 0)))
        room -= len(look.continuation)
    left = max(-room, 0)
    rest = f"{count(left, 'token')} of {most + left:,} left out; trace.tokens has all." if left else ""
    hint = "Select a token for its figures; violet: what it attends to."
    return {
        "error": "",
        "head": render_head(trace),
        "legend": render_macro("parts.html", "legend", canvas.scale, rest, hint=hint),
        "score": canvas.scale.name,
        "theta": _round_figure(canvas.scale.word_threshold),
        "next": "next hit ◆" if canvas.scale.unit == "word" else f"next {canvas.scale.unit} above θ",
        "base": _round_figure(axes.base),
        "tops": {"e": _round_figure(axes.entropy), "a": _round_figure(axes.received), "s": _round_figure(axes.score)},
        "texts": texts,
        "start": next((i for i, t in enumerate(texts) if any(c["f"] or c["j"] for c in t["cells"])), 0),
    }


def _text_data(canvas: Canvas, step: Step, name: str, look: Look, room: int) -> dict[str, Any]:
    continuation, draft = look.continuation, name == "draft"
    end = kept_of(step).of(name)
    end = len(continuation.text) if end is None else end
    shown = [cell for cell in look.cells[:room] if cell.text]
    at = {token: place for place, cell in enumerate(shown) for token in range(cell.first, cell.last)}
    attended = _attended_words(continuation, step.prompt if draft else step.passages_prompt, at)
    place, cells = 0, []
    for cell in shown:
        gone = end <= cell.start and end < len(continuation.text)
        own = _cell_data(look, cell, continuation.text[place : cell.start], gone)
        cells.append(own | {"k": attended[cell.last - 1] if attended else []})
        place = max(place, cell.stop)
    return {
        "title": f"Step {step.index + 1} · {name}",
        "step": step.index + 1,
        "name": name,
        "about": sections.describe_text(canvas.trace, step, name),
        "tokens": len(continuation),
        "cells": cells,
        "start": next((i for i, c in enumerate(cells) if c["f"] or (look.units and c["j"])), 0),
        "rows": continuation.rows is not None,
        "second": look.second_reading,
        "unjudged": "This token belongs to no judged word." if draft else "No trigger judged this text.",
        "html": render_macro("parts.html", "around", canvas, step, draft or step.draft is None),
    }


def _cell_data(look: Look, cell: Cell, before: str, gone: bool) -> dict[str, Any]:
    """One cell: text, level of colour, figures, its word, the alternatives. Short names, as there are many."""
    continuation, words, i = look.continuation, look.words, look.most_uncertain(cell)
    about, written_id = None, int(continuation.ids[i])
    if cell.word >= 0:
        about = {
            "t": printable(words.text[cell.word]),
            "a": _round_figure(words.attention[cell.word]),
            "s": _round_figure(words.score[cell.word]),
            "stop": bool(words.stop[cell.word]),
            "over": bool(look.above[cell.word]),
            "v": _describe_word(look, cell),
            "m": printable("; ".join(look.reckoned[cell.word])),
        }
    likeliest = zip(continuation.alternative_ids[i : i + 1].ravel().tolist(), look.likeliest(i), strict=False)
    unit = look.units[cell.unit] if cell.unit >= 0 else None
    css = {"hit": cell.hit, "fired": cell.fired, "gone": gone, "sp": cell.special, "unjudged": cell.unjudged}
    return {
        "b": printable(before),
        "t": printable(cell.text).replace("\n", "↵\n"),
        "v": _name_token(printable(cell.text.strip() or continuation.pieces[i])),
        "n": i + 1,
        "l": cell.level,
        "x": " ".join(name for name, on in css.items() if on),
        "e": _round_figure(continuation.entropy[i]),
        "d": _round_figure(look.bounds[i]),
        "a": _round_figure(continuation.received[i]),
        "p": _round_figure(math.exp(float(continuation.logprob[i]))),
        "w": about,
        "h": cell.hit,
        "j": cell.hit or (unit is not None and unit.above and cell.begins),
        "u": None if unit is None else [str(unit), unit.above, cell.begins, cell.ends],
        "f": cell.fired,
        "g": gone,
        "o": [
            [_name_token(printable(name)), _round_figure(p), number == written_id] for number, (name, p) in likeliest
        ],
    }


def _describe_word(look: Look, cell: Cell) -> str:
    """How the score of a cell's word stands to θ; "" where none is compared with it."""
    score, theta = float(look.words.score[cell.word]), look.scale.word_threshold
    if cell.unjudged:
        return f"{UNJUDGED}: it may not fire here"
    if not (math.isfinite(score) and math.isfinite(theta)):
        return ""
    shown, limit = write_compared(score, theta)
    return f"{shown} is {'above' if look.above[cell.word] else 'at most'} θ {limit}"


def _name_token(token: str) -> str:
    """A token among figures; one that is nothing but a space has a sign."""
    return show_spaces(token) if token.strip(" ▁Ġ") else "␣"


def _attended_words(continuation: Draft, prompt: Prompt | None, at: dict[int, int]) -> list[list[list[Any]]]:
    """For each token the words it looks at most: [text, part of the prompt, weight, cells]; empty without attention.

    A word's weight is the largest of its tokens, mean over heads, as in QFS. Special tokens have no text to name.
    """
    if continuation.rows is None:
        return []
    p = len(continuation.prompt_ids)
    rows = continuation.rows[:, 1:, :].astype(np.float32).mean(axis=0)  # (n, p + n)
    words: list[tuple[str, str, list[int], int]] = []  # text, part, cells, first token
    if prompt is None:
        words.append(("", "", [], 0))
    else:
        spans = sorted((a, b, name) for name, (a, b) in prompt.spans.items())
        for word in character_words(prompt.text, continuation.prompt_offsets):
            place = int(continuation.prompt_offsets[word.stop - 1, 1]) - 1
            words.append((word.text, next((name for a, b, name in spans if a <= place < b), ""), [], word.start))
    for word in character_words(continuation.text, continuation.offsets):
        cells = sorted({at[i] for i in range(word.start, word.stop) if i in at})
        words.append((word.text, "draft", cells, p + word.start))
    weights = np.maximum.reduceat(rows, np.array([start for *_, start in words], int), axis=1)  # (n, words)
    weights[:, [not text for text, *_ in words]] = 0.0
    best = np.argsort(-weights, axis=1, kind="stable")[:, :ATTENDED]
    names = [(show_spaces(printable(text)), part, cells) for text, part, cells, _ in words]
    return [
        [[*names[k][:2], _round_figure(row[k]), names[k][2]] for k in order if row[k] >= SHARE]
        for row, order in zip(weights, best, strict=True)
    ]


def _round_figure(value: Any) -> float | None:
    """A number that JSON knows, to four digits."""
    number = float(value)
    return float(f"{number:.4g}") if math.isfinite(number) else None
