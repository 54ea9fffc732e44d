"""A model served as the authors' released code serves it: ``generate``, whole drafts, nothing reused, second passes.

It answers the same requests as ``LanguageModel``, so ``Lab.ask`` and every method work on it unchanged, and what an
episode costs can be compared at equal answers. Attention comes from forwards with ``output_attentions`` and
``transformers``' eager attention, as no other kernel of it returns weights.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from dragin_lab.core.episode import Never, Write
from dragin_lab.core.scores import entropy
from dragin_lab.engines.load import LanguageModel
from dragin_lab.engines.writing import Writing
from dragin_lab.run.cached import replay
from dragin_lab.trace.trace import Draft


class Naive:
    """``lm`` without anything that saves work; greedy decoding."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        config = copy.deepcopy(lm.model.config)
        model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=lm.model.dtype)
        model.load_state_dict(lm.model.state_dict())
        model.generation_config = lm.model.generation_config
        self.model = model.to(lm.device).eval()
        self.generated = 0  # tokens, those thrown away too

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    @torch.inference_mode()
    def write(self, request: Write, seed: int | None = None, *, watch: Any = None) -> Draft:
        """The draft, made whole and cut where its stop is reached."""
        lm = self.lm
        prompt_ids, prompt_offsets = lm.prompt(request.prompt)
        p = len(prompt_ids)
        inputs = torch.tensor([prompt_ids], device=lm.device)
        out = self.model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        ids = out.sequences[0, p:].tolist()
        self.generated += len(ids)
        logs = torch.cat(out.logits).float().log_softmax(-1)  # (n, V)
        best, which = (part.cpu().numpy() for part in logs.exp().topk(lm.alternatives, -1))
        spread, chosen = entropy(logs.exp(), logs).tolist(), logs[range(len(ids)), ids].tolist()
        rows: Any = None
        if request.attention:
            rows = self._map(out.sequences[0].tolist())[0, :, p - 1 :].cpu().numpy()  # (h, n + 1, p + n)
        writing = Writing(lm, replace(request, stop=Never(), among=True), prompt_ids, prompt_offsets)
        for r in range(len(ids) + 1):
            if rows is not None:
                writing.look_back(rows[:, r, : p + r].mean(0), rows[:, r, : p + r])
            if r < len(ids):
                writing.measure(spread[r], chosen[r], np.nan, which[r], best[r])
                writing.choose(ids[r])
        return replay(writing.finish(), request, lm.tokenizer, watch) or writing.finish()

    @torch.inference_mode()
    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """The attention map of some ids by themselves, (h, n, n) float32."""
        found: np.ndarray = self._map(list(ids))[0].float().cpu().numpy()
        return found

    def _map(self, ids: list[int]) -> Tensor:
        """Weights of the captured layer, (1, h, n, n), by a forward that returns those of all layers."""
        out = self.model(torch.tensor([ids], device=self.lm.device), output_attentions=True, use_cache=False)
        weights: Tensor = out.attentions[self.lm.layer]
        return weights
