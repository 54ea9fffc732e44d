"""Teacher forcing: what a model would have measured on a given text, as if it had written it. One forward."""

from __future__ import annotations

import time

import torch

from dragin_lab.checks import text as as_text
from dragin_lab.errors import ModelError
from dragin_lab.model.layers import hidden_states
from dragin_lab.model.measure import Recorder
from dragin_lab.model.tapped import TappedModel
from dragin_lab.trace.trace import Continuation, Prompt


@torch.inference_mode()
def score(
    lm: TappedModel, prompt: Prompt, text: str, *, attention: bool = False, hidden: int | str | None = None
) -> Continuation:
    """``text`` measured after ``prompt``; ``stopped`` is "forced". See ``LanguageModel.score``."""
    began = time.perf_counter()
    prompt_ids, prompt_offsets = lm.prompt(prompt)
    p = len(prompt_ids)
    closing = _count_closing(lm) if prompt.special else 0
    before = prompt_ids[: p - closing]
    whole = lm.tokenizer.encode(prompt.text + as_text("text", text), special=prompt.special)
    if whole[: len(before)] != before:
        raise ModelError(
            f"{text[:20]!r} merges with the end of the prompt into other tokens, so it cannot be scored after it; "
            "begin the text with a space"
        )
    ids = whole[len(before) : len(whole) - closing]
    if not ids:
        raise ModelError(f"the text to score, {text!r}, has no tokens; give some text")
    lm.refuse_overrun(p, len(ids))
    n = len(ids)
    inputs = {"input_ids": torch.tensor([prompt_ids + ids], device=lm.device), "use_cache": False}
    if lm.only_last:
        inputs["logits_to_keep"] = n + 1
    with lm.lock, hidden_states(lm.model, [] if hidden is None else [hidden]) as states:
        output, rows = lm.tap.forward(n + 1, **inputs)
    logits = output.logits[0, -(n + 1) : -1]  # (n, V), row t gives token t
    recorder = Recorder(p, n, lm.alternatives, attention, lm.device)
    for token, row in zip(ids, logits, strict=True):
        recorder.chose(token, row)
    if rows is not None:
        recorder.looked_back(rows)
    if hidden is not None:
        recorder.states = list(states[hidden][0, -(n + 1) : -1])
    return recorder.continuation(
        lm.tokenizer, prompt_ids, prompt_offsets, stopped="forced", seconds=time.perf_counter() - began
    )


def _count_closing(lm: TappedModel) -> int:
    """How many special tokens the tokenizer puts after a text (most put none)."""
    ids = lm.tokenizer.encode("a", special=True)
    return next(count for count, token in enumerate(reversed(ids)) if token not in lm.tokenizer.silent)
