"""The decode loop: one forward per token on a key-value cache, with everything measured on the way.

Forward t gives the distribution of token t and the attention row of the token before it, so n tokens take n forwards,
and one more in which the last token looks back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragin_lab.core.episode import Never, SoFar, Write
from dragin_lab.errors import ModelError
from dragin_lab.model.choose import Chooser
from dragin_lab.model.layers import hidden_states
from dragin_lab.model.measure import Fetched, Measured, Recorder
from dragin_lab.model.prefixes import Prefix, find_ends
from dragin_lab.model.tap import Pending
from dragin_lab.model.tapped import TappedModel
from dragin_lab.trace.trace import Continuation

ROWS_AT_ONCE = 32  # attention rows computed together, where no ``Stop`` needs them earlier


#: Called with how the rows of a draft were computed (``Writing.way``) and the arrays that ``replay`` needs.
Keep = Callable[[str, dict[str, np.ndarray]], None]


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


@torch.inference_mode()
def feed_tokens(
    lm: TappedModel,
    prefix: Prefix,
    ids: list[int],
    pending: Pending | None,
    placed: Tensor | None = None,
    writing: Writing | None = None,
) -> Tensor:
    """Feed ids after the cache; returns the last position's logits (V,) and puts its row into ``pending``.

    ``placed`` (c,) has the ids where they are on the device already; ``writing`` gets the hidden state it asks for.
    """
    fed = torch.tensor(ids, device=lm.device) if placed is None else placed
    inputs = {"input_ids": fed[None], lm.cache_argument: prefix.cache, "use_cache": True}
    prefix.sound = False
    with lm.lock, hidden_states(lm.model, [] if writing is None else writing.hidden) as states:
        if pending is None:
            output, _ = lm.tap.forward(0, **inputs, **lm.only_last)
        else:
            output = lm.tap.step(pending, **inputs, **lm.only_last)
    prefix.ids += ids
    prefix.sound = True
    if writing is not None:
        writing.state(states, 0)
    logits: Tensor = output.logits[0, -1]  # (V,)
    return logits.clone() if output.logits.shape[1] > 1 else logits  # not a view that keeps all of them


def read_prompt(
    lm: TappedModel, ids: list[int], ends: tuple[int, ...], pending: Pending | None, writing: Writing | None = None
) -> tuple[Prefix, Tensor, int]:
    """Feed a prompt in the parts that end at ``ends``, after those that are cached.

    Returns the cache, the logits after the prompt (V,) and how many tokens were cached; the last position's row goes
    into ``pending``. ``writing`` as for ``feed_tokens``.
    """
    prefix = lm.prefixes.take(ids, ends)
    reused = len(prefix.ids)
    for end in ends[len(prefix.ends) :]:
        feed_tokens(lm, prefix, ids[len(prefix.ids) : end], None)
        prefix.ends += (end,)
        lm.prefixes.keep(prefix)
    return prefix, feed_tokens(lm, prefix, ids[len(prefix.ids) :], pending, writing=writing), reused


def finish_stream(tokens: Generator[TokenEvent, None, Continuation]) -> Continuation:
    """Run a stream to its end."""
    while True:
        try:
            next(tokens)
        except StopIteration as end:
            continuation: Continuation = end.value
            return continuation


@torch.inference_mode()
def look_back(lm: TappedModel, recorder: Recorder, pending: Pending, block: int = 0) -> None:
    """Hand the rows so far to the recorder; ``block`` as for ``Tap.flush``."""
    with lm.lock:
        rows = lm.tap.flush(pending, block=block)
    for weights in rows:
        recorder.looked_back(weights)


class _Watched(SoFar):
    """A ``SoFar`` whose measures are fetched from the device when a ``Stop`` looks at them; most never do."""

    def __init__(self, recorder: Recorder, look_back: Callable[[], None]) -> None:
        self.ids, self.text, self.offsets = [], "", []  # and no fields for what ``__getattr__`` gives
        self.looked = False  # whether anybody looked at ``received`` since this was last set
        self._source = (recorder, look_back)

    def __getattr__(self, name: str) -> Any:
        recorder, look_back = self._source
        if name in ("received", "attention"):
            self.looked = True
            look_back()
            return getattr(recorder, name)()
        if name == "hidden":
            return recorder.hidden()
        if name in ("alternative_ids", "alternative_probs"):
            return recorder.alternatives()[name == "alternative_probs"]
        if name not in ("entropy", "logprob"):
            raise AttributeError(name)
        recorder.settle()
        return getattr(recorder, name)


class Writing:
    """A draft under way: all of it but the forwards, which may serve one text or many side by side.

    Once the prompt has been fed, in turn: ``take`` the logits after it (or ``chose``, where it was chosen
    elsewhere), ``check``, feed ``last``, ``fed``, until ``stopped`` says why it ended. Then, with all rows handed over,
    ``continuation``.

    Args:
        lm, draft, seed, capture: as for ``stream``.
        look_back: hands the attention rows so far to ``recorder``.
        followed: keep up with the text and the measures even where no ``Stop`` looks at them.
        keep: called at the end with how the rows were computed and what a cache needs (``replay``).
        beside: other drafts are written in the same forwards.
        device: where the recorder works; the model's own by default.

    Raises:
        ModelError: as ``stream`` does.
    """

    def __init__(
        self,
        lm: TappedModel,
        draft: Write,
        seed: int | None,
        look_back: Callable[[], None],
        *,
        followed: bool = False,
        capture: bool = True,
        keep: Keep | None = None,
        beside: bool = False,
        device: torch.device | None = None,
    ) -> None:
        self.began = time.perf_counter()
        if draft.max_new_tokens < 1:
            raise ModelError(f"max_new_tokens={draft.max_new_tokens}: give 1 or more")
        self.lm = lm
        self.draft = draft
        self.look_back = look_back
        self.prompt_ids, self.prompt_offsets = lm.prompt(draft.prompt)
        self.prompt_ends = find_ends(draft.prompt, self.prompt_offsets, lm.parts)
        p = len(self.prompt_ids)
        lm.refuse_overrun(p, draft.max_new_tokens)
        self.chooser = Chooser(lm, self.prompt_ids, seed, draft.bias)
        self.recorder = Recorder(
            p, draft.max_new_tokens, lm.alternatives, draft.attention and capture, device or lm.device,
            among=draft.among or keep is not None,
        )  # fmt: skip
        self._keep, self._beside = keep, beside
        self._looks: set[bool] = set()  # whether the `Stop` looked at rows, after each token
        self.watched = not isinstance(draft.stop, Never)
        self.stopped = ""  # why it ended; empty while it goes on
        self.last: Tensor | None = None  # (1,) the last token, on the device
        self._followed = followed
        self._spans = lm.tokenizer.spans() if followed or self.watched else None
        self._so_far = _Watched(self.recorder, look_back)
        self._delta = ""  # what the last token added to the text
        self._decided: int | None = None
        self._decided_by = ""

    @property
    def ids(self) -> list[int]:
        """The tokens so far."""
        return self.recorder.ids

    @property
    def hidden(self) -> list[int | str]:
        """The layer whose hidden states the draft asks for, if it does."""
        return [] if self.draft.hidden is None else [self.draft.hidden]

    def state(self, states: dict[int | str, Tensor], row: int) -> None:
        """Take the hidden state at the last position of a forward, where the draft asks for it."""
        for layer in self.hidden:
            self.recorder.states.append(states[layer][row, -1].clone())

    def take(self, logits: Tensor) -> None:
        """Choose the next token from its raw logits (V,)."""
        token, processed = self.chooser(logits)
        self.last = token[None]
        if self.looked:
            self.look_back()
        self.recorder.chose(token, logits, processed, at_once=self.looked or self._followed)
        self._follow()

    def chose(
        self,
        token: int,
        measured: Measured,
        processed: Tensor | None = None,
        *,
        warped: Tensor | None = None,
        last: Tensor | None = None,
        fetched: Fetched | None = None,
    ) -> None:
        """Take a token that was chosen and measured elsewhere; arguments as for ``Recorder.measured``.

        ``last`` (1,) is the token on the device, where it will be fed from there.
        """
        self.last = last
        self.recorder.measured(token, measured, processed, warped=warped, fetched=fetched)
        self._follow()

    @property
    def looked(self) -> bool:
        """Whether the draft's ``Stop`` looked at what tokens received the last time, and so will look again."""
        return self._so_far.looked and self._decided is None

    @property
    def one_by_one(self) -> bool:
        """Whether the draft's ``Stop`` looks at each row as it comes, or did until it decided."""
        return self._so_far.looked or True in self._looks

    def _follow(self) -> None:
        if self._spans is not None:
            self._delta = self._spans.push(self.ids[-1])

    def event(self) -> TokenEvent:
        """The last token, for people who watch."""
        assert self._spans is not None
        t, token = len(self.ids) - 1, self.ids[-1]
        self.recorder.settle()
        entropy, logprob = self.recorder.entropy[t], self.recorder.logprob[t]
        vocabulary = self.lm.tokenizer.tokens([token])[0]
        return TokenEvent(t, token, vocabulary, self._spans.text, self._delta, entropy, logprob)

    def check(self) -> None:
        """Ask the draft's ``Stop`` about the tokens so far, once after each."""
        if not self.watched or self._decided is not None:
            if self.one_by_one:
                self.look_back()  # so that rows after the decision are computed as those before it
            return
        assert self._spans is not None
        so_far = self._so_far
        so_far.looked = False
        so_far.ids, so_far.text, so_far.offsets = self.ids, self._spans.text, self._spans.provisional()
        reason = self.draft.stop.reached(so_far)
        self._looks.add(so_far.looked)
        if reason is not None:
            self._decided, self._decided_by = len(self.ids), reason

    def fed(self) -> None:
        """The last token was fed: decide whether it was the last of all."""
        if self.ids[-1] in self.lm.eos:
            self.stopped = "eos"
        elif self._decided is not None:
            self.stopped = self._decided_by
        elif len(self.ids) == self.draft.max_new_tokens:
            self.stopped = "length"

    @property
    def way(self) -> str:
        """How the rows were computed: "looked" at one by one, "together", "beside" other drafts; else empty."""
        if self._beside:
            return "beside"
        return {frozenset([True]): "looked", frozenset([True, False]): ""}.get(frozenset(self._looks), "together")

    def continuation(self, reused: int) -> Continuation:
        """What was written; ``reused`` tokens of its prompt were served from a cache."""
        continuation = self.recorder.continuation(
            self.lm.tokenizer,
            self.prompt_ids,
            self.prompt_offsets,
            stopped=self.stopped,
            seconds=time.perf_counter() - self.began,
            reused=reused,
        )
        if self._keep is not None:
            self._keep(self.way, self.recorder.to_keep(continuation))
        return continuation if self.draft.among else replace(continuation, among=None)


