"""What a trace's model wrote, in pieces with their colour and marks; and a trace in them, as
text for a terminal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from wcwidth import wrap

from dragin_lab.checks import count as as_count
from dragin_lab.checks import flag
from dragin_lab.text import printable
from dragin_lab.trace.kept import arrivals, written
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import facts
from dragin_lab.views.facts import clip, count, num
from dragin_lab.views.rows import (
    check_trace,
    compare,
    measure_of,
    threshold_of,
    token_rows,
    unit_of,
)

LEVELS, BELOW = 9, 5  # levels of colour, and how many of them lie at or below θ
_MARKER_ONLY = re.compile("^[▁Ġ\\s]*$")


class Texts:
    """The rows of everything that a trace's model wrote, with one scale of colour, whose levels
    end at ``bounds``.
    """

    most = 2000  # tokens that are coloured one by one

    def __init__(self, trace: Trace) -> None:
        self.trace, self.rows, self.left_out = trace, dict[tuple[int, str], Any](), 0
        room = self.most
        for step, name, text in written(trace.steps):
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
        self.measure = (
            measure_of(trace)
            if scored
            else "entropy × attention received, as no trigger scored these"
        )
        self.theta = threshold_of(trace) if scored else math.nan
        self.bounds = find_bounds(values[np.isfinite(values)], self.theta)
        for rows in self.rows.values():
            rows["level"] = np.where(
                rows["spared"], 0, find_levels(rows["value"].to_numpy(float), self.bounds)
            )


def find_bounds(values: np.ndarray, theta: float) -> np.ndarray:
    """Where the levels end, from the least value or 0: five below θ and four above, so that
    colour jumps at θ.
    """
    base, top = min(0.0, values.min(), 0.0 if math.isnan(theta) else theta), values.max()
    if not theta > base:
        return np.linspace(base, max(top, base + 1e-6), LEVELS + 1)
    below, above = np.linspace(base, theta, BELOW + 1), np.linspace(theta, top, LEVELS - BELOW + 1)
    return np.append(below, above[1:]) if top > theta else below


def find_levels(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The level, 0 to 9, of each value; 0 for the least, and for what was not measured."""
    return np.searchsorted(bounds[:-1], np.nan_to_num(values, nan=bounds[0]), side="left")


def find_cells(rows: Any) -> list[dict[str, Any]]:
    """The rows of what shows as one: several tokens where each is a part of a character, none
    for an empty one.
    """
    cells: list[dict[str, Any]] = []
    for row in rows.reset_index().to_dict("records"):
        if cells and row["start"] < min(row["stop"], cells[-1]["stop"]):
            last = cells.pop()
            worst = max(last, row, key=lambda one: one["entropy"])  # its figures stand for all
            most = {name: max(last[name], row[name]) for name in ("stop", "level", "mark", "fires")}
            cells.append(worst | most | {"start": last["start"], "tokens": last["tokens"] + 1})
        elif row["start"] < row["stop"] or not _MARKER_ONLY.match(row["piece"]):
            cells.append(row | {"tokens": 1})
    return cells


