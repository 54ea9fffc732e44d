"""What pages and terminals say of a trace in words: its method, model and costs, its steps, its passages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from unicodedata import normalize

from dragin_lab.catalog.methods import tables
from dragin_lab.core.answers import thoughts
from dragin_lab.core.method import VARIANTS
from dragin_lab.core.settings import Declaration, title_setting
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Draft, Passage, Query, Step, Trace
from dragin_lab.views.html import count, num, short

#: The parts of a step in reading order.
PARTS = {
    "thoughts": "Thoughts",
    "draft": "Draft",
    "decision": "Decision",
    "query": "Query",
    "passages": "Passages",
    "continuation": "Continuation",
    "notes": "Notes",
    "prompts": "Prompts",
}
NO_MESSAGE = "ended by an error that left no message"
SIGNS = {"retrieved": "◆", "kept": "✓", "open": "…"}
_ROLES = {"when": "trigger", "what": "query formulator"}
_NAMING = ("id", "name", "kind", "dtype", "device", "corpus")
#: Words too common to be worth marking in a passage; the query itself keeps them.
_COMMON = re.compile(
    "a|an|and|are|as|at|be|been|but|by|did|do|does|for|from|had|has|have|he|her|his|how|in|is|it|its|of|on|or|she|so|"
    "that|the|their|them|then|there|they|this|to|was|were|what|when|where|which|who|whom|whose|why|will|with"
)


def step_parts(step: Step) -> list[str]:
    """The parts of a step that have something to show, in reading order."""
    there = {
        "thoughts": thoughts_of(step),
        "draft": step.draft is not None,
        "decision": step.decision is not None,
        "query": step.query is not None,
        "passages": step.passages or step.query is not None,
        "continuation": step.continuation is not None,
        "notes": step_notes(step),
        "prompts": step.prompt is not None or step.passages_prompt is not None,
    }
    return [part for part in PARTS if there[part]]


def thoughts_of(step: Step) -> list[str]:
    """What a thinking model thought in a step, without the marks around it."""
    texts = [text.text for text in (step.draft, step.continuation) if text is not None]
    marked = [text[a:b] for text in texts for a, b in thoughts(text)]
    return [thought.removeprefix("<think>").removesuffix("</think>").strip() for thought in marked]


def step_notes(step: Step) -> list[str]:
    """Everything a reader should know about a step, each line once: its notes and those of its prompts."""
    prompts = [note for p in (step.prompt, step.passages_prompt) if p is not None for note in p.notes]
    return list(dict.fromkeys([*step.notes, *prompts]))


def step_outcome(trace: Trace, step: Step) -> tuple[str, str]:
    """The outcome of a step: a word for its sign ("retrieved", "kept", "open") and a line for its heading."""
    if step.query is not None:
        return "retrieved", "retrieved, then wrote" if step.draft is None else "drafted, then retrieved"
    if step.decision is not None:
        if step.decision.retrieve:
            return "open", "called for a retrieval, and nothing was searched for"
        return "kept", "kept as written" if step.draft is not None else "no retrieval"
    if trace.ended == "running":
        return "open", "under way"
    return ("kept", "written, nothing to decide") if step.kept else ("open", "no decision recorded")


def judge_answer(trace: Trace) -> tuple[str, str]:
    """``("right" | "wrong" | "partly" | "", a line)`` on the answer, from its scores, with a sign."""
    if not trace.scores:
        return "", "not scored" if trace.question.golds else "no gold answer"
    f1 = trace.scores.get("f1", 0.0)
    if trace.scores.get("em", 0.0) >= 1:
        return "right", "✓ right"
    return ("partly", f"≈ partly right, F1 {f1:.2f}") if f1 > 0 else ("wrong", "✗ wrong")


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


def method_line(trace: Trace) -> str:
    """``dragin, reference variant · trigger rind × query formulator qfs · θ 1.2 · top n 25 words · …``."""
    method = trace.method
    variant = f", {method['variant']} variant" if method.get("variant") else ""
    halves = [f"{role} {setting_text(method[key])}" for key, role in _ROLES.items() if method.get(key)]
    parts = [f"{method.get('name', 'unnamed method')}{variant}", " × ".join(halves)]
    for name, setting in ({"threshold": Declaration()} | declared_settings(method)).items():
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


def model_line(trace: Trace) -> str:
    """Which model wrote, with which retriever; "" where the provenance has neither."""
    named = []
    for key in ("model", "retriever"):
        value = trace.provenance.get(key)
        if isinstance(value, dict):
            value = ", ".join(setting_text(value[k]) for k in _NAMING if value.get(k))
        named += [setting_text(value)] if value else []
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
        "length": "ended at the length limit",
        "stalled": "ended because the answer no longer grew",
        "cancelled": "cancelled; what was finished is here",
        "error": "ended by an error",
    }.get(trace.ended, trace.ended)
    c = trace.counters
    parts = [how, count(c["retrievals"], "retrieval"), count(c["drafts"], "generation"), count(c["generated"], "token")]
    parts += [f"{c['discarded']:,} thrown away"] if c["discarded"] else []
    parts += [f"{count(c['reused'], 'prompt token')} from cache"] if c["reused"] else []
    parts += [f"{trace.seconds:.2f} s" if trace.seconds else ""]
    return " · ".join(filter(None, parts))


def no_answer(trace: Trace) -> str:
    """The text in place of an empty answer."""
    return "no answer yet" if trace.ended == "running" else "no answer"


def setting_text(value: Any) -> str:
    """A setting's value as short text."""
    if isinstance(value, float):
        return short(value)
    if isinstance(value, dict):
        return ", ".join(f"{k} {setting_text(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(setting_text, value))
    return "none" if value is None else str(value)


def provenance_rows(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Nested data as rows of name and value; what is nested gets its path for a name."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from provenance_rows(inner, f"{path} · {key}" if path else str(key).replace("_", " "))
    elif isinstance(value, str | int | float | bool) or value is None:
        yield path, setting_text(value)
    else:
        yield path, json.dumps(value, ensure_ascii=False, default=str)


def cost_rows(trace: Trace) -> tuple[list[str], list[list[str]]]:
    """What each step cost: names of the columns, rows."""
    kinds = list(dict.fromkeys(kind for step in trace.steps for kind in step.seconds))
    rows = []
    for step in trace.steps:
        texts = [text for _, text, _ in step.texts]
        counts = [len(texts), sum(map(len, texts)), step.discarded_tokens, int(step.query is not None)]
        counts += [sum(len(text.prompt_ids) for text in texts), sum(text.reused for text in texts)]
        rows.append(
            [f"step {step.index + 1}", *(f"{n:,}" for n in counts), *(num(step.seconds.get(k, 0.0)) for k in kinds)]
        )
    names = ["", "calls", "tokens", "thrown away", "searches", "prompt tokens", "from cache"]
    return [*names, *(f"{kind} s" for kind in kinds)], rows


def describe_bounds(text: Draft) -> str:
    """How closely a server's entropies are known; "" for a model that has all."""
    if text.entropy_width is None or not len(text.entropy_width):
        return ""
    return f"Entropies are known to ± {num(float(text.entropy_width.max()) / 2)} nats or better."


# -- queries and passages ---------------------------------------------------------------------------------------------


def query_words(query: Query | None) -> frozenset[str]:
    """The words of a query worth marking in a passage, in lower case."""
    text = "" if query is None else query.sent or query.text
    return frozenset(word for word in re.findall(r"\w+", text.casefold()) if not _COMMON.fullmatch(word))


def mark_words(text: str, words: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """A text in parts, each with whether it is one of these words."""
    for part in re.split(r"(\w+)", text):
        yield part, part.casefold() in words


def holds_gold(passage: Passage, golds: tuple[str, ...]) -> bool:
    """Whether a gold answer stands in the passage, as whole words, whatever its case."""
    text, *wanted = (normalize("NFC", text) for text in (f"{passage.title} {passage.text}", *golds))
    return any(g.strip() and re.search(rf"(?<!\w){re.escape(g.strip())}(?!\w)", text, re.IGNORECASE) for g in wanted)


def query_pool(query: Query) -> list[tuple[str, float, bool, float]]:
    """The candidates of a query: word, weight, whether it was chosen, and its share of the largest weight."""
    top = max(float(query.weights.max(initial=0.0)), 1e-9)
    pairs = zip(query.words, query.weights.tolist(), query.chosen.tolist(), strict=True)
    return [(word, weight, chosen, weight / top if weight == weight else 0.0) for word, weight, chosen in pairs]


def chosen_line(query: Query) -> str:
    """``5 of 13 candidates chosen``."""
    whole = count(len(query.words), "candidate")
    return f"all {whole} fit, nothing was selected" if query.chosen.all() else f"{query.chosen.sum()} of {whole} chosen"
