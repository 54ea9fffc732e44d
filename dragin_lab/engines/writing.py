"""A draft under way: its tokens as they are chosen, what is measured on them, its ``Stop``, and what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dragin_lab.core.episode import Never, SoFar, Write
from dragin_lab.engines.engine import Keep
from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Continuation

_KEPT = (
    "ids", "entropy", "logprob", "alternative_ids", "alternative_probs", "entropy_processed", "attention", "hidden",
    "among",
)  # fmt: skip


_MEASURED = ("entropy", "logprob", "received", "alternative_ids", "alternative_probs", "attention", "hidden")


@dataclass(frozen=True)
class TokenEvent:
    """One token, just chosen.

    ``text`` is the text so far and ``delta`` what this token added to it. Both leave out a character whose bytes are
    not all there yet. ``entropy`` and ``logprob`` are in nats, of the raw distribution.
    """

    index: int
    id: int
    token: str
    text: str
    delta: str
    entropy: float
    logprob: float


@dataclass(frozen=True)
class Measured:
    """What was measured on the distribution that a token was drawn from; ``processed`` is the entropy after warpers."""

    entropy: float
    logprob: float
    processed: float  # NaN where nothing changed the distribution
    likeliest: np.ndarray  # (k,) ids
    probs: np.ndarray  # (k,)
    hidden: np.ndarray | None = None  # (d,)


class _SoFar(SoFar):
    """A draft so far, whose measures are fetched when a ``Stop`` looks at them; most never do."""

    def __init__(self, writing: Writing) -> None:
        self.ids, self.text, self.offsets = writing.ids, writing.spans.text, writing.spans.provisional()
        self._writing = writing

    def __getattr__(self, name: str) -> Any:
        if name not in _MEASURED:
            raise AttributeError(name)
        self._writing.settle()
        return getattr(self._writing, name)


class Source(Protocol):
    """What a draft asks of its model."""

    tokenizer: HFTokenizer
    name: str
    alternatives: int
    eos: frozenset[int]

    def refuse_overrun(self, p: int, new: int) -> None: ...


class Writing:
    """A draft under way.

    Row r of its attention is the query position p - 1 + r: token r was predicted by it, token r - 1 looks back with it.
    After each forward ``choose`` takes the token, until ``complete``; the one after the last token gives the last row.
    ``look_back`` takes the rows and ``measure`` what was measured on the tokens, in order, at the latest when
    ``settle`` asks for them; then ``continuation``.

    Args:
        prompt_ids, prompt_offsets: (p,) ids and (p, 2) character spans.
        blind: the model has no attention.
    """

    def __init__(self, lm: Source, draft: Write, prompt_ids: list[int], offsets: np.ndarray, *, blind: bool = False):
        self.began = time.perf_counter()
        if draft.max_new_tokens < 1:
            raise ModelError(f"max_new_tokens={draft.max_new_tokens}: give 1 or more")
        lm.refuse_overrun(len(prompt_ids), draft.max_new_tokens)
        self.lm, self.draft, self.blind = lm, draft, blind
        self.prompt_ids, self.prompt_offsets = prompt_ids, offsets
        self.ids: list[int] = []
        self.stopped = ""  # why it ended; empty while it goes on
        self.error: Exception | None = None  # of its ``Stop``
        self.delta = ""  # what the last token added to the text
        self.rows = self.measured = self.reused = 0  # rows and tokens that are measured; tokens not read again
        self.forwards = 0
        self.settle: Callable[[], None] = lambda: None  # hands over what is measured and not here yet
        self.generator: Any = None  # what its tokens are drawn from; None takes the likeliest
        self.cache: Any = None  # of its text so far, between forwards
        self.spans = lm.tokenizer.spans()
        self.followed = not isinstance(draft.stop, Never)  # whether anybody looks at it before it ends
        n, k = draft.max_new_tokens, lm.alternatives
        self._entropy, self._logprob, self._processed = np.zeros((3, n), np.float32)
        self._likeliest, self._probs = np.zeros((n, k), np.int32), np.zeros((n, k), np.float32)
        self._hidden: list[np.ndarray] = []
        self._received = np.zeros(n, np.float32)
        self._among = np.zeros((n + 1, n), np.float32)  # what each row pays to the tokens, the mean over heads
        self._attention: np.ndarray | None = None

    @property
    def complete(self) -> bool:
        """Whether it has ended and its last token has looked back."""
        return self.error is not None or (bool(self.stopped) and (self.blind or self.forwards > len(self.ids)))

    def look_back(self, mean: np.ndarray | None, heads: np.ndarray | None = None) -> None:
        """Take the next row: its mean over the heads (keys,), and, where it is kept in full, all heads (h, keys).

        Keys end at the query itself; a sliding window has the last ones only. None where there is no attention.
        """
        r, p = self.rows, len(self.prompt_ids)
        if mean is None or r > len(self.ids):
            return
        self.rows += 1
        paid = mean[max(0, len(mean) - r) :]  # to the tokens, the last of them itself
        self._among[r, r - len(paid) : r] = paid
        seen = self._received[r - len(paid) : max(0, r - 1)]  # Eq. 2: only tokens before it
        np.maximum(seen, paid[:-1], out=seen)
        if heads is not None:
            if self._attention is None:
                n = self.draft.max_new_tokens
                self._attention = np.zeros((len(heads), n + 1, p + n), np.float16)
            self._attention[:, r, p + r - heads.shape[1] : p + r] = heads

    def measure(self, measured: Measured) -> None:
        """Take what was measured on the next token; a distribution that is not finite is the draft's ``error``."""
        t = self.measured
        self.measured += 1
        if np.isnan(measured.entropy):
            self.error = self.error or ModelError(
                f"the logits of {self.lm.name} are not finite (NaN) after {len(self.prompt_ids) + t} tokens; float16 "
                'may overflow: load it with dtype="bfloat16" or "float32"'
            )
        self._entropy[t], self._logprob[t] = measured.entropy, measured.logprob
        self._likeliest[t], self._probs[t] = measured.likeliest, measured.probs
        self._processed[t] = measured.processed
        if measured.hidden is not None:
            self._hidden.append(measured.hidden)

    def choose(self, token: int) -> None:
        """Take the next token and ask the ``Stop``."""
        self.ids.append(token)
        reason = None
        if self.followed:
            self.delta = self.spans.push(token)
            reason = self.draft.stop.reached(_SoFar(self))
        if token in self.lm.eos:
            self.stopped = "eos"
        else:
            self.stopped = reason or "length" * (len(self.ids) == self.draft.max_new_tokens)

    @property
    def entropy(self) -> np.ndarray:
        return self._entropy[: len(self.ids)]

    @property
    def logprob(self) -> np.ndarray:
        return self._logprob[: len(self.ids)]

    @property
    def alternative_ids(self) -> np.ndarray:
        return self._likeliest[: len(self.ids)]

    @property
    def alternative_probs(self) -> np.ndarray:
        return self._probs[: len(self.ids)]

    @property
    def received(self) -> np.ndarray:
        """(n,) float32, from the rows so far; NaN of a model without attention."""
        n = len(self.ids)
        return np.full(n, np.nan, np.float32) if self.blind else self._received[:n]

    @property
    def attention(self) -> np.ndarray | None:
        """(h, n + 1, p + n) float16, 0 where a row is still to come; None where rows are not kept."""
        n = len(self.ids)
        return None if self._attention is None else self._attention[:, : n + 1, : len(self.prompt_ids) + n]

    @property
    def hidden(self) -> np.ndarray | None:
        """(n, d) float32, where they are captured."""
        return np.stack(self._hidden) if self._hidden else None

    def event(self) -> TokenEvent:
        """The last token, for people who watch."""
        self.settle()
        t, token = len(self.ids) - 1, self.ids[-1]
        name = self.lm.tokenizer.tokens([token])[0]
        return TokenEvent(t, token, name, self.spans.text, self.delta, float(self._entropy[t]), float(self._logprob[t]))

    def continuation(self, keep: Keep | None = None) -> Continuation:
        """What was written; ``keep`` gets what ``replay`` needs."""
        n, tokenizer = len(self.ids), self.lm.tokenizer
        text, spans = tokenizer.spans().all(self.ids)
        attention, processed = self.attention, self._processed[:n]
        warped = np.where(np.isnan(processed), self._entropy[:n], processed)
        continuation = Continuation(
            prompt_ids=np.asarray(self.prompt_ids, np.int32),
            prompt_offsets=self.prompt_offsets,
            ids=np.asarray(self.ids, np.int32),
            tokens=tuple(tokenizer.tokens(self.ids)),
            text=text,
            raw_text=tokenizer.decode(self.ids, special=True),
            offsets=np.asarray(spans, np.int32).reshape(-1, 2),
            entropy=self.entropy,
            logprob=self.logprob,
            alternative_ids=self.alternative_ids,
            alternative_probs=self.alternative_probs,
            alternative_tokens=tuple(tuple(map(tokenizer.show, row)) for row in self._likeliest[:n].tolist()),
            received=self.received,
            entropy_processed=None if np.isnan(processed).all() else warped,
            attention=None if attention is None else attention.copy(),  # not a view of the whole buffer
            among=None if self.blind else self._among[: n + 1, :n][np.tril_indices(n + 1, -1, n)],
            hidden=self.hidden,
            stopped=self.stopped,
            seconds=time.perf_counter() - self.began,
            reused=self.reused,
        )
        if keep is not None:
            arrays = {name: getattr(continuation, name) for name in _KEPT}
            keep({name: array for name, array in arrays.items() if array is not None})
        return continuation if self.draft.among else replace(continuation, among=None)


