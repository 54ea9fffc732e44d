"""The decode loop: one forward a piece on a key-value cache, with everything measured on the way.

Forward t gives the distribution of piece t and the attention row of the piece before it, so n pieces take n forwards,
and one more in which the last piece looks back.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from dragin_lab.episode import Bias, Draft, Never, SoFar
from dragin_lab.errors import ModelError
from dragin_lab.lm.measure import Recorder
from dragin_lab.lm.tap import Pending
from dragin_lab.trace import Continuation

if TYPE_CHECKING:
    from dragin_lab.lm.load import LanguageModel

_ROWS_AT_ONCE = 32  # attention rows computed together where nobody looks at them earlier


@dataclass(frozen=True)
class PieceEvent:
    """One piece, just made.

    ``text`` is the text so far and ``delta`` what this piece added to it. Both leave out a character whose bytes are
    not all there yet. ``entropy`` and ``logprob`` are in nats, of the raw distribution.
    """

    index: int
    id: int
    piece: str
    text: str
    delta: str
    entropy: float
    logprob: float


class Prefix:
    """A key-value cache and the ids it holds."""

    def __init__(self, config: Any) -> None:
        self.cache = DynamicCache(config=config)
        self.ids: list[int] = []
        self.sound = True  # False while a forward is under way, and for good if it did not end

    def cut_to(self, ids: list[int]) -> bool:
        """Keep the longest common prefix with ``ids``, all but its last piece at most. False: it cannot be cut."""
        limit = min(len(self.ids), len(ids) - 1)
        common = next((i for i in range(limit) if self.ids[i] != ids[i]), limit)
        drop = len(self.ids) - common
        if drop and common:
            if any(getattr(self.cache, "is_sliding", ())) or not getattr(self.cache, "is_croppable", True):
                return False  # a sliding window has forgotten what it would have to go back to
            self.cache.crop(-drop)
            del self.ids[common:]
        return common > 0


@torch.inference_mode()
def feed(lm: LanguageModel, prefix: Prefix, ids: list[int], pending: Pending | None) -> Tensor:
    """Feed ids behind the cache; returns the last position's logits (V,) and puts its row into ``pending``."""
    inputs = {"input_ids": torch.tensor([ids], device=lm.device), "past_key_values": prefix.cache, "use_cache": True}
    prefix.sound = False
    with lm.lock:
        if pending is None:
            output, _ = lm.tap.forward(0, **inputs, **lm.only_last)
        else:
            output = lm.tap.step(pending, **inputs, **lm.only_last)
    prefix.ids += ids
    prefix.sound = True
    logits: Tensor = output.logits[0, -1]  # (V,)
    return logits.clone() if output.logits.shape[1] > 1 else logits  # not a view that keeps all of them


def finish(pieces: Generator[PieceEvent, None, Continuation]) -> Continuation:
    """Run a stream to its end."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            made: Continuation = end.value
            return made


@torch.inference_mode()
def _look_back(lm: LanguageModel, recorder: Recorder, pending: Pending) -> None:
    """Hand the rows made so far to the recorder."""
    with lm.lock:
        rows = lm.tap.flush(pending)
    for weights in rows:
        recorder.looked_back(weights)


class _Watched(SoFar):
    """A ``SoFar`` whose ``received`` is worked out when a ``Stop`` looks at it; most never do."""

    def __init__(self, lm: LanguageModel, recorder: Recorder, pending: Pending) -> None:
        self._source = (lm, recorder, pending)
        super().__init__(entropy=recorder.entropy, logprob=recorder.logprob)

    @property
    def received(self) -> np.ndarray:
        _look_back(*self._source)
        return self._source[1].received()

    @received.setter
    def received(self, value: np.ndarray) -> None:
        """The dataclass sets its default; there is nothing to keep."""


class Chooser:
    """Takes the next piece from its logits: the likeliest, or one drawn as the model's generation config says."""

    def __init__(self, lm: LanguageModel, prompt_ids: list[int], seed: int | None, bias: Sequence[Bias] = ()) -> None:
        self.biases = [(b, lm.openings(b.opening)) for b in bias]
        self.made = 0
        self.processors = lm.processors(len(prompt_ids))
        self.sample = lm.sample
        self.ids = list(prompt_ids) if self.processors else []
        self.generator = torch.Generator(lm.device) if lm.sample else None
        if self.generator is not None:
            if seed is None:
                self.generator.seed()
            else:
                self.generator.manual_seed(seed)

    @torch.inference_mode()
    def __call__(self, logits: Tensor) -> tuple[int, Tensor | None]:
        """The id chosen from raw logits (V,), and the logits it was chosen from (V,) where processors changed them."""
        processed = None
        if self.biases:
            logits = self._biased(logits)
        if self.processors:
            so_far = torch.tensor([self.ids], device=logits.device)
            processed = self.processors(so_far, logits[None].to(torch.float32, copy=True))[0]  # (V,)
        scores = logits if processed is None else processed
        if self.sample:
            piece = int(torch.multinomial(torch.softmax(scores.float(), -1), 1, generator=self.generator))
        else:
            piece = int(scores.argmax())
        if self.processors:
            self.ids.append(piece)
        self.made += 1
        return piece, processed

    def _biased(self, logits: Tensor) -> Tensor:
        """The logits (V,) with what is added to this piece's; the raw ones stay as they are."""
        for bias, ids in self.biases:
            if bias.first <= self.made and (bias.stop is None or self.made < bias.stop):
                logits = logits.index_add(0, ids, torch.full_like(ids, bias.value, dtype=logits.dtype))
        return logits


