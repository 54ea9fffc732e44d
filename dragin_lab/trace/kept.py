"""Which parts of a step's texts entered the answer, and which were thrown away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dragin_lab.trace.draft import count_common, count_spaces
from dragin_lab.trace.trace import Draft, Step, Trace


def list_written(steps: Iterable[Step]) -> Iterator[tuple[Step, str, Draft]]:
    """Everything that steps wrote, in order: the step, "draft" or "continuation", and what it
    is.
    """
    return ((step, name, text) for step in steps for name, text, _ in step.texts)


@dataclass(frozen=True)
class KeptPart:
    """A run of the answer text and where it was written: ``continuation.text[at : at + stop -
    start]``.
    """

    start: int  # half-open characters of the trace's text
    stop: int
    at: int
    continuation: Draft
    step: Step
    with_passages: bool


def list_kept_parts(trace: Trace) -> list[KeptPart]:
    """Where each part of the answer text comes from, in order; what cannot be placed is left
    out.
    """
    parts: list[KeptPart] = []
    place = 0
    for step, name, text in list_written(trace.steps):
        kept = text.text[: step.kept_end(name) or 0]
        start = place + count_spaces(trace.text[place:])
        size = count_common(kept.strip(), trace.text[start:])
        if size:
            place = start + size
            fresh = with_passages(step, name)
            parts.append(KeptPart(start, place, count_spaces(kept), text, step, fresh))
    return parts


def list_arrivals(trace: Trace) -> list[tuple[int, Step]]:
    """Every retrieval in order: the character of the answer's text at which its passages came
    in, and its step.
    """
    came: dict[int, int] = {}
    for origin in list_kept_parts(trace):
        step = origin.step
        follows = origin.continuation is origin.step.continuation
        if step.query is not None and (follows or step.continuation is None):
            came.setdefault(id(step), origin.start if follows else origin.stop)
    arrived = []
    place = 0
    for step in trace.steps:
        # a retrieval without text in the answer stands where the last one does
        place = came.get(id(step), place)
        if step.query is not None:
            arrived.append((place, step))
    return arrived


def with_passages(step: Step, name: str) -> bool:
    """Whether retrieved passages stood in the prompt of a step's ``"draft"`` or
    ``"continuation"``.
    """
    prompt = step.passages_prompt if name == "continuation" else step.prompt
    if name == "continuation" and step.query is not None and step.passages:
        # Not every prompt marks its passages: custom layouts and ETC's prompts do not.
        return len(step.passages) > (0 if prompt is None else prompt.dropped.get("passages", 0))
    # The released code writes a number for a passage that was not found.
    return prompt is not None and bool(re.sub(r"\[\d+\] ", "", prompt.part("passages")).strip())


def sentence_end(step: Step, number: int | None, start: int) -> int | None:
    """The character where a sentence of a step's draft ends; None (the text's end) where that is
    not known.
    """
    assert step.draft is not None
    # half-open tokens of each of its words
    starts, stops = step.words.spans[step.words.sentence == number].T
    end = int(step.draft.offsets[stops[stops > starts] - 1, 1].max(initial=0))
    return end if end > start else None


def cut_off(step: Step) -> str:
    """What a step threw away of the draft's sentence that was judged; "" where nothing was."""
    start = step.kept_end("draft")
    if step.draft is None or step.decision is None or start is None:
        return ""
    return step.draft.text[start : sentence_end(step, step.decision.sentence, start)].strip()
