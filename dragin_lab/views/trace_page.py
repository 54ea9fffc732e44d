"""One page of a trace: its answer, then step by step why it retrieved, what it asked and found, what that changed."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dragin_lab.checks import count as as_count
from dragin_lab.trace.kept import arrivals, before_after, mean_entropy, origins, with_passages
from dragin_lab.trace.trace import Prompt, Step, Trace
from dragin_lab.views import facts
from dragin_lab.views.html import clip, clip_html, count, esc, num
from dragin_lab.views.pages import Page, open_trace, render, show_or_explain
from dragin_lab.views.texts import Cell, Texts, write_trace

MAX_STEPS, OPEN_STEPS = 40, 6
GEM = '<span class="gem" aria-hidden="true">◆</span>'


def trace(source: Trace | str | Path, *, max_tokens: int = 2000) -> Page:
    """A trace as a page, step by step; a notebook shows it for a bare ``trace`` too.

    At most ``max_tokens`` tokens are coloured one by one; the other texts stand plain, and the page says so. Raises
    ``TraceFileError`` for a file that holds no trace.
    """
    opened, most = open_trace(source), as_count("max_tokens", max_tokens)
    texts = cache(lambda: Texts(opened, most=most))  # read once, for the page and for its text
    return Page(opened.question.text, lambda: trace_card(texts()), lambda: write_trace(texts()))


def trace_card(texts: Texts, turns: Any = None, since: int | None = None) -> str:
    """The inside of the page. ``turns`` say what other settings would do in each step, ``since`` where they part."""
    shown = texts.trace
    prefix = "dl" + hashlib.blake2s(f"{shown.fingerprint}{turns is None}".encode(), digest_size=5).hexdigest()
    retrieving = [step.index for step in shown.steps if step.query is not None]
    few = [step.index for step in shown.steps[:MAX_STEPS]]
    return render(
        "trace.html", trace=shown, texts=texts, prefix=prefix, facts=facts, turns=turns, since=since, most=MAX_STEPS,
        opened=few if len(few) <= OPEN_STEPS else (retrieving or few)[: OPEN_STEPS // 2],
        draw=partial(draw_part, texts), answer=Markup(draw_answer(shown, prefix)), prompts=partial(prompt_parts, {}),
        first_found=first_found(shown), compare_sentences=compare_sentences, before_after=before_after,
        about_text=about_text, judge_decision=judge_decision,
    )  # fmt: skip


def draw_part(texts: Texts, part: str, step: Step) -> Markup:
    """The draft or the continuation of a step as it was kept and thrown away; what fails shows its text instead."""
    name, text = f"{part} of step {step.index + 1}", getattr(step, part)
    return Markup(show_or_explain(lambda: _draw_text(texts, step, part), name, esc(text.text)))


def _draw_text(texts: Texts, step: Step, part: str) -> str:
    text, end = getattr(step, part), step.kept_end(part)
    cells, whole = texts.cells(step, part), len(text.text)
    cut = whole if end is None else end
    new = ' class="new"' if part == "continuation" and with_passages(step, part) else ""
    out = [f"<span{new}>{draw_cells(texts, step, part, cells, 0, cut, cut >= whole)}</span>"]
    if text.text[cut:].strip():
        gone = draw_cells(texts, step, part, cells, cut, whole, True)
        out.append(f'<bdi class="tag">✂ cut here · thrown away</bdi><del class="cut">{gone}</del>')
    if end is None and text.text:
        out.append('<bdi class="tag dim">not decided yet</bdi>')
    if not text.text:
        out.append('<span class="soft">nothing was written</span>')
    return f'<div class="txt" dir="auto">{"".join(out)}</div>'


def draw_cells(
    texts: Texts, step: Step, part: str, cells: list[Cell] | None, start: int, stop: int, special: bool
) -> str:
    """The characters ``start`` to ``stop`` of a text, token by token, with all that is known of each on hover."""
    text = getattr(step, part).text
    if cells is None:
        return f"{clip_html(text[start:stop], 20_000)}"
    out, place, about = [], start, texts.rows[step.index, part]["about"].tolist()
    marked = False  # a cut may run through what fired
    fired = step.decision.token if step.decision is not None and part == "draft" else None
    for cell in cells:
        if not (start <= cell.start < stop or (cell.special and special and cell.start == stop)):
            continue
        several = f"\n{cell.tokens} tokens make this character" if cell.tokens > 1 else ""
        flags = {f"h{cell.level}": cell.level, "sp": cell.special, "unjudged": cell.spared}
        flags["fired"] = cell.fires and fired == cell.row
        css = " ".join(name for name, on in flags.items() if on)
        out.append(str(esc(text[place : cell.start])))
        if cell.opens:
            marked = True
            out.append(f'<mark class="hit" tabindex="0">{GEM}<bdi class="vh">hit: </bdi>')
        if cell.unit in ("opens", "both"):
            out.append('<bdi class="bracket">[</bdi>')
        shown = esc(cell.text.replace("\n", "↵\n"))
        out.append(f'<span class="{css}" data-i="{esc(about[cell.row] + several)}">{shown}</span>')
        if cell.closes and marked:
            marked = False
            out.append("</mark>")
        if cell.unit in ("closes", "both"):
            above = " above" if cell.fires else ""
            out.append(f'<bdi class="bracket{above}">]</bdi><bdi class="bracket tag{above}">{esc(cell.verdict)}</bdi>')
        place = max(place, cell.stop)
    return "".join([*out, "</mark>" * marked, str(esc(text[place:stop]))])


def draw_answer(shown: Trace, prefix: str) -> str:
    """The answer's text with ◆ where passages came in; dotted is what was written with passages in view."""
    text, place, out = shown.text, 0, []
    marks = [
        (at, f'<a class="tag ok" href="#{prefix}-s{s.index + 1}">◆ {s.index + 1}</a>') for at, s in arrivals(shown)
    ]
    for origin in origins(shown):
        if origin.with_passages:
            marks += [(origin.start, '<span class="new">'), (origin.stop, "</span>")]
    for at, mark in sorted(marks, key=lambda pair: (pair[0], pair[1] != "</span>")):
        out += [str(esc(text[place:at])), mark]
        place = max(place, at)
    return "".join([*out, str(clip_html(text[place:], 20_000))]) or '<span class="soft">nothing written yet</span>'


