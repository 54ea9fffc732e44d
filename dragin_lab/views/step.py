"""One step of an episode as HTML: why it retrieved, what it asked, what it found, what changed."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from dragin_lab.trace import Continuation, Passage, Prompt, Query, Step, Trace, Words
from dragin_lab.views import sections
from dragin_lab.views.heat import Scale
from dragin_lab.views.html import attempt, clip, clipped, count, esc, num
from dragin_lab.views.pieces import Look, cells, figures, heat

QUERY_CHARS = 1500
POOL_WORDS = 250
PASSAGES = 10
PASSAGE_CHARS = 900
PROMPT_CHARS = 6000
PLAIN_CHARS = 20000


@dataclass
class Canvas:
    """What all steps of one view share: the trace, its scale, room for pieces, and what was already shown."""

    trace: Trace
    scale: Scale
    prefix: str  # of element ids, so that several traces stand in one notebook
    room: dict[int, int]  # id of a continuation -> pieces that may be drawn
    rows: int  # table rows that may still be written
    twice: bool  # whether the answer's pieces carry their figures too, or only the steps'
    looks: dict[tuple[int, int], Look] = field(default_factory=dict)
    seen_passages: dict[str, int] = field(default_factory=dict)  # passage id -> number of the step that found it
    seen_exemplars: dict[str, int] = field(default_factory=dict)  # text -> number of the step that showed it

    def look(self, made: Continuation, step: Step) -> Look:
        """The look of what a step wrote, made once; only a draft is judged."""
        key = (id(step), id(made))
        if key not in self.looks:
            judged = made is step.draft
            fired = step.decision.piece if judged and step.decision is not None else None
            self.looks[key] = Look.of(made, step.words if judged else Words(), self.scale, fired)
        return self.looks[key]


def step_html(canvas: Canvas, step: Step, *, opened: bool) -> str:
    """A step as a ``details`` element; each part that fails degrades to text by itself."""
    number = step.index + 1
    kind, line = sections.outcome(canvas.trace, step)
    sign = {"retrieved": "◆", "kept": "✓", "open": "…"}[kind]
    reason = step.decision.reason if step.decision is not None else ""
    took = sum(step.seconds.values())
    head = (
        f'<summary><b>Step {number}</b><span class="kind-{kind}"><b>{sign} {esc(line)}</b></span>'
        f'<span class="why"><bdi>{clipped(reason, 200)}</bdi></span>'
        + (f"<small>{took:.2f} s</small>" if took else "")
        + "</summary>"
    )
    body = []
    for part in sections.step_parts(step):
        title, asks = sections.PARTS[part]
        inner = attempt(
            f"{title} of step {number}",
            lambda part=part: _RENDER[part](canvas, step),
            lambda part=part: _rough(step, part),
        )
        body.append(
            f'<section class="row" data-part="{part}"><h4>{title} <small>{asks}</small></h4><div>{inner}</div></section>'
        )
    return f'<details class="step" id="{canvas.prefix}-s{number}"{" open" if opened else ""}>{head}{"".join(body)}</details>'


def _rough(step: Step, part: str) -> str:
    made = {"draft": step.draft, "continuation": step.continuation}.get(part)
    shown = made.text if made is not None else getattr(step, part, None) or step.passages_prompt
    return clip(str(shown), 4000)[0]


# -- texts ----------------------------------------------------------------------------------------------------------


def tag(text: str, css: str = "") -> str:
    """A small label within a text."""
    return f'<span class="tag{" " + css if css else ""}">{esc(text)}</span>'


def windowed(look: Look, room: int, start: int, stop: int) -> list[tuple[int, int, str]]:
    """Ranges of characters and how to draw them ("heat" or "plain"), with ``room`` pieces drawn around what fired."""
    n = len(look.made)
    if n <= room:
        return [(start, stop, "heat")]
    hits = [i for i in range(n) if look.hit(i)]
    focus = look.fired if look.fired is not None else hits[0] if hits else 0
    first = max(0, min(focus - room // 2, n - room)) if focus >= room else 0
    left = int(look.made.offsets[first, 0]) if first else 0
    right = int(look.made.offsets[first + room, 0]) if first + room < n else len(look.made.text)
    cuts = [
        (start, min(left, stop), "plain"),
        (max(left, start), min(right, stop), "heat"),
        (max(right, start), stop, "plain"),
    ]
    return [c for c in cuts if c[0] < c[1]]


def stretch(look: Look, room: int, start: int, stop: int, *, tips: bool = True, special: bool = True) -> str:
    """The characters ``start`` to ``stop`` of a look; pieces that find no room stand as plain text, and say so."""
    out = []
    for a, b, how in windowed(look, room, start, stop):
        if how == "heat":
            out.append(heat(look, a, b, tips=tips, special=special))
        else:
            left_out = int(((look.made.offsets[:, 0] >= a) & (look.made.offsets[:, 0] < b)).sum())
            inner = clipped(look.made.text[a:b], PLAIN_CHARS)
            out.append(
                f'<details class="more"><summary>… {count(left_out, "more piece")}, as plain text</summary>{inner}</details>'
            )
    return "".join(out)


def _figures(canvas: Canvas, look: Look) -> str:
    n = len(look.cells)
    limit = min(n, canvas.rows)
    table, shown = figures(look, limit)
    canvas.rows -= shown
    if not n:
        return ""
    rest = (
        f'<p class="more">… {count(n - shown, "more row")}: the view’s budget is spent; trace.tokens has all</p>'
        if shown < n
        else ""
    )
    return f'<details class="part"><summary>Figures of {count(n, "piece")}, as a table</summary>{table if shown else ""}{rest}</details>'


def _draft(canvas: Canvas, step: Step) -> str:
    made = step.draft
    assert made is not None
    look = canvas.look(made, step)
    room, end = canvas.room.get(id(made), 0), len(made.text)
    kept = sections.kept_of(canvas.trace, step).draft
    out = []
    if kept is None:
        out.append(stretch(look, room, 0, end) + tag("not decided yet", "dim"))
    else:
        if kept[1] > 0:
            out.append(tag("kept", "ok") + stretch(look, room, 0, kept[1], special=kept[1] >= end))
        if kept[1] < end:
            out.append(tag("✂ cut here · thrown away") + f'<del class="cut">{stretch(look, room, kept[1], end)}</del>')
    if not made.text and not len(made):
        out.append('<span class="soft">nothing was written</span>')
    said = []
    if made.decided is not None and made.decided < len(made):
        said.append(f"decided after {count(made.decided, 'piece')}; what follows was generated on for the record")
    if canvas.scale.kind == "score" and not np.isfinite(step.words.score).any() and len(made):
        said.append("no scores were recorded for this draft, so it is not coloured")
    note = "".join(f'<p class="soft">{esc(s)}</p>' for s in said)
    return f'<div class="txt" dir="auto">{"".join(out)}</div>{note}{_figures(canvas, look)}'


def _decision(canvas: Canvas, step: Step) -> str:
    decision = step.decision
    assert decision is not None
    out = [
        f'<p class="why-now" dir="auto"><b>{"Retrieve" if decision.retrieve else "Go on"}:</b> {clipped(decision.reason, 600)}</p>'
    ]
    if not decision.certain:
        out.append(
            '<p class="soft">⚠ Not certain: the draft ended before a longer one could have decided otherwise.</p>'
        )
    if decision.retrieve and step.draft is not None and decision.cut is not None:
        at = sections.cut_in_text(step.draft, decision.cut, str(canvas.trace.method.get("variant", "paper")))
        gone = sum(c.last - c.first for c in cells(step.draft) if c.start >= at)
        out.append(
            f'<p class="soft">Cut at character {at:,} of {len(step.draft.text):,}: {count(gone, "piece")} of the draft thrown away.</p>'
        )
    return "".join(out)


# -- query and passages ---------------------------------------------------------------------------------------------


def _query(canvas: Canvas, step: Step) -> str:
    query = step.query
    assert query is not None
    shown = clipped(query.text, QUERY_CHARS) if query.text else '<span class="soft">(empty query)</span>'
    out = [f'<div class="ask" dir="auto">{shown}</div>']
    if query.sent != query.text:
        out.append(
            f'<p class="soft">Sent to the retriever:</p><div class="ask" dir="auto">{clipped(query.sent, QUERY_CHARS)}</div>'
        )
    if query.note:
        out.append(f'<p class="soft">{esc(query.note)}</p>')
    if query.words:
        out.append(_pool(query))
    return "".join(out)


def _pool(query: Query) -> str:
    weights = np.nan_to_num(np.asarray(query.weights, np.float64))
    top = float(weights.max(initial=0.0)) or 1.0
    items = []
    for word, weight, chosen in list(zip(query.words, weights.tolist(), query.chosen.tolist(), strict=True))[
        :POOL_WORDS
    ]:
        yes = ' class="yes"' if chosen else ""
        said = '<span class="vh">chosen</span>' if chosen else ""
        items.append(
            f'<li{yes} style="--w:{100 * weight / top:.0f}%"><bdi>{esc(word)}</bdi> <small>{num(weight)}</small>{said}</li>'
        )
    more = len(query.words) - len(items)
    rest = f'<li class="more">… {count(more, "more word")}</li>' if more > 0 else ""
    note = f"{int(query.chosen.sum())} of {count(len(query.words), 'attended word')} chosen (✓); bar and number: attention from the hit"
    return f'<ul class="pool">{"".join(items)}{rest}</ul><small>{note}</small>'


def _marked(text: str, words: frozenset[str]) -> str:
    """Escaped text with the query's words underlined and bold."""
    out, place = [], 0
    for match in re.finditer(r"\w+", text):
        if match[0].casefold() in words:
            out.append(f"{esc(text[place : match.start()])}<u>{esc(match[0])}</u>")
            place = match.end()
    return "".join(out) + esc(text[place:])


