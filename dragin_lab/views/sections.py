"""The content of a trace's view: its parts and their order, lines of facts, remarks.

The HTML view and the text view both read it, so they say the same.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from unicodedata import normalize

import numpy as np

from dragin_lab.catalog.methods import tables
from dragin_lab.core.answers import thoughts
from dragin_lab.core.method import VARIANTS
from dragin_lab.core.settings import Declaration, title_setting
from dragin_lab.errors import SettingError
from dragin_lab.trace.kept import before_after, kept_of, mean_entropy, with_passages
from dragin_lab.trace.trace import Draft, Passage, Prompt, Query, Step, Trace
from dragin_lab.views.html import clip, count, num, short
from dragin_lab.views.tokens import find_extents

#: The parts of a step in reading order: title and the question it answers.
PARTS = {
    "thoughts": ("Thoughts", "what it thought before it answered"),
    "draft": ("Draft", "what the model wrote by itself"),
    "decision": ("Decision", "why retrieve here, or not"),
    "query": ("Query", "what it asked"),
    "passages": ("Passages", "what it found"),
    "continuation": ("Draft", "what that changed"),
    "notes": ("Notes", "what to know"),
    "prompts": ("Prompts", "exactly what the model read"),
}

#: The sign of each outcome of a step.
SIGNS = {"retrieved": "◆", "kept": "✓", "open": "…"}
EXTRACTION = "“So the answer is” was appended to the text"

#: How a trace's record calls the two halves of its method, and how people do.
_ROLES = {"when": "trigger", "what": "query formulator"}
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
        "thoughts": bool(thoughts_of(step)),
        "draft": step.draft is not None,
        "decision": step.decision is not None,
        "query": step.query is not None,
        "passages": bool(step.passages) or step.query is not None,
        "continuation": step.continuation is not None,
        "notes": bool(step_notes(step)),
        "prompts": step.prompt is not None or step.passages_prompt is not None,
    }
    return [part for part in PARTS if there[part]]


def thoughts_of(step: Step) -> list[str]:
    """What a thinking model thought in a step, without the marks around it."""
    texts = [continuation.text for continuation in (step.draft, step.continuation) if continuation is not None]
    marked = [text[a:b] for text in texts for a, b in thoughts(text)]
    return [thought.removeprefix("<think>").removesuffix("</think>").strip() for thought in marked]


def step_notes(step: Step) -> list[str]:
    """Everything a reader should know about a step, each line once: its notes and those of its prompts."""
    prompts = [note for p in (step.prompt, step.passages_prompt) if p is not None for note in p.notes]
    return list(dict.fromkeys([*step.notes, *prompts]))


def step_outcome(trace: Trace, step: Step) -> tuple[str, str]:
    """The outcome of a step: a word for its badge ("retrieved", "kept", "open") and a line for its heading."""
    if step.decision is not None and not step.decision.retrieve and step.query is None:
        return "kept", "kept as written" if step.draft is not None else "no retrieval"
    if step.query is not None:
        after = "retrieved, then wrote" if step.continuation is not None else "retrieved"
        before = "drafted, then retrieved" if step.draft is not None else after
        return "retrieved", before
    if step.decision is not None:
        return "open", "called for a retrieval, and nothing was searched for"
    if trace.ended == "running":
        return "open", "under way"
    if step.draft is not None or step.continuation is not None:
        return ("kept", "written, nothing to decide") if step.kept else ("open", "no decision recorded")
    return "open", "nothing recorded"


def describe_text(trace: Trace, step: Step, name: str) -> str:
    """What a step's draft or continuation is, in a few words."""
    if name == "continuation":
        return "written with passages in view" if with_passages(step, name) else "written on"
    return step_outcome(trace, step)[1]


def judge_answer(trace: Trace) -> tuple[str, str]:
    """``("right" | "wrong" | "partly" | "", a line)`` on the answer, from its scores."""
    if not trace.scores:
        return "", "not scored" if trace.question.golds else "no gold answer"
    em, f1 = trace.scores.get("em", 0.0), trace.scores.get("f1", 0.0)
    if em >= 1:
        return "right", "right"
    if f1 > 0:
        return "partly", f"partly right, F1 {f1:.2f}"
    return "wrong", "wrong"


def sign_verdict(kind: str, line: str) -> str:
    """A verdict's line with a sign, so that it does not rely on colour alone."""
    return {"right": "✓ ", "wrong": "✗ ", "partly": "≈ "}.get(kind, "") + line


