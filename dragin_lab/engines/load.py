"""``LanguageModel``: a causal language model from a folder, a GGUF file or the hub, checked when it is opened."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dragin_lab.almanac import embedded_model_path
from dragin_lab.checks import EMBEDDED, is_embedded, shown
from dragin_lab.engines.check import ALONE, WHOLE, Check, run_checks
from dragin_lab.engines.gguf import convert_gguf, find_gguf
from dragin_lab.engines.sources import find_source, first_line, load_pair, read_placing, weight_files
from dragin_lab.engines.transformers import TransformersModel
from dragin_lab.engines.waves import out_of_memory
from dragin_lab.errors import DraginLabError, ModelError
from dragin_lab.text import printable

GIB = 2**30


class LanguageModel(TransformersModel):
    """A model, its tokenizer, and the tap on one of its layers.

    Get one with ``LanguageModel.load``; the constructor takes a model and tokenizer of ``transformers`` that are
    already in memory.
    With ``check`` it is refused where one of its checks fails; the other options, and the attributes, are those of
    ``TransformersModel``.
    """

    def __init__(self, model: Any, tokenizer: Any, *, check: bool = True, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        if check:
            self._apply(self.check())

    @classmethod
    def load(
        cls,
        source: str | os.PathLike[str] | None = None,
        *,
        dtype: str | None = None,
        device: str | None = None,
        device_map: str | Mapping[str, Any] | None = None,
        quantization: Any = None,
        layer: int | str = "last",
        heads: Sequence[int] | None = None,
        alternatives: int = 5,
        sample: bool = False,
        check: bool = True,
    ) -> LanguageModel:
        """Load a causal language model.

        Args:
            source: a folder, a GGUF file or the folder of one, a Hugging Face id, or None or "almanac" for the
                embedded model. A GGUF file is converted once and kept in the user's cache (``gguf.convert_gguf``).
            dtype: name of a torch dtype; by default float32 on a CPU and bfloat16 on a GPU, whatever the files hold.
            device: default the first GPU, else the CPU.
            device_map: "auto", or a map from modules to devices, as transformers takes it, in place of ``device``;
                needs accelerate.
            quantization: a configuration of transformers, or the arguments of its ``BitsAndBytesConfig``.
            layer: the layer to capture: "last" (the last full-attention layer) or an index, negative from the end.
            heads: the heads to capture; None for all.
            alternatives: how many of the likeliest tokens to keep at each position.
            sample: sample tokens as the model's generation config says, instead of choosing the likeliest.
            check: run ``check`` and refuse the model where that fails.

        Raises:
            ModelError: an unknown id or path, missing or unreadable weights, no fast tokenizer, a GGUF file that cannot
                be converted, a model that cannot be captured, a failed check, a layer, head or dtype that does not
                exist.
        """
        title = EMBEDDED if is_embedded(source) else ""
        where = choose_device(device)
        kind = ("bfloat16" if where.type == "cuda" else "float32") if dtype is None else dtype
        if not isinstance(kind, str) or not isinstance(getattr(torch, kind, None), torch.dtype):
            raise ModelError(f"dtype={shown(dtype)} is not a dtype of torch; give float32, bfloat16 or float16")
        source = embedded_model_path() if source is None or title else source
        file, digest = find_gguf(source), ""
        if file is not None:
            source, digest = convert_gguf(file, getattr(torch, kind))
        name, folder = find_source(source)
        placing = read_placing(device_map, quantization)
        if not title and (line := describe_memory(name, getattr(torch, kind), where, *placing)):
            print(printable(f"{name}: {line}"), file=sys.stderr, flush=True)
        model, tokenizer = load_pair(name, getattr(torch, kind), where, *placing)
        loaded = cls(
            model,
            tokenizer,
            layer=layer,
            heads=heads,
            alternatives=alternatives,
            sample=sample,
            name=title or (file.name if file else folder.resolve().name if folder else name),
            files=[file] if file else weight_files(name, folder),
            check=check,
        )
        loaded.embedded = bool(title)
        loaded._hash = digest
        return loaded

    def check(self) -> list[Check]:
        """The named checks that ``load`` makes: see ``check.run_checks``.

        Raises ``ModelError`` where the model cannot be run as drafts are written.
        """
        try:
            return run_checks(self)
        except Exception as error:
            if isinstance(error, DraginLabError) or out_of_memory(error):
                raise
            raise ModelError(
                f"{type(self.model).__name__} cannot be read token by token by generate() "
                f"({first_line(error)}); use another model"
            ) from error

    def _apply(self, checks: list[Check]) -> None:
        """Refuse the model for a check that failed, or give up what that costs, and say so."""
        failed = [c for c in checks if not c.passed]
        if fatal := [c for c in failed if not c.costs]:
            raise ModelError("; ".join(map(str, fatal)) + ". Load with check=False to use it anyway")
        for c in failed:
            warnings.warn(f"{self.name}: {c}; {c.costs}", stacklevel=4)
        costs = {c.costs for c in failed}
        if WHOLE in costs:
            self.parts = ()
        if ALONE in costs:
            self.alone = "side by side this model gives other numbers than alone"


def choose_device(device: str | None) -> torch.device:
    """The device that a text names; by default the first GPU, else the CPU. ``ModelError`` for any other text."""
    try:
        where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device is None else device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f'device={shown(device)} is not a device of torch; give "cpu" or "cuda"') from error
    if where.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f'device={device!r}: torch finds no GPU here; give "cpu"')
    return where


def describe_memory(name: str, dtype: torch.dtype, device: torch.device, device_map: Any, quantization: Any) -> str:
    """The memory that a model's weights will take and what is free, in a line; empty where they are small and fit.

    Caches and activations come on top: they grow with the prompt, and are small beside the weights of a large model.
    """
    weights = estimate_weights(name, dtype, quantization)
    free = find_free_memory(device, spread=device_map is not None)
    fits = weights is None or free is None or weights <= free
    if weights is None or (weights <= GIB and fits):
        return ""
    there = (
        "" if free is None else f"; {free / GIB:.1f} GiB are free on {device if device_map is None else 'all devices'}"
    )
    remedy = "" if fits else (
        ', which is less: spread it (device_map="auto"), quantize it, or take a smaller dtype or model'
    )  # fmt: skip
    return f"its weights take about {weights / GIB:.1f} GiB{there}{remedy}"


def estimate_weights(name: str, dtype: torch.dtype, quantization: Any) -> int | None:
    """Bytes of a model's weights, from its configuration alone; None where that does not say."""
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name, trust_remote_code=False))
    except Exception:  # noqa: BLE001 - whatever a configuration makes the library raise; loading it says what is wrong
        return None
    bits = 8 * dtype.itemsize
    inner_bits = bits if quantization is None else 4 if getattr(quantization, "load_in_4bit", False) else 8
    inner = {id(m.weight) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "head" not in n}
    return sum(p.numel() * (inner_bits if id(p) in inner else bits) // 8 for p in model.parameters())


def find_free_memory(device: torch.device, *, spread: bool) -> int | None:
    """Free bytes of a device, or with ``spread`` of all GPUs and the machine together; None where that is unknown."""
    cards = range(torch.cuda.device_count()) if spread else [device.index or 0] * (device.type == "cuda")
    free = sum(torch.cuda.mem_get_info(card)[0] for card in cards)
    if not spread and device.type != "cpu":
        return free if device.type == "cuda" else None
    known = {"SC_AVPHYS_PAGES", "SC_PAGE_SIZE"} <= getattr(os, "sysconf_names", {}).keys()
    return free + os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else None