def _passages(canvas: Canvas, step: Step) -> str:
    if not step.passages:
        return '<p class="soft">Nothing was found.</p>'
    words = sections.query_words(step.query.sent or step.query.text) if step.query is not None else frozenset()
    number = step.index + 1
    items = [_passage(canvas, p, rank, words, number) for rank, p in enumerate(step.passages[:PASSAGES], 1)]
    more = len(step.passages) - len(items)
    rest = f'<p class="more">… {count(more, "more passage")}</p>' if more > 0 else ""
    return f'<ol class="found">{"".join(items)}</ol>{rest}<small>Underlined: words of the query.</small>'


def _passage(canvas: Canvas, passage: Passage, rank: int, words: frozenset[str], number: int) -> str:
    before = canvas.seen_passages.setdefault(passage.id, number)
    chips = []
    if sections.holds_gold(passage, canvas.trace.question.golds):
        chips.append('<span class="chip">★ holds a gold answer</span>')
    if before != number:
        chips.append(f'<small>also found in <a href="#{canvas.prefix}-s{before}">step {before}</a></small>')
    head, rest = clip(passage.text, PASSAGE_CHARS)
    return (
        f'<li><span class="no">{rank}</span><div><div class="by"><b dir="auto">{_marked(passage.title or "(no title)", words)}</b>'
        f"<small>score {num(passage.score, 2)} · id <bdi>{esc(passage.id)}</bdi></small>{''.join(chips)}</div>"
        f'<div dir="auto">{_marked(head, words)}{f" <span class=more>{rest}</span>" if rest else ""}</div></div></li>'
    )


