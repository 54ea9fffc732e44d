"""A draft whose trigger or query reads attention, written by llama.cpp: written ahead, then judged with its rows.

What a token receives depends on later ones, and the second model reads a text as a whole. So a stretch is written
ahead, one pass gives its rows, and the draft's ``Stop`` is asked after each token about the rows that a model which
gives them one by one would have given by then. The tokens after its end are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dragin_lab.core.episode import Write
from dragin_lab.core.scores import received
from dragin_lab.core.stops import AnyOf
from dragin_lab.served.rows import AttentionRows
from dragin_lab.served.writing import Writing
from dragin_lab.trace.trace import Draft

#: A stretch takes about as long to write as to read with its prompt: at least 16 tokens, half as many as the prompt
#: has. (SmolLM2 on a CPU reads a token in less than half the time that it takes to write one.)
_SHORTEST, _FASTER = 16, 2


@dataclass(frozen=True)
class Ahead(AnyOf):
    """Where to stop writing ahead: after ``until`` tokens, or where the draft ends whatever its attention."""

    until: int
    shape: tuple[int, int]  # (h, p): heads, and tokens of the prompt

    def reached(self, draft: Draft) -> str | None:
        n, (h, p) = len(draft), self.shape
        blind = replace(draft, received=np.zeros(n), rows=np.broadcast_to(np.float16(0), (h, n + 1, p + n)))
        return "ahead" if n >= self.until else super().reached(blind)


class Attending(Writing):
    """A draft with the rows of its tokens; m tokens were written ``ahead`` of it, and it takes n of them."""

    ahead: Writing
    paid: np.ndarray  # (m, m) float32, what each token pays to all so far, mean over the heads
    attention: np.ndarray | None = None  # (h, m + 1, p + m) float16, where it is kept
    _hints = True  # whether a stop that sees no attention was right so far

    def start(self) -> Iterator[Draft]:
        blind = replace(self.draft, certainty=None, attention=False, received=False)
        self.ahead = Writing(self.lm, blind, self._seed, lambda item: self._put((self, *item[1:])))
        self._set_out()
        yield from self._follow(self.ahead.start())

    def take(self, request: object, item: Any) -> Iterator[Draft]:
        yield from self._follow(self.ahead.take(request, item))

    def close(self) -> None:
        if hasattr(self, "ahead"):
            self.ahead.close()

    def so_far(self) -> Draft:
        n, p, attention = len(self.tokens), len(self.prompt_ids), self.attention
        known = n if self.stopped else n - 1  # tokens whose own row is there
        if attention is not None:
            attention = attention[:, : n + 1, : p + n].copy()
            attention[:, known + 1 :] = 0
        seen = received(self.paid[:known, :n]) if known else np.zeros(n, np.float32)
        return replace(super().so_far(), received=seen, rows=attention)

    def continuation(self) -> Draft:
        so_far, n = self.so_far(), len(self.tokens)
        among = self.paid[:n, :n][np.tril_indices(n)] if self.draft.among else None
        return replace(super().continuation(), received=so_far.received, rows=so_far.rows, among=among)

    def _set_out(self) -> None:
        """Say how far the next stretch goes."""
        assert isinstance(self.lm.attention, AttentionRows)
        p, ahead = len(self.prompt_ids), self.ahead
        until = len(ahead.tokens) + max(_SHORTEST, p // _FASTER)
        stop = Ahead((self.draft.stop,) if self._hints else (), until, (self.lm.attention.block.heads, p))
        ahead.draft, ahead.stopped = replace(ahead.draft, stop=stop), ""

    def _follow(self, written: Iterator[Draft]) -> Iterator[Draft]:
        for _ in written:
            pass
        while self.ahead.stopped and not self.stopped:
            yield from self._judge()

    def _judge(self) -> Iterator[Draft]:
        assert isinstance(self.lm.attention, AttentionRows)
        ahead, p = self.ahead, len(self.prompt_ids)
        rows = self.lm.attention.rows([*self.prompt_ids, *ahead.ids], p - 1)  # (h, m + 1, p + m)
        self.paid, self._reused = rows[:, 1:, p:].mean(0), ahead._reused
        self.attention = rows.astype(np.float16) if self.draft.attention else None
        for t in range(len(self.tokens), len(ahead.tokens)):
            yield self.add(ahead.tokens[t], (ahead.low[t], ahead.high[t]))
            if self.stopped:
                return
        if ahead.stopped == "eos":  # the server said so, without a token for it
            self.end("eos")
            return
        self._hints &= ahead.stopped == "ahead"
        self._set_out()
        for _ in ahead.start():
            pass


def kind_of(draft: Write) -> type[Writing]:
    """How a draft is written: ahead, where its trigger or query reads attention."""
    return Attending if draft.received or draft.attention else Writing