def stream(
    lm: LanguageModel, draft: Draft, seed: int | None = None, *, every: bool = True, capture: bool = True
) -> Generator[PieceEvent, None, Continuation]:
    """Make the continuation of a draft, yielding a ``PieceEvent`` behind every piece; returns the ``Continuation``.

    ``draft.stop`` is asked behind every piece. At the check behind piece t (the first is 0) the rows of the pieces
    before t are known, so ``SoFar.received`` is settled by the pieces up to t - 1, and is 0 for t - 1 and t. The
    ``received`` of the result also knows the last piece's row.

    Args:
        lm: the model.
        draft: the request.
        seed: of the sampling; ignored under greedy decoding.
        every: yield events; without, distributions are measured in batches where nobody looks at them earlier.
        capture: False leaves the attention out (``received`` is then 0 throughout); for measuring the cost of it.

    Raises:
        ModelError: an empty prompt without BOS; a text longer than the position table of the model.
    """
    began = time.perf_counter()
    if draft.max_new_tokens < 1:
        raise ModelError(f"max_new_tokens={draft.max_new_tokens}: give 1 or more")
    prompt_ids, prompt_offsets = lm.prompt(draft.prompt)
    p, limit = len(prompt_ids), draft.max_new_tokens
    lm.refuse_overrun(p, limit)
    chooser = Chooser(lm, prompt_ids, seed, draft.bias)
    recorder = Recorder(p, limit, lm.alternatives, draft.attention and capture, lm.device)
    watched = not isinstance(draft.stop, Never)
    spans = lm.tokenizer.spans() if every or watched else None
    pending = Pending()
    so_far = _Watched(lm, recorder, pending)
    stopped, decided, decided_by, received_decided, shown = "length", None, "", None, ""

    prefix, reused = lm.take_prefix(prompt_ids)
    try:
        logits = feed(lm, prefix, prompt_ids[reused:], pending if capture else None)
        for t in range(limit):
            piece, processed = chooser(logits)
            recorder.chose(piece, logits, processed)
            if spans is not None:
                recorder.settle()
                delta = spans.push(piece)
                shown = spans.text
                if every:
                    vocabulary = lm.tokenizer.pieces([piece])[0]
                    yield PieceEvent(t, piece, vocabulary, shown, delta, recorder.entropy[t], recorder.logprob[t])
                if watched and decided is None:
                    so_far.ids, so_far.text, so_far.offsets = recorder.ids, shown, spans.provisional()
                    reason = draft.stop.reached(so_far)
                    if reason is not None:
                        decided, decided_by = t + 1, reason
                        if not draft.run_on:
                            stopped = reason
            if len(pending) >= _ROWS_AT_ONCE:
                _look_back(lm, recorder, pending)
            logits = feed(lm, prefix, [piece], pending if capture else None)
            if draft.run_on and decided == t + 1:
                _look_back(lm, recorder, pending)
                received_decided = recorder.received()  # (decided,)
            if piece in lm.eos:
                stopped = "eos"
            if stopped != "length":
                break
        _look_back(lm, recorder, pending)
    finally:
        lm.keep_prefix(prefix)
    return recorder.continuation(
        lm.tokenizer,
        prompt_ids,
        prompt_offsets,
        stopped=stopped,
        decided=decided if draft.run_on else None,
        decided_by=decided_by if draft.run_on else "",
        received_decided=received_decided,
        seconds=time.perf_counter() - began,
        reused=reused,
    )