# -- what changed ---------------------------------------------------------------------------------------------------


def _changes(before: str, after: str) -> str:
    """The sentence thrown away above the one that replaced it, with the words that differ marked."""
    old, new = before.split()[:120], after.split()[:120]
    lines: tuple[list[str], list[str]] = ([], [])
    for op, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for line, words, name in ((lines[0], old[a:b], "del"), (lines[1], new[c:d], "ins")):
            if words:
                text = esc(" ".join(words))
                line.append(text if op == "equal" else f"<{name}>{text}</{name}>")
    same = ' <span class="soft">(the same words)</span>' if old == new else ""
    return (
        f'<dl class="duo"><dt>before</dt><dd dir="auto">{" ".join(lines[0])}</dd>'
        f'<dt>now</dt><dd dir="auto">{" ".join(lines[1])}{same}</dd></dl>'
    )


def _continuation(canvas: Canvas, step: Step) -> str:
    made = step.continuation
    assert made is not None
    look, kept = canvas.look(made, step), sections.kept_of(canvas.trace, step)
    room, end = canvas.room.get(id(made), 0), len(made.text)
    before, after = sections.before_after(step, kept)
    out = []
    if kept.continuation is None:
        out.append(stretch(look, room, 0, end) + tag("not decided yet", "dim"))
    else:
        start, stop = kept.continuation
        if start >= stop:
            start, stop = 0, 0
        else:
            inner = stretch(look, room, 0, stop, special=stop >= end)
            css = ' class="new"' if step.passages else ""
            out.append(tag("kept", "ok") + f"<span{css}>{inner}</span>")
        if made.text[stop:].strip():
            out.append(tag("✂ thrown away") + f'<del class="cut">{stretch(look, room, stop, end)}</del>')
        elif stop < end:
            out.append(stretch(look, room, stop, end))
    if not made.text:
        out.append('<span class="soft">nothing was written</span>')
    compared = _changes(before, after) if before else ""
    how = "Written with the passages in view" if step.passages else "Written"
    entropy = sections.mean_entropy(made, 0, (kept.continuation or (0, end))[1] or end)
    said = f"{how}: mean entropy {num(entropy)} nats"
    if before and step.draft is not None and kept.draft is not None:
        said += f"; {num(sections.mean_entropy(step.draft, kept.draft[1], kept.draft[1] + len(before)))} in the sentence it replaces"
    if canvas.scale.kind == "score":
        said += ". The trigger does not judge it, so it has no colour"
    return f'{compared}<div class="txt" dir="auto">{"".join(out)}</div><p class="soft">{esc(said)}.</p>{_figures(canvas, look)}'


