"""One page of a trace: the episode in one picture, then step by step why it retrieved, what it
asked and found.

And the same page of a stored trace under other settings, with how far that is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dragin_lab.checks import count, flag, instance
from dragin_lab.core.settings import title_setting
from dragin_lab.drawn import draws
from dragin_lab.study.whatif import Outcome
from dragin_lab.trace.kept import with_passages
from dragin_lab.trace.trace import Prompt, Step, Trace, Words
from dragin_lab.views import facts
from dragin_lab.views.attribution import list_sources, overview_marks
from dragin_lab.views.facts import clip, clip_html, esc, num, plural, shorten
from dragin_lab.views.overview_page import draw_lines, find_lines
from dragin_lab.views.pages import Page, open_trace, render
from dragin_lab.views.plain import page_text
from dragin_lab.views.rows import check_trace, unit_of
from dragin_lab.views.texts import Texts, read_pieces

MAX_STEPS, OPEN_STEPS = 40, 6
GEM = '<span class="gem" aria-hidden="true">◆</span>'
HIT = f'<mark class="hit" tabindex="0">{GEM}<bdi class="vh">hit: </bdi>'


def trace(source: Trace | str | Path) -> Page:
    """A trace as a page, step by step; a notebook shows it for a bare ``trace`` too.

    The first 2,000 tokens are coloured one by one; the other texts stand plain, and the page says
    so. Raises ``TraceFileError`` for a file that holds no trace.
    """
    texts = Texts(open_trace(source))
    return Page(texts.trace.question.text, trace_card(texts))


def trace_text(trace: Trace, *, width: int = 88, color: bool = False) -> str:
    """The page of a trace as text for a terminal.

    Hits stand in ⟦ ⟧, thrown-away text in ~[ ]~, both also without ``color`` (ANSI).
    """
    width = max(count("width", width), 40)
    html = trace_card(Texts(check_trace(trace)))
    return page_text(html, width=width, color=flag("color", color))


@draws(Trace, "_repr_mimebundle_")
def show_trace(source: Trace, **_: Any) -> dict[str, str]:
    """The page, and its text where nothing shows HTML, as in LaTeX."""
    page = trace(source)
    return {"text/html": page.html, "text/plain": page.text}


def trace_card(texts: Texts, turns: Any = None, since: int | None = None) -> str:
    """The inside of the page. ``turns`` say what other settings would do in each step, ``since``
    where they part.
    """
    shown = texts.trace
    retrieving = [step.index for step in shown.steps if step.query is not None]
    drawn = "" if turns else draw_lines(texts, find_lines(texts, overview_marks(shown)))
    few = [step.index for step in shown.steps[:MAX_STEPS]]
    return render(
        "trace.html",
        trace=shown,
        texts=texts,
        turns=turns,
        since=since,
        most=MAX_STEPS,
        opened=few if len(few) <= OPEN_STEPS else (retrieving or few)[: OPEN_STEPS // 2],
        draw=partial(draw_text, texts),
        drawn=drawn,
        prompts=partial(prompt_parts, {}),
        known=since is None,
        sources=list_sources(shown),
    )


def draw_text(texts: Texts, part: str, step: Step) -> Markup:
    """The draft or the continuation of a step, token by token, as it was kept and thrown away."""
    new = ' class="new"' if part == "continuation" and with_passages(step, part) else ""
    out, ends = [f"<span{new}>"], "</span>"
    fired = step.decision.token if step.decision is not None and part == "draft" else None
    word = unit_of(texts.trace) == "word"
    for kind, text, row in read_pieces(texts, step, part):
        if kind == "text":
            out.append(clip_html(text, 20_000))
        elif kind == "token":
            out.append(draw_token(text, row, fired))
        elif kind == "cut":
            ends = "</del>"
            out.append('</span><bdi class="tag">✂ cut here · thrown away</bdi><del class="cut">')
        elif word:
            out.append(HIT if kind == "[" else "</mark>")
        else:
            above = " above" if kind == "]" and row["fires"] else ""
            out.append(f'<bdi class="bracket{above}">{kind}</bdi>')
            if kind == "]":
                out.append(f'<bdi class="bracket tag{above}">{esc(text)}</bdi>')
    if not getattr(step, part).text:
        ends += '<span class="soft">nothing was written</span>'
    elif step.kept_end(part) is None:
        ends += '<bdi class="tag dim">not decided yet</bdi>'
    return Markup(f'<div class="txt" dir="auto">{"".join(out)}{ends}</div>')


def draw_token(text: str, row: dict[str, Any], fired: int | None) -> str:
    """A token with its colour, and what is known of it on hover."""
    about = row["about"]
    if row["tokens"] > 1:
        about += f"\n{row['tokens']} tokens make this character"
    flags = {
        f"h{row['level']}": row["level"],
        "sp": row["start"] == row["stop"],
        "unjudged": row["spared"],
        "fired": row["fires"] and fired == row["index"],
    }
    css = " ".join(name for name, on in flags.items() if on)
    shown = esc(text.replace("\n", "↵\n"))
    return f'<span class="{css}" data-i="{esc(about)}">{shown}</span>'


def prompt_parts(seen: dict[str, int], prompt: Prompt, number: int) -> Iterator[tuple[str, str]]:
    """The parts of a prompt by name; exemplars that an earlier step has ``seen`` are not written
    out again.
    """
    place, end = 0, len(prompt.text)
    spans = sorted(prompt.spans.items(), key=lambda item: item[1])
    for name, (start, stop) in [*spans, ("", (end, end))]:
        if start > place:
            yield "(template)", clip(prompt.text[place:start], 6000)[0]
        own = max(start, place)
        text = prompt.text[own:stop]
        if name == "exemplars" and text in seen:
            size = plural(len(text), "character")
            yield name, f"the same {size} as in step {seen[text]}"
        elif text:
            seen[text] = number
            yield name, "".join(clip(text, 6000))
        place = max(place, stop)


# -- a trace under other settings ------------------------------------------------------------------


def replayed(outcome: Outcome) -> Page:
    """A stored trace under other settings, as ``dl.Replay(trace).at(...)`` tells: what would
    fire, be asked, change.
    """
    instance("outcome", outcome, Outcome, "give what dl.Replay(trace).at(...) returns")
    why = f'<p class="soft">{esc(outcome.why)}</p>' if outcome.why else ""
    head = f'<div class="head" role="status">{sum_up([outcome])}{why}</div>'
    inner = head + trace_card(Texts(outcome.judged), turns=outcome.turns, since=outcome.since)
    return Page(outcome.trace.question.text, inner)


def sum_up(outcomes: Sequence[Outcome]) -> str:
    """What outcomes come to, as HTML."""
    sums = [f"<dt>{esc(name)}</dt><dd>{esc(value)}</dd>" for name, value in summary_rows(outcomes)]
    return f'<dl class="facts">{"".join(sums)}</dl>'


def part_row(outcome: Outcome) -> str:
    """Where a trace parts from what was run, as a row: question, draft with ◆ then and now,
    query, answer.
    """
    assert outcome.since is not None
    step, turn = outcome.trace.steps[outcome.since], outcome.turns[outcome.since]
    text = "" if step.draft is None else step.draft.text
    then, now = first_hit(step, step.words), first_hit(step, turn.words)
    marks = {then: "del", now: "mark"}  # one that stays has the latter
    shown, place = "", 0
    for start, stop in sorted(filter(None, marks)):
        css = marks[start, stop]
        shown += f"{esc(text[place:start])}<{css}>◆{esc(text[start:stop])}</{css}>"
        place = stop
    asks = esc(turn.query.text) if turn.query is not None else '<span class="soft">–</span>'
    was = {1.0: "✓", 0.0: "✗"}.get(
        outcome.trace.scores.get("em", -1.0), esc(shorten(outcome.trace.answer, 40))
    )
    question = esc(shorten(outcome.trace.question.text, 90))
    cells = (question, f"{shown}{esc(text[place:])}", asks, f"{was} → ?")
    return f"<tr>{''.join(f'<td dir=auto>{cell}</td>' for cell in cells)}</tr>"


def first_hit(step: Step, words: Words) -> tuple[int, int] | None:
    """The half-open characters of the first word that fires, in the step's draft."""
    if step.draft is None or not words.hit.any():
        return None
    start, stop = words.spans[int(words.hit.argmax())].tolist()
    a, b = int(step.draft.offsets[start, 0]), int(step.draft.offsets[stop - 1, 1])
    return b - len(step.draft.text[a:b].lstrip()), b


def summary_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    old, method = outcomes[0].trace.method, outcomes[0].method
    changes = [
        f"{title_setting(name)} {facts.setting_text(value)} (was {facts.setting_text(old[name])})"
        for name, value in (method.trigger.settings | method.formulator.settings).items()
        if name in old and value != old[name]
    ]
    whole, total = sum(one.whole for one in outcomes), sum(one.retrievals for one in outcomes)
    before = sum(one.trace.retrievals_count for one in outcomes)
    least = "" if whole == len(outcomes) else "at least "
    since = outcomes[0].since
    known = f"{whole} of {plural(len(outcomes), 'trace')} to its end"
    if len(outcomes) == 1:
        known = "to its end" if since is None else f"to step {since + 1}"
    rows = [
        ("settings", ", ".join(changes) or "as it was run"),
        ("retrievals", f"{least}{total:,} (was {before:,})"),
        ("follows the stored text", known),
    ]
    scored = [o.trace.scores["em"] for o in outcomes if o.whole and o.trace.scores]
    if scored:
        em = num(sum(scored) / len(scored))
        known = f"{em} (was {em}), of the {len(scored)} whose answer is known"
        rows.append(("exact match", known))
    return rows