def stream(
    lm: TappedModel,
    draft: Write,
    seed: int | None = None,
    *,
    every: bool = True,
    capture: bool = True,
    keep: Keep | None = None,
) -> Generator[TokenEvent, None, Continuation]:
    """Write the continuation of a draft, yielding a ``TokenEvent`` after every token; returns the ``Continuation``.

    ``draft.stop`` is asked after every token. At the check after token t (the first is 0) the rows of the tokens
    before t are known, so ``SoFar.received`` is settled by the tokens up to t - 1, and is 0 for t - 1 and t. The
    ``received`` of the result also knows the last token's row.

    Args:
        lm: the model.
        draft: the request.
        seed: of the sampling; ignored under greedy decoding.
        every: yield events; without, distributions are measured in batches unless the ``Stop`` needs them earlier.
        capture: False leaves the attention out (``received`` is then NaN); for measuring the cost of it.
        keep: called at the end with what a cache needs to serve the draft again (``replay``).

    Raises:
        ModelError: an empty prompt without BOS; a text longer than the position table of the model.
    """
    pending = Pending()

    def rows_so_far() -> None:
        look_back(lm, writing.recorder, pending, 0 if writing.one_by_one else ROWS_AT_ONCE)

    writing = Writing(lm, draft, seed, rows_so_far, followed=every, capture=capture, keep=keep)
    tapped = pending if capture else None
    prefix, logits, reused = read_prompt(lm, writing.prompt_ids, writing.prompt_ends, tapped, writing)
    while not writing.stopped:
        writing.take(logits)
        if every:
            yield writing.event()
        writing.check()
        if len(pending) >= ROWS_AT_ONCE:
            rows_so_far()
        logits = feed_tokens(lm, prefix, writing.ids[-1:], tapped, writing.last, writing)
        writing.fed()
    rows_so_far()
    return writing.continuation(reused)