# -- notes and prompts ----------------------------------------------------------------------------------------------


def _notes(canvas: Canvas, step: Step) -> str:
    return notes_list(sections.step_notes(step))


def notes_list(notes: list[str]) -> str:
    """Warnings and remarks, one line each."""
    return '<ul class="notes">' + "".join(f'<li dir="auto">{clipped(n, 1000)}</li>' for n in notes) + "</ul>"


def _prompts(canvas: Canvas, step: Step) -> str:
    pairs = (
        ("behind which the draft was written", step.prompt),
        ("behind which the continuation was written", step.passages_prompt),
    )
    return "".join(prompt_html(canvas, p, title, step.index + 1) for title, p in pairs if p is not None)


def prompt_html(canvas: Canvas, prompt: Prompt, title: str, number: int) -> str:
    """A prompt in a closed ``details``, each stretch beside its name; exemplars that were shown before are not again."""
    rows = []
    for name, start, stop in segments(prompt):
        text = prompt.text[start:stop]
        first = canvas.seen_exemplars.setdefault(text, number) if name == "exemplars" else number
        shown = clipped(text, PROMPT_CHARS)
        if first != number:
            shown = f'<span class="more">the same {count(len(text), "character")} as in step {first}</span>'
        rows.append(f'<div class="seg"><small>{esc(name or "(template)")}</small><span dir="auto">{shown}</span></div>')
    size = count(len(prompt.text), "character")
    return f'<details class="part"><summary>Prompt {esc(title)}: {size}</summary>{"".join(rows)}</details>'


def segments(prompt: Prompt) -> list[tuple[str, int, int]]:
    """``(name, start, stop)`` covering a prompt's text in order; "" names what no span does."""
    out, place, end = [], 0, len(prompt.text)
    for name, (start, stop) in sorted(prompt.spans.items(), key=lambda item: item[1]):
        start, stop = max(place, start), min(stop, end)
        if start >= stop:
            continue
        if start > place:
            out.append(("", place, start))
        out.append((name, start, stop))
        place = stop
    if place < end:
        out.append(("", place, end))
    return out


_RENDER = {
    "draft": _draft,
    "decision": _decision,
    "query": _query,
    "passages": _passages,
    "continuation": _continuation,
    "notes": _notes,
    "prompts": _prompts,
}


def share_out(made: list[Continuation], pieces: int) -> dict[int, int]:
    """How many pieces of each continuation may be drawn so that all together draw at most ``pieces``.

    Short ones are drawn whole; what they leave is shared evenly among the longer ones.
    """
    room: dict[int, int] = {}
    left, waiting = pieces, sorted(made, key=len)
    for i, c in enumerate(waiting):
        room[id(c)] = min(len(c), left // (len(waiting) - i))
        left -= room[id(c)]
    return room
