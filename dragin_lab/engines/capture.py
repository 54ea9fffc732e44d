"""``capture``: what ``LanguageModel`` measures, on your own ``model.generate(...)``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor
from transformers import AutoTokenizer

from dragin_lab.engines.transformers import LanguageModel
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft

if TYPE_CHECKING:
    import pandas as pd


class Tape:
    """What was captured: one ``Draft`` for every text that ``generate`` wrote, in order."""

    def __init__(self) -> None:
        self.continuations: list[Draft] = []

    @property
    def continuation(self) -> Draft:
        """The latest one. Raises ``ModelError`` where nothing has been generated."""
        if not self.continuations:
            raise ModelError("nothing was captured: call model.generate(...) inside the with block")
        return self.continuations[-1]

    @property
    def tokens(self) -> pd.DataFrame:
        """One row per generated token: call, index, id, token, text, start and end (characters),
        entropy and logprob (nats), received, and the likeliest tokens with their probabilities.
        """
        import pandas as pd

        calls = [pd.DataFrame()]
        for call, c in enumerate(self.continuations):
            pairs = zip(c.alternative_tokens, c.alternative_probs.tolist(), strict=True)
            columns = {
                "call": call,
                "index": range(len(c)),
                "id": c.ids,
                "token": c.pieces,
                "text": c.tokens,
                "start": c.offsets[:, 0],
                "end": c.offsets[:, 1],
                "entropy": c.entropy,
                "logprob": c.logprob,
                "received": c.received,
                "alternatives": [list(zip(*pair, strict=True)) for pair in pairs],
            }
            calls.append(pd.DataFrame(columns))
        return pd.concat(calls, ignore_index=True)

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
    """Record what ``LanguageModel`` records while ``model.generate`` is called as usual inside the
    block.

    ``generate`` runs untouched, however it decodes; each text that it returns is then measured by
    one more forward over prompt and text. Attention maps stay on the tape; ``entropy_processed``
    does not exist here.

    Args:
        model: a causal language model of ``transformers``.
        tokenizer: its tokenizer; default the one saved beside it.
        layer: the layer to capture, as in ``LanguageModel.load``.
        heads: the heads to capture; None for all.
        alternatives: how many of the likeliest tokens to keep.
        attention: keep the rows in full (``Draft.rows``), not only ``received``.

    Raises:
        ModelError: a model or tokenizer that cannot be captured; and from ``generate``: embeddings
            instead of ids.
    """
    if not callable(getattr(model, "generate", None)):
        raise ModelError(
            f"{type(model).__name__} has no generate(); give a causal language model of"
            " transformers"
        )
    if hasattr(model.generate, "tape"):
        raise ModelError("this model is being captured already; use the tape of the outer block")
    given = _saved_tokenizer(model) if tokenizer is None else tokenizer
    lm = LanguageModel(
        model, given, layer=layer, heads=heads, alternatives=alternatives, check=False
    )
    if not lm.has_attention:
        raise ModelError(
            f"nothing to capture: {lm.no_attention}; a Lab of this model measures its probabilities"
        )
    own = vars(model).get("generate")
    generate = model.generate
    tape = Tape()

    @wraps(generate)
    def recording(*args: Any, **kwargs: Any) -> Any:
        prompts = args[0] if args else kwargs.get("inputs", kwargs.get("input_ids"))  # (B, p)
        if prompts is None and kwargs.get("inputs_embeds") is not None:
            raise ModelError("capture needs input_ids; this call of generate() gave embeddings")
        began = time.perf_counter()
        result = generate(*args, **kwargs)
        seconds = time.perf_counter() - began
        # (B or more, p + n)
        sequences: Tensor = result if isinstance(result, Tensor) else result.sequences
        p = 1 if prompts is None else max(prompts.shape[-1], 1)
        mask = kwargs.get("attention_mask")  # (B, p)
        for row, sequence in enumerate(sequences.tolist()):
            prompt = sequence[:p]
            if mask is not None:
                kept = mask[row * len(mask) // len(sequences)].tolist()  # (p,)
                prompt = [*compress(prompt, kept)]
            ids, stopped = _cut_text(lm, sequence[p:], kwargs, beside=len(sequences) > 1)
            draft = lm.measure_text(prompt, _find_offsets(lm, prompt), ids, attention=attention)
            tape.continuations.append(replace(draft, stopped=stopped, seconds=seconds))
        return result

    recording.tape = tape  # type: ignore[attr-defined]
    model.generate = recording
    try:
        yield tape
    finally:
        if own is None:
            del model.generate
        else:
            model.generate = own


def _saved_tokenizer(model: Any) -> Any:
    name = str(getattr(model, "name_or_path", ""))
    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"no tokenizer is saved beside {name or 'this model'}; pass tokenizer="
        ) from error


def _cut_text(
    lm: Any, ids: list[int], kwargs: dict[str, Any], *, beside: bool
) -> tuple[list[int], str]:
    """A text up to its end mark, or to the padding that follows texts written ``beside`` others;
    why it ended.
    """
    config = kwargs.get("generation_config") or lm.model.generation_config
    eos = kwargs.get("eos_token_id", config.eos_token_id)
    ends = [] if eos is None else np.ravel(eos).tolist()
    padding = kwargs.get("pad_token_id", config.pad_token_id) if beside else None
    for place, i in enumerate(ids):
        if i in ends:
            return ids[: place + 1], "eos"
        if i == padding:
            return ids[:place], "criteria"
    asked = {"stopping_criteria", "stop_strings", "max_time"} & kwargs.keys()
    return ids, "criteria" if asked else "length"


def _find_offsets(lm: Any, prompt: list[int]) -> np.ndarray:
    """Character spans (p, 2) of prompt ids in their decoded text; as the tokenizer gives them
    where it agrees.
    """
    text, spans = lm.tokenizer.spans().all(prompt)
    ids, offsets = lm.tokenizer.encode_with_offsets(text)
    return offsets if ids == prompt else np.asarray(spans, np.int32).reshape(-1, 2)
