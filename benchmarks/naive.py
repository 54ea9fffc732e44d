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

from dragin_lab.core.episode import Never, Stop, Write
from dragin_lab.core.scores import entropy
from dragin_lab.engines.load import LanguageModel
from dragin_lab.engines.writing import Measured, Writing
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

    stream = None  # what makes it a model to ``Lab``; nobody watches it

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    @torch.inference_mode()
    def generate(self, draft: Write, seed: int | None = None) -> Draft:
        """The continuation of a draft, made whole and cut where its stop is reached."""
        lm = self.lm
        prompt_ids, prompt_offsets = lm.prompt(draft.prompt)
        p = len(prompt_ids)
        inputs = torch.tensor([prompt_ids], device=lm.device)
        out = self.model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=draft.max_new_tokens,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        ids = out.sequences[0, p:].tolist()
        self.generated += len(ids)
        logs = torch.cat(out.logits).float().log_softmax(-1)  # (n, V)
        best, which = (part.cpu().numpy() for part in logs.exp().topk(lm.alternatives, -1))
        spread, chosen = entropy(logs.exp(), logs).tolist(), logs[range(len(ids)), ids].tolist()
        looks = np.zeros((len(ids), len(ids)), np.float32)  # (n, n) what token j pays to token i
        rows: Any = None
        if draft.attention:
            rows = self._map(out.sequences[0].tolist())[0, :, p - 1 :].cpu().numpy()  # (h, n + 1, p + n)
            looks = rows[:, 1:, p:].mean(0)  # (n, n)
        writing = Writing(lm, replace(draft, stop=Never()), prompt_ids, prompt_offsets)
        for r in range(len(ids) + 1):
            if rows is not None:
                writing.look_back(rows[:, r, : p + r].mean(0), rows[:, r, : p + r])
            if r < len(ids):
                writing.measure(Measured(spread[r], chosen[r], np.nan, which[r], best[r]))
                writing.choose(ids[r])
        whole = writing.continuation()
        n, reason, received = self._decide(whole, looks, draft.stop)
        return whole if n is None else replace(whole.beginning(n), received=received, stopped=reason)

    def _decide(self, whole: Draft, looks: np.ndarray, stop: Stop) -> tuple[int | None, str, np.ndarray | None]:
        """Where the stop is reached, why, and what each token had received until then."""
        spans = self.lm.tokenizer.spans()
        looks = np.tril(looks, -1)
        for t in range(len(whole)):
            spans.push(int(whole.ids[t]))
            so_far = Draft(
                ids=whole.ids[: t + 1].tolist(),
                text=spans.text,
                offsets=spans.provisional(),
                entropy=whole.entropy[: t + 1].tolist(),
                logprob=whole.logprob[: t + 1].tolist(),
                received=_received(looks, t, t + 1),
            )
            if reason := stop.reached(so_far):
                return t + 1, reason, _received(looks, t + 1, t + 1)
        return None, "", None

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


def _received(looks: np.ndarray, rows: int, n: int) -> np.ndarray:
    """(n,) float32: the most that each of n tokens got from the first ``rows`` tokens."""
    return looks[:rows, :n].max(0, initial=0.0).astype(np.float32)
