"""One step of an episode as HTML: why it retrieved, what it asked, what it found, what changed."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from dragin_lab.core.trace import Continuation, Passage, Prompt, Query, Step, Trace, Words
from dragin_lab.views import sections
from dragin_lab.views.heat import Scale
from dragin_lab.views.html import attempt, clip, clipped, count, esc, num, row, soft, tag
from dragin_lab.views.pieces import Look, cells, figures, stretch

QUERY_CHARS = 1500
POOL_WORDS = 250
PASSAGES = 10
PASSAGE_CHARS = 900
PROMPT_CHARS = 6000


@dataclass
class Canvas:
    """What all steps of one view share: the trace, its scale, room for pieces, and what was already shown."""

    trace: Trace
    scale: Scale
    prefix: str  # of element ids, so that several traces stand in one notebook
    room: dict[int, int]  # id of a continuation -> pieces that may be drawn
    rows: int  # table rows that may still be written
    twice: bool  # whether the answer's pieces carry their figures too, or only the steps'
    gold: frozenset[str] = frozenset()  # ids of the passages that hold what was needed, where they are known
    looks: dict[tuple[int, int], Look] = field(default_factory=dict)
    seen_passages: dict[str, int] = field(default_factory=dict)  # passage id -> number of the step that found it
    seen_exemplars: dict[str, int] = field(default_factory=dict)  # text -> number of the step that showed it

    def look(self, made: Continuation, step: Step) -> Look:
        """The look of what a step wrote, made once; only a draft is judged."""
        key = (id(step), id(made))
        if key not in self.looks:
            judged = made is step.draft
            fired = step.decision.piece if judged and step.decision is not None else None
            reference = self.trace.method.get("variant") == "reference"
            self.looks[key] = Look.of(made, step.words if judged else Words(), self.scale, fired, reference)
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
        inner = attempt(f"{title} of step {number}", partial(_RENDER[part], canvas, step), partial(_rough, step, part))
        body.append(row(part, title, asks, inner))
    flag = " open" if opened else ""
    return f'<details class="step" id="{canvas.prefix}-s{number}"{flag}>{head}{"".join(body)}</details>'


def _rough(step: Step, part: str) -> str:
    made = {"draft": step.draft, "continuation": step.continuation}.get(part)
    shown = made.text if made is not None else getattr(step, part, None) or step.passages_prompt
    return clipped(str(shown), 4000)


# -- texts ----------------------------------------------------------------------------------------------------------


def _figures(canvas: Canvas, look: Look) -> str:
    n = len(look.cells)
    limit = min(n, canvas.rows)
    table, shown = figures(look, limit)
    canvas.rows -= shown
    if not n:
        return ""
    said = f"… {count(n - shown, 'more row')}: the view’s budget is spent; trace.tokens has all"
    rest = f'<p class="more">{said}</p>' if shown < n else ""
    inner = f"{table if shown else ''}{rest}"
    return f'<details class="part"><summary>Figures of {count(n, "piece")}, as a table</summary>{inner}</details>'


def _draft(canvas: Canvas, step: Step) -> str:
    made = step.draft
    assert made is not None
    look = canvas.look(made, step)
    room, end = canvas.room.get(id(made), 0), len(made.text)
    kept = sections.kept_of(step).draft
    out = []
    if kept is None:
        out.append(stretch(look, room, 0, end) + tag("not decided yet", "dim"))
    else:
        if made.text[: kept[1]].strip():
            out.append(tag("kept", "ok") + stretch(look, room, 0, kept[1], special=kept[1] >= end))
        if kept[1] < end:
            out.append(tag("✂ cut here · thrown away") + f'<del class="cut">{stretch(look, room, kept[1], end)}</del>')
    if not made.text and not len(made):
        out.append('<span class="soft">nothing was written</span>')
    said = []
    if sections.with_passages(step, made):
        said.append("written with retrieved passages in view")
    if made.decided is not None and made.decided < len(made):
        said.append(f"decided after {count(made.decided, 'piece')}; what follows was generated on for the record")
    if canvas.scale.kind == "score" and not np.isfinite(step.words.score).any() and len(made):
        said.append("no scores were recorded for this draft, so it is not coloured")
    note = "".join(soft(f"{s[0].upper()}{s[1:]}.") for s in said)
    before, after = sections.resumed(canvas.trace, step)
    compared = changes(before, after) if before else ""
    return f'{compared}<div class="txt" dir="auto">{"".join(out)}</div>{note}{_figures(canvas, look)}'


def _decision(canvas: Canvas, step: Step) -> str:
    decision = step.decision
    assert decision is not None
    word = "Retrieve" if decision.retrieve else "Go on"
    out = [f'<p class="why-now" dir="auto"><b>{word}:</b> {clipped(decision.reason, 600)}</p>']
    if not decision.certain:
        out.append(soft("⚠ Not certain: the draft ended before a longer one could have decided otherwise."))
    if decision.retrieve and step.draft is not None and decision.cut is not None:
        at = max(0, min(decision.cut, len(step.draft.text)))
        gone = count(sum(c.last - c.first for c in cells(step.draft) if c.start >= at), "piece")
        whole = len(step.draft.text)
        out.append(soft(f"Cut at character {at:,} of {whole:,}: {gone} of the draft thrown away."))
    return "".join(out)


# -- query and passages ---------------------------------------------------------------------------------------------


def ask_box(query: Query) -> str:
    """A query as it was formulated, as it was sent where that differs, and its note."""
    shown = clipped(query.text, QUERY_CHARS) if query.text else '<span class="soft">(empty query)</span>'
    out = [f'<div class="ask" dir="auto">{shown}</div>']
    if query.sent != query.text:
        sent = clipped(query.sent, QUERY_CHARS)
        out.append(f'{soft("Sent to the retriever:")}<div class="ask" dir="auto">{sent}</div>')
    if query.note:
        out.append(soft(query.note))
    return "".join(out)


def _query(canvas: Canvas, step: Step) -> str:
    query = step.query
    assert query is not None
    return ask_box(query) + (_pool(query) if query.words else "")


def _pool(query: Query) -> str:
    weights = np.nan_to_num(np.asarray(query.weights, np.float64))
    top = float(weights.max(initial=0.0)) or 1.0
    items = []
    for word, weight, chosen in list(zip(query.words, weights.tolist(), query.chosen.tolist(), strict=True))[
        :POOL_WORDS
    ]:
        yes, said = (' class="yes"', '<span class="vh">chosen</span>') if chosen else ("", "")
        share = f"--w:{100 * weight / top:.0f}%"
        items.append(f'<li{yes} style="{share}"><bdi>{esc(word)}</bdi> <small>{num(weight)}</small>{said}</li>')
    more = len(query.words) - len(items)
    rest = f'<li class="more">… {count(more, "more word")}</li>' if more > 0 else ""
    chosen = f"{int(query.chosen.sum())} of {count(len(query.words), 'attended word')} chosen (✓)"
    note = f"{chosen}; bar and number: attention from the hit"
    return f'<ul class="pool">{"".join(items)}{rest}</ul><small>{note}</small>'


def _marked(text: str, words: frozenset[str]) -> str:
    """Escaped text with the query's words underlined and bold."""
    out, place = [], 0
    for match in re.finditer(r"\w+", text):
        if match[0].casefold() in words:
            out.append(f"{esc(text[place : match.start()])}<u>{esc(match[0])}</u>")
            place = match.end()
    return "".join(out) + esc(text[place:])


