"""What a text states against the labels of its question: facts, and decisions that were needed.

A retrieval is *needed* where the sentence it fires in has to state a fact that the model cannot
know, and no passage that states it stands in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from dragin_lab.almanac import wordings
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Decision, Draft, Passage, Trace, Words


class StatedFact(NamedTuple):
    """A fact that a text states: the characters of its value there, and whether it is the right
    one.
    """

    fact: Fact
    start: int
    end: int
    right: bool


def find_facts(text: str, facts: Iterable[Fact]) -> tuple[list[StatedFact], str]:
    """The expected facts in a generated text, in order, up to the first wrong one; and how the
    search ended.

    The end is "all right", "first wrong", or "lost": the next expected fact is stated in none of
    the wordings in which Almanac's passages and reasonings state its relation, so that nothing is
    known of the rest.
    """
    stated: list[StatedFact] = []
    place = 0
    for fact in facts:
        span = _find_value(text, place, fact)
        if span is None:
            return stated, "lost"
        start, place = span
        stated.append(StatedFact(fact, start, place, text[start:place] == fact.value))
        if not stated[-1].right:
            return stated, "first wrong"
    return stated, "all right"


def _find_value(text: str, place: int, fact: Fact) -> tuple[int, int] | None:
    """The value's characters in the first sentence after ``place`` that states the fact; the
    most specific wording.
    """
    value = r"\d+" if fact.value.isdigit() else r"[A-Z][^.?!]*?"
    spans = []
    # "born"; "film country" for one that depends on the subject's kind
    for key, ways in wordings().items():
        for way in ways if key == fact.relation or key.endswith(f" {fact.relation}") else ():
            before, after = way.split("{v}")
            head = r"\s+".join(map(re.escape, before.replace("{s}", fact.subject).split()))
            match = re.compile(rf"(?i:{head})\s+({value})(?={re.escape(after)})").search(
                text, place
            )
            spans += [match.span(1)] if match is not None else []
    return min(spans, key=lambda span: (span[1], -span[0]), default=None)


def find_labels(trace: Trace, labels: Iterable[Labelled] | None) -> Labelled | None:
    """The labels of a trace's question, found by its text; None without any."""
    question = trace.question.text.strip()
    return next(
        (labelled for labelled in labels or () if labelled.question.strip() == question), None
    )


# -- the drafts of a trace -------------------------------------------------------------------------


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
        """Of the sentences with a missing fact, which part a retrieval came for; NaN without
        one.
        """
        needed = self.right + self.missed
        return self.right / needed if needed else float("nan")


@dataclass(frozen=True)
class Truth:
    """The values of facts that a stored draft states, as (first character, end, whether the fact is
    missing).

    ``pending``: whether the fact that comes next is missing; None where none comes or nobody knows
    which.
    """

    stated: tuple[tuple[int, int, bool], ...]
    pending: bool | None

    def count(self, draft: Draft, words: Words, decision: Decision) -> Count:
        """A decision on ``draft`` with its ``words``: the sentences up to the one that fired."""
        spans = sentences_of(draft, words)
        fired = decision.sentence if decision.retrieve else None
        count = Count()
        for number, (start, end) in enumerate(spans):
            inside = [missing for place, _, missing in self.stated if start <= place < end]
            if (
                not inside
                and number == len(spans) - 1
                and self.pending is not None
                and fired == number
            ):
                inside = [self.pending]  # the draft ends within the sentence that would state it
            if number == fired:
                return count + (
                    Count() if not inside else Count(right=1) if any(inside) else Count(wrong=1)
                )
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
    """For each step what its draft states; None without a draft, and after a wrong value, where no
    truth is known.

    Raises ``SettingError`` for the labels of another question.
    """
    if labels.question.strip() != trace.question.text.strip():
        raise SettingError(
            f"the labels are of {labels.question!r}, the trace of {trace.question.text!r}; take"
            " those of that question"
        )
    return [_read_truth(trace, place, labels) for place in range(len(trace.steps))]


def _read_truth(trace: Trace, place: int, labels: Labelled) -> Truth | None:
    step = trace.steps[place]
    if step.draft is None:
        return None
    before = answer_before(trace, place)
    gap = "" if step.draft.text.startswith(" ") or not before else " "
    start = len(before) + len(gap)
    facts, ending = find_facts(before + gap + step.draft.text, labels.facts)
    if any(not stated.right and stated.start < start for stated in facts):
        return None
    shown: tuple[Passage, ...] = ()
    if step.prompt is not None and "passages" in step.prompt.spans:
        shown = next(
            (earlier.passages for earlier in reversed(trace.steps[:place]) if earlier.passages), ()
        )
    in_view = {passage.id for passage in shown}

    def is_missing(fact: Fact) -> bool:
        return fact.missing and fact.passage not in in_view

    rest = labels.facts[len(facts) :]
    pending = is_missing(rest[0]) if rest and ending == "lost" else None
    own = (stated for stated in facts if stated.start >= start)
    return Truth(
        tuple((one.start - start, one.end - start, is_missing(one.fact)) for one in own), pending
    )


def answer_before(trace: Trace, place: int) -> str:
    return trace.steps[place - 1].answer if place else ""
