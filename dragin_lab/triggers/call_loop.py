"""The loop in which the model itself asks: FLARE-instruct, self-ask, and any ``dl.Call`` (FLARE,
Prompts D.2, D.3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dragin_lab.core.episode import Episode, Stop
from dragin_lab.core.formulators import formulate
from dragin_lab.core.loop import Loop
from dragin_lab.trace.trace import Decision, Draft, Query, Step

#: Stands for the numbered passages in ``Call.puts_in``.
PASSAGES = "{passages}"


@dataclass(frozen=True)
class CallMade(Stop):
    """Stop once the model has asked for a search."""

    call: Any  # ``Call``
    before: str = ""  # what the model has written so far

    def reached(self, draft: Draft) -> str | None:
        return None if self.call.find(draft.text, self.before) is None else self.call.name


@dataclass
class CallLoop(Loop):
    """An episode in which the model writes until it asks, is given passages, and goes on.

    A call that does not stay is taken out of the answer, and the text resumes where it stood.
    Passages stay in the prompt until the next ones replace them, or are written into the text after
    the call, as the call says.
    """

    judges = False
    call = Loop.trigger  # a ``Call``: what opens and closes a call, and what becomes of it

    def run(self) -> Episode[None]:
        asked_before = False
        while not self.ended:
            asked_before = yield from self._take_turn(self.new_step(), asked_before)

    def _take_turn(self, step: Step, asked_before: bool) -> Episode[bool]:
        """One draft, and the search it asks for. Whether it asked."""
        bias = self.call.bias(asked_before)
        draft = yield from self.write(CallMade(self.call, self.before), bias=bias)
        match = self.call.find(draft.text, self.before)
        if match is None:
            self._keep_answer(step, draft)
            return False
        cut = self._find_cut(draft, match)
        term = _read_term(match)
        why = ""
        ended = ""
        if asked_before and not draft.text[:cut].strip():
            why = " with nothing written since the last search"
            ended = "stalled"
        elif draft.count_before(cut) >= self.left:
            why = ", and no token is left to answer it with"
            ended = "length"
        if ended:
            step.decision = Decision(False, f"asks for {term!r}{why}")
            self._keep_before(step, draft, cut)
            self.trace.ended = ended
            return True
        step.decision = Decision(True, f"the model {self.call.asking} {term!r}")
        yield from self.search(self._make_query(step, draft, match))
        self._keep_before(step, draft, cut)
        if self.call.puts_in is not None:
            lines = "".join(
                f"Doc {i}(Title: {p.title}) {p.text}\n" for i, p in enumerate(step.passages, 1)
            )
            self._insert_text(step, self.call.puts_in.replace(PASSAGES, lines), "passage")
            self.passages = None
        return True

    def _keep_before(self, step: Step, draft: Draft, cut: int) -> None:
        """Keep what stands before the cut; the space that opens a draft is not text by itself."""
        if draft.text[:cut].strip():
            self._insert_text(step, self.call.puts_before, "prompt")
            self.keep(draft, cut, goes_on=True)
            return
        assert step.decision is not None
        step.answer = self.text
        step.discarded = draft.text
        step.decision.cut = 0
        self.step = None

    def _insert_text(self, step: Step, text: str, author: str) -> None:
        """Add a text to the answer that the model did not write."""
        self.answer.insert(text, author)
        self.trace.text = step.answer = self.text

    def _find_cut(self, draft: Draft, match: re.Match[str]) -> int:
        """Where the kept part of a draft that asks ends; a call that does not stay goes with the
        space before it.
        """
        return match.end() if self.call.stays else len(draft.text[: match.start()].rstrip())

    def _keep_answer(self, step: Step, draft: Draft) -> None:
        """Keep a draft that asks for nothing; a call that it breaks off in does not become part
        of the answer.
        """
        start = self.call.broken_off(draft.text)
        certain = draft.stopped != "length"
        if start is None:
            step.decision = Decision(False, f"the model {self.call.not_asking}", certain=certain)
            self.keep(draft)
            return
        step.decision = Decision(
            False, "the text ends in a call that is not closed", certain=certain
        )
        self.keep(draft, len(draft.text[:start].rstrip()))
        if not self.ended:
            self.trace.ended = "length" if draft.stopped == "length" else "stalled"

    def _make_query(self, step: Step, draft: Draft, match: re.Match[str]) -> Query:
        """What the call asks for, or what another formulator makes of the gap where it stands.

        That is the sentence before a call that is taken out, or what a call asks; its last token
        counts as the hit.
        """
        span = match.span(1)
        if not self.call.stays:
            end = self._find_cut(draft, match)
            span = ((self.method.pipeline.spans(draft.text[:end]) or [(0, 0)])[-1][0], end)
        gap = self.gap(draft, span, term=_read_term(match))
        query = formulate(self.method.formulator, gap)
        if query.text.strip():
            return query
        return Query(
            self.question, self.question, note="the question: there is nothing else to ask for"
        )


def _read_term(call: re.Match[str]) -> str:
    return " ".join(call[1].split())