def replay(writing: Writing, kept: Mapping[str, np.ndarray]) -> tuple[list[TokenEvent], Continuation] | None:
    """A draft's events and continuation from what ``Writing.continuation`` kept of one after the same prompt.

    Its ``Stop`` is asked after each token, as while it is written. None where the tokens end before the draft does.
    """
    n, p = len(kept["ids"]), len(writing.prompt_ids)
    among = np.zeros((n + 1, n), np.float32)
    among[np.tril_indices(n + 1, -1, n)] = kept.get("among", 0.0)
    attention = kept["attention"] if writing.draft.attention and "attention" in kept else None

    def look_back(r: int) -> None:
        writing.look_back(
            None if writing.blind else among[r, :r], None if attention is None else attention[:, r, : p + r]
        )

    writing.followed, events = True, []
    for t, token in enumerate(kept["ids"].tolist()):
        look_back(t)
        processed = kept["entropy_processed"][t] if "entropy_processed" in kept else np.nan
        hidden = kept["hidden"][t] if "hidden" in kept else None
        entropy, logprob, likeliest, probs = (kept[name][t] for name in _KEPT[1:5])
        writing.measure(Measured(entropy, logprob, processed, likeliest, probs, hidden))
        writing.choose(token)
        events.append(writing.event())
        if writing.stopped:
            look_back(t + 1)
            return events, replace(writing.continuation(), stored=True, reused=p)
    return None
