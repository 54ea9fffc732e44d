"""A trace as plain text for a terminal, wrapped, with colour on request."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from dragin_lab.core.trace import Step, Trace, Words
from dragin_lab.views import sections
from dragin_lab.views.heat import Scale, scale_of
from dragin_lab.views.html import clip, count, num, printable
from dragin_lab.views.pieces import Look

LABEL = 14  # columns of the label at the left
PASSAGE_CHARS = 300
TEXT_CHARS = 4000
MAX_STEPS = 60

_HEAT = ("", *(f"48;5;{code};38;5;16" for code in (230, 229, 223, 222, 221, 215, 214, 208, 202)))
_BOLD, _DIM = "1", "2"

Run = tuple[str, str]  # text and its ANSI style, "" for none


def trace_text(trace: Trace, *, width: int = 88, color: bool = False) -> str:
    """A trace as text: question, answer and costs, then each step in the order of the HTML view.

    Hits stand in ⟦ ⟧, thrown-away text in ~[ ]~, both also without ``color`` (ANSI).
    """
    paper = _Paper(max(width, 40), color)
    scale = scale_of(trace)
    paper.put("Question", [(trace.question.text, _BOLD)])
    kind, line = sections.verdict(trace)
    gold = f"; gold: {' or '.join(trace.question.golds)}" if trace.question.golds else ""
    paper.put(
        "Answer",
        [(trace.answer or sections.no_answer(trace), _BOLD), (f"   ({sections.signed(kind, line)}{gold})", "")],
    )
    paper.put("Answer text", _answer(trace, scale))
    paper.put("Method", [(sections.method_line(trace), "")])
    if sections.model_line(trace):
        paper.put("Model", [(sections.model_line(trace), "")])
    paper.put("Marks", [("⟦hit⟧   ~[thrown away]~   ◆n passages of step n came in", _DIM)])
    paper.put("Ended", [(sections.ended_line(trace), "")])
    if trace.ended == "error":
        paper.put("Error", [(trace.error or "ended by an error that left no message", _BOLD)])
    for step in trace.steps[:MAX_STEPS]:
        _step(paper, trace, step, scale)
    if len(trace.steps) > MAX_STEPS:
        paper.line(f"\n… {count(len(trace.steps) - MAX_STEPS, 'more step')}")
    if not trace.steps:
        paper.line("\nNo steps yet")
    if trace.extraction is not None:
        paper.line("")
        paper.put("Extraction", [(trace.extraction.text.strip(), "")])
    for note in trace.notes:
        paper.put("Notes", [(f"! {note}", "")])
    return "\n".join(paper.lines) + "\n"


def _answer(trace: Trace, scale: Scale) -> list[Run]:
    if not trace.text:
        return [("nothing written yet", _DIM)]
    runs: list[Run] = []
    place, said = 0, set()
    for origin in sections.origins(trace):
        runs.append((trace.text[place : origin.start], ""))
        if origin.step.query is not None and origin.made is origin.step.continuation and origin.step.index not in said:
            said.add(origin.step.index)
            runs.append((_mark(trace.text, origin.start, origin.step), _BOLD))
        words = origin.step.words if origin.made is origin.step.draft else Words()
        runs += _runs(Look.of(origin.made, words, scale), origin.at, origin.at + origin.stop - origin.start)
        place = origin.stop
        if origin.step.query is not None and origin.step.continuation is None:
            runs.append((_mark(trace.text, place, origin.step), _BOLD))
    return [*runs, (trace.text[place:], "")]


def _mark(text: str, place: int, step: Step) -> str:
    """``◆n`` where passages came in, apart from the words beside it; inside a word in brackets."""
    before, after = text[:place][-1:], text[place : place + 1]
    if before.strip() and after.strip() and not before.endswith((".", "!", "?")):
        return f"[◆{step.index + 1}]"
    return f"{' ' if before.strip() else ''}◆{step.index + 1}{' ' if after.strip() else ''}"


def _runs(look: Look, start: int, stop: int, *, dim: bool = False) -> list[Run]:
    """The characters ``start`` to ``stop`` of a look as styled runs, hits in ⟦ ⟧."""
    runs: list[Run] = []
    place, open_word = start, -1
    for cell in look.cells:
        if cell.start < start or cell.start >= stop or cell.stop <= cell.start:
            continue
        word = int(look.owner[cell.first]) if look.hit(cell.first) else -1
        if open_word >= 0 and word != open_word:
            runs.append(("⟧", _BOLD))
        runs.append((look.made.text[place : cell.start], ""))
        shown = look.text(cell)
        if word >= 0 and word != open_word:
            bare = shown.lstrip()
            runs += [(shown[: len(shown) - len(bare)], ""), ("⟦", _BOLD)]
            shown = bare
        open_word = word
        style = _HEAT[int(look.levels[cell.first : cell.last].max())]
        runs.append((shown, ";".join(s for s in (_BOLD if word >= 0 else _DIM if dim else "", style) if s)))
        place = cell.stop
    if open_word >= 0:
        runs.append(("⟧", _BOLD))
    return [*runs, (look.made.text[place:stop], "")]


def _step(paper: _Paper, trace: Trace, step: Step, scale: Scale) -> None:
    line = sections.outcome(trace, step)[1]
    paper.line(f"\nStep {step.index + 1} · {line}")
    kept = sections.kept_of(step)
    for part in sections.step_parts(step):
        label = sections.PARTS[part][0]
        if part == "draft" and step.draft is not None:
            paper.put(label, _written(Look.of(step.draft, step.words, scale), kept.draft))
        elif part == "decision" and step.decision is not None:
            certain = "" if step.decision.certain else " (not certain: a longer draft could have decided otherwise)"
            paper.put(
                label,
                [("retrieve: " if step.decision.retrieve else "go on: ", _BOLD), (step.decision.reason + certain, "")],
            )
        elif part == "query" and step.query is not None:
            paper.put(label, [(step.query.text or "(empty query)", _BOLD)])
            if step.query.sent != step.query.text:
                paper.put("", [(f"sent: {step.query.sent}", "")])
            if step.query.note:
                paper.put("", [(step.query.note, "")])
        elif part == "passages":
            if not step.passages:
                paper.put(label, [("nothing was found", _DIM)])
            for rank, p in enumerate(step.passages, 1):
                gold = " ★ holds a gold answer" if sections.holds_gold(p, trace.question.golds) else ""
                head, rest = clip(p.text, PASSAGE_CHARS)
                paper.put(
                    label if rank == 1 else "",
                    [(f"{rank}. {p.title or '(no title)'}", _BOLD), (f"  score {num(p.score, 2)}{gold}", "")],
                )
                paper.put("", [(f"   {head}{rest}", "")])
        elif part == "continuation" and step.continuation is not None:
            paper.put(label, _written(Look.of(step.continuation, Words(), scale), kept.continuation))
        elif part == "notes":
            for i, note in enumerate(sections.step_notes(step)):
                paper.put("" if i else label, [(f"! {note}", "")])
        elif part == "prompts":
            sizes = [
                f"{count(len(p.text), 'character')} ({', '.join(p.spans) or 'no spans'})"
                for p in (step.prompt, step.passages_prompt)
                if p
            ]
            paper.put(label, [("; ".join(sizes), _DIM)])


def _written(look: Look, kept: tuple[int, int] | None) -> list[Run]:
    end = len(look.made.text)
    stop = end if kept is None else kept[1]
    runs = _runs(look, 0, stop)
    if look.made.text[stop:].strip():
        runs += [(" ✂ ~[", _BOLD), *_runs(look, stop, end, dim=True), ("]~ thrown away", _BOLD)]
    if kept is None:
        runs.append(("  (not decided yet)", _DIM))
    return runs or [("nothing was written", _DIM)]


class _Paper:
    """Lines of labelled, wrapped, optionally coloured text."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self.color, self.lines = width, color, list[str]()

    def line(self, text: str) -> None:
        self.lines.append(self._paint([(printable(text), _BOLD)]))

    def put(self, label: str, runs: Iterable[Run]) -> None:
        """A label and its text beside it, wrapped; long texts are cut visibly."""
        left, rows = TEXT_CHARS, []
        cut: list[Run] = []
        for text, style in runs:
            if left <= 0:
                rows.append(len(text))
                continue
            cut.append((printable(text[:left]), style))
            rows.append(max(0, len(text) - left))
            left -= len(text)
        if sum(rows):
            cut.append((f"… {count(sum(rows), 'more character')}", _DIM))
        first = next((i for i, (text, _) in enumerate(cut) if text.strip()), len(cut))
        cut = [(text.lstrip(), style) if i == first and label else (text, style) for i, (text, style) in enumerate(cut)]
        cut = cut[first if label else 0 :]
        for i, row in enumerate(_wrap(cut, self.width - LABEL) or [[]]):
            head = (label if i == 0 else "").ljust(LABEL)
            self.lines.append((self._paint([(head, _BOLD)]) + self._paint(row)).rstrip())

    def _paint(self, runs: list[Run]) -> str:
        if not self.color:
            return "".join(text for text, _ in runs)
        joined = [("".join(text for text, _ in group), style) for style, group in groupby(runs, key=itemgetter(1))]
        return "".join(f"\x1b[{style}m{text}\x1b[0m" if style and text.strip() else text for text, style in joined)


