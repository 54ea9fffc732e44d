"""A draft whose trigger or query reads attention, written by llama.cpp: written ahead, then judged with its rows.

What a token receives depends on later ones, and the second model reads a text as a whole. So a stretch is written
ahead, one pass gives its rows, and the draft's ``Stop`` is asked after each token about the rows that a model which
gives them one by one would have given by then. The tokens after its end are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dragin_lab.core.episode import SoFar, Write
from dragin_lab.core.scores import received
from dragin_lab.core.stops import AnyOf
from dragin_lab.model.writing import Keep, TokenEvent
from dragin_lab.served.endpoint import ServedEndpoint
from dragin_lab.served.rows import AttentionRows
from dragin_lab.served.writing import Writing, replayed
from dragin_lab.trace.trace import Continuation

#: A stretch takes about as long to write as to read with its prompt: at least 16 tokens, half as many as the prompt
#: has. (SmolLM2 on a CPU reads a token in less than half the time that it takes to write one.)
_SHORTEST, _FASTER = 16, 2


def needs_rows(draft: Write) -> bool:
    """Whether a draft's trigger or query reads attention."""
    return draft.received or draft.attention


@dataclass(frozen=True)
class Ahead(AnyOf):
    """Where to stop writing ahead: after ``until`` tokens, or where the draft ends whatever its attention.

    ``shape`` is (h, p): heads, and tokens of the prompt.
    """

    until: int = 0
    shape: tuple[int, int] = (1, 0)

    def reached(self, so_far: SoFar) -> str | None:
        n, (h, p) = len(so_far.ids), self.shape
        attention = np.broadcast_to(np.float16(0), (h, n + 1, p + n))
        blind = replace(so_far, received=np.zeros(n, np.float32), attention=attention)
        return "ahead" if n >= self.until else super().reached(blind)


class Judged(Writing):
    """The draft itself, of tokens and rows that are there already."""

    paid: np.ndarray  # (m, m) float32, what each of the m tokens pays to those before it, mean over the heads
    attention: np.ndarray | None = None  # (h, m + 1, p + m) float16, where it is kept

    def so_far(self) -> SoFar:
        n, p = len(self.tokens), len(self.prompt_ids)
        known = n if self.stopped else n - 1  # tokens whose own row is there
        attention = self.attention
        if attention is not None:
            attention = attention[:, : n + 1, : p + n].copy()
            attention[:, known + 1 :] = 0
        return replace(super().so_far(), received=self._received(known), attention=attention)

    def continuation(self) -> Continuation:
        so_far = self.so_far()
        return replace(super().continuation(), received=so_far.received, attention=so_far.attention)

    def _received(self, known: int) -> np.ndarray:
        n = len(self.tokens)
        return np.asarray(received(self.paid[:known, :n]), np.float32) if known else np.zeros(n, np.float32)


class Attending:
    """Used as ``Writing``."""

    def __init__(
        self,
        lm: ServedEndpoint,
        draft: Write,
        seed: int | None,
        put: Callable[[Any], None],
        keep: Keep | None = None,
    ) -> None:
        self.judged = Judged(lm, draft, None, put)
        assert isinstance(lm.attention, AttentionRows)
        self._rows, self._keep = lm.attention, keep
        self._hinted = True  # whether a stop that sees no attention was right so far
        blind = replace(draft, certainty=None, attention=False, received=False)
        self.ahead = Writing(lm, blind, seed, lambda item: put((self, *item[1:])))
        self._set_out()

    @property
    def stopped(self) -> str:
        """Why the draft ended; empty while it goes on."""
        return self.judged.stopped

    def start(self) -> Iterator[TokenEvent]:
        """Take the ids that the draft begins with, and ask for the tokens after them."""
        for _ in self.ahead.start():
            pass
        if self.ahead.stopped:
            yield from self._judge()

    def close(self) -> None:
        """Close the stream."""
        self.ahead.close()

    def take(self, request: object, item: Any) -> Iterator[TokenEvent]:
        """Take an item of a stream, yielding the tokens that are decided by it."""
        for _ in self.ahead.take(request, item):
            pass
        if self.ahead.stopped and not self.stopped:
            yield from self._judge()

    def continuation(self) -> Continuation:
        """What was written, to where the draft ends."""
        judged, ahead = self.judged, self.ahead
        if self._keep is not None:
            kept = ahead.to_keep()
            kept["bounds"][: len(judged.tokens)] = np.array([judged.low, judged.high]).T
            kept["paid"] = judged.paid[np.tril_indices(len(judged.paid), -1)]
            self._keep("together", kept | ({} if judged.attention is None else {"attention": judged.attention}))
        return replace(judged.continuation(), reused=ahead.reused)

    def _set_out(self) -> None:
        """Say how far the next stretch goes."""
        p, stop = len(self.judged.prompt_ids), self.judged.draft.stop
        until = len(self.ahead.tokens) + max(_SHORTEST, p // _FASTER)
        ahead = Ahead((stop,) if self._hinted else (), until, (self._rows.heads, p))
        self.ahead.draft, self.ahead.stopped = replace(self.ahead.draft, stop=ahead), ""

    def _judge(self) -> Iterator[TokenEvent]:
        judged, ahead, p = self.judged, self.ahead, len(self.judged.prompt_ids)
        rows = self._rows.rows([*judged.prompt_ids, *ahead.ids], p - 1)  # (h, m + 1, p + m)
        judged.paid = np.tril(rows[:, 1:, p:].mean(0), -1)
        judged.attention = rows.astype(np.float16) if judged.draft.attention else None
        for t in range(len(judged.tokens), len(ahead.tokens)):
            yield judged.add(ahead.tokens[t], (ahead.low[t], ahead.high[t]))
            if judged.stopped:
                return
        if ahead.stopped == "eos":  # the server said so, without a token for it
            judged.end("eos")
            return
        self._hinted &= ahead.stopped == "ahead"
        self._set_out()
        ahead.begin()


def start_draft(
    lm: ServedEndpoint, draft: Write, seed: int | None, put: Callable[[Any], None], keep: Keep | None = None
) -> Writing | Attending:
    """A draft under way, written ahead where it needs rows; see ``Writing``."""
    return (Attending if needs_rows(draft) else Writing)(lm, draft, seed, put, keep)


def replay_draft(
    lm: ServedEndpoint, draft: Write, cached: Mapping[str, np.ndarray]
) -> tuple[list[TokenEvent], Continuation] | None:
    """A draft from what was kept of one; see ``writing.replayed``. None too where its rows were not kept."""
    if not needs_rows(draft):
        return replayed(Writing(lm, draft, None, lambda item: None), cached)
    if not {"paid", *(["attention"] * draft.attention)} <= cached.keys():
        return None
    judged, m = Judged(lm, draft, None, lambda item: None), len(cached["ids"])
    judged.paid = np.zeros((m, m), np.float32)
    judged.paid[np.tril_indices(m, -1)] = cached["paid"]
    judged.attention = cached["attention"] if draft.attention else None
    return replayed(judged, cached)
