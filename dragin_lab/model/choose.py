"""Which token is written next: the likeliest, or a sample as the model's generation config says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dragin_lab.core.episode import Bias
from dragin_lab.model.tapped import TappedModel


class Chooser:
    """Chooses the tokens of one draft from their logits, one after the other."""

    def __init__(self, lm: TappedModel, prompt_ids: list[int], seed: int | None, bias: Sequence[Bias] = ()) -> None:
        self.biases = [
            (b, torch.tensor(lm.tokenizer.openings(b.opening), dtype=torch.int64, device=lm.device)) for b in bias
        ]
        self.count = 0  # tokens chosen
        self.processors = lm.processors(len(prompt_ids))
        self.sample = lm.sample
        self.plain = not (self.biases or self.processors or self.sample)  # just the likeliest
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