def method_line(trace: Trace) -> str:
    """``dragin, reference variant · trigger rind × query formulator qfs · θ 1.2 · top n 25 words · …``."""
    method = trace.method
    variant = f", {method['variant']} variant" if method.get("variant") else ""
    halves = [f"{role} {setting_text(method[key])}" for key, role in _ROLES.items() if method.get(key)]
    declared = {"threshold": Declaration()} | declared_settings(method)
    parts = [f"{method.get('name', 'unnamed method')}{variant}", " × ".join(halves)]
    for name, setting in declared.items():
        value = method.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            parts.append(f"{title_setting(name)} {setting_text(value)} {setting.unit}".strip())
    top_k, length = method.get("top_k"), method.get("max_new_tokens")
    parts += [f"{count(top_k, 'passage')} per retrieval"] if top_k is not None else []
    return " · ".join(filter(None, [*parts, f"at most {count(length, 'token')}" if length is not None else ""]))


def declared_settings(method: Mapping[str, Any]) -> dict[str, Declaration]:
    """The declared settings of a recorded method's trigger and query formulator, as far as these are known here."""
    declared: dict[str, Declaration] = {}
    variant = method.get("variant")
    for key, table in tables(variant if variant in VARIANTS else VARIANTS[0]):
        with suppress(SettingError):
            declared |= table.named(method[key]).declared() if method.get(key) else {}
    return declared


def header_facts(trace: Trace) -> list[tuple[str, str]]:
    """The lines of the header, without those that say nothing."""
    lines = {
        "method": method_line(trace),
        "model": model_line(trace),
        "exemplars": exemplars_line(trace),
        "branch": "" if trace.parting is None else f"parts at {trace.parting}",
        "ended": ended_line(trace),
    }
    return [(name, line) for name, line in lines.items() if line]


def error_line(trace: Trace) -> str:
    """The error that an episode ended by."""
    return trace.error or "ended by an error that left no message"


def no_answer(trace: Trace) -> str:
    """The text in place of an empty answer."""
    return "no answer yet" if trace.ended == "running" else "no answer"


def model_line(trace: Trace) -> str:
    """Which model wrote, with which retriever; "" where the provenance has neither."""
    named = []
    for key in ("model", "retriever"):
        value = trace.provenance.get(key)
        if isinstance(value, dict):
            value = ", ".join(setting_text(value[k]) for k in _NAMING if value.get(k))
        if value:
            named.append(setting_text(value))
    return " · ".join(named)


def exemplars_line(trace: Trace) -> str:
    """How many exemplars stood in the prompt and whose they are, where nobody gave any; "" otherwise."""
    template, chosen = trace.provenance.get("template"), trace.provenance.get("exemplars")
    number = template.get("exemplars") if isinstance(template, dict) else None
    return ": ".join(setting_text(value) for value in (number, chosen) if value is not None) if chosen else ""


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
    parts = [how, count(c["retrievals"], "retrieval"), count(c["drafts"], "generation"), count(c["generated"], "token")]
    if c["discarded"]:
        parts.append(f"{c['discarded']:,} thrown away")
    if c["reused"]:
        parts.append(f"{count(c['reused'], 'prompt token')} from cache")
    parts += filter(None, [describe_asked_again(trace.continuations)])
    if trace.seconds:
        parts.append(f"{trace.seconds:.2f} s")
    return " · ".join(parts)


