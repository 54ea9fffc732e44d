"""A draft while it is written: its tokens, what is measured on them, and when it stops."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragin_lab.core.episode import Stop, Write
from dragin_lab.core.scores import entropy
from dragin_lab.engines.engine import OnToken
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft


class Writing:
    """A draft while it is written.

    After each forward call ``add_row``, then ``add_token``, until it is ``complete``; then ``finish``. Attention row r
    is that of query position p - 1 + r, which predicts token r. The row of the last token takes one more forward.
    ``prompt`` (ids and offsets) stands in for the request's.
    """

    def __init__(
        self, lm: Any, request: Write, seed: int | None = None, watch: OnToken | None = None, *, prompt: Any = None
    ) -> None:
        self.began = time.perf_counter()
        if request.max_new_tokens < 1:
            raise ModelError(f"max_new_tokens={request.max_new_tokens}: give 1 or more")
        self.prompt_ids, self.prompt_offsets = prompt or lm.tokenizer.encode_prompt(request.prompt, lm.name)
        lm.refuse_overrun(len(self.prompt_ids), request.max_new_tokens)
        if request.hidden is not None:
            lm.find_state(request.hidden)  # refuses a layer that is not there
        self.lm, self.request, self.watch, self.blind = lm, request, watch, not lm.has_attention
        self.ids: list[int] = []
        self.stopped = ""  # why it ended; empty while it goes on
        self.error: Exception | None = None  # of its ``Stop``, or logits that are not finite
        self.rows = self.reused = self.forwards = 0  # rows that are known, tokens not read again, forwards
        self.generator = torch.Generator(lm.device) if lm.sample else None  # None takes the likeliest token
        if self.generator is not None:
            self.generator.seed() if seed is None else self.generator.manual_seed(seed)
        self.cache: Any = None  # of its text so far, between forwards
        self.spans = lm.tokenizer.spans()
        self.followed = watch is not None or request.stop != Stop()
        n, k = request.max_new_tokens, lm.alternatives
        self._entropy, self._logprob, self._processed = np.zeros((3, n), np.float32)
        self._likeliest, self._probs = np.zeros((n, k), np.int32), np.zeros((n, k), np.float32)
        self._states: list[np.ndarray] = []
        self._pieces: list[str] = []
        self._received = np.zeros(n, np.float32)
        self._among = np.zeros((n + 1, n), np.float32)  # what each row pays to the tokens, the mean over heads
        self._attention: np.ndarray | None = None

    @property
    def complete(self) -> bool:
        """Whether it has ended and the row of its last token is there."""
        return self.error is not None or (bool(self.stopped) and (self.blind or self.forwards > len(self.ids)))

    def biases(self, t: int) -> Iterator[tuple[list[int], float]]:
        """What is added to the logits of token t: ids, and a value for each of them."""
        for bias in self.request.bias:
            if bias.first <= t and (bias.stop is None or t < bias.stop):
                yield self.lm.tokenizer.openings(bias.opening), bias.value

    def choose(self, scores: Tensor) -> Any:
        """The next token as it is forced, or drawn from scores (V,); None: the likeliest."""
        drawn = None
        if self.generator is not None:  # also before a forced token, which then changes no later draw
            drawn = torch.multinomial(scores.softmax(-1).nan_to_num(1.0), 1, generator=self.generator)
        return self.request.prefix[len(self.ids)] if len(self.ids) < len(self.request.prefix) else drawn

    def add_row(self, mean: np.ndarray, heads: np.ndarray | None = None) -> None:
        """Add the next row: its mean over the heads (keys,), and all ``heads`` (h, keys) where they are kept.

        The last key is the query itself; with a sliding window the first ones are missing.
        """
        r, p = self.rows, len(self.prompt_ids)
        if r > len(self.ids):
            return
        self.rows += 1
        paid = mean[max(0, len(mean) - r) :]  # to the tokens, the last of them itself
        self._among[r, r - len(paid) : r] = paid
        seen = self._received[r - len(paid) : max(0, r - 1)]  # Eq. 2: only tokens before it
        np.maximum(seen, paid[:-1], out=seen)
        if heads is not None:
            if self._attention is None:
                n = self.request.max_new_tokens
                self._attention = np.zeros((len(heads), n + 1, p + n), np.float16)
            self._attention[:, r, p + r - heads.shape[1] : p + r] = heads

    def add_token(self, token: int, measured: Sequence[Any], processed: float = np.nan, state: Any = None) -> None:
        """Add the next token and what was measured on its distribution; ask ``Stop``, and tell ``watch``.

        ``measured`` is its part of ``measure_logits``; ``processed`` is the entropy after warpers, NaN where nothing
        changed the distribution; ``state`` (d,). Raises ``ModelError`` for a distribution that is not finite.
        """
        t = len(self.ids)
        if np.isnan(measured[0 if self.lm.has_entropy else 1]):
            raise ModelError(
                f"the logits of {self.lm.name} are not finite (NaN) after {len(self.prompt_ids) + t} tokens; float16 "
                'may overflow: load it with dtype="bfloat16" or "float32"'
            )
        self._entropy[t], self._logprob[t], self._likeliest[t], self._probs[t] = measured
        self._processed[t] = processed
        if state is not None:
            self._states.append(state)
        self.ids.append(token)
        reason = None
        if self.followed:
            self.spans.push(token)
            reason = self.request.stop.reached(self.so_far(measured=self.request.stop.measured))
        if token in self.lm.eos:
            self.stopped = "eos"
        else:
            self.stopped = reason or "length" * (len(self.ids) == self.request.max_new_tokens)
        if self.watch is not None:
            self.watch(self.so_far())

    def so_far(self, *, measured: bool = True) -> Draft:
        """The draft so far; its ids and text alone where ``measured`` is False."""
        if not measured:
            return Draft(np.array(self.ids, np.int32), self.spans.text, ended=False)
        self._pieces += self.lm.tokenizer.tokens(self.ids[len(self._pieces) :])
        return self._draft(self.spans.text, self.spans.provisional(), pieces=tuple(self._pieces), ended=False)

    def finish(self) -> Draft:
        """What was written. Raises what went wrong."""
        if self.error is not None:
            raise self.error
        n, tokenizer = len(self.ids), self.lm.tokenizer
        processed = self._processed[:n]
        draft = self._draft(
            *self.spans.all(self.ids),
            pieces=tuple(tokenizer.tokens(self.ids)),
            raw_text=tokenizer.decode(self.ids, special=True),
            alternative_tokens=tuple(tuple(map(tokenizer.show, row)) for row in self._likeliest[:n].tolist()),
            stopped=self.stopped,
            seconds=time.perf_counter() - self.began,
            reused=self.reused,
        )
        if not np.isnan(processed).all():
            draft.entropy_processed = np.where(np.isnan(processed), draft.entropy, processed)
        if draft.rows is not None:
            draft.rows = draft.rows.copy()  # not a view of the whole buffer
        if self.request.among and not self.blind:
            draft.among = self._among[: n + 1, :n][np.tril_indices(n + 1, -1, n)]
        return draft

    def _draft(self, text: str, spans: list[tuple[int, int]], **rest: Any) -> Draft:
        n, rows = len(self.ids), self._attention
        return Draft(
            ids=np.array(self.ids, np.int32),
            text=text,
            offsets=np.array(spans, np.int32).reshape(-1, 2),
            prompt_ids=np.array(self.prompt_ids, np.int32),
            prompt_offsets=self.prompt_offsets,
            entropy=self._entropy[:n],
            logprob=self._logprob[:n],
            alternative_ids=self._likeliest[:n],
            alternative_probs=self._probs[:n],
            received=np.full(n, np.nan, np.float32) if self.blind else self._received[:n].copy(),
            rows=None if rows is None else rows[:, : self.rows, : len(self.prompt_ids) + n],
            states=np.stack(self._states) if self._states else None,
            **rest,
        )


def measure_logits(logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of raw logits (n, V) and the tokens (n,) after them: entropies and log-probabilities (nats), and the k likeliest.

    (n,), (n,), ids (n, k) and their probabilities (n, k).
    """
    logs = logits.float().log_softmax(-1)
    probs = logs.exp()
    best, which = probs.topk(k, -1)
    return entropy(probs, logs), logs.gather(1, tokens[:, None])[:, 0], which, best
