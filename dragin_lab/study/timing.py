"""Whether retrievals came in time: against labels that say which facts a model cannot know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dragin_lab.almanac import wordings
from dragin_lab.almanac.facts import Labelled
from dragin_lab.study.needs import find_facts
from dragin_lab.study.truth import Truth, sentences_of, truths
from dragin_lab.trace.trace import Step, Trace


@dataclass(frozen=True)
class Timing:
    """Retrievals against the missing facts of what a model wrote.

    A retrieval is *in time* where it fires in the sentence that states a missing fact, not after its value; *delayed*
    where the value stood before the place that fired; *redundant* where nothing was missing. A missing fact without a
    retrieval in the sentence that states it is *missing*, the delayed ones among them not counted.
    """

    in_time: int = 0
    delayed: int = 0
    redundant: int = 0
    missing: int = 0

    def __add__(self, other: Timing) -> Timing:
        return Timing(
            self.in_time + other.in_time,
            self.delayed + other.delayed,
            self.redundant + other.redundant,
            self.missing + other.missing,
        )


def timing(traces: Iterable[Trace], labels: Iterable[Labelled]) -> Timing:
    """All retrievals of some traces against their labels; traces without labels are left out."""
    by_question = {one.question.strip(): one for one in labels}
    found = Timing()
    for trace in traces:
        labelled = by_question.get(trace.question.text.strip())
        if labelled is not None:
            for place, (step, truth) in enumerate(zip(trace.steps, truths(trace, labelled), strict=True)):
                if truth is not None:
                    found += of_step(step, truth)
                elif step.draft is None and step.query is not None:
                    found += _of_clock(trace, place, labelled)
    return found


def _of_clock(trace: Trace, place: int, labelled: Labelled) -> Timing:
    """A retrieval that looked at no draft, against what is written with its passages; it can come too early only."""
    before, after = trace.steps[place - 1].answer if place else "", trace.steps[place].answer
    stated, _ = find_facts(after, labelled.facts, wordings())
    if any(not one.right and one.start < len(before) for one in stated):
        return Timing()  # after a wrong value no truth is known
    needed = any(one.fact.missing and one.start >= len(before) for one in stated)
    return Timing(in_time=1) if needed else Timing(redundant=1)


def of_step(step: Step, truth: Truth) -> Timing:
    """One draft's retrieval, or its missing facts, against what it states."""
    made, decision = step.draft, step.decision
    if made is None or decision is None:
        return Timing()
    ends = truth.ends or tuple(place + 1 for place, _ in truth.stated)
    missing = [(place, end) for (place, is_missing), end in zip(truth.stated, ends, strict=True) if is_missing]
    if not decision.retrieve or decision.sentence is None:
        return Timing(missing=len(missing))
    start, end = sentences_of(made, step.words)[decision.sentence]
    fired = int(made.offsets[decision.token, 0]) if decision.token is not None else start
    earlier = [stated for place, stated in missing if place < start]
    here = [stated for place, stated in missing if start <= place < end]
    if truth.pending and not here and end > len(made.text):
        return Timing(in_time=1, missing=len(earlier))  # the draft ends within the sentence that would state it
    if any(stated > fired for stated in here):
        return Timing(in_time=1, missing=len(earlier) + sum(stated <= fired for stated in here))
    late = earlier + here
    return Timing(delayed=1, missing=len(late) - 1) if late else Timing(redundant=1)
