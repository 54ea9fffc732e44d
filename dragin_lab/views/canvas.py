"""State that the parts of one view share: the trace, its scale of colours, room for tokens, passages already shown."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from dragin_lab.trace.kept import Origin, origins, written
from dragin_lab.trace.trace import Draft, Passage, Prompt, Step, Trace, Words
from dragin_lab.views import sections
from dragin_lab.views.heat import Scale, scale_of
from dragin_lab.views.html import count
from dragin_lab.views.tokens import Look, share_out

MAX_TOKENS = 2000
MAX_STEPS = 40


def id_prefix(trace: Trace, view: str = "") -> str:
    """A prefix of element ids that another trace or view hardly has, and the same one always."""
    known = f"{trace.question}{trace.method}{trace.text}{len(trace.steps)}{view}"
    return "dl" + hashlib.blake2s(known.encode(errors="replace"), digest_size=5).hexdigest()


@dataclass
class Canvas:
    """One view while it is drawn."""

    trace: Trace
    scale: Scale
    prefix: str  # of element ids, so that several traces stand in one notebook
    room: dict[int, int] = field(default_factory=dict)  # id of a continuation -> tokens that may be drawn
    twice: bool = False  # whether the answer's tokens carry their figures too, or only the steps'
    gold: frozenset[str] = frozenset()  # ids of the passages that hold what was needed, where they are known
    _looks: dict[tuple[int, int], Look] = field(default_factory=dict)
    _passages: dict[str, int] = field(default_factory=dict)  # passage id -> number of the step that first retrieved it
    _exemplars: dict[str, int] = field(default_factory=dict)  # text -> number of the step that showed it

    @classmethod
    def of(cls, trace: Trace, view: str = "", most: int = 0, *, gold: frozenset[str] = frozenset()) -> Canvas:
        """A canvas for the first steps of a trace, with room for at most ``most`` tokens."""
        texts = [c for _, _, c in written(trace.steps[:MAX_STEPS])]
        room = share_out(texts, max(0, most))
        return cls(trace, scale_of(trace), id_prefix(trace, view), room, gold=gold)

    def look(self, continuation: Draft, step: Step) -> Look:
        """The look of a text that a step wrote, built once; only a draft is judged."""
        key = (id(step), id(continuation))
        if key not in self._looks:
            judged = (step.words, step.decision) if continuation is step.draft else (Words(), None)
            self._looks[key] = Look.of(continuation, self.scale, *judged)
        return self._looks[key]

    @property
    def fresh(self) -> bool:
        """Whether any part of the answer was written with passages in view."""
        return any(origin.with_passages for origin in origins(self.trace))

    def room_of(self, continuation: Draft) -> int:
        """How many tokens of a continuation may be drawn one by one."""
        return self.room.get(id(continuation), 0)

    def answer(self) -> Iterator[tuple[int, str, Origin | None, Look | None]]:
        """The answer text in order: a step's number where its passages came in (0: none), the text before a part,
        where that part was written, and its look; the last one is what remains of the text."""
        trace, place = self.trace, 0
        runs: dict[int, list[Origin]] = {}
        for origin in origins(trace):
            runs.setdefault(id(origin.step), []).append(origin)
        for step in trace.steps:
            sign = step.index + 1 if step.query is not None else 0
            for origin in runs.get(id(step), []):
                here, sign = (sign, 0) if origin.continuation is step.continuation else (0, sign)
                yield here, trace.text[place : origin.start], origin, self.look(origin.continuation, step)
                place = origin.stop
            if sign:
                yield sign, "", None, None
        yield 0, trace.text[place:], None, None

    def left_out(self) -> str:
        """The remark on tokens that are not drawn one by one; "" where all are."""
        whole, shown = sum(len(c) for _, _, c in written(self.trace.steps)), sum(self.room.values())
        if shown == whole:
            return ""
        return f"{shown:,} of {count(whole, 'token')} are drawn one by one, the others stand as plain text or in short."

    def first_found(self, passage: Passage, step: Step) -> int:
        """The number of the earlier step that retrieved a passage; 0 where it is new."""
        number = step.index + 1
        before = self._passages.setdefault(passage.id, number)
        return before if before != number else 0

    def segments(self, prompt: Prompt, number: int) -> Iterator[tuple[str, str, int]]:
        """``(name, text, step that showed it)``; exemplars are written out once per view, the step is 0 at first."""
        for name, start, stop in sections.prompt_segments(prompt):
            text = prompt.text[start:stop]
            before = self._exemplars.get(text, 0) if name == "exemplars" else 0
            if name == "exemplars":
                self._exemplars.setdefault(text, number)
            yield name, text, before