def terminal_width(text: str) -> int:
    """Terminal columns: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _wrap(runs: list[Run], width: int) -> list[list[Run]]:
    """Break styled runs at spaces (and words longer than a line anywhere) into lines of at most ``width`` columns."""
    lines: list[list[Run]] = [[]]
    used = 0
    words: list[list[Run]] = []  # each word with the white space before it
    for text, style in runs:
        for token in re.findall(r"\n|[^\S\n]+|[^\s]+", text):
            joins = words and not token.isspace() and not words[-1][-1][0].endswith("\n")
            if joins:
                words[-1].append((token, style))
            else:
                words.append([(token, style)])
    for word in words:
        if word[0][0] == "\n":
            lines.append([])
            used = 0
            word = word[1:]
        size = sum(terminal_width(text) for text, _ in word)
        if used and used + size > width:
            lines.append([])
            used = 0
            word = [(text.lstrip(), style) if i == 0 else (text, style) for i, (text, style) in enumerate(word)]
            size = sum(terminal_width(text) for text, _ in word)
        while size > width:
            head, word = _split(word, width)
            lines[-1] += head
            lines.append([])
            size = sum(terminal_width(text) for text, _ in word)
            used = 0
        lines[-1] += word
        used += size
    return [line for line in lines if line] or []


def _split(word: list[Run], width: int) -> tuple[list[Run], list[Run]]:
    head: list[Run] = []
    for i, (text, style) in enumerate(word):
        for k, char in enumerate(text):
            if terminal_width(char) > width:
                return [*head, (text[:k], style)], [(text[k:], style), *word[i + 1 :]]
            width -= terminal_width(char)
        head.append((text, style))
    return head, []
