"""Where a query's words stand in the text: what the hit attended to, and what each retrieval brought (DRAGIN §3.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path

from dragin_lab.almanac.facts import Labelled
from dragin_lab.checks import several
from dragin_lab.errors import SettingError
from dragin_lab.trace.kept import sentence_end
from dragin_lab.trace.trace import Query, Step, Trace
from dragin_lab.trace.words import word_starts
from dragin_lab.views.canvas import Canvas
from dragin_lab.views.frame import View
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import clip
from dragin_lab.views.rendering import render_template
from dragin_lab.views.tokens import judged_units
from dragin_lab.views.trace import draw_trace

MAX_RETRIEVALS = 40
WORDS = 400  # of one text
PARTS = {"question": "question", "answer": "answer so far", "draft": "draft"}


def selections(trace: Trace | str | Path, *, gold: Labelled | Iterable[str] | None = None) -> View:
    """Every retrieval of a trace: what its query was made from, word by word, and what it found.

    ``gold`` says which passages hold what was needed: the question's labels (``facts.load_labels``) or the ids of the
    passages. A path that holds no readable trace gives its message in place. Raises ``SettingError`` for the labels of
    another question.
    """
    if not (gold is None or isinstance(gold, str | Labelled)):
        gold = [str(i) for i in several("gold", gold, str | int, "give passage ids")]
    if isinstance(trace, Trace):
        find_gold(trace, gold)
    return draw_trace("query", trace, partial(_fill_template, gold), "qfs")


def _fill_template(gold: Labelled | Iterable[str] | None, trace: Trace) -> str:
    need = find_gold(trace, gold)
    return render_template(
        "query.html", canvas=Canvas.of(trace, "query", gold=frozenset(need)), need=need, most=MAX_RETRIEVALS,
        steps=[step for step in trace.steps if step.query is not None], list_candidates=list_candidates,
    )  # fmt: skip


@dataclass(frozen=True)
class SourceWord:
    """A word of the text behind a query. ``weight`` is NaN where it was not a candidate."""

    text: str
    part: str  # "question", "answer" or "draft"
    weight: float = math.nan
    weighed: bool = False  # whether it was a candidate
    chosen: bool = False
    hit: bool = False
    fired: bool = False  # the word with the token that fired
    opens: bool = False  # whether it begins the sentence or the draft that fired
    closes: str = ""  # where it ends it: the score of that unit against θ

    def share(self, top: float) -> float:
        """Its weight as a share of the largest one."""
        return self.weight / top if top > 0 and math.isfinite(self.weight) else 0.0


def list_candidates(trace: Trace, step: Step) -> tuple[list[tuple[str, list[SourceWord], int]], float, list[str]]:
    """The candidates of a step's query: by part, with how many earlier ones are left out; the largest weight; remarks.

    A long text is cut at its start, because its end is near the hit.
    """
    words, lost = source_words(trace, step)
    top = max((t.weight for t in words if t.weighed and math.isfinite(t.weight)), default=0.0)
    parts, shown = [], 0
    for part, group in groupby(words, key=lambda t: t.part):
        inside = list(group)
        left_out = max(len(inside) - (WORDS if part == "draft" else max(WORDS - shown, 0)), 0)
        shown += len(inside) - left_out
        parts.append((PARTS[part], inside[left_out:], left_out))
    remarks = []
    if not any(t.weighed for t in words):
        what = trace.method.get("what", "?")
        remarks.append(f"Query formulator {what!r} does not use attention, so no word has a weight.")
    if lost:
        remarks.append(f"Not found in the text: {clip(' '.join(lost), 300)[0]}.")
    return parts, top, remarks


def source_texts(trace: Trace, step: Step) -> list[tuple[str, str]]:
    """The text that a step's query could be made from, as (part, text): question, answer so far, draft up to its cut.

    The released code also reads the rest of the sentence that fired, so in the reference variant it is there too.
    """
    place = next((i for i, s in enumerate(trace.steps) if s is step), 0)
    before = trace.steps[place - 1].answer if place else ""
    return [("question", trace.question.text), ("answer", before), ("draft", _draft_source(trace, step))]


def _draft_source(trace: Trace, step: Step) -> str:
    draft, decision = step.draft, step.decision
    if draft is None or decision is None:
        return ""
    cut = len(draft.text) if decision.cut is None else decision.cut
    reached = [cut, *(stop for _, stop in hit_spans(step)), *(fired_unit(trace, step) or ())[1:2]]
    if trace.method.get("variant") == "reference":
        reached.append(sentence_end(step, decision.sentence, cut) or len(draft.text))
    return draft.text[: max(reached)]


def hit_spans(step: Step) -> list[tuple[int, int]]:
    """The characters of a draft's flagged words; of the token that fired where no word is flagged."""
    if step.draft is None:
        return []
    flagged = [tuple(span) for span, hit in zip(step.words.spans.tolist(), step.words.hit, strict=True) if hit]
    token = step.decision.token if step.decision is not None else None
    if not flagged and token is not None:
        flagged = [(token, token + 1)]
    offsets, text = step.draft.offsets, step.draft.text
    spans = [(int(offsets[a, 0]), int(offsets[b - 1, 1])) for a, b in flagged if a < b <= len(offsets)]
    # The space before a word is among the characters of its first token.
    return [(stop - len(text[start:stop].lstrip()), stop) for start, stop in spans]


