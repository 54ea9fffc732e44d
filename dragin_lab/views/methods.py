"""Methods side by side on one question: the same sentence of each under the other, what differs marked."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dragin_lab.core.trace import Step, Trace
from dragin_lab.errors import SettingError
from dragin_lab.views import sections
from dragin_lab.views.alignment import align
from dragin_lab.views.frame import View, asked, framed, opened
from dragin_lab.views.html import attempt, clip, clipped, count, esc, num, printable, row, soft, tag

MAX_TRACES = 16
MAX_SENTENCES = 40
SENTENCE_CHARS = 1500


@dataclass(frozen=True)
class Mark:
    """Where passages came in: a character of the answer text, and the step that fetched them."""

    place: int
    step: Step


@dataclass
class Told:
    """One trace of the comparison."""

    trace: Trace
    label: str
    spans: list[tuple[int, int]]  # characters of its sentences
    left_out: int  # sentences behind the last one drawn
    marks: list[Mark]
    fresh: list[tuple[int, int]]  # characters written with passages in view

    @property
    def sentences(self) -> list[str]:
        """The texts of its sentences."""
        return [self.trace.text[a:b] for a, b in self.spans]


def side_by_side(traces: Iterable[Trace | str | Path], *, labels: Sequence[str] | None = None) -> View:
    """Several traces of one question, sentence under sentence; words that the first one does not have are marked.

    ``labels`` name the traces; without them a name is the method's and, where two share it, what differs in their
    settings. Raises ``SettingError`` for no trace, more than ``MAX_TRACES``, traces of different questions, or other
    than one label each; ``TraceFileError`` for a path that holds no trace.
    """
    if isinstance(traces, Trace | str | Path):
        raise SettingError("side_by_side compares several traces; give a list of them")
    found = [opened(trace) for trace in traces]
    if not 1 <= len(found) <= MAX_TRACES:
        raise SettingError(f"{len(found)} traces cannot be compared; give 1 to {MAX_TRACES} of one question")
    told = _all_told(found, labels)
    html, text = framed("The comparison", partial(_card, told), partial(_text, told), ("methods",))
    return View(f"{clip(found[0].question.text, 80)[0]} – methods", html, text)


def inside(traces: Sequence[Trace], labels: Sequence[str] | None = None) -> str:
    """The inside of that view's card; errors as for ``side_by_side``."""
    return _card(_all_told(traces, labels))


def _all_told(found: Sequence[Trace], labels: Sequence[str] | None) -> list[Told]:
    other = next((t for t in found if t.question.text.strip() != found[0].question.text.strip()), None)
    if other is not None:
        said = f"{clip(found[0].question.text, 80)[0]!r} and {clip(other.question.text, 80)[0]!r}"
        raise SettingError(f"the traces ask different questions, {said}; compare traces of one")
    if labels is not None and len(labels) != len(found):
        raise SettingError(f"{len(labels)} labels do not go with {len(found)} traces; give one each")
    return [_told(t, name) for t, name in zip(found, labels or names_of(found), strict=True)]


def names_of(traces: Sequence[Trace]) -> list[str]:
    """A name for each trace: its method's, with as many settings as tell it from others of that name."""
    names = [str(t.method.get("name", "unnamed")) for t in traces]
    for key in ("variant", "when", "what", "threshold", "top_n", "n", "normalize", "top_k", "max_new_tokens"):
        for name in {n for n in names if names.count(n) > 1}:
            peers = [i for i, n in enumerate(names) if n == name]
            values = {str(traces[i].method.get(key)) for i in peers}
            for i in peers if len(values) > 1 else []:
                value = sections.plain(traces[i].method.get(key))
                names[i] += f", {value if key in ('variant', 'when', 'what') else f'{_SHORT.get(key, key)} {value}'}"
    counted: Counter[str] = Counter()
    out = []
    for name in names:
        counted[name] += 1
        out.append(f"{name} #{counted[name]}" if names.count(name) > 1 else name)
    return out


