"""One page of a trace: the episode in one picture, then step by step why it retrieved, what it
asked and found.

And the same page of a stored trace under other settings, with how far that is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dragin_lab.checks import count, flag, instance
from dragin_lab.core.settings import title_setting
from dragin_lab.drawn import draws
from dragin_lab.study.whatif import Outcome
from dragin_lab.trace.kept import with_passages
from dragin_lab.trace.trace import Prompt, Step, Trace, Words
from dragin_lab.views import facts
from dragin_lab.views.attribution import list_sources, overview_marks
from dragin_lab.views.facts import clip, num, plural
from dragin_lab.views.overview_page import draw_lines, find_lines
from dragin_lab.views.pages import Page, open_trace, render
from dragin_lab.views.plain import page_text
from dragin_lab.views.rows import check_trace, unit_of
from dragin_lab.views.texts import Texts, read_pieces

MAX_STEPS = 40
OPEN_STEPS = 6


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
    overview = "" if turns else draw_lines(texts, find_lines(texts, overview_marks(shown)))
    few = [step.index for step in shown.steps[:MAX_STEPS]]
    return render(
        "trace.html",
        trace=shown,
        texts=texts,
        turns=turns,
        since=since,
        most=MAX_STEPS,
        opened=few if len(few) <= OPEN_STEPS else (retrieving or few)[: OPEN_STEPS // 2],
        read_pieces=read_pieces,
        with_passages=with_passages,
        by_word=unit_of(shown) == "word",
        drawn=overview,
        prompts=partial(prompt_parts, {}),
        known=since is None,
        sources=list_sources(shown),
    )


def prompt_parts(seen: dict[str, int], prompt: Prompt, number: int) -> Iterator[tuple[str, str]]:
    """The parts of a prompt by name; exemplars that an earlier step has ``seen`` are not written
    out again.
    """
    place = 0
    end = len(prompt.text)
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
    card = trace_card(Texts(outcome.judged), turns=outcome.turns, since=outcome.since)
    sums = summary_rows([outcome])
    inner = render("replayed.html", sums=sums, why=outcome.why, card=card)
    return Page(outcome.trace.question.text, inner)


def part_row(outcome: Outcome) -> str:
    """Where a trace parts from what was run, as a row of a table."""
    assert outcome.since is not None
    step = outcome.trace.steps[outcome.since]
    turn = outcome.turns[outcome.since]
    text = "" if step.draft is None else step.draft.text
    then = first_hit(step, step.words)
    now = first_hit(step, turn.words)
    marks = {then: "del", now: "mark"}  # one that stays has the latter
    hits = []
    place = 0
    for start, stop in sorted(filter(None, marks)):
        hits.append((text[place:start], marks[start, stop], text[start:stop]))
        place = stop
    return render(
        "parted.html", trace=outcome.trace, hits=hits, rest=text[place:], query=turn.query
    )


def first_hit(step: Step, words: Words) -> tuple[int, int] | None:
    """The half-open characters of the first word that fires, in the step's draft."""
    if step.draft is None or not words.hit.any():
        return None
    start, stop = words.spans[int(words.hit.argmax())].tolist()
    a = int(step.draft.offsets[start, 0])
    b = int(step.draft.offsets[stop - 1, 1])
    return b - len(step.draft.text[a:b].lstrip()), b


def summary_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    old = outcomes[0].trace.method
    method = outcomes[0].method
    changes = [
        f"{title_setting(name)} {facts.setting_text(value)} (was {facts.setting_text(old[name])})"
        for name, value in (method.trigger.settings | method.formulator.settings).items()
        if name in old and value != old[name]
    ]
    whole = sum(one.whole for one in outcomes)
    total = sum(one.retrievals for one in outcomes)
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
