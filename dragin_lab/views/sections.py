"""What a trace's view says, apart from how: its parts and their order, its lines of facts, what was kept of what.

The HTML view and the text view both read these, so they tell the same story.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dragin_lab.core.trace import Continuation, Passage, Step, Trace, Words
from dragin_lab.views.html import count, short

#: The parts of a step in reading order: title and the question it answers.
PARTS = {
    "draft": ("Draft", "what the model wrote by itself"),
    "decision": ("Decision", "why retrieve here, or not"),
    "query": ("Query", "what it asked"),
    "passages": ("Passages", "what it found"),
    "continuation": ("Continuation", "what that changed"),
    "notes": ("Notes", "what to know"),
    "prompts": ("Prompts", "exactly what the model read"),
}

#: The settings that a reader needs at once, named for people.
_SETTINGS = {
    "threshold": "θ {}",
    "normalize": "scaled by {}",
    "top_n": "top n {}",
    "n": "every {} pieces",
    "top_k": "{} passages a retrieval",
    "max_new_tokens": "at most {} pieces",
    "call_bonus": "+{} on the logit of a call",
    "call_pause": "no call for {} pieces after a search",
}
#: What names a model or a retriever in its provenance.
_NAMING = ("id", "name", "kind", "dtype", "device", "corpus")
#: Words too common to be worth marking in a passage; the query itself keeps them.
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been but by did do does for from had has have he her his how in is it its of on or she "
        "so that the their them then there they this to was were what when where which who whom whose why will with",
    )
)


def step_parts(step: Step) -> list[str]:
    """The parts of a step that have something to show, in reading order."""
    there = {
        "draft": step.draft is not None,
        "decision": step.decision is not None,
        "query": step.query is not None,
        "passages": bool(step.passages) or step.query is not None,
        "continuation": step.continuation is not None,
        "notes": bool(step_notes(step)),
        "prompts": step.prompt is not None or step.passages_prompt is not None,
    }
    return [part for part in PARTS if there[part]]


def step_notes(step: Step) -> list[str]:
    """Everything a reader should know about a step, each line once: its notes and those of its prompts."""
    prompts = [note for p in (step.prompt, step.passages_prompt) if p is not None for note in p.notes]
    return list(dict.fromkeys([*step.notes, *prompts]))


def outcome(trace: Trace, step: Step) -> tuple[str, str]:
    """What happened in a step: a word for its badge ("retrieved", "kept", "open") and a line for its heading."""
    if step.decision is not None and not step.decision.retrieve and step.query is None:
        return "kept", "kept as written" if step.draft is not None else "no retrieval"
    if step.query is not None:
        after = "retrieved, then wrote" if step.continuation is not None else "retrieved"
        before = "drafted, then retrieved" if step.draft is not None else after
        return "retrieved", before
    if step.decision is not None:
        return "open", "called for a retrieval that is not recorded"
    if trace.ended == "running":
        return "open", "under way"
    if step.draft is not None or step.continuation is not None:
        return ("kept", "written, nothing to decide") if step.kept else ("open", "no decision recorded")
    return "open", "nothing recorded"


def verdict(trace: Trace) -> tuple[str, str]:
    """``("right" | "wrong" | "partly" | "", a line)`` on the answer, from its scores."""
    if not trace.scores:
        return "", "not scored" if trace.question.golds else "no gold answer"
    em, f1 = trace.scores.get("em", 0.0), trace.scores.get("f1", 0.0)
    if em >= 1:
        return "right", "right"
    if f1 > 0:
        return "partly", f"partly right, F1 {f1:.2f}"
    return "wrong", "wrong"


def signed(kind: str, line: str) -> str:
    """A verdict's line with a sign, so that it is told by more than colour."""
    return {"right": "✓ ", "wrong": "✗ ", "partly": "≈ "}.get(kind, "") + line