_SHORT = {"threshold": "θ", "top_n": "top n", "top_k": "top k", "max_new_tokens": "at most"}


def _told(trace: Trace, label: str) -> Told:
    from dragin_lab.core.sentences import load_pipeline

    spans = load_pipeline().spans(printable(trace.text))  # as many characters, none that spaCy refuses
    marks, fresh = [], []
    seen: set[int] = set()
    for origin in sections.origins(trace):
        step = origin.step
        if origin.with_passages:
            fresh.append((origin.start, origin.stop))
        if step.query is not None and id(step) not in seen:
            follows = origin.made is step.continuation
            if follows or step.continuation is None:
                seen.add(id(step))
                marks.append(Mark(origin.start if follows else origin.stop, step))
    placed = {id(m.step) for m in marks}
    place = 0
    for step in trace.steps:  # a retrieval of which no text stands in the answer
        mark = next((m for m in marks if m.step is step), None)
        place = mark.place if mark else place
        if step.query is not None and id(step) not in placed:
            marks.append(Mark(place, step))
    left_out = max(len(spans) - MAX_SENTENCES, 0)
    return Told(trace, label, spans[:MAX_SENTENCES], left_out, sorted(marks, key=lambda m: m.place), fresh)


# -- the card ---------------------------------------------------------------------------------------------------------


def _card(told: list[Told]) -> str:
    first = told[0].trace
    golds = " or ".join(f"<bdi>{esc(g)}</bdi>" for g in first.question.golds[:8])
    known = f'<p class="soft">gold: {golds}</p>' if golds else ""
    parts = [f"{asked(first)}{known}</header>"]
    parts.append(row("methods", "Methods", "what each answered, and what it took", _table(told)))
    parts.append(_legend(told))
    slots = align([t.sentences for t in told])
    for number, slot in enumerate(slots, 1):
        inner = attempt(f"Sentence {number}", partial(_slot, told, slot), lambda: "")
        parts.append(row("sentence", f"Sentence {number}", "", inner))
    if not slots:
        parts.append(row("sentence", "Sentences", "", soft("Nothing is written yet.")))
    rest = [f"{t.label}: {count(t.left_out, 'more sentence')}" for t in told if t.left_out]
    if rest:
        parts.append(row("rest", "Left out", "", soft("; ".join(rest))))
    return "".join(parts)


def _table(told: list[Told]) -> str:
    names = ("method", "answer", "verdict", "retrievals", "pieces", "thrown away", "seconds", "ended")
    cells = "".join(f'<th scope="col">{n}</th>' for n in names)
    rows = []
    for t in told:
        kind, line = sections.verdict(t.trace)
        counted = t.trace.counters
        answer = f"<bdi>{clipped(t.trace.answer or sections.no_answer(t.trace), 80)}</bdi>"
        numbers = (counted["retrievals"], counted["generated"], counted["discarded"])
        values = "".join(f'<td class="n">{n:,}</td>' for n in numbers)
        rows.append(
            f'<tr><th scope="row">{clipped(t.label, 120)}</th><td>{answer}</td>'
            f'<td><span class="chip {kind}">{esc(sections.signed(kind, line))}</span></td>{values}'
            f'<td class="n">{num(t.trace.seconds, 2)}</td><td>{esc(t.trace.ended)}</td></tr>'
        )
    table = f'<table class="told"><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="wide">{table}</div>'


def _legend(told: list[Told]) -> str:
    first = esc(clip(told[0].label, 60)[0])
    differs = f"<span><ins>differs</ins> from {first}, the first listed</span>" if len(told) > 1 else ""
    return (
        f'<div class="legend" data-part="legend">{differs}<span>{tag("◆ n", "ok")} passages of step n came in</span>'
        '<span><span class="new">written with passages</span></span>'
        '<span>instead of <del class="cut">what it threw away</del></span></div>'
    )


