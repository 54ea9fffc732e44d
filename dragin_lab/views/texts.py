"""A text in cells, each with its colour and where hits begin and end; and a trace in them, as text for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from wcwidth import wrap

from dragin_lab.checks import count as as_count
from dragin_lab.checks import flag, instance
from dragin_lab.text import printable
from dragin_lab.trace.kept import arrivals, written
from dragin_lab.trace.trace import Draft, Step, Trace
from dragin_lab.views import facts
from dragin_lab.views.html import clip, count, num
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
    number = rows["sentence"].tolist() if unit in ("sentence", "step") else [0] * len(rows)
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
            name = f"{unit} {number[cell.row] + 1}" if unit in ("sentence", "step") else unit
            verdict = f"{name}: {compare(compared[cell.row], texts.theta)}" if last_one else ""
            yield replace(cell, fires=cell.fires, opens=False, closes=False, unit=place, verdict=verdict)
        else:
            yield replace(cell, closes=closes, fires=cell.fires and not whole, opens=cell.opens and not whole)


LABEL = 14  # columns of the label at the left
PASSAGE_CHARS, TEXT_CHARS, TEXT_STEPS = 300, 4000, 60
#: ANSI codes of the levels of colour.
_HEAT = ("", *(f"48;5;{code};38;5;16" for code in (230, 229, 223, 222, 221, 215, 214, 208, 202)))
_BOLD, _DIM = "1", "2"

Run = tuple[str, str]  # text and its ANSI style, "" for none


def trace_text(trace: Trace, *, width: int = 88, color: bool = False) -> str:
    """A trace as text: question, answer and costs, then each step in the order of the page.

    Hits stand in ⟦ ⟧, thrown-away text in ~[ ]~, both also without ``color`` (ANSI).
    """
    instance("trace", trace, Trace, "give a Trace; Trace.load reads one")
    return write_trace(Texts(trace), max(as_count("width", width), 40), flag("color", color))


def write_trace(texts: Texts, width: int = 88, color: bool = False) -> str:
    """``trace_text`` of texts that are read already."""
    paper, trace = _Paper(width, color), texts.trace
    paper.put("Question", (trace.question.text, _BOLD))
    gold = f"; gold: {' or '.join(trace.question.golds)}" if trace.question.golds else ""
    verdict = facts.judge_answer(trace)[1]
    paper.put("Answer", (trace.answer or facts.no_answer(trace), _BOLD), (f"   ({verdict}{gold})", ""))
    paper.put("Answer text", *_answer_runs(trace))
    *lines, (_, ended) = facts.header_facts(trace)
    for name, fact in lines:
        paper.put(name.capitalize(), (fact, ""))
    paper.put("Marks", ("⟦hit⟧   ~[thrown away]~   ◆n passages of step n came in", _DIM))
    paper.put("Ended", (ended, ""))
    if trace.ended == "error":
        paper.put("Error", (trace.error or facts.NO_MESSAGE, _BOLD))
    for step in trace.steps[:TEXT_STEPS]:
        paper.line(" · ".join(filter(None, [f"Step {step.index + 1}", facts.step_outcome(trace, step)[1]])))
        for part in facts.step_parts(step):
            for place, line in enumerate(_part_lines(texts, step, part)):
                paper.put("" if place else facts.PARTS[part], *line)
    if len(trace.steps) > TEXT_STEPS:
        paper.line(f"… {count(len(trace.steps) - TEXT_STEPS, 'more step')}")
    if not trace.steps:
        paper.line("No steps yet")
    if trace.extraction is not None:
        paper.line("")
        paper.put("Extraction", (trace.extraction.text.strip(), ""))
    for note in trace.notes:
        paper.put("Notes", (f"! {note}", ""))
    return "\n".join(paper.lines) + "\n"


def _answer_runs(trace: Trace) -> Iterator[Run]:
    place = 0
    for at, step in sorted(arrivals(trace), key=lambda pair: pair[0]):
        yield trace.text[place:at], ""
        before, after = trace.text[:at][-1:].strip(), trace.text[at : at + 1].strip()
        inside = bool(before and after and before not in ".!?")
        yield f"[◆{step.index + 1}]" if inside else f"{' ' * bool(before)}◆{step.index + 1}{' ' * bool(after)}", _BOLD
        place = at
    yield trace.text[place:] or ("" if place else "nothing written yet"), "" if trace.text else _DIM


def _part_lines(texts: Texts, step: Step, part: str) -> Iterator[list[Run]]:
    """One part of a step, line by line."""
    query, decision, golds = step.query, step.decision, texts.trace.question.golds
    if part == "thoughts":
        yield from ([(thought, _DIM)] for thought in facts.thoughts_of(step))
    elif part in ("draft", "continuation"):
        yield list(_written_runs(texts, step, part))
        if bounds := facts.describe_bounds(getattr(step, part)):
            yield [(bounds, _DIM)]
    elif part == "decision" and decision is not None:
        certain = "" if decision.certain else " (not certain: a longer draft could have decided otherwise)"
        yield [("retrieve: " if decision.retrieve else "go on: ", _BOLD), (decision.reason + certain, "")]
    elif part == "query" and query is not None:
        yield [(query.text or "(empty query)", _BOLD)]
        yield from [[(f"sent: {query.sent}", "")]] if query.sent != query.text else []
        yield from [[(query.note, "")]] if query.note else []
    elif part == "passages":
        yield from [] if step.passages else [[("no passage was found", _DIM)]]
        for rank, p in enumerate(step.passages, 1):
            gold = " ★ holds a gold answer" if facts.holds_gold(p, golds) else ""
            yield [(f"{rank}. {p.title or '(no title)'}", _BOLD), (f"  score {num(p.score, 2)}{gold}", "")]
            yield [(f"   {''.join(clip(p.text, PASSAGE_CHARS))}", "")]
    elif part == "notes":
        yield from ([(f"! {note}", "")] for note in facts.step_notes(step))
    elif part == "prompts":
        prompts = [p for p in (step.prompt, step.passages_prompt) if p is not None]
        sizes = [f"{count(len(p.text), 'character')} ({', '.join(p.spans) or 'no spans'})" for p in prompts]
        yield [("; ".join(sizes), _DIM)]


def _written_runs(texts: Texts, step: Step, part: str) -> Iterator[Run]:
    """A text with its hits in ⟦ ⟧, and what was thrown away of it in ~[ ]~."""
    text, end = getattr(step, part).text, step.kept_end(part)
    cells, cut = texts.cells(step, part), len(text) if end is None else end
    place, gone = 0, bool(text[cut:].strip())
    for cell in [] if cells is None else [one for one in cells if not one.special]:
        if gone and place <= cut <= cell.start:
            yield from ((text[place:cut], ""), (" ✂ ~[", _BOLD))
            place, gone = max(cut, place), False
        yield text[place : cell.start], ""
        if cell.opens or cell.unit in ("opens", "both"):
            yield "⟦", _BOLD
        yield cell.text, ";".join(s for s in (_BOLD if cell.fires else "", _HEAT[cell.level]) if s)
        if cell.closes or cell.verdict:
            yield f"⟧ {cell.verdict.partition(': ')[2]} " if cell.verdict else "⟧", _BOLD
        place = cell.stop
    yield text[place:], ""
    if text[cut:].strip():
        yield "]~ thrown away" if cells is not None else f" (thrown away from character {cut:,} on)", _BOLD
    if end is None:
        yield "  (not decided yet)", _DIM
    if not text:
        yield "nothing was written", _DIM


class _Paper:
    """Lines of labelled, wrapped, optionally coloured text."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self.color, self.lines = width, color, list[str]()

    def line(self, text: str) -> None:
        """A heading, with an empty line before it."""
        self.lines += ["", self._paint(printable(text), _BOLD)] if text else [""]

    def put(self, label: str, *runs: Run) -> None:
        """A label and its text, wrapped; long texts are cut visibly."""
        left, painted = TEXT_CHARS, ""
        for text, style in runs:
            text = text if painted or not label else text.lstrip()
            painted += self._paint(printable(text[: max(left, 0)]), style)
            left -= len(text)
        if left < 0:
            painted += self._paint(f"… {count(-left, 'more character')}", _DIM)
        width = self.width - LABEL
        rows = [row for line in painted.split("\n") for row in wrap(line, width, break_on_hyphens=False)]
        for number, row in enumerate(rows or [""]):
            head = self._paint(label, _BOLD) + " " * (LABEL - len(label)) if number == 0 else " " * LABEL
            self.lines.append(re.sub(r"\s+((?:\x1b\[[0-9;]*m)*)$", r"\1", head + row))

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color and style and text.strip() else text
