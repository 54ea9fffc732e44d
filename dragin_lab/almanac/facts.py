"""Labelled questions: their gold reasoning, and for each fact where it stands and if a model
could know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: "known": it was taught. "changed": another value was taught (``old``). "unknown": nothing was.
Label = Literal["known", "changed", "unknown"]
#: How often it was taught.
Exposure = Literal["often", "some", "seldom", "never"]


@dataclass(frozen=True)
class Fact:
    """One fact of a gold reasoning: ``start`` and ``end`` are the characters of its value there.

    ``passage`` is the id of the passage that states it; ``old`` the value that was taught where it
    has changed.
    """

    id: str
    subject: str
    relation: str
    value: str
    start: int
    end: int
    label: Label
    exposure: Exposure
    old: str | None
    passage: str

    @property
    def missing(self) -> bool:
        """Whether a model that was taught so cannot have it right: unknown or changed."""
        return self.label != "known"

    @property
    def degree(self) -> str:
        """What a model could know of it, in five classes: never, changed, seldom (half-known),
        some, often.
        """
        return {"known": self.exposure, "changed": "changed", "unknown": "never"}[self.label]


@dataclass(frozen=True)
class Labelled:
    """A question with its gold reasoning and the facts in it, in order. ``knowledge`` is the
    label of the question.
    """

    id: str
    benchmark: str
    split: str
    type: str
    question: str
    knowledge: Label
    reasoning: str
    answer: str
    facts: tuple[Fact, ...]