def read_pieces(texts: Texts, step: Step, part: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A step's text in order: its kind, its characters, and the row that it belongs to.

    Kinds are "text", "token", "[" and "]" around what fired or was judged as a whole (with its
    verdict), and "cut" before what was thrown away.
    """
    text, rows, end = (
        getattr(step, part).text,
        texts.rows.get((step.index, part)),
        step.kept_end(part),
    )
    cut, unit = len(text) if end is None else end, unit_of(texts.trace)
    gone, marked, place = bool(text[cut:].strip()), False, 0
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
            place, gone = max(cut, place), False
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
                "" if unit == "word" else f"{name}: {compare(cell['compared'], texts.theta)}",
                cell,
            )
        place = max(place, cell["stop"])


# -- text for a terminal ---------------------------------------------------------------------------

LABEL = 14  # columns of the label at the left
PASSAGE_CHARS, TEXT_CHARS, TEXT_STEPS = 300, 4000, 60
#: ANSI codes of the levels of colour.
_HEAT = ("", *(f"48;5;{code};38;5;16" for code in (230, 229, 223, 222, 221, 215, 214, 208, 202)))
_BOLD, _DIM = "1", "2"

Run = tuple[str, str]  # text and its ANSI style, "" for none
# a label, "" to go on with the one before, "#" for a heading; and its text
Entry = tuple[str, list[Run]]


def trace_text(trace: Trace, *, width: int = 88, color: bool = False) -> str:
    """A trace as text: question, answer and costs, then each step in the order of the page.

    Hits stand in ⟦ ⟧, thrown-away text in ~[ ]~, both also without ``color`` (ANSI).
    """
    texts = Texts(check_trace(trace))
    return write_trace(texts, max(as_count("width", width), 40), flag("color", color))


def write_trace(texts: Texts, width: int = 88, color: bool = False) -> str:
    """``trace_text`` of texts that are read already."""
    entries = [*_head_entries(texts.trace), *_step_entries(texts)]
    return "\n".join(line for entry in entries for line in _lay_out(*entry, width, color)) + "\n"


def _head_entries(trace: Trace) -> Iterator[Entry]:
    gold = f"; gold: {' or '.join(trace.question.golds)}" if trace.question.golds else ""
    verdict = f"   ({facts.judge_answer(trace)[1]}{gold})"
    yield "Question", [(trace.question.text, _BOLD)]
    yield "Answer", [(trace.answer or facts.no_answer(trace), _BOLD), (verdict, "")]
    yield "Answer text", list(_answer_runs(trace))
    *lines, ended = facts.header_facts(trace)
    marks = ("marks", "⟦hit⟧   ~[thrown away]~   ◆n passages of step n came in")
    for name, fact in (*lines, marks, ended):
        yield name.capitalize(), [(fact, _DIM if name == "marks" else "")]
    if trace.ended == "error":
        yield "Error", [(trace.error or facts.NO_MESSAGE, _BOLD)]


def _step_entries(texts: Texts) -> Iterator[Entry]:
    trace = texts.trace
    for step in trace.steps[:TEXT_STEPS]:
        yield "#", [(f"Step {step.index + 1} · {facts.step_outcome(trace, step)[1]}", _BOLD)]
        for part in facts.step_parts(step):
            for place, line in enumerate(_part_lines(texts, step, part)):
                yield "" if place else facts.PARTS[part], line
    more = len(trace.steps) - TEXT_STEPS
    if more > 0 or not trace.steps:
        yield "#", [(f"… {count(more, 'more step')}" if trace.steps else "No steps yet", _BOLD)]
    if trace.extraction is not None:
        yield "#", []
        yield "Extraction", [(trace.extraction.text.strip(), "")]
    yield from (("Notes", [(f"! {note}", "")]) for note in trace.notes)


def _answer_runs(trace: Trace) -> Iterator[Run]:
    place = 0
    for at, step in sorted(arrivals(trace), key=lambda pair: pair[0]):
        yield trace.text[place:at], ""
        before, after = trace.text[:at][-1:].strip(), trace.text[at : at + 1].strip()
        inside = bool(before and after and before not in ".!?")
        yield (
            f"[◆{step.index + 1}]"
            if inside
            else f"{' ' * bool(before)}◆{step.index + 1}{' ' * bool(after)}",
            _BOLD,
        )
        place = at
    yield trace.text[place:] or ("" if place else "nothing written yet"), "" if trace.text else _DIM


def _part_lines(texts: Texts, step: Step, part: str) -> Iterator[list[Run]]:
    """One part of a step, line by line."""
    query, decision, golds = step.query, step.decision, texts.trace.question.golds
    if part == "thoughts":
        yield from ([(thought, _DIM)] for thought in facts.thoughts_of(step))
    elif part in ("draft", "continuation"):
        yield list(_written_runs(texts, step, part))
    elif part == "decision" and decision is not None:
        certain = (
            ""
            if decision.certain
            else " (not certain: a longer draft could have decided otherwise)"
        )
        yield [
            ("retrieve: " if decision.retrieve else "go on: ", _BOLD),
            (decision.reason + certain, ""),
        ]
    elif part == "query" and query is not None:
        yield [(query.text or "(empty query)", _BOLD)]
        sent = f"sent: {query.sent}" if query.sent != query.text else ""
        yield from ([(line, "")] for line in (sent, query.note) if line)
    elif part == "passages":
        yield from [] if step.passages else [[("no passage was found", _DIM)]]
        for rank, p in enumerate(step.passages, 1):
            gold = " ★ holds a gold answer" if facts.holds_gold(p, golds) else ""
            yield [
                (f"{rank}. {p.title or '(no title)'}", _BOLD),
                (f"  score {num(p.score, 2)}{gold}", ""),
            ]
            yield [(f"   {''.join(clip(p.text, PASSAGE_CHARS))}", "")]
    elif part == "notes":
        yield from ([(f"! {note}", "")] for note in facts.step_notes(step))
    elif part == "prompts":
        prompts = [p for p in (step.prompt, step.passages_prompt) if p is not None]
        sizes = [
            f"{count(len(p.text), 'character')} ({', '.join(p.spans) or 'no spans'})"
            for p in prompts
        ]
        yield [("; ".join(sizes), _DIM)]


def _written_runs(texts: Texts, step: Step, part: str) -> Iterator[Run]:
    """A text with its hits in ⟦ ⟧, and what was thrown away of it in ~[ ]~."""
    gone = False
    for kind, text, row in read_pieces(texts, step, part):
        if kind == "text":
            yield text, ""
        elif kind == "token" and row["start"] < row["stop"]:
            yield text, ";".join(filter(None, [_BOLD if row["fires"] else "", _HEAT[row["level"]]]))
        elif kind in ("[", "]"):
            yield "⟦" if kind == "[" else f"⟧ {text.partition(': ')[2]} " if text else "⟧", _BOLD
        elif kind == "cut":
            gone = True
            yield " ✂ ~[", _BOLD
    if gone:
        yield "]~ thrown away", _BOLD
    if step.kept_end(part) is None:
        yield "  (not decided yet)", _DIM
    if not getattr(step, part).text:
        yield "nothing was written", _DIM


def _lay_out(label: str, runs: list[Run], width: int, color: bool) -> Iterator[str]:
    """A label and its text, wrapped; long texts are cut visibly. A heading has an empty line
    before it.
    """

    def paint(text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if color and style and text.strip() else text

    left, painted = TEXT_CHARS, ""
    for text, style in runs:
        text = text if painted or not label else text.lstrip()
        painted += paint(printable(text[: max(left, 0)]), style)
        left -= len(text)
    if left < 0:
        painted += paint(f"… {count(-left, 'more character')}", _DIM)
    if label == "#":
        yield from ["", painted] if painted else [""]
        return
    rows = [
        row
        for line in painted.split("\n")
        for row in wrap(line, width - LABEL, break_on_hyphens=False)
    ]
    for number, row in enumerate(rows or [""]):
        head = paint(label, _BOLD) + " " * (LABEL - len(label)) if number == 0 else " " * LABEL
        yield re.sub(r"\s+((?:\x1b\[[0-9;]*m)*)$", r"\1", head + row)
