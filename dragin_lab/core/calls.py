"""What a model writes when it asks for a search itself: a search call, or a follow-up question (FLARE, D.2, D.3)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dragin_lab.core.episode import SoFar
from dragin_lab.core.forms import CALL_CLOSES, CALL_OPENS, FOLLOW_UP, INTERMEDIATE

_CALL = re.compile(f"{re.escape(CALL_OPENS)}(.*?){re.escape(CALL_CLOSES)}", re.DOTALL)
_QUESTION = re.compile(rf"{re.escape(FOLLOW_UP)}([^\n]*)\n\s*{re.escape(INTERMEDIATE)}")


@dataclass(frozen=True)
class Call:
    """A complete call in a text: half-open characters of it all and of what it asks for, and that by itself."""

    start: int
    stop: int
    inside: tuple[int, int]
    asks: str


def find_call(when: str, text: str) -> Call | None:
    """The first complete call in a text.

    For ``search-call`` that is ``[Search(term)]``; for ``follow-up`` a question on the line behind ``Follow up:``, once
    ``Intermediate answer:`` has begun the next line.
    """
    found = (_CALL if when == "search-call" else _QUESTION).search(text)
    return None if found is None else Call(*found.span(), found.span(1), " ".join(found[1].split()))


def open_call(text: str) -> int | None:
    """The character where a search call begins that is never closed; None where there is none."""
    start = text.rfind(CALL_OPENS)
    return start if start >= 0 and CALL_CLOSES not in text[start:] else None


@dataclass(frozen=True)
class CallMade:
    """Stop once the model has asked for a search."""

    when: str

    def reached(self, so_far: SoFar) -> str | None:
        return None if find_call(self.when, so_far.text) is None else self.when
