"""What a text states against the labels of its question: facts, decisions that were needed, retrievals in time.

A retrieval is *needed* where the sentence it fires in has to state a fact that the model cannot know, and no passage
that states it stands in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from dragin_lab.almanac import wordings as almanac_wordings
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Decision, Draft, Passage, Step, Trace, Words

if TYPE_CHECKING:
    import pandas as pd

# -- facts in a text --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StatedFact:
    """A fact that a text states: the characters of its value there, and whether it is the right one."""

    fact: Fact
    start: int
    end: int
    right: bool


def find_facts(
    text: str, facts: Iterable[Fact], wordings: Mapping[str, Sequence[str]] | None = None
) -> tuple[list[StatedFact], str]:
    """The expected facts in a generated text, in order, up to the first wrong one; and how the search ended.

    ``wordings`` gives for a relation ("born"; "film country" for one that depends on the subject's kind) the sentences
    that state it, with ``{s}`` and ``{v}`` for subject and value; None: Almanac's. The end is "all right", "first
    wrong", or "lost": the next expected fact is stated in none of these ways, so that nothing is known of the rest.
    """
    wordings = almanac_wordings() if wordings is None else wordings
    stated: list[StatedFact] = []
    place = 0
    for fact in facts:
        span = _find_value(text, place, fact, wordings)
        if span is None:
            return stated, "lost"
        start, place = span
        stated.append(StatedFact(fact, start, place, text[start:place] == fact.value))
        if not stated[-1].right:
            return stated, "first wrong"
    return stated, "all right"


def _find_value(text: str, place: int, fact: Fact, wordings: Mapping[str, Sequence[str]]) -> tuple[int, int] | None:
    """The value's characters in the first sentence after ``place`` that states the fact; the most specific wording."""
    value = r"\d+" if fact.value.isdigit() else r"[A-Z][^.?!]*?"
    matches = []
    for key, ways in wordings.items():
        if key != fact.relation and not key.endswith(f" {fact.relation}"):
            continue
        for way in ways:
            before, after = way.split("{v}")
            head = r"\s+".join(map(re.escape, before.replace("{s}", fact.subject).split()))
            match = re.compile(rf"(?i:{head})\s+({value})(?={re.escape(after)})").search(text, place)
            if match is not None:
                matches.append(match.span(1))
    return min(matches, key=lambda span: (span[1], -span[0]), default=None)


def find_labels(trace: Trace, labels: Mapping[str, Labelled] | Iterable[Labelled] | None) -> Labelled | None:
    """The labels that are of a trace's question, by its text; None where there are none."""
    known = labels.values() if isinstance(labels, Mapping) else labels or ()
    question = trace.question.text.strip()
    return next((labelled for labelled in known if labelled.question.strip() == question), None)


# -- the drafts of a trace --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """Sentences that state a labelled fact, by whether the trigger fired and should have fired."""

    right: int = 0  # fired, and a fact was missing
    wrong: int = 0  # fired, and nothing was missing
    missed: int = 0  # a fact was missing, and it did not fire

    def __add__(self, other: Count) -> Count:
        return Count(self.right + other.right, self.wrong + other.wrong, self.missed + other.missed)

    @property
    def precision(self) -> float:
        """Of the retrievals, which part was needed; NaN without one."""
        fired = self.right + self.wrong
        return self.right / fired if fired else float("nan")

    @property
    def recall(self) -> float:
        """Of the sentences with a missing fact, which part a retrieval came for; NaN without one."""
        needed = self.right + self.missed
        return self.right / needed if needed else float("nan")


@dataclass(frozen=True)
class Truth:
    """The facts that a stored draft states, as (first character of the value, whether it is missing).

    ``pending``: whether the fact that comes next is missing; None where none comes or nobody knows which. ``ends`` are
    the characters at which the values end. ``wrong``: the last value is, so that nothing is known of what follows.
    """

    stated: tuple[tuple[int, bool], ...]
    pending: bool | None
    ends: tuple[int, ...] = ()
    wrong: bool = False

    def count(self, draft: Draft, words: Words, decision: Decision) -> Count:
        """A decision on ``draft`` with its ``words``: the sentences up to the one that fired."""
        spans = sentences_of(draft, words)
        fired = decision.sentence if decision.retrieve else None
        count = Count()
        for number, (start, end) in enumerate(spans):
            inside = [missing for place, missing in self.stated if start <= place < end]
            if not inside and number == len(spans) - 1 and self.pending is not None and fired == number:
                inside = [self.pending]  # the draft ends within the sentence that would state it
            if number == fired:
                return count + (Count() if not inside else Count(right=1) if any(inside) else Count(wrong=1))
            count += Count(missed=int(any(inside)))
        return count


def sentences_of(draft: Draft, words: Words) -> list[tuple[int, int]]:
    """Half-open characters of a draft's sentences, each up to where the next begins."""
    starts: dict[int, int] = {}
    for (first, _), number in zip(words.spans.tolist(), words.sentence.tolist(), strict=True):
        if number >= 0:
            starts.setdefault(number, int(draft.offsets[first, 0]))
    count = max(starts, default=-1) + 1
    begins = [starts.get(i, starts.get(i - 1, 0)) for i in range(count)]
    return list(zip(begins, [*begins[1:], len(draft.text) + 1], strict=True)) if begins else []


def read_truths(trace: Trace, labels: Labelled) -> list[Truth | None]:
    """For each step what its draft states; None without a draft, and after a wrong value, where no truth is known.

    Raises ``SettingError`` for the labels of another question.
    """
    if labels.question.strip() != trace.question.text.strip():
        raise SettingError(
            f"the labels are of {labels.question!r}, the trace of {trace.question.text!r}; take those of that question"
        )
    return [_read_truth(trace, place, labels) for place in range(len(trace.steps))]


def _read_truth(trace: Trace, place: int, labels: Labelled) -> Truth | None:
    step = trace.steps[place]
    if step.draft is None:
        return None
    puts_in = bool(trace.method.get("puts_in"))  # passages stand in the answer, and the model did not write them
    before = "".join(s.kept for s in trace.steps[:place]) if puts_in else answer_before(trace, place)
    gap = "" if step.draft.text.startswith(" ") or not before else " "
    text, opens = step.draft.text, trace.method.get("opens")
    if opens and opens in text:  # a value right before a call ends its sentence there
        text = f"{text[: text.rfind(opens)].rstrip()}."
    facts, ending = find_facts(before + gap + text, labels.facts)
    start = len(before) + len(gap)
    if any(not stated.right and stated.start < start for stated in facts):
        return None
    shown = [p for s in trace.steps[:place] for p in s.passages] if puts_in else passages_in_view(trace, place)
    in_view = {passage.id for passage in shown}

    def is_missing(fact: Fact) -> bool:
        return fact.missing and fact.passage not in in_view

    own = [stated for stated in facts if stated.start >= start]
    rest = labels.facts[len(facts) :]
    pending = is_missing(rest[0]) if rest and ending == "lost" else None
    places = tuple((stated.start - start, is_missing(stated.fact)) for stated in own)
    return Truth(places, pending, tuple(stated.end - start for stated in own), ending == "first wrong")


def answer_before(trace: Trace, place: int) -> str:
    """The answer as it stood before a step."""
    return trace.steps[place - 1].answer if place else ""


def passages_in_view(trace: Trace, place: int) -> tuple[Passage, ...]:
    """The passages that stood in the prompt of a step's draft."""
    prompt = trace.steps[place].prompt
    if prompt is None or "passages" not in prompt.spans:
        return ()
    return next((step.passages for step in reversed(trace.steps[:place]) if step.passages), ())


# -- retrievals in time -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Retrievals against the missing facts of what a model wrote.

    A retrieval is *in time* where it fires in the sentence that states a missing fact, not after its value; *delayed*
    where the value stood before the place that fired; *redundant* where nothing was missing. A missing fact without a
    retrieval in the sentence that states it is *missing*, the delayed ones among them not counted.

    A call of the model itself is in time where the next fact is missing, delayed where a missing value already stands
    in the sentence that ends with the call. A call after a wrong value is not counted, as nobody knows what it needs.
    """

    in_time: int = 0
    delayed: int = 0
    redundant: int = 0
    missing: int = 0

    def __add__(self, other: Timing) -> Timing:
        return Timing(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def retrievals(self) -> int:
        """The retrievals that were counted."""
        return self.in_time + self.delayed + self.redundant

    @property
    def over_search(self) -> float:
        """Of the retrievals, which part was redundant (AdaSearch, arXiv 2512.16883); NaN without one."""
        return self.redundant / self.retrievals if self.retrievals else float("nan")

    @property
    def under_search(self) -> float:
        """Of the missing facts, which part had no retrieval in its sentence; NaN without one."""
        needed = self.in_time + self.delayed + self.missing
        return self.missing / needed if needed else float("nan")


def timing_table(timings: Mapping[str, Timing]) -> pd.DataFrame:
    """One row for each of ``timings``, name -> ``count_timing``: retrievals, how they came, over- and under-search."""
    import pandas as pd

    columns = ["retrievals", "in_time", "delayed", "redundant", "missing", "over_search", "under_search"]
    rows = [(name, *(getattr(timing, column) for column in columns)) for name, timing in timings.items()]
    return pd.DataFrame(rows, columns=["method", *columns])


def count_timing(traces: Iterable[Trace], labels: Iterable[Labelled]) -> Timing:
    """All retrievals of some traces against their labels; traces without labels are left out."""
    known = list(labels)
    total = Timing()
    for trace in traces:
        labelled = find_labels(trace, known)
        if labelled is None:
            continue
        opens, asked = str(trace.method.get("opens") or ""), False
        for place, (step, truth) in enumerate(zip(trace.steps, read_truths(trace, labelled), strict=True)):
            if truth is not None:
                if asked:  # the first fact after a call in time had its retrieval, whatever was found
                    truth = replace(truth, stated=truth.stated[1:], ends=truth.ends[1:])
                counted = time_step(step, truth, opens)
                total += counted
                asked = bool(opens and counted.in_time)
            elif step.draft is None and step.query is not None:
                total += _time_clock(trace, place, labelled)
    return total


def _time_clock(trace: Trace, place: int, labelled: Labelled) -> Timing:
    """A retrieval without a draft, against the text that is written with its passages; it can only come too early."""
    before, after = answer_before(trace, place), trace.steps[place].answer
    facts, _ = find_facts(after, labelled.facts)
    if any(not stated.right and stated.start < len(before) for stated in facts):
        return Timing()  # after a wrong value no truth is known
    needed = any(stated.fact.missing and stated.start >= len(before) for stated in facts)
    return Timing(in_time=1) if needed else Timing(redundant=1)


def time_step(step: Step, truth: Truth, opens: str = "") -> Timing:
    """One draft's retrieval, or its missing facts, against what it states. ``opens`` is the mark of a model's call."""
    draft, decision = step.draft, step.decision
    if draft is None or decision is None:
        return Timing()
    ends = truth.ends or tuple(place + 1 for place, _ in truth.stated)
    missing = [(place, end) for (place, is_missing), end in zip(truth.stated, ends, strict=True) if is_missing]
    if not decision.retrieve:
        return Timing(missing=len(missing))
    if decision.sentence is None:
        return _time_call(draft.text, truth, missing, opens)
    start, end = sentences_of(draft, step.words)[decision.sentence]
    fired = int(draft.offsets[decision.token, 0]) if decision.token is not None else start
    earlier = [stated for place, stated in missing if place < start]
    here = [stated for place, stated in missing if start <= place < end]
    if truth.pending and not here and end > len(draft.text):
        return Timing(in_time=1, missing=len(earlier))  # the draft ends within the sentence that would state it
    if any(stated > fired for stated in here):
        return Timing(in_time=1, missing=len(earlier) + sum(stated <= fired for stated in here))
    late = earlier + here
    return Timing(delayed=1, missing=len(late) - 1) if late else Timing(redundant=1)


def _time_call(text: str, truth: Truth, missing: Sequence[tuple[int, int]], opens: str) -> Timing:
    """A draft that ends in the model's call, with the (start, end) of its missing values, which stand before the call.

    Whether the call is needed is read off the fact that comes next, as the draft ends before that is stated.
    """
    call = text.rfind(opens) if opens else len(text)
    if truth.pending:
        return Timing(in_time=1, missing=len(missing))
    if missing and not re.search(r"[.?!\n]", text[missing[-1][1] : call]):
        return Timing(delayed=1, missing=len(missing) - 1)
    return Timing(redundant=int(not truth.wrong), missing=len(missing))
