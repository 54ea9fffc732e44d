"""A trace as HTML, readable without script, network, colour and mouse, and as plain text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from wcwidth import wrap

from dragin_lab.checks import count as as_count
from dragin_lab.checks import flag
from dragin_lab.errors import TraceFileError
from dragin_lab.trace.kept import kept_of, written
from dragin_lab.trace.trace import Draft, Step, Trace, Words
from dragin_lab.views import sections
from dragin_lab.views.canvas import MAX_STEPS, MAX_TOKENS, Canvas
from dragin_lab.views.frame import View, make_message, make_view, open_trace
from dragin_lab.views.html import clip, count, num, printable
from dragin_lab.views.rendering import render_template
from dragin_lab.views.tokens import Look

OPEN_STEPS = 6
TWICE = 1000  # tokens up to which the answer repeats the figures that its steps have


def trace_html(trace: Trace, *, max_tokens: int = MAX_TOKENS, full_page: bool = False) -> str:
    """A trace as HTML; ``full_page=True`` gives a whole document to be opened from a file. See ``trace_view``."""
    out = trace_view(trace, max_tokens=max_tokens)
    return out.page() if flag("full_page", full_page) else out.html


def trace_view(trace: Trace, *, max_tokens: int = MAX_TOKENS) -> View:
    """A trace, step by step.

    At most ``max_tokens`` tokens are drawn one by one, shared fairly among the drafts; the others stand as plain
    text, and the view says how many. A part that cannot be drawn shows its error and its text instead.
    """
    trace, max_tokens = open_trace(trace), as_count("max_tokens", max_tokens)
    card, text = partial(_trace_card, trace, max_tokens), partial(trace_text, trace)
    return make_view("The trace", "trace", trace.question.text, card, text)


def _trace_card(trace: Trace, max_tokens: int) -> str:
    canvas = Canvas.of(trace, "", max_tokens)
    steps = trace.steps[:MAX_STEPS]
    canvas.twice = sum(len(c) for _, _, c in written(steps)) <= TWICE
    retrieving = [s for s in steps if s.query is not None]
    opened = steps if len(steps) <= OPEN_STEPS else (retrieving or steps)[: OPEN_STEPS // 2]
    settings = [(name.replace("_", " "), sections.setting_text(value)) for name, value in trace.method.items()]
    provenance = ("Provenance: model, versions, retriever, seed", sections.provenance_rows(trace))
    return render_template(
        "trace.html",
        canvas=canvas,
        most=MAX_STEPS,
        opened={step.index for step in opened},
        extraction=None if trace.extraction is None else Look.of(trace.extraction, canvas.scale, Words()),
        folded=[("All settings of the method", settings), provenance],
    )


def draw_trace(what: str, source: Trace | str | Path, card: Callable[[Trace], str], *css: str) -> View:
    """One view of a trace, whose text is the trace's own; a file that cannot be read gives its message in place."""
    try:
        trace = open_trace(source)
    except TraceFileError as error:
        return make_message(f"{what} of {source}", str(error))
    text = partial(trace_text, trace)
    return make_view(f"The {what}", what, trace.question.text, partial(card, trace), text, *css)


LABEL = 14  # columns of the label at the left
PASSAGE_CHARS = 300
TEXT_CHARS = 4000
TEXT_STEPS = 60

#: ANSI codes of the levels of colour.
_HEAT = ("", *(f"48;5;{code};38;5;16" for code in (230, 229, 223, 222, 221, 215, 214, 208, 202)))
_BOLD, _DIM = "1", "2"

Run = tuple[str, str]  # text and its ANSI style, "" for none


def trace_text(trace: Trace, *, width: int = 88, color: bool = False) -> str:
    """A trace as text: question, answer and costs, then each step in the order of the HTML view.

    Hits stand in ⟦ ⟧, thrown-away text in ~[ ]~, both also without ``color`` (ANSI).
    """
    trace = open_trace(trace)
    paper = _Paper(max(as_count("width", width), 40), flag("color", color))
    canvas = Canvas.of(trace)
    paper.put("Question", (trace.question.text, _BOLD))
    verdict = sections.sign_verdict(*sections.judge_answer(trace))
    gold = f"; gold: {' or '.join(trace.question.golds)}" if trace.question.golds else ""
    paper.put("Answer", (trace.answer or sections.no_answer(trace), _BOLD), (f"   ({verdict}{gold})", ""))
    paper.put("Answer text", *_answer_runs(canvas))
    *facts, (_, ended) = sections.header_facts(trace)
    for name, fact in facts:
        paper.put(name.capitalize(), (fact, ""))
    unit = canvas.scale.unit
    judged = "⟦hit⟧" if unit == "word" else f"⟦the {unit} that is judged⟧ its score against θ"
    paper.put("Marks", (f"{judged}   ~[thrown away]~   ◆n passages of step n came in", _DIM))
    paper.put("Ended", (ended, ""))
    if trace.ended == "error":
        paper.put("Error", (sections.error_line(trace), _BOLD))
    for step in trace.steps[:TEXT_STEPS]:
        again = sections.describe_asked_again([step.draft, step.continuation])
        heading = [f"Step {step.index + 1}", sections.step_outcome(trace, step)[1], again]
        paper.line(" · ".join(filter(None, heading)))
        for part in sections.step_parts(step):
            for place, line in enumerate(_part_lines(canvas, step, part)):
                paper.put("" if place else sections.PARTS[part][0], *line)
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