def setting_text(value: Any) -> str:
    """A setting's value as short text."""
    if isinstance(value, float):
        return short(value)
    if isinstance(value, dict):
        return ", ".join(f"{k} {setting_text(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(setting_text(v) for v in value)
    return "none" if value is None else str(value)


def provenance_rows(trace: Trace) -> list[tuple[str, str]]:
    """Provenance as rows of name and value; what is nested gets its path for a name."""

    def walk(value: Any, path: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from walk(inner, f"{path} · {key}" if path else str(key))
        elif isinstance(value, str | int | float | bool) or value is None:
            yield path, setting_text(value)
        else:
            yield path, json.dumps(value, ensure_ascii=False, default=str)

    return [(name.replace("_", " "), value) for name, value in walk(trace.provenance, "")]


# -- passages -------------------------------------------------------------------------------------------------------


def query_words(text: str) -> frozenset[str]:
    """The words of a query worth marking in a passage, in lower case."""
    return frozenset(w for w in re.findall(r"\w+", text.casefold()) if w not in _COMMON)


def holds_gold(passage: Passage, golds: tuple[str, ...]) -> bool:
    """Whether a gold answer stands in the passage, as whole words, whatever its case."""
    text, *wanted = (normalize("NFC", text) for text in (f"{passage.title} {passage.text}", *golds))
    return any(g.strip() and re.search(rf"(?<!\w){re.escape(g.strip())}(?!\w)", text, re.IGNORECASE) for g in wanted)


def mark_words(text: str, words: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """A text in parts, each with whether it is one of these words."""
    place = 0
    for match in re.finditer(r"\w+", text):
        if match[0].casefold() in words:
            yield text[place : match.start()], False
            yield match[0], True
            place = match.end()
    yield text[place:], False


def query_pool(query: Query) -> list[tuple[str, float, bool, float]]:
    """The candidates of a query: word, weight, whether it was chosen, and its share of the largest weight."""
    weights = np.nan_to_num(np.asarray(query.weights, np.float64))
    top = float(weights.max(initial=0.0)) or 1.0
    values = zip(query.words, weights.tolist(), query.chosen.tolist(), strict=True)
    return [(word, weight, chosen, weight / top) for word, weight, chosen in values]


# -- texts and prompts ------------------------------------------------------------------------------------------------

Parts = list[tuple[str, bool]]


def compare_sentences(before: str, after: str) -> tuple[Parts, Parts]:
    """Two sentences, each in runs of words with whether the other one lacks them."""
    old, new = before.split()[:120], after.split()[:120]
    ops = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return (
        [(" ".join(old[a:b]), op != "equal") for op, a, b, _, _ in ops if a < b],
        [(" ".join(new[c:d]), op != "equal") for op, _, _, c, d in ops if c < d],
    )


def prompt_segments(prompt: Prompt) -> list[tuple[str, int, int]]:
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
    return [*out, ("", place, end)] if place < end else out


def cut_of(step: Step) -> tuple[int, int]:
    """The character where a step's draft was cut, and how many tokens lie after it."""
    assert step.draft is not None
    at = kept_of(step).draft or 0
    return at, sum(last - first for start, _, first, last, _ in find_extents(step.draft) if start >= at)


def about_continuation(step: Step, colours: str) -> str:
    """How certain a continuation is, beside the sentence that it replaces."""
    continuation, kept = step.continuation, kept_of(step)
    assert continuation is not None
    how = "Written with the passages in view" if with_passages(step, "continuation") else "Written without passages"
    text = f"{how}: mean entropy {num(mean_entropy(continuation, 0, kept.continuation or len(continuation.text)))} nats"
    before, _ = before_after(step)
    if before and step.draft is not None and kept.draft is not None:
        old = mean_entropy(step.draft, kept.draft, kept.draft + len(before))
        text += f"; {num(old)} in the sentence it replaces"
    text += ". The trigger does not judge it, so it has no colour." if colours == "score" else "."
    return " ".join(filter(None, [text, describe_bounds(continuation)]))


def describe_bounds(continuation: Draft) -> str:
    """How closely a server's entropies are known, and how often it was asked again; "" for a model that has all."""
    width = continuation.entropy_width
    if width is None or not len(width):
        return ""
    apart = f"Entropies are known to ± {num(float(width.max()) / 2)} nats or better"
    return "; ".join(filter(None, [apart, describe_asked_again([continuation])])) + "."


def describe_asked_again(continuations: Iterable[Draft | None]) -> str:
    """``3 tokens asked again``: those whose distribution a server was asked for again; "" for none."""
    again = sum(continuation.asked_again for continuation in continuations if continuation is not None)
    return f"{count(again, 'token')} asked again" if again else ""


def part_title(step: Step, part: str) -> tuple[str, str]:
    """The title of a part of a step, and the question that the part answers."""
    title, asks = PARTS[part]
    changes = part != "continuation" or with_passages(step, part)
    return title, asks if changes else "what the model wrote next"


def part_text(step: Step, part: str) -> str:
    """A part of a step as bare text, shown where drawing it fails."""
    continuation = {"draft": step.draft, "continuation": step.continuation}.get(part)
    text = continuation.text if continuation is not None else str(getattr(step, part, None) or step.passages_prompt)
    return clip(text, 4000)[0]