def method_line(trace: Trace) -> str:
    """``dragin, reference variant · when rind × what qfs · θ 1.2 · …``: what a reader needs at once."""
    method = trace.method
    variant = f", {method['variant']} variant" if method.get("variant") else ""
    parts = [f"{method.get('name', 'unnamed method')}{variant}"]
    halves = [f"{half} {plain(method[half])}" for half in ("when", "what") if method.get(half)]
    if halves:
        parts.append(" × ".join(halves))
    for key, form in _SETTINGS.items():
        value = method.get(key)
        if value is not None and (key != "n" or method.get("when") == "every-n"):
            parts.append(form.format(plain(value)))
    return " · ".join(parts)


def no_answer(trace: Trace) -> str:
    """What stands in the place of an answer that is empty."""
    return "no answer yet" if trace.ended == "running" else "no answer"


def model_line(trace: Trace) -> str:
    """Which model wrote, with which retriever; "" where the provenance has neither."""
    named = []
    for key in ("model", "retriever"):
        value = trace.provenance.get(key)
        if isinstance(value, dict):
            value = ", ".join(
                plain(value[k]) for k in ("id", "name", "kind", "dtype", "device", "corpus") if value.get(k)
            )
        if value:
            named.append(plain(value))
    return " · ".join(named)


def ended_line(trace: Trace) -> str:
    """How the episode ended and what it cost."""
    how = {
        "running": "still running",
        "answered": "answered",
        "length": "ended at the length limit",
        "stalled": "ended because the answer no longer grew",
        "cancelled": "cancelled; what was finished is here",
        "error": "ended by an error",
    }.get(trace.ended, trace.ended)
    c = trace.counters
    parts = [how, count(c["retrievals"], "retrieval"), count(c["drafts"], "generation"), count(c["generated"], "piece")]
    if c["discarded"]:
        parts.append(f"{c['discarded']:,} thrown away")
    if c["reused"]:
        parts.append(f"{count(c['reused'], 'prompt piece')} from cache")
    if trace.seconds:
        parts.append(f"{trace.seconds:.2f} s")
    return " · ".join(parts)


