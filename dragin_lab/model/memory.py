"""How much memory a model's weights will take, known before anything is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

GIB = 2**30


@dataclass(frozen=True)
class Estimate:
    """Bytes of the weights, and the bytes that are free where they go; ``free`` is None where it is unknown."""

    parameters: int
    weights: int
    free: int | None
    where: str

    @property
    def fits(self) -> bool:
        return self.free is None or self.weights <= self.free

    def __str__(self) -> str:
        free = "" if self.free is None else f"; {self.free / GIB:.1f} GiB are free on {self.where}"
        text = f"{self.parameters / 1e9:.2f} billion parameters take about {self.weights / GIB:.1f} GiB{free}"
        if self.fits:
            return text
        return f'{text}, which is less: spread it (device_map="auto"), quantize it, or take a smaller dtype or model'


def estimate_memory(
    name: str, dtype: torch.dtype, device: torch.device, device_map: Any, quantization: Any
) -> Estimate | None:
    """The memory for a model, from its configuration alone; None where that does not say.

    Caches and activations come on top: they grow with the prompt, and are small beside the weights of a large model.
    """
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name, trust_remote_code=False))
    except Exception:  # noqa: BLE001 - whatever a configuration makes the library raise; loading it says what is wrong
        return None
    bits = 4 if getattr(quantization, "load_in_4bit", False) else 8
    inner = {id(m.weight) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "head" not in n}
    sizes = [(p.numel(), quantization is not None and id(p) in inner) for p in model.parameters()]
    weights = sum(count * bits // 8 if small else count * dtype.itemsize for count, small in sizes)
    free, where = free_memory(device, spread=device_map is not None)
    return Estimate(sum(count for count, _ in sizes), weights, free, where)


def free_memory(device: torch.device, *, spread: bool) -> tuple[int | None, str]:
    """Free bytes of a device, or with ``spread`` of all GPUs and the machine together, and what that is called."""
    free: list[int | None] = []
    cards = range(torch.cuda.device_count()) if spread else [device.index or 0] * (device.type == "cuda")
    free += [torch.cuda.mem_get_info(card)[0] for card in cards]
    if spread or device.type == "cpu":
        names = getattr(os, "sysconf_names", {})
        known = {"SC_AVPHYS_PAGES", "SC_PAGE_SIZE"} <= names.keys()
        free.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else None)
    where = "all devices together" if spread else str(device)
    return (None if not free or None in free else sum(n for n in free if n is not None)), where
