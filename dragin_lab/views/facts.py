"""What pages and terminals say of a trace in words: its method, model and costs, its steps, its
passages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any
from unicodedata import normalize

from markupsafe import Markup, escape

from dragin_lab.core.answers import thoughts
from dragin_lab.core.settings import title_setting
from dragin_lab.text import printable
from dragin_lab.trace.trace import Passage, Query, Step, Trace

#: The parts of a step in reading order.
_ORDER = ("thoughts", "draft", "decision", "query", "passages", "continuation", "notes", "prompts")
PARTS = {part: part.capitalize() for part in _ORDER}
NO_MESSAGE = "ended by an error that left no message"
VALUES = 12  # of a list that are written out; of more, how many they are
SIGNS = {"retrieved": "◆", "kept": "✓", "open": "…"}
#: Settings that the line on a method says otherwise, or not at all.
_APART = (
    "name",
    "label",
    "variant",
    "when",
    "what",
    "measure",
    "unit",
    "pipeline",
    "top_k",
    "max_new_tokens",
)
_NAMING = ("id", "name", "kind", "dtype", "device", "corpus")


def step_parts(step: Step) -> list[str]:
    """The parts of a step that have something to show, in reading order."""
    there = {
        "thoughts": thoughts_of(step),
        "passages": step.passages or step.query is not None,
        "notes": step_notes(step),
        "prompts": step.prompt is not None or step.passages_prompt is not None,
    }
    return [
        part
        for part in PARTS
        if (there[part] if part in there else getattr(step, part) is not None)
    ]


def thoughts_of(step: Step) -> list[str]:
    """What a thinking model thought in a step, without the marks around it."""
    marked = [draft.text[a:b] for _, draft, _ in step.texts for a, b in thoughts(draft.text)]
    return [thought.removeprefix("<think>").removesuffix("</think>").strip() for thought in marked]


def step_notes(step: Step) -> list[str]:
    """Everything a reader should know about a step, each line once: its notes and those of its
    prompts, which say of which text they are.
    """
    lines = [*step.notes]
    for source, prompt in (("draft", step.prompt), ("continuation", step.passages_prompt)):
        if prompt is not None:
            lines += [f"{source}: {note}" for note in prompt.notes if note not in lines]
    return list(dict.fromkeys(lines))


def step_outcome(trace: Trace, step: Step) -> tuple[str, str]:
    """The outcome of a step: a word for its sign ("retrieved", "kept", "open") and a line for
    its heading.
    """
    if step.query is not None:
        return (
            "retrieved",
            "retrieved, then wrote" if step.draft is None else "drafted, then retrieved",
        )
    if step.decision is not None:
        if step.decision.retrieve:
            return "open", "called for a retrieval, and nothing was searched for"
        return "kept", "kept as written" if step.draft is not None else "no retrieval"
    if trace.ended == "running":
        return "open", "under way"
    return ("kept", "written, nothing to decide") if step.kept else ("open", "no decision recorded")


def turn_outcome(turn: Any) -> tuple[str, str]:
    """``step_outcome`` of a step under other settings (``whatif.Turn``), as far as its stored
    text tells.
    """
    if turn.decision is None:
        return "open", turn.change or "not judged"
    if turn.decision.retrieve:
        return "retrieved", "retrieves here"
    return "kept", "kept as written"


def judge_answer(trace: Trace) -> tuple[str, str]:
    """``("right" | "wrong" | "partly" | "", a line)`` on the answer, from its scores, with a
    sign.
    """
    if not trace.scores:
        return "", "not scored" if trace.question.golds else "no gold answer"
    f1 = trace.scores.get("f1", 0.0)
    if trace.scores.get("em", 0.0) >= 1:
        return "right", "✓ right"
    return ("partly", f"≈ partly right, F1 {f1:.2f}") if f1 > 0 else ("wrong", "✗ wrong")


def sign_of(scores: Mapping[str, float]) -> str:
    """✓ of a right answer, ✗ of a wrong one, "" where that is not known."""
    return {1.0: "✓", 0.0: "✗"}.get(scores.get("em", -1.0), "")


def header_facts(trace: Trace) -> list[tuple[str, str]]:
    """The lines of the header, without those that say nothing."""
    provenance = trace.provenance
    models = []
    for part in (provenance.get("model"), provenance.get("retriever")):
        known = part
        if isinstance(part, dict):
            known = ", ".join(setting_text(part[name]) for name in _NAMING if part.get(name))
        models.append(str(known or ""))
    # whose they are, where nobody gave any
    template = provenance.get("template")
    chosen = provenance.get("exemplars")
    number = template.get("exemplars") if isinstance(template, dict) else None
    exemplars = [setting_text(one) for one in (number, chosen) if one is not None]
    lines = {
        "method": method_line(trace.method),
        "model": " · ".join(filter(None, models)),
        "exemplars": ": ".join(exemplars) if chosen else "",
        "branch": "" if trace.parting is None else f"parts at {trace.parting}",
        "ended": ended_line(trace),
    }
    return [(name, line) for name, line in lines.items() if line]


def method_line(method: Mapping[str, Any]) -> str:
    """``dragin, reference variant · trigger rind × query formulator qfs · θ 1.2 · top n 25 ·
    …``.
    """
    name = method.get("name", "unnamed method")
    if method.get("variant"):
        name = f"{name}, {method['variant']} variant"
    halves = {"trigger": method.get("when"), "query formulator": method.get("what")}
    both = [f"{role} {setting_text(half)}" for role, half in halves.items() if half]
    parts = [name, " × ".join(both)]
    for setting, value in method.items():
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        if plain and setting not in _APART:
            parts.append(f"{title_setting(setting)} {setting_text(value)}")
    top_k = method.get("top_k")
    length = method.get("max_new_tokens")
    if top_k is not None:
        parts.append(f"{plural(top_k, 'passage')} per retrieval")
    if length is not None:
        parts.append(f"at most {plural(length, 'token')}")
    return " · ".join(filter(None, parts))


def ended_line(trace: Trace) -> str:
    """How the episode ended and what it cost."""
    how = {
        "running": "still running",
        "length": "ended at the length limit",
        "stalled": "ended because the answer no longer grew",
        "cancelled": "cancelled; what was finished is here",
        "error": "ended by an error",
    }.get(trace.ended, trace.ended)
    c = trace.counters
    parts = [
        how,
        plural(c["retrievals"], "retrieval"),
        plural(c["drafts"], "generation"),
        plural(c["generated"], "token"),
    ]
    if c["discarded"]:
        parts.append(f"{c['discarded']:,} thrown away")
    if c["reused"]:
        parts.append(f"{plural(c['reused'], 'prompt token')} from cache")
    if trace.seconds:
        parts.append(f"{trace.seconds:.2f} s")
    return " · ".join(parts)


def no_answer(trace: Trace) -> str:
    return "no answer yet" if trace.ended == "running" else "no answer"


def setting_text(value: Any) -> str:
    if isinstance(value, float):
        return short(value)
    if isinstance(value, dict):
        return ", ".join(f"{k} {setting_text(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return (
            f"{len(value)} values" if len(value) > VALUES else ", ".join(map(setting_text, value))
        )
    return "none" if value is None else str(value)


# -- queries and passages --------------------------------------------------------------------------


def holds_gold(passage: Passage, golds: tuple[str, ...]) -> bool:
    """Whether a gold answer stands in the passage, as whole words, whatever its case."""
    text, *wanted = (normalize("NFC", text) for text in (f"{passage.title} {passage.text}", *golds))
    return any(
        g.strip() and re.search(rf"(?<!\w){re.escape(g.strip())}(?!\w)", text, re.IGNORECASE)
        for g in wanted
    )


def chosen_line(query: Query) -> str:
    """``5 of 13 candidates chosen``."""
    whole = plural(len(query.words), "candidate")
    return (
        f"all {whole} fit, nothing was selected"
        if query.chosen.all()
        else f"{query.chosen.sum()} of {whole} chosen"
    )


# -- numbers and texts -----------------------------------------------------------------------------


def esc(text: object) -> Markup:
    """Any value as HTML text or attribute value: escaped, printable."""
    return escape(printable(text))


def num(value: float, digits: int = 3) -> str:
    """A measured number: three decimals below 10, fewer above; NaN, which means not measured, is
    a dash.
    """
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= 10:
        digits = max(digits - 2, 1) if abs(value) < 1000 else 0
    return f"{value:.{digits}f}".replace("-", "−")


def short(value: float) -> str:
    """A setting or a scale's number, without trailing zeros."""
    return f"{float(value):.3g}".replace("-", "−")


def percent(p: float) -> str:
    """A probability for people: 41 %, 0.3 %, under 0.1 %."""
    return f"{100 * p:.0f} %" if p >= 0.0995 else f"{100 * p:.1f} %" if p >= 0.0005 else "<0.1 %"


def plural(n: int, one: str) -> str:
    """``3 passages``, ``1 passage``, ``1,204 passages``."""
    return f"{n:,} {one}{'' if n == 1 else 's'}"


def clip(text: str, limit: int) -> tuple[str, str]:
    """The text up to ``limit`` characters, and what to say about the rest ("" when nothing is
    left out).
    """
    left = len(text) - limit
    return text[:limit], f"… {plural(left, 'more character')}" if left > 0 else ""


def shorten(text: str, limit: int) -> str:
    """A text on one line, of at most ``limit`` characters, and "…" where it was longer."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def clip_html(text: str, limit: int) -> Markup:
    """``clip`` as HTML: the escaped text and a visible mark where it was cut."""
    head, rest = clip(text, limit)
    return esc(head) + (Markup(f'<span class="more">{rest}</span>') if rest else "")
