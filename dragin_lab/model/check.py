"""What a model is checked for when it is loaded, before anything it shows is believed."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from dragin_lab.model.tap import EagerTap, Tap
from dragin_lab.model.tokenizer import HFTokenizer


@dataclass(frozen=True)
class Check:
    """One check: ``value`` was measured and must not exceed ``limit``."""

    name: str
    passed: bool
    value: float
    limit: float
    note: str = ""

    def __str__(self) -> str:
        sign = "ok" if self.passed else "FAILED"
        return f"{self.name}: {sign} ({self.value:.2g}, limit {self.limit:.2g}){' - ' + self.note if self.note else ''}"


@torch.inference_mode()
def run_checks(model: Any, tap: Tap | EagerTap, tokenizer: HFTokenizer) -> list[Check]:
    """A handful of forwards on a few ids.

    - attention rows sum to 1 (to at most 1 where the model has attention sinks), and see nothing that comes later;
    - logits are the same with and without capture;
    - a step on the cache gives the logits and the row that one forward over everything gives;
    - in a left-padded batch every text has the logits and the row that it has alone.

    Limits: rows are float32 whatever the model is; logits are compared relative to the largest, and in half precision
    a batch may take other kernels, so the limit there is a few of its rounding steps.
    """
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = [(7 * i + 11) % vocabulary for i in range(6)]
    sharp = model.dtype == torch.float32
    near, close = (1e-4 if sharp else 5e-2), (1e-4 if sharp else 2e-2)

    whole = _tensor(ids, model)  # (1, 6)
    out, rows = tap.forward(len(ids), input_ids=whole, use_cache=False)
    assert rows is not None
    plain, _ = tap.forward(0, input_ids=whole, use_cache=False)
    sums = rows.sum(-1)  # (1, h, 6)
    sinks = isinstance(tap, Tap) and hasattr(tap.module, "sinks")
    off = (sums - 1).clamp_min(0) if sinks else (sums - 1).abs()
    checks = [
        _check("attention rows sum to 1", off, 1e-3, "at most 1: this model has sinks" if sinks else ""),
        _check("no attention to later pieces", rows[0].triu(1), 0.0, "the model must be causal"),
        _check("logits equal with and without capture", _apart(out.logits, plain.logits), near),
    ]

    cache = DynamicCache(config=model.config)
    tap.forward(0, input_ids=whole[:, :4], past_key_values=cache, use_cache=True)
    step, row = tap.forward(1, input_ids=whole[:, 4:5], past_key_values=cache, use_cache=True)
    assert row is not None
    seen = rows[:, :, 4:5, 5 - row.shape[-1] : 5]
    checks += [
        _check("a cached step equals a whole forward", _apart(step.logits[:, -1], plain.logits[:, 4]), near),
        _check("a cached row equals a whole forward's", (row - seen).abs(), close),
    ]

    # ids[2:] alone, beside all ids: the same texts in a batch, the shorter one padded on the left.
    alone, alone_row = tap.forward(1, input_ids=whole[:, 2:], use_cache=False)
    assert alone_row is not None
    mask = torch.tensor([[1] * 6, [0, 0] + [1] * 4], device=model.device)
    batch: dict[str, Tensor] = {"input_ids": torch.cat([whole, whole]), "attention_mask": mask}
    if "position_ids" in inspect.signature(model.forward).parameters:
        batch["position_ids"] = (mask.cumsum(-1) - 1).clamp_min(0)
    both, both_rows = tap.forward(1, use_cache=False, **batch)
    assert both_rows is not None
    checks += [
        _check(
            "a left-padded batch equals single runs",
            torch.stack(
                [_apart(both.logits[0, -1], plain.logits[0, -1]), _apart(both.logits[1, -1], alone.logits[0, -1])]
            ),
            near,
        ),
        _check(
            "its attention rows too",
            torch.stack(
                [
                    (both_rows[0] - rows[0, :, -1:]).abs().max(),
                    (both_rows[1, :, :, 2:] - alone_row[0]).abs().max(),
                    both_rows[1, :, :, :2].abs().max(),
                ]
            ),
            close,
        ),
    ]
    if not tokenizer.marker:
        checks.append(Check("space marker", True, 0.0, 0.0, "this vocabulary marks no spaces; words are made of text"))
    return checks


def _tensor(ids: list[int], model: Any) -> Tensor:
    return torch.tensor([ids], device=model.device)


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """Largest difference of logits, relative to the largest of them."""
    finite = torch.isfinite(a) & torch.isfinite(b)
    a, b = a.float()[finite], b.float()[finite]
    return (a - b).abs().max() / b.abs().max().clamp_min(1.0)


def _check(name: str, measured: Tensor, limit: float, note: str = "") -> Check:
    value = float(measured.max())
    return Check(name, value <= limit, value, limit, note)  # NaN fails