def _slot(told: list[Told], slot: list[int | None]) -> str:
    base = told[0].sentences[slot[0]] if slot[0] is not None else ""
    out = []
    for place, (t, at) in enumerate(zip(told, slot, strict=True)):
        shown = _sentence(t, at, base if place else "") if at is not None else '<span class="soft">–</span>'
        out.append(f'<div class="one"><b class="who">{clipped(t.label, 60)}</b><div dir="auto">{shown}</div></div>')
    return f'<div class="slot">{"".join(out)}</div>'


def _sentence(t: Told, at: int, base: str) -> str:
    """One sentence with what it has and ``base`` has not marked, and what was asked for it."""
    start, stop = t.spans[at]
    marks = own_marks(t, at)
    words = [(start + m.start(), m[0]) for m in re.finditer(r"\S+", clip(t.trace.text[start:stop], SENTENCE_CHARS)[0])]
    new = _new_words([w for _, w in words], base.split()) if base else frozenset()
    out, waiting = [], list(marks)
    for number, (place, word) in enumerate(words):
        while waiting and waiting[0].place <= place:
            out.append(tag(f"◆ {waiting.pop(0).step.index + 1}", "ok"))
        text = f"<ins>{esc(word)}</ins>" if number in new else esc(word)
        out.append(f'<span class="new">{text}</span>' if any(a <= place < b for a, b in t.fresh) else text)
    out += [tag(f"◆ {m.step.index + 1}", "ok") for m in waiting]
    if stop - start > SENTENCE_CHARS:
        out.append(f'<span class="more">{clip(t.trace.text[start:stop], SENTENCE_CHARS)[1]}</span>')
    return " ".join(out) + "".join(map(_asked_for, marks))


def own_marks(t: Told, at: int) -> list[Mark]:
    """The retrievals that came in before or within a sentence, behind the one before it; the last takes the rest."""
    low = t.spans[at - 1][1] if at else -1
    high = t.spans[at][1] if at < len(t.spans) - 1 else len(t.trace.text) + 1
    return [m for m in t.marks if low <= m.place < high]


def _new_words(words: list[str], base: list[str]) -> frozenset[int]:
    matcher = difflib.SequenceMatcher(None, base, words, autojunk=False)
    return frozenset(i for op, _, _, a, b in matcher.get_opcodes() if op in ("insert", "replace") for i in range(a, b))


def _asked_for(mark: Mark) -> str:
    query, gone = mark.step.query, _instead(mark.step)
    assert query is not None
    asked_for = f"◆ {mark.step.index + 1} asked: <bdi>{clipped(query.sent or '(empty query)', 300)}</bdi>"
    instead = f'<br>instead of <del class="cut">{clipped(gone, 300)}</del>' if gone else ""
    return f"<small>{asked_for}{instead}</small>"


def _instead(step: Step) -> str:
    """The rest of the draft's sentence that a retrieval threw away."""
    kept = sections.kept_of(step).draft
    if step.draft is None or kept is None or step.decision is None:
        return ""
    end = sections.sentence_end(step.draft, step.words, step.decision.sentence, kept[1])
    return step.draft.text[kept[1] : end].strip()


# -- text -------------------------------------------------------------------------------------------------------------


def _text(told: list[Told]) -> str:
    out = [f"Question      {told[0].trace.question.text}"]
    wide = max(len(clip(t.label, 40)[0]) for t in told)
    for t in told:
        counted = t.trace.counters
        line = sections.signed(*sections.verdict(t.trace))
        out.append(
            f"{clip(t.label, 40)[0]:<{wide}}  {t.trace.answer or sections.no_answer(t.trace)} ({line}), "
            f"{count(counted['retrievals'], 'retrieval')}, {count(counted['generated'], 'piece')}"
        )
    for number, slot in enumerate(align([t.sentences for t in told]), 1):
        out.append(f"\nSentence {number}")
        for t, at in zip(told, slot, strict=True):
            signs = "" if at is None else "".join(f"◆{m.step.index + 1} " for m in own_marks(t, at))
            said = "–" if at is None else clip(t.sentences[at], SENTENCE_CHARS)[0]
            out.append(f"{clip(t.label, 40)[0]:<{wide}}  {signs}{said}")
    return "\n".join(out) + "\n"
