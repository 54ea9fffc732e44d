"""``explore``: an episode piece by piece, all its data sent once, so that nothing waits for Python."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab.core.trace import Continuation, Prompt, Step, Trace
from dragin_lab.core.words import character_words
from dragin_lab.errors import TraceFileError
from dragin_lab.views import sections
from dragin_lab.views.frame import View, head, message, opened, prefix
from dragin_lab.views.heat import scale_of
from dragin_lab.views.heatmaps import heatmap
from dragin_lab.views.html import attempt, clipped, count, printable, row, tag
from dragin_lab.views.pieces import Cell, Look, visible
from dragin_lab.views.step import Canvas, ask_box, notes_list, passages_list
from dragin_lab.views.strip import axes_of, second_reading
from dragin_lab.views.trace import legend
from dragin_lab.widgets.base import Card, script, style

PIECES = 5000  # of a trace, in all; those behind are left out, and the widget says so
ATTENDED = 8  # words that a piece attends to most
SHARE = 0.002  # attention below this is not listed


class Explore(Card):
    """The widget; ``data`` is everything it shows, ``trace`` where it comes from (None for an unreadable file)."""

    _esm = script("explorer")
    _css = style()

    def __init__(self, trace: Trace | str | Path) -> None:
        try:
            self.trace: Trace | None = opened(trace)
            self._static = partial(heatmap, self.trace)
            data = explored(self.trace)
        except TraceFileError as error:
            self.trace, data = None, {"error": str(error)}
            self._static = partial(message, f"explore {trace}", str(error))
        super().__init__(data=data)

    def static(self) -> View:
        return self._static()


def explored(trace: Trace, *, most: int = PIECES) -> dict[str, Any]:
    """What ``explore`` shows of a trace, as plain data: its texts in order, each with its pieces.

    Numbers are rounded to four digits; None where a figure was not measured. At most ``most`` pieces are sent.
    """
    scale = scale_of(trace)
    canvas = Canvas(trace, scale, prefix(trace, "explore"), {}, rows=0, twice=False)
    written = [
        (step, kind, made)
        for step in trace.steps
        for kind, made in (("draft", step.draft), ("continuation", step.continuation))
        if made is not None
    ]
    looks = [canvas.look(made, step) for step, _, made in written]
    axes = axes_of(looks)
    texts, room = [], most
    for (step, kind, made), look in zip(written, looks, strict=True):
        texts.append(_text(canvas, step, kind, made, look, max(room, 0)))
        room -= len(made)
    left = max(-room, 0)
    rest = f"{count(left, 'piece')} of {most + left:,} left out; trace.tokens has all." if left else ""
    firing = next((i for i, t in enumerate(texts) if t["cells"] and any(c["f"] for c in t["cells"])), 0)
    return {
        "error": "",
        "head": head(trace),
        "legend": legend(scale, rest, "Select a piece for its figures; violet: what it attends to."),
        "score": scale.name,
        "theta": _figure(scale.threshold),
        "tops": {"e": _figure(axes.entropy), "a": _figure(axes.received), "s": _figure(axes.score)},
        "texts": texts,
        "start": firing,
    }


def _text(canvas: Canvas, step: Step, kind: str, made: Continuation, look: Look, room: int) -> dict[str, Any]:
    kept = sections.kept_of(step)
    span = kept.draft if kind == "draft" else kept.continuation
    end = len(made.text) if span is None else span[1]
    cells = look.cells[:room]
    shown = [cell for cell in cells if look.text(cell)]
    at = {piece: place for place, cell in enumerate(shown) for piece in range(cell.first, cell.last)}
    prompt = step.prompt if kind == "draft" else step.passages_prompt
    attended = _attended(made, prompt, at)
    place, drawn = 0, []
    for cell in shown:
        drawn.append(_cell(look, cell, made.text[place : cell.start], cell.start >= end and end < len(made.text)))
        drawn[-1]["k"] = attended[cell.last - 1] if attended else []
        place = max(place, cell.stop)
    fired = next((i for i, c in enumerate(drawn) if c["f"]), 0)
    _, about = sections.outcome(canvas.trace, step)
    return {
        "title": f"Step {step.index + 1} · {kind}",
        "about": about if kind == "draft" else "with passages in view" if step.passages else "written on",
        "pieces": len(made),
        "cells": drawn,
        "start": fired,
        "rows": made.attention is not None,
        "second": second_reading(look),
        "unjudged": "No trigger judged this text."
        if kind == "continuation"
        else "This piece belongs to no judged word.",
        "html": _about_step(canvas, step, kind),
    }


def _cell(look: Look, cell: Cell, before: str, gone: bool) -> dict[str, Any]:
    """One cell: text, level of colour, figures, its word, the alternatives. Short names, as there are many."""
    made, words = look.made, look.words
    i = max(range(cell.first, cell.last), key=lambda k: made.entropy[k])
    word = int(look.owner[i])
    hit, fired = look.hit(i), look.fired is not None and cell.first <= look.fired < cell.last
    css = [name for name, on in (("hit", hit), ("fired", fired), ("gone", gone), ("sp", cell.stop == cell.start)) if on]
    text = printable(look.text(cell))
    about = None
    if word >= 0:
        about = {
            "t": printable(words.text[word]),
            "a": _figure(words.attention[word]),
            "s": _figure(words.score[word]),
            "stop": bool(words.stop[word]),
        }
    return {
        "b": printable(before),
        "t": text.replace("\n", "↵\n"),
        "v": _named(text.strip() or printable(made.pieces[i])),
        "n": i + 1,
        "l": int(look.levels[cell.first : cell.last].max()),
        "x": " ".join(css),
        "e": _figure(made.entropy[i]),
        "a": _figure(made.received[i]),
        "p": _figure(math.exp(float(made.logprob[i]))),
        "w": about,
        "h": hit,
        "f": fired,
        "g": gone,
        "o": _alternatives(made, i),
    }


def _alternatives(made: Continuation, piece: int) -> list[list[Any]]:
    if piece >= len(made.alternative_ids):
        return []
    ids = made.alternative_ids[piece].tolist()
    named = made.alternative_pieces
    names = named[piece] if piece < len(named) else [f"id {i}" for i in ids]
    probs, taken = made.alternative_probs[piece].tolist(), int(made.ids[piece])
    return [[_named(printable(name)), _figure(p), i == taken] for i, name, p in zip(ids, names, probs, strict=False)]


def _named(piece: str) -> str:
    """A piece among figures; one that is nothing but a space has a sign."""
    return visible(piece) if piece.strip(" ▁Ġ") else "␣"


def _attended(made: Continuation, prompt: Prompt | None, at: dict[int, int]) -> list[list[list[Any]]]:
    """For each piece the words it looks at most: [text, part of the prompt, weight, cells]; empty without attention.

    A word's weight is the largest of its pieces, mean over heads, as in QFS. Special pieces have no text to name.
    """
    if made.attention is None:
        return []
    n, p = len(made), len(made.prompt_ids)
    rows = made.attention[:, 1:, :].astype(np.float32).mean(axis=0)  # (n, p + n)
    labels: list[tuple[str, str, list[int]]] = []
    starts: list[int] = []
    if prompt is not None:
        spans = sorted((a, b, name) for name, (a, b) in prompt.spans.items())
        for word in character_words(prompt.text, made.prompt_offsets):
            place = int(made.prompt_offsets[word.stop - 1, 1]) - 1
            labels.append((word.text, next((name for a, b, name in spans if a <= place < b), ""), []))
            starts.append(word.start)
    else:
        labels, starts = [("", "", [])], [0]
    for word in character_words(made.text, made.offsets):
        cells = sorted({at[i] for i in range(word.start, word.stop) if i in at})
        labels.append((word.text, "draft", cells))
        starts.append(p + word.start)
    weights = np.maximum.reduceat(rows, starts, axis=1) if starts else np.zeros((n, 0))  # (n, words)
    weights[:, [not text for text, _, _ in labels]] = 0.0
    found = []
    for row_ in weights:
        best = np.argsort(-row_, kind="stable")[:ATTENDED]
        best = best[row_[best] >= SHARE]
        found.append([[visible(printable(labels[k][0])), labels[k][1], _figure(row_[k]), labels[k][2]] for k in best])
    return found


def _about_step(canvas: Canvas, step: Step, kind: str) -> str:
    """Decision, query, passages and notes of a step, drawn as its view draws them."""
    out = []
    decision = step.decision
    if decision is not None and (kind == "draft" or step.draft is None):
        sign = tag("◆ retrieve" if decision.retrieve else "✓ go on", "ok")
        out.append(row("decision", "Decision", "", f"{sign}<bdi>{clipped(decision.reason, 400)}</bdi>"))
    query = step.query
    if query is not None:
        out.append(row("query", "Query", "", attempt("The query", lambda: ask_box(query), str)))
        out.append(row("passages", "Passages", "", attempt("The passages", lambda: passages_list(canvas, step), str)))
    notes = sections.step_notes(step)
    if notes:
        out.append(row("notes", "Notes", "", notes_list(notes)))
    return "".join(out)


def _figure(value: Any) -> float | None:
    """A number that JSON knows, to four digits."""
    number = float(value)
    return float(f"{number:.4g}") if math.isfinite(number) else None
