"""A trace's decisions against the ground truth of its question (``labels``): was there something to look up?

A retrieval is *needed* where the sentence it fires in has to state a fact that the model cannot know, and no passage
that states it stands in the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragin_lab.almanac import wordings
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.errors import SettingError
from dragin_lab.study.needs import find_facts
from dragin_lab.trace.trace import Continuation, Decision, Trace, Words


@dataclass(frozen=True)
class Count:
    """Sentences that state a labelled fact: in how many it fired rightly, wrongly, and in how many it should have."""

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
    the characters at which the values end.
    """

    stated: tuple[tuple[int, bool], ...]
    pending: bool | None
    ends: tuple[int, ...] = ()

    def count(self, made: Continuation, words: Words, decision: Decision) -> Count:
        """A decision on the draft ``made`` with its ``words``: the sentences up to the one that fired."""
        spans = sentences_of(made, words)
        fired = decision.sentence if decision.retrieve else None
        found = Count()
        for number, (start, end) in enumerate(spans):
            inside = [missing for place, missing in self.stated if start <= place < end]
            if not inside and number == len(spans) - 1 and self.pending is not None and fired == number:
                inside = [self.pending]  # the draft ends within the sentence that would state it
            if number == fired:
                return found + (Count() if not inside else Count(right=1) if any(inside) else Count(wrong=1))
            found += Count(missed=int(any(inside)))
        return found


def sentences_of(made: Continuation, words: Words) -> list[tuple[int, int]]:
    """Half-open characters of a draft's sentences, each up to where the next begins."""
    starts: dict[int, int] = {}
    for (first, _), number in zip(words.spans.tolist(), words.sentence.tolist(), strict=True):
        if number >= 0:
            starts.setdefault(number, int(made.offsets[first, 0]))
    count = max(starts, default=-1) + 1
    begins = [starts.get(i, starts.get(i - 1, 0)) for i in range(count)]
    return list(zip(begins, [*begins[1:], len(made.text) + 1], strict=True)) if begins else []


def truths(trace: Trace, labels: Labelled) -> list[Truth | None]:
    """For each step what its draft states; None without a draft, and after a wrong value, where no truth is known.

    Raises ``SettingError`` for the labels of another question.
    """
    if labels.question.strip() != trace.question.text.strip():
        raise SettingError(
            f"the labels are of {labels.question!r}, the trace of {trace.question.text!r}; take those of that question"
        )
    return [_truth(trace, place, labels) for place in range(len(trace.steps))]


def _truth(trace: Trace, place: int, labels: Labelled) -> Truth | None:
    step = trace.steps[place]
    if step.draft is None:
        return None
    before = trace.steps[place - 1].answer if place else ""
    gap = "" if step.draft.text.startswith(" ") or not before else " "
    found, how = find_facts(before + gap + step.draft.text, labels.facts, wordings())
    start = len(before) + len(gap)
    if any(not one.right and one.start < start for one in found):
        return None
    seen = _in_view(trace, place)

    def missing(fact: Fact) -> bool:
        return fact.missing and fact.passage not in seen

    own = [one for one in found if one.start >= start]
    stated = tuple((one.start - start, missing(one.fact)) for one in own)
    rest = labels.facts[len(found) :]
    pending = missing(rest[0]) if rest and how == "lost" else None
    return Truth(stated, pending, tuple(one.end - start for one in own))


def _in_view(trace: Trace, place: int) -> frozenset[str]:
    """Ids of the passages that stood in the prompt of a step's draft."""
    prompt = trace.steps[place].prompt
    if prompt is None or "passages" not in prompt.spans:
        return frozenset()
    before = next((s for s in reversed(trace.steps[:place]) if s.passages), None)
    return frozenset(p.id for p in before.passages) if before is not None else frozenset()
