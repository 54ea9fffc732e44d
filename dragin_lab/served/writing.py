"""A draft that a server writes: its tokens as they come, its ``Stop``, and what has to be asked again.

The server is asked for the k likeliest of each token. Where a trigger could decide otherwise within the bounds that
these leave for the entropy, more of the token's distribution is asked for, and where that is not enough all of it, so
that every decision is that of the full distribution.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from dragin_lab.core.episode import Write
from dragin_lab.core.stops import AnyOf, NextExample
from dragin_lab.served.bounds import Token, entropy_bounds
from dragin_lab.served.endpoint import ServedEndpoint
from dragin_lab.served.protocols import Asked, forced
from dragin_lab.served.server import CutError
from dragin_lab.trace.trace import Draft

#: How often a draft is gone on with after its stream broke off.
RESUMED = 3
#: After so many tokens that all had to be asked again, the rest is asked for with whole distributions.
_ALL_AGAIN = 3
#: How many of the likeliest are asked for before a whole distribution, which is megabytes of a large vocabulary.
MORE = 2_000


class Writing:
    """A draft under way: ``start`` it, hand it what its stream puts (``take``), until ``stopped`` says why it ended.

    Args:
        put: gets (this, request, item) for each item of the stream, from another thread.

    Raises:
        ModelError: a draft that this engine cannot write, or that does not fit into the window.
    """

    def __init__(self, lm: ServedEndpoint, draft: Write, seed: int | None, put: Callable[[Any], None]) -> None:
        self.began = time.perf_counter()
        self.lm, self.draft, self._put = lm, draft, put
        lm.refuse(draft)
        self.prompt_ids, self.prompt_offsets = lm.tokenizer.encode_prompt(draft.prompt, lm.name)
        lm.refuse_overrun(len(self.prompt_ids), draft.max_new_tokens)
        self.biases = [(bias, lm.tokenizer.openings(bias.opening)) for bias in draft.bias]
        self._seed = (time.time_ns() if seed is None else seed) if lm.sample else None
        self._marks = example_marks(draft.stop)
        self.stopped = ""
        self.tokens: list[Token] = []
        self.low: list[float] = []  # nats, bounds of each token's entropy
        self.high: list[float] = []
        self._again: set[int] = set()  # tokens, by number, whose distribution was asked for beyond the k likeliest
        self._spans = lm.tokenizer.spans()
        self._reading: Future[Any] | None = None
        self._request: object = None  # the stream that is listened to
        self._before = 0  # tokens there when it began
        self._breaks = self._reused = 0

    @property
    def ids(self) -> list[int]:
        """The tokens so far."""
        return [token.id for token in self.tokens]

    # -- the stream ---------------------------------------------------------------------------------------------------

    def start(self) -> Iterator[Draft]:
        """Take the ids that the draft begins with, yielding each, and ask for the tokens after them."""
        for i in self.draft.prefix[len(self.tokens) :]:
            yield self.add(self._look(self.ids, i))
            if self.stopped:
                return
        self.begin()

    def begin(self) -> None:
        """Ask for the tokens that are left."""
        self.close()
        self.lm.verify()
        request = self._request = object()
        self._before = len(self.tokens)
        interface = self.lm.interface
        body = interface.body(self._asked())
        self._reading = interface.server.read(interface.path, body, lambda item: self._put((self, request, item)))

    def close(self) -> None:
        """Close the stream; the server stops writing, and what is still on the way is not looked at."""
        self._request = None
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def take(self, request: object, item: Any) -> Iterator[Draft]:
        """Take an item of a stream, yielding the tokens in it; nothing of a stream that was closed."""
        if request is None or request is not self._request:
            return
        if item is None:
            item = CutError(f"{self.lm.interface.server.address} ended its answer early")
        if isinstance(item, Exception):
            self._breaks += 1
            if not isinstance(item, CutError) or self._breaks > RESUMED:
                raise item
        else:
            yield from self._take(item)
        if self.stopped:
            self.close()
        elif self._request is None or isinstance(item, Exception):
            self.begin()

    def _take(self, event: Any) -> Iterator[Draft]:
        interface = self.lm.interface
        if "error" in event:
            raise self.lm.failed(event["error"])
        self._reused = max(self._reused, interface.reused(event))
        shown = interface.tokens(event, self._k)
        written = interface.count(event)
        left_out = 0 if written is None else self._before + written - len(self.tokens) - len(shown)
        if left_out > 0:
            yield from self._fill(left_out)
            return
        for token in shown:
            yield self.add(token)
            if self.stopped or self._request is None:
                return
        reason = interface.ended(event)
        if reason == "eos":
            self.end("eos")
        elif reason:
            self.close()
            self._marks = self._marks if reason == "length" else ()  # a mark that only the server's reading finds

    def _fill(self, count: int) -> Iterator[Draft]:
        """Ask one by one for so many tokens that the stream left out; what followed them is asked for again."""
        self.close()
        for i in self.lm.interface.unseen(replace(self._asked(), n=count)):
            yield self.add(self._look(self.ids, i))
            if self.stopped:
                return

    @property
    def _k(self) -> int:
        """How many of the likeliest tokens are asked for."""
        everything = len(self.tokens) == len(self._again) >= _ALL_AGAIN
        return self.lm.interface.vocabulary if everything else self.lm.likeliest

    def _asked(self) -> Asked:
        t = len(self.tokens)
        edges = [edge for bias, _ in self.biases for edge in (bias.first, bias.stop) if edge is not None and edge > t]
        bias: dict[int, float] = {}
        for one, ids in self.biases:
            if one.first <= t and (one.stop is None or t < one.stop):
                bias |= {i: bias.get(i, 0.0) + one.value for i in ids}
        return Asked(
            ids=[*self.prompt_ids, *self.ids],
            n=min([self.draft.max_new_tokens, *edges]) - t,
            k=self._k,
            bias=bias,
            seed=None if self._seed is None else self._seed + t,  # what is begun again draws other tokens
            stops=self._marks,
        )

    def _look(self, before: list[int], token: int, k: int | None = None) -> Token:
        """A token after the prompt and those ``before`` it, with the k likeliest in its place."""
        interface, k = self.lm.interface, k or self._k
        asked = forced(Asked([*self.prompt_ids, *before], 1, k), self.lm.plain)
        (found,) = interface.tokens(interface.answer(asked), k)
        place = np.flatnonzero(found.ids == token)
        if len(place):
            return replace(found, id=token, logprob=float(found.logprobs[place[0]]))
        if k >= interface.vocabulary:
            raise self.lm.changed(f"it knows no token {token} that it wrote before")
        whole = self._look(before, token, interface.vocabulary)
        return replace(found, id=token, logprob=whole.logprob)

    # -- the draft ----------------------------------------------------------------------------------------------------

    def add(self, token: Token, bounds: tuple[float, float] | None = None) -> Draft:
        """Take the next token; ``bounds`` of its entropy where they are known."""
        low, high = bounds or entropy_bounds(token.logprobs, self.lm.interface.vocabulary)
        if bounds is None and len(token.ids) > self.lm.likeliest:
            self._again.add(len(self.tokens))
        self.tokens.append(token.first(self.lm.likeliest))
        self.low.append(low)
        self.high.append(high)
        self._spans.push(token.id)
        t, n = len(self.tokens) - 1, self.draft.max_new_tokens
        self._settle(ended=False)
        reason = self.draft.stop.reached(self.so_far())
        if token.id in self.lm.eos:
            self.end("eos")
        elif reason is not None:
            self.end(reason)
        elif t + 1 == n:
            self.end("length")
        return self.so_far()

    def so_far(self) -> Draft:
        """What a ``Stop`` may look at."""
        ids, logprobs = (np.stack([getattr(token, name) for token in self.tokens]) for name in ("ids", "logprobs"))
        return Draft(
            ids=np.array(self.ids, np.int32),
            text=self._spans.text,
            offsets=np.array(self._spans.provisional(), np.int32).reshape(-1, 2),
            entropy=self._entropy.astype(np.float32),
            logprob=np.array([token.logprob for token in self.tokens], np.float32),
            received=np.full(len(self.tokens), np.nan, np.float32),
            alternative_ids=ids.astype(np.int32),
            alternative_probs=np.exp(logprobs).astype(np.float32),
        )

    @property
    def _entropy(self) -> np.ndarray:
        """(n,) nats, the middle of the bounds."""
        return (np.array(self.low) + np.array(self.high)) / 2

    def end(self, reason: str) -> None:
        """End the draft, with every entropy exact that its judgement needs."""
        self.stopped = reason
        self._settle(ended=True)

    def _settle(self, *, ended: bool) -> None:
        """Ask for more of the distribution of tokens whose bounds leave a decision open, then for all of it."""
        certainty, vocabulary = self.draft.certainty, self.lm.interface.vocabulary
        if certainty is None or not self.tokens or self.low == self.high:
            return
        while len(needed := certainty.lacking(self.so_far(), np.array(self.low), np.array(self.high), ended=ended)):
            self.close()
            for t in needed.tolist():
                k = vocabulary if t in self._again else min(MORE, vocabulary)
                logprobs = self._look(self.ids[:t], self.tokens[t].id, k).logprobs
                everything = k == vocabulary or len(logprobs) < k
                self.low[t], self.high[t] = entropy_bounds(logprobs, len(logprobs) if everything else vocabulary)
                self._again.add(t)

    def continuation(self) -> Draft:
        """What was written."""
        n, tokenizer = len(self.tokens), self.lm.tokenizer
        text, spans = tokenizer.spans().all(self.ids)
        so_far = self.so_far()
        return Draft(
            prompt_ids=np.asarray(self.prompt_ids, np.int32),
            prompt_offsets=self.prompt_offsets,
            ids=np.asarray(self.ids, np.int32),
            pieces=tuple(tokenizer.tokens(self.ids)),
            text=text,
            raw_text=tokenizer.decode(self.ids, special=True),
            offsets=np.asarray(spans, np.int32).reshape(-1, 2),
            entropy=self._entropy.astype(np.float32),
            entropy_width=(np.array(self.high) - np.array(self.low)).astype(np.float32),
            logprob=so_far.logprob,
            alternative_ids=so_far.alternative_ids,
            alternative_probs=so_far.alternative_probs,
            alternative_tokens=tuple(tuple(tokenizer.show(int(i)) for i in row) for row in so_far.alternative_ids),
            received=np.full(n, np.nan, np.float32),
            stopped=self.stopped,
            asked_again=len(self._again),
            seconds=time.perf_counter() - self.began,
            reused=min(self._reused, len(self.prompt_ids)),
        )


def example_marks(stop: Any) -> tuple[str, ...]:
    """The texts at which a ``Stop`` ends a draft, for the server to stop at by itself."""
    if isinstance(stop, AnyOf):
        return tuple(mark for one in stop.stops for mark in example_marks(one))
    return stop.marks if isinstance(stop, NextExample) else ()
