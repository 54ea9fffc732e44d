"""A draft under way: its tokens are chosen, measured and shown to its ``Stop``; the forwards are in ``decode``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragin_lab.core.episode import Bias, Never, SoFar, Write
from dragin_lab.errors import ModelError
from dragin_lab.model.caches import find_ends
from dragin_lab.model.measure import Fetched, Measured, Recorder
from dragin_lab.model.tapped import TappedModel
from dragin_lab.trace.trace import Continuation

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


class Chooser:
    """Chooses the tokens of one draft from their logits, one after the other.

    The ids that a draft is to begin with (``Write.prefix``) take the place of the first ones chosen. Those are chosen
    all the same, so that what is sampled after them is what would have been sampled after the model's own.
    """

    def __init__(
        self,
        lm: TappedModel,
        prompt_ids: list[int],
        seed: int | None,
        bias: Sequence[Bias] = (),
        prefix: Sequence[int] = (),
    ) -> None:
        self.biases = [
            (b, torch.tensor(lm.tokenizer.openings(b.opening), dtype=torch.int64, device=lm.device)) for b in bias
        ]
        self.count = 0  # tokens chosen
        self.processors = lm.processors(len(prompt_ids))
        self.sample = lm.sample
        self.prefix = torch.tensor(prefix, dtype=torch.int64, device=lm.device)
        self.plain = not (self.biases or self.processors or self.sample or prefix)  # just the likeliest
        self.ids = torch.tensor(prompt_ids if self.processors else [], dtype=torch.int64, device=lm.device)
        self.generator = torch.Generator(lm.device) if lm.sample else None
        if self.generator is not None:
            if seed is None:
                self.generator.seed()
            else:
                self.generator.manual_seed(seed)

    @torch.inference_mode()
    def __call__(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """The id () chosen from raw logits (V,), and the logits it was chosen from (V,) where processors changed them.

        Both stay on the device: reading the id waits for everything under way there.
        """
        processed = None
        if self.biases:
            logits = self._add_biases(logits)
        if self.processors:
            processed = self.processors(self.ids[None], logits[None].to(torch.float32, copy=True))[0]  # (V,)
        scores = logits if processed is None else processed
        if self.sample:
            token = torch.multinomial(torch.softmax(scores.float(), -1), 1, generator=self.generator)[0]
        else:
            token = scores.argmax()
        if self.count < len(self.prefix):
            token = self.prefix[self.count]
        if self.processors:
            self.ids = torch.cat([self.ids, token[None]])
        self.count += 1
        return token, processed

    def _add_biases(self, logits: Tensor) -> Tensor:
        """The logits (V,) with what is added to this token's; the raw ones stay as they are."""
        for bias, ids in self.biases:
            if bias.first <= self.count and (bias.stop is None or self.count < bias.stop):
                logits = logits.index_add(0, ids, torch.full_like(ids, bias.value, dtype=logits.dtype))
        return logits


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
        self.chooser = Chooser(lm, self.prompt_ids, seed, draft.bias, draft.prefix)
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
        """How the rows were computed: one by one ("looked"), "together", or "beside" other drafts; else empty."""
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
