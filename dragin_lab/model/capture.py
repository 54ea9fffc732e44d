"""``capture``: the same tap on your own ``model.generate(...)``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, DynamicCache

from dragin_lab.errors import ModelError
from dragin_lab.model.check import check_path
from dragin_lab.model.measure import Recorder
from dragin_lab.model.tap import Tap
from dragin_lab.model.taps import EagerTap, NoTap, attach_tap
from dragin_lab.model.tokenizer import HFTokenizer, generation_ends
from dragin_lab.trace.trace import Continuation

if TYPE_CHECKING:
    import pandas as pd

_TOKENS = 13  # of a text on which the attention of a model is tried
_COLUMNS = (
    *("call", "index", "id", "token", "text", "start", "end"),
    *("entropy", "logprob", "received", "alternatives"),
)


class Tape:
    """What was captured: one ``Continuation`` for every call of ``generate``, in order."""

    def __init__(self) -> None:
        self.continuations: list[Continuation] = []

    @property
    def continuation(self) -> Continuation:
        """The latest one. Raises ``ModelError`` where nothing has been generated."""
        if not self.continuations:
            raise ModelError("nothing was captured: call model.generate(...) inside the with block")
        return self.continuations[-1]

    @property
    def tokens(self) -> pd.DataFrame:
        """One row per generated token: call, index, id, token, text, start and end (characters), entropy and
        logprob (nats), received, and the likeliest tokens with their probabilities."""
        import pandas as pd

        rows = []
        for call, c in enumerate(self.continuations):
            for i, (start, end) in enumerate(c.offsets.tolist()):
                measured = float(c.entropy[i]), float(c.logprob[i]), float(c.received[i])
                likeliest = list(zip(c.alternative_tokens[i], c.alternative_probs[i].tolist(), strict=True))
                rows.append((call, i, int(c.ids[i]), c.tokens[i], c.text[start:end], start, end, *measured, likeliest))
        return pd.DataFrame(rows, columns=list(_COLUMNS))

    def __repr__(self) -> str:
        return f"Tape({len(self.continuations)} calls, {sum(map(len, self.continuations))} tokens)"


@contextmanager
def capture(
    model: Any,
    tokenizer: Any = None,
    layer: int | str = "last",
    heads: list[int] | None = None,
    *,
    alternatives: int = 5,
    attention: bool = True,
) -> Iterator[Tape]:
    """Record what ``LanguageModel`` records while ``model.generate`` is called as usual inside the block.

    Greedy or sampled, one sequence per call. ``generate`` never feeds its last token, so one more forward is
    run after it, for that token's row. Attention maps stay on the tape; ``entropy_processed`` does not exist here. The
    model is left as it was.

    Args:
        model: a causal language model of ``transformers``.
        tokenizer: its tokenizer; default the one saved beside it.
        layer: the layer to capture, as in ``LanguageModel.load``.
        heads: the heads to capture; None for all.
        alternatives: how many of the likeliest tokens to keep.
        attention: keep the rows in full (``Continuation.attention``), not only ``received``.

    Raises:
        ModelError: a model or tokenizer that cannot be captured; and from ``generate``: several sequences or beams,
            a padded prompt, embeddings instead of ids, assisted decoding, a cache that is not dynamic.
    """
    if not callable(getattr(model, "generate", None)):
        raise ModelError(f"{type(model).__name__} has no generate(); give a causal language model of transformers")
    if isinstance(vars(model).get("generate"), _Recording):
        raise ModelError("this model is being captured already; use the tape of the outer block")
    hf = _saved_tokenizer(model) if tokenizer is None else getattr(tokenizer, "hf", tokenizer)
    tokens = HFTokenizer(hf, generation_ends(model))
    tape = Tape()
    tap = attach_tap(model, layer, heads)
    if isinstance(tap, NoTap):
        raise ModelError(f"{type(model).__name__} has no attention to capture; LanguageModel reads its logits alone")
    if isinstance(tap, EagerTap) and tap.chosen != "eager":
        path = check_path(tap, list(range(_TOKENS)))
        if not path.passed:
            warnings.warn(f"{type(model).__name__}: {path}; {path.costs}", stacklevel=3)
    own = vars(model).get("generate")
    model.generate = _Recording(model, tap, tokens, tape, alternatives, attention)
    try:
        yield tape
    finally:
        if own is None:
            del model.generate
        else:
            model.generate = own
        tap.remove()


def _saved_tokenizer(model: Any) -> Any:
    name = str(getattr(model, "name_or_path", ""))
    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"no tokenizer is saved beside {name or 'this model'}; pass tokenizer=") from error


@dataclass
class _Recording:
    """Stands in for ``model.generate`` and records each call."""

    model: Any
    tap: Tap | EagerTap
    tokenizer: HFTokenizer
    tape: Tape
    alternatives: int
    keep: bool

    def __post_init__(self) -> None:
        self.generate = self.model.generate

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        inputs = args[0] if args else kwargs.get("inputs", kwargs.get("input_ids"))
        call = _Call(self, None if inputs is None or inputs.shape[-1] == 0 else int(inputs.shape[-1]))
        hooks = [
            self.model.register_forward_pre_hook(call.before, with_kwargs=True),
            self.model.register_forward_hook(call.after, with_kwargs=True),
        ]
        try:
            result = self.generate(*args, **kwargs)
        finally:
            for hook in hooks:
                hook.remove()
            if isinstance(self.tap, Tap):
                self.tap.rows = 0
        sequence = (result if isinstance(result, Tensor) else result.sequences)[0].tolist()
        call.finish(sequence)
        ended = self._stop_reason(sequence[-1], kwargs)
        seconds = time.perf_counter() - began
        self.tape.continuations.append(call.continuation(sequence, stopped=ended, seconds=seconds))
        return result

    def _stop_reason(self, last: int, kwargs: dict[str, Any]) -> str:
        config = kwargs.get("generation_config") or self.model.generation_config
        eos = kwargs.get("eos_token_id", config.eos_token_id)
        if eos is not None and last in (eos if isinstance(eos, (list, tuple)) else [eos]):
            return "eos"
        return "criteria" if {"stopping_criteria", "stop_strings", "max_time"} & kwargs.keys() else "length"


@dataclass
class _Call:
    """One call of ``generate``, seen from the forwards it makes."""

    owner: _Recording
    prompt: int | None  # tokens of the prompt; None until the first forward
    recorder: Recorder | None = None
    logits: Tensor | None = None  # (V,) of the position after the tokens so far
    cache: Any = None
    reused: int = 0
    started: bool = False

    def before(self, module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is None:
            raise ModelError("capture needs input_ids; this call of generate() gave embeddings")
        if ids.shape[0] != 1:
            raise ModelError(
                f"capture takes one sequence at a time, and this call of generate() runs {ids.shape[0]} side by side "
                "(a batch, beams or several return sequences); call it once for each"
            )
        mask = kwargs.get("attention_mask")
        if not self.started and isinstance(mask, Tensor) and mask.dim() == 2 and not bool(mask.all()):
            raise ModelError("the prompt is padded; pass its ids without padding")
        self.cache = kwargs.get("past_key_values")
        if self.cache is not None and not isinstance(self.cache, DynamicCache):
            raise ModelError(f"capture cannot follow a {type(self.cache).__name__}; leave cache_implementation out")
        tap = self.owner.tap
        if isinstance(tap, Tap):
            tap.rows, tap.weights = 1, None
            return args, kwargs
        return args, {**kwargs, "output_attentions": True}

    def after(self, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        tap = self.owner.tap
        weights = tap.take() if isinstance(tap, Tap) else tap.read(output, 1)  # (1, h, 1, keys)
        if isinstance(tap, Tap):
            tap.rows = 0
        ids: Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]  # (1, q)
        end = int(ids.shape[1]) if self.cache is None else int(self.cache.get_seq_length())
        if self.prompt is None:
            self.prompt = end
        if not self.started:
            self.reused = self.reused or end - int(ids.shape[1])
            if end < self.prompt:
                return  # a long prompt fed in chunks
            self._check_step(end == self.prompt)
            self.started = True
            self.recorder = Recorder(self.prompt, 128, self.owner.alternatives, self.owner.keep, weights.device)
            self.recorder.looked_back(weights)
        else:
            assert self.recorder is not None
            assert self.logits is not None
            self._check_step(end == self.prompt + len(self.recorder.ids) + 1)
            self.recorder.chose(int(ids[0, -1]), self.logits)
            self.recorder.looked_back(weights)
        self.logits = output.logits[0, -1].clone()

    @staticmethod
    def _check_step(one_by_one: bool) -> None:
        if not one_by_one:
            raise ModelError("capture cannot follow decoding that feeds several new tokens at once (assisted decoding)")

    @torch.no_grad()
    def finish(self, sequence: list[int]) -> None:
        """Record the last token, and feed it for its row."""
        if self.recorder is None or self.logits is None or self.prompt is None:
            raise ModelError("generate() did not run the model, so nothing was captured")
        self.recorder.chose(sequence[-1], self.logits)
        if sequence[self.prompt :] != self.recorder.ids:
            raise ModelError("generate() returned other tokens than it fed to the model; capture cannot follow it")
        # A cache can be cut back where each layer keeps all positions: no window, no state that is overwritten.
        layers = [*getattr(self.cache, "is_sliding", [True]), *getattr(self.cache, "is_linear", [])]
        if any(layers) or not getattr(self.cache, "is_croppable", True):
            inputs: dict[str, Any] = {"input_ids": self._tensor(sequence), "use_cache": False}
        else:
            inputs = {"input_ids": self._tensor(sequence[-1:]), "past_key_values": self.cache, "use_cache": True}
        _, weights = self.owner.tap.forward(1, **inputs)
        if inputs["use_cache"]:
            self.cache.crop(-1)  # the caller may go on with this cache
        assert weights is not None
        self.recorder.looked_back(weights)

    def continuation(self, sequence: list[int], **rest: Any) -> Continuation:
        assert self.recorder is not None
        prompt = sequence[: self.prompt]
        return self.recorder.continuation(
            self.owner.tokenizer, prompt, _prompt_offsets(self.owner.tokenizer, prompt), reused=self.reused, **rest
        )

    def _tensor(self, ids: list[int]) -> Tensor:
        return torch.tensor([ids], device=self.owner.model.device)


def _prompt_offsets(tokenizer: HFTokenizer, prompt: list[int]) -> np.ndarray:
    """Character spans (p, 2) of prompt ids in their decoded text; as the tokenizer gives them where it agrees."""
    text, spans = tokenizer.spans().all(prompt)
    ids, offsets = tokenizer.encode_with_offsets(text)
    return offsets if ids == prompt else np.asarray(spans, np.int32).reshape(-1, 2)