# -- parts of a step --------------------------------------------------------------------------------------------------


def compare_sentences(before: str, after: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Two sentences, each in runs of words with whether the other one lacks them."""
    old, new = before.split()[:120], after.split()[:120]
    ops = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return (
        [(" ".join(old[a:b]), op != "equal") for op, a, b, _, _ in ops if a < b],
        [(" ".join(new[c:d]), op != "equal") for op, _, _, c, d in ops if c < d],
    )


def about_text(step: Step, part: str) -> str:
    """How certain a text is, beside the sentence that it replaces, and how closely that is known."""
    text = getattr(step, part)
    parts = [facts.describe_bounds(text)]
    if part == "continuation":
        how = "with the passages in view" if with_passages(step, part) else "without passages"
        mean = num(mean_entropy(text, step.continuation_kept or len(text.text)))
        parts.insert(0, f"Written {how}: mean entropy {mean} nats.")
    elif with_passages(step, part):
        parts.insert(0, "Written with retrieved passages in view.")
    return " ".join(filter(None, parts))


def first_found(shown: Trace) -> dict[tuple[int, str], int]:
    """For each passage that an earlier step had found, the number of that step."""
    seen: dict[str, int] = {}
    again = {}
    for step in shown.steps:
        for passage in step.passages:
            if (number := seen.setdefault(passage.id, step.index + 1)) <= step.index:
                again[step.index, passage.id] = number
    return again


def judge_decision(counted: Any) -> str:
    """The ground truth on a decision, in a sentence; "" where there is none."""
    remarks = ["a fact is missing here, so this retrieval was needed"] if counted.right else []
    remarks += ["nothing that the model could not know is missing here"] if counted.wrong else []
    remarks += [f"it passes over {count(counted.missed, 'sentence')} with a missing fact"] if counted.missed else []
    return f"Ground truth: {'; '.join(remarks)}." if remarks else ""


def prompt_parts(seen: dict[str, int], prompt: Prompt, number: int) -> Iterator[tuple[str, str]]:
    """The parts of a prompt by name; exemplars that an earlier step has ``seen`` are not written out again."""
    place = 0
    spans = sorted(prompt.spans.items(), key=lambda item: item[1])
    for name, (start, stop) in [*spans, ("", (len(prompt.text),) * 2)]:
        if start > place:
            yield "(template)", clip(prompt.text[place:start], 6000)[0]
        text = prompt.text[max(start, place) : stop]
        if name == "exemplars" and text in seen:
            yield name, f"the same {count(len(text), 'character')} as in step {seen[text]}"
        elif text:
            seen[text] = number
            yield name, "".join(clip(text, 6000))
        place = max(place, stop)