def plain(value: Any) -> str:
    """A setting's value as short text."""
    if isinstance(value, float):
        return short(value)
    if isinstance(value, dict):
        return ", ".join(f"{k} {plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(v) for v in value)
    return "none" if value is None else str(value)


def provenance_rows(trace: Trace) -> list[tuple[str, str]]:
    """Provenance as rows of name and value; what is nested gets its path for a name."""

    def walk(value: Any, path: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from walk(inner, f"{path} · {key}" if path else str(key))
        elif isinstance(value, str | int | float | bool) or value is None:
            yield path, plain(value)
        else:
            yield path, json.dumps(value, ensure_ascii=False, default=str)

    return [(name.replace("_", " "), value) for name, value in walk(trace.provenance, "")]


# -- what was kept of what ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """What a step kept: half-open character ranges of its texts. None: nobody has decided yet."""

    draft: tuple[int, int] | None = None
    continuation: tuple[int, int] | None = None


def kept_of(step: Step) -> Kept:
    """Which part of a step's draft and continuation entered the answer."""
    draft, rest = None, step.kept
    if step.draft is not None:
        text = step.draft.text
        if step.decision is not None:
            cut = len(text) if step.decision.cut is None else step.decision.cut
            draft = (0, max(0, min(cut, len(text))))
        elif step.kept:
            draft = _shared(text, step.kept)
        if draft is not None:
            head = text[: draft[1]].strip()
            rest = rest.lstrip()
            rest = rest[len(head) :] if rest.startswith(head) else rest
    after = None
    if step.continuation is not None and step.continuation_kept is not None:
        after = (0, max(0, min(step.continuation_kept, len(step.continuation.text))))
    elif step.continuation is not None and (rest.strip() or step.answer):
        after = _shared(step.continuation.text, rest)
    return Kept(draft, after)


def common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    if one == other:
        return len(one)
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _shared(text: str, kept: str) -> tuple[int, int]:
    """The range of ``text`` that ``kept`` begins with, white space at the ends aside."""
    lead = len(text) - len(text.lstrip())
    size = common(text[lead:], kept.strip())
    return (lead, lead + size) if size else (0, 0)


@dataclass(frozen=True)
class Origin:
    """A run of the answer text and where it was written: ``made.text[at : at + stop - start]``."""

    start: int  # half-open characters of the trace's text
    stop: int
    at: int
    made: Continuation
    step: Step
    with_passages: bool


def origins(trace: Trace) -> list[Origin]:
    """Where each part of the answer text comes from, in order; what cannot be placed is left out."""
    found: list[Origin] = []
    place = 0
    for step in trace.steps:
        kept = kept_of(step)
        for made, span in ((step.draft, kept.draft), (step.continuation, kept.continuation)):
            if made is None or span is None:
                continue
            body = made.text[span[0] : span[1]]
            at = span[0] + len(body) - len(body.lstrip())
            body = body.strip()
            start = place + len(trace.text[place:]) - len(trace.text[place:].lstrip())
            size = common(body, trace.text[start : start + len(body)])
            if size:
                found.append(Origin(start, start + size, at, made, step, with_passages(step, made)))
                place = start + size
    return found


def with_passages(step: Step, made: Continuation) -> bool:
    """Whether retrieved passages stood in the prompt that a step's text was written behind."""
    if made is step.continuation:
        return bool(step.passages)
    return step.prompt is not None and "passages" in step.prompt.spans


def resumed(trace: Trace, step: Step) -> tuple[str, str]:
    """``before_after`` where a step's draft resumes what the step before it cut (paper variant).

    A search call that was taken out is no text that another has replaced.
    """
    if trace.method.get("when") == "search-call":
        return "", ""
    place = next((i for i, s in enumerate(trace.steps) if s is step), 0)
    if place == 0 or step.draft is None or not step.draft.text.strip():
        return "", ""
    last = trace.steps[place - 1]
    if last.query is None or last.continuation is not None or last.draft is None or last.decision is None:
        return "", ""
    cut = kept_of(last).draft
    if cut is None:
        return "", ""
    before = last.draft.text[cut[1] : sentence_end(last.draft, last.words, last.decision.sentence, cut[1])].strip()
    first = step.words.sentence[0] if len(step.words) else None
    after = step.draft.text[: sentence_end(step.draft, step.words, first, 0)].strip()
    return (before, after) if before and after else ("", "")


def sentence_end(made: Continuation, words: Words, number: int | None, start: int) -> int | None:
    """The character where a sentence of a draft ends, None (the text's end) where that is not known."""
    ends = [
        int(made.offsets[stop - 1, 1])
        for (begin, stop), sentence in zip(words.spans.tolist(), words.sentence.tolist(), strict=True)
        if sentence == number and stop > begin
    ]
    return max(ends) if ends and max(ends) > start else None


def before_after(step: Step, kept: Kept) -> tuple[str, str]:
    """The sentence that was thrown away and what stands there now; ("", "") where the step has no such pair."""
    if step.draft is None or kept.draft is None or step.continuation is None or kept.continuation is None:
        return "", ""
    after = step.continuation.text[slice(*kept.continuation)].strip()
    start = kept.draft[1]
    decided = step.decision.sentence if step.decision is not None else None
    stop = sentence_end(step.draft, step.words, decided, start)
    before = step.draft.text[start:stop].strip()
    return (before, after) if before and after else ("", "")


# -- passages -------------------------------------------------------------------------------------------------------


def query_words(text: str) -> frozenset[str]:
    """The words of a query worth marking in a passage, in lower case."""
    return frozenset(w for w in re.findall(r"\w+", text.casefold()) if w not in _COMMON)


def holds_gold(passage: Passage, golds: tuple[str, ...]) -> bool:
    """Whether a gold answer stands in the passage, as whole words, whatever its case."""
    text = f"{passage.title} {passage.text}"
    return any(g.strip() and re.search(rf"(?<!\w){re.escape(g.strip())}(?!\w)", text, re.IGNORECASE) for g in golds)


def mean_entropy(made: Continuation, start: int, stop: int) -> float:
    """Mean entropy in nats of the pieces that start within these characters; NaN where there are none."""
    inside = (made.offsets[:, 0] >= start) & (made.offsets[:, 0] < stop)
    values = made.entropy[inside]
    return float(values.mean()) if values.size else math.nan