def _answer_runs(canvas: Canvas) -> Iterator[Run]:
    text, place, marked = canvas.trace.text, 0, set[int]()
    if not text:
        yield "nothing written yet", _DIM
    for number, before, origin, look in canvas.answer():
        yield before, ""
        place += len(before)
        if number and number not in marked:
            marked.add(number)
            yield _retrieval_mark(text[:place], text[place:], number), _BOLD
        if origin is not None and look is not None:
            end = origin.at + origin.stop - origin.start
            yield from _look_runs(look, origin.at, end, brackets=False)
            place = origin.stop


def _retrieval_mark(before: str, after: str, number: int) -> str:
    """``◆n`` where passages came in, with a space between it and a word; inside a word in brackets."""
    before, after = before[-1:].strip(), after[:1].strip()
    if before and after and before not in ".!?":
        return f"[◆{number}]"
    return f"{' ' * bool(before)}◆{number}{' ' * bool(after)}"


def _look_runs(look: Look, start: int, stop: int, base: str = "", *, brackets: bool = True) -> Iterator[Run]:
    """The characters ``start`` to ``stop`` of a look as styled runs; ``base`` is the style of the rest.

    Hits stand in ⟦ ⟧, and so do units that were judged as a whole, with their scores.
    """
    runs, rest = look.runs(start, stop, special=False)
    for word, inside in runs:
        for number, (before, cell) in enumerate(inside):
            bare = cell.text.lstrip() if word >= 0 and number == 0 else cell.text
            yield before + cell.text[: len(cell.text) - len(bare)], ""
            if (word >= 0 and number == 0) or (brackets and cell.begins):
                yield "⟦", _BOLD
            yield bare, ";".join(s for s in (_BOLD if word >= 0 else base, _HEAT[cell.level]) if s)
            if brackets and cell.ends:
                unit = look.units[cell.unit]
                yield f"⟧ {unit.verdict} ", _BOLD if unit.above else ""
        if word >= 0:
            yield "⟧", _BOLD
    yield rest, ""


def _part_lines(canvas: Canvas, step: Step, part: str) -> Iterator[list[Run]]:
    """One part of a step, line by line."""
    query, decision, kept = step.query, step.decision, kept_of(step)
    if part == "thoughts":
        yield from ([(thought, _DIM)] for thought in sections.thoughts_of(step))
    elif part == "draft" and step.draft is not None:
        yield _written_runs(canvas.look(step.draft, step), kept.draft)
        yield from _bounds_line(step.draft)
    elif part == "decision" and decision is not None:
        certain = "" if decision.certain else " (not certain: a longer draft could have decided otherwise)"
        yield [("retrieve: " if decision.retrieve else "go on: ", _BOLD), (decision.reason + certain, "")]
    elif part == "query" and query is not None:
        yield [(query.text or "(empty query)", _BOLD)]
        yield from [[(f"sent: {query.sent}", "")]] if query.sent != query.text else []
        yield from [[(query.note, "")]] if query.note else []
    elif part == "passages":
        if not step.passages:
            yield [("no passage was found", _DIM)]
        for rank, p in enumerate(step.passages, 1):
            gold = " ★ holds a gold answer" if sections.holds_gold(p, canvas.trace.question.golds) else ""
            yield [(f"{rank}. {p.title or '(no title)'}", _BOLD), (f"  score {num(p.score, 2)}{gold}", "")]
            yield [(f"   {''.join(clip(p.text, PASSAGE_CHARS))}", "")]
    elif part == "continuation" and step.continuation is not None:
        yield _written_runs(canvas.look(step.continuation, step), kept.continuation)
        yield from _bounds_line(step.continuation)
    elif part == "notes":
        yield from ([(f"! {note}", "")] for note in sections.step_notes(step))
    elif part == "prompts":
        prompts = [p for p in (step.prompt, step.passages_prompt) if p is not None]
        sizes = [f"{count(len(p.text), 'character')} ({', '.join(p.spans) or 'no spans'})" for p in prompts]
        yield [("; ".join(sizes), _DIM)]


def _bounds_line(continuation: Draft) -> Iterator[list[Run]]:
    if bounds := sections.describe_bounds(continuation):
        yield [(bounds, _DIM)]


def _written_runs(look: Look, kept: int | None) -> list[Run]:
    end = len(look.continuation.text)
    stop = end if kept is None else kept
    runs = list(_look_runs(look, 0, stop))
    if look.continuation.text[stop:].strip():
        runs += [(" ✂ ~[", _BOLD), *_look_runs(look, stop, end, _DIM), ("]~ thrown away", _BOLD)]
    if kept is None:
        runs.append(("  (not decided yet)", _DIM))
    return runs if any(text for text, _ in runs) else [("nothing was written", _DIM)]


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
