"""A trace as plain text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wcwidth import wrap

from dragin_lab.checks import count as as_count
from dragin_lab.checks import flag, instance
from dragin_lab.text import printable
from dragin_lab.trace.kept import arrivals, kept_of
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import facts
from dragin_lab.views.cells import Texts
from dragin_lab.views.html import clip, count, num

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
    text, end = getattr(step, part).text, kept_of(step).of(part)
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