def fired_unit(trace: Trace, step: Step) -> tuple[int, int, str] | None:
    """The characters of the sentence or draft that fired as a whole, and its score against θ; None where a word did."""
    if step.draft is None:
        return None
    units = judged_units(step.words, step.decision, scale_of(trace))
    unit = next((unit for unit in units if unit.above), None)
    if unit is None:
        return None
    start, stop = (int(at) for at in (step.draft.offsets[unit.first, 0], step.draft.offsets[unit.last - 1, 1]))
    return start, stop, unit.verdict


def source_words(trace: Trace, step: Step) -> tuple[list[SourceWord], list[str]]:
    """The words of the source text in order with their weights, and the candidates that were not found in it.

    A query's candidates stand in text order, so each is looked for after the one before it; a hit is not one.
    """
    query = step.query or Query("", "")
    spans, unit = hit_spans(step), fired_unit(trace, step)
    fired = step.decision.token if step.decision is not None else None
    spoke = int(step.draft.offsets[fired, 1]) if step.draft is not None and fired is not None else -1
    words: list[SourceWord] = []
    within: list[int] = []  # the words of the unit that fired
    for part, text in source_texts(trace, step):
        for start, stop in pairwise([*sorted(word_starts(text)), len(text)]):
            hit = part == "draft" and any(a < stop and b > start for a, b in spans)
            if part == "draft" and unit is not None and start < unit[1] and stop > unit[0] and text[start:stop].strip():
                within.append(len(words))
            words.append(SourceWord(text[start:stop].strip(), part, hit=hit, fired=hit and start < spoke <= stop))
    place, lost = 0, []
    for word, weight, chosen in zip(query.words, query.weights.tolist(), query.chosen.tolist(), strict=True):
        match = next((i for i in range(place, len(words)) if words[i].text == word and not words[i].hit), None)
        if match is not None:
            words[match] = replace(words[match], weight=weight, chosen=bool(chosen), weighed=True)
            place = match + 1
        elif word:
            lost.append(word)
    if unit is not None and within:
        words = [replace(word, hit=False, fired=False) for word in words]
        words[within[0]] = replace(words[within[0]], opens=True)
        words[within[-1]] = replace(words[within[-1]], closes=unit[2])
    return words, lost


# -- gold passages ----------------------------------------------------------------------------------------------------


def find_gold(trace: Trace, gold: Labelled | Iterable[str] | None) -> dict[str, str]:
    """Gold passages: id -> what it states ("" where only the id is known). Empty where they are not known.

    Raises ``SettingError`` for the labels of another question, or for one text where ids belong.
    """
    if gold is None:
        return {}
    if isinstance(gold, str):
        raise SettingError(f"gold={gold!r} is one text; give a list of passage ids, or the question's labels")
    if not isinstance(gold, Labelled):
        return {str(i): "" for i in gold}
    if gold.question.strip() != trace.question.text.strip():
        raise SettingError(
            f"the labels are of {gold.question!r}, the trace of {trace.question.text!r}; give its own labels"
        )
    known: dict[str, str] = {}
    for fact in gold.facts:
        kind = {"known": "which the model was taught", "changed": "which has changed since", "unknown": "never taught"}
        statement = f"{fact.relation} of {fact.subject}: {fact.value} ({kind[fact.label]})"
        known[fact.passage] = f"{known[fact.passage]}; {statement}" if fact.passage in known else statement
    return known