def passages_list(canvas: Canvas, step: Step) -> str:
    """What a step found, with the query's words underlined and gold passages marked."""
    if not step.passages:
        return soft("Nothing was found.")
    words = sections.query_words(step.query.sent or step.query.text) if step.query is not None else frozenset()
    number = step.index + 1
    items = [_passage(canvas, p, rank, words, number) for rank, p in enumerate(step.passages[:PASSAGES], 1)]
    more = len(step.passages) - len(items)
    rest = f'<p class="more">… {count(more, "more passage")}</p>' if more > 0 else ""
    return f'<ol class="found">{"".join(items)}</ol>{rest}<small>Underlined: words of the query.</small>'


def _passage(canvas: Canvas, passage: Passage, rank: int, words: frozenset[str], number: int) -> str:
    before = canvas.seen_passages.setdefault(passage.id, number)
    chips = []
    if passage.id in canvas.gold:
        chips.append('<span class="chip">★ gold passage</span>')
    elif sections.holds_gold(passage, canvas.trace.question.golds):
        chips.append('<span class="chip">★ holds a gold answer</span>')
    if before != number:
        chips.append(f'<small>also found in <a href="#{canvas.prefix}-s{before}">step {before}</a></small>')
    head, rest = clip(passage.text, PASSAGE_CHARS)
    title = _marked(passage.title, words) if passage.title else "(no title)"
    return (
        f'<li><span class="no">{rank}</span><div><div class="by"><b dir="auto">{title}</b>'
        f"<small>score {num(passage.score, 2)} · id <bdi>{esc(passage.id)}</bdi></small>{''.join(chips)}</div>"
        f'<div dir="auto">{_marked(head, words)}{f" <span class=more>{rest}</span>" if rest else ""}</div></div></li>'
    )


# -- what changed ---------------------------------------------------------------------------------------------------


def changes(before: str, after: str) -> str:
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
    look, kept = canvas.look(made, step), sections.kept_of(step)
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
    compared = changes(before, after) if before else ""
    how = "Written with the passages in view" if step.passages else "Written"
    entropy = sections.mean_entropy(made, 0, (kept.continuation or (0, end))[1] or end)
    said = f"{how}: mean entropy {num(entropy)} nats"
    if before and step.draft is not None and kept.draft is not None:
        old = sections.mean_entropy(step.draft, kept.draft[1], kept.draft[1] + len(before))
        said += f"; {num(old)} in the sentence it replaces"
    if canvas.scale.kind == "score":
        said += ". The trigger does not judge it, so it has no colour"
    text = f'<div class="txt" dir="auto">{"".join(out)}</div>'
    return f"{compared}{text}{soft(said + '.')}{_figures(canvas, look)}"


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
    """A prompt in a closed ``details``, each stretch beside its name; exemplars are written out once a view."""
    rows = []
    for name, start, stop in segments(prompt):
        text = prompt.text[start:stop]
        shown = clipped(text, PROMPT_CHARS)
        if name == "exemplars":
            if text in canvas.seen_exemplars:
                same = f"the same {count(len(text), 'character')} as in step {canvas.seen_exemplars[text]}"
                shown = f'<span class="more">{same}</span>'
            canvas.seen_exemplars.setdefault(text, number)
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
    "passages": passages_list,
    "continuation": _continuation,
    "notes": _notes,
    "prompts": _prompts,
}
