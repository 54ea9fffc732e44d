"""``TappedModel``: a causal language model with a tap on one layer, and all that decoding and scoring ask of it."""

from __future__ import annotations

import hashlib
import inspect
import platform
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from dragin_lab.checks import shown
from dragin_lab.errors import ModelError
from dragin_lab.model.caches import PARTS, Prefixes, batch_obstacle
from dragin_lab.model.sources import hash_weights
from dragin_lab.model.taps import NoTap, attach_tap
from dragin_lab.model.tokenizer import HFTokenizer, generation_ends
from dragin_lab.trace.trace import Prompt

_WINDOWS = ("max_position_embeddings", "n_positions", "max_seq_len")
_FAR = 8  # windows that a text may run over its model before it is refused
_POSITION_TABLES = ("wpe", "embed_positions", "position_embedding", "position_embeddings")


class TappedModel:
    """A model, its tokenizer, and the tap on one of its layers.

    Attributes:
        name: what it was loaded from, short.
        tokenizer: ``HFTokenizer``.
        context_window: tokens the model was trained for, or None where its config does not say.
        hard_window: True where a text longer than that is impossible (a table of positions), not just unwise.
        layer: index of the captured layer; None for a model without attention.
        prefixes: the key-value caches of earlier prompts (``caches.Prefixes``).
        embedded: whether this is the package's own model.
        parts: the named spans of a prompt whose ends decide in what forwards it is read; none where it is read whole.
        alone: why drafts of this model cannot be written side by side; empty where they can.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        layer: int | str = "last",
        heads: Sequence[int] | None = None,
        alternatives: int = 5,
        sample: bool = False,
        name: str = "",
        files: Sequence[Path] = (),
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise ModelError(f"model {shown(model)} is {type(model).__name__}; give a causal language model")
        if isinstance(alternatives, bool) or not isinstance(alternatives, int) or alternatives < 1:
            raise ModelError(f"alternatives={shown(alternatives)}: give a whole number of at least 1")
        self.model: Any = model.eval()
        self.tokenizer = HFTokenizer(getattr(tokenizer, "hf", tokenizer), generation_ends(model))
        self.device = _device_of(model)
        self.alternatives = alternatives
        self.sample = sample
        self.name = name or str(getattr(model.config, "_name_or_path", "")) or type(model).__name__
        self.context_window, self.hard_window = _read_window(model)
        self.lock = threading.RLock()
        self.takes = frozenset(inspect.signature(model.forward).parameters)
        self.only_last = {"logits_to_keep": 1} if "logits_to_keep" in self.takes else {}
        self.cache_argument = _cache_argument(model, self.takes)
        self.eos = self.tokenizer.ends
        self.tap = attach_tap(model, layer, heads)
        self.layer = self.tap.layer
        self.embedded = False
        self._files = list(files)
        self._hash = self._tokenizer_hash = ""
        self.prefixes = Prefixes(model.config)
        self.parts = PARTS if self.prefixes.shareable else ()
        self.alone = batch_obstacle(model.config)
        self._plain = not sample and not self._build_processors(1)

    @property
    def has_attention(self) -> bool:
        """Whether there is attention to capture; a method that looks at it cannot be used without."""
        return not isinstance(self.tap, NoTap)

    @torch.inference_mode()
    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """The attention map of some ids by themselves: (h, n, n) float32, queries on the middle axis.

        A forward of its own that leaves the cache of the drafts alone and stops after the captured layer.
        """
        if not len(ids) and self.has_attention:
            count = self.model.config.get_text_config().num_attention_heads
            return np.zeros((count if self.tap.heads is None else len(self.tap.heads), 0, 0), np.float32)
        self.refuse_overrun(len(ids), 0)
        with self.lock:
            attention = self.tap.map_only(torch.tensor([list(ids)], device=self.device))
        return attention[0].cpu().numpy()  # (h, n, n)

    # -- what the decode loop asks for ----------------------------------------------------------------------------

    def prompt(self, prompt: Prompt) -> tuple[list[int], np.ndarray]:
        """Ids (p,) and character spans (p, 2) of a prompt; BOS stands in for an empty one."""
        return self.tokenizer.encode_prompt(prompt, self.name)

    def refuse_overrun(self, p: int, new: int) -> None:
        """Raise ``ModelError`` where p + new tokens do not fit into a table of positions, or are far too many.

        Without such a table a model can read on beyond its window, though to little use; cost grows with the square, so
        beyond ``_FAR`` windows it is refused before it eats the machine's memory.
        """
        if self.context_window is None:
            return
        what = f"{p:,} prompt tokens and {new} new ones" if new else f"{p:,} tokens"
        if self.hard_window and p + new > self.context_window:
            raise ModelError(
                f"{what} do not fit into the {self.context_window:,} positions of {self.name}; "
                "shorten the prompt or lower max_new_tokens"
            )
        if p + new > _FAR * self.context_window:
            raise ModelError(
                f"{what} are more than {_FAR} times the {self.context_window:,} that {self.name} was trained for; "
                "shorten the question or the passages, ask for fewer (top_k), or use "
                'variant="paper", which drops what does not fit'
            )

    def processors(self, p: int) -> Any:
        """What the model's generation config does to logits after a prompt of p tokens; empty where it does nothing."""
        return [] if self._plain else self._build_processors(p)

    def _build_processors(self, p: int) -> Any:
        config, _ = self.model._prepare_generation_config(None, do_sample=self.sample)
        self.model._prepare_special_tokens(config, True, device=self.device)
        return self.model._get_logits_processor(config, input_ids_seq_length=p, device=self.device)

    def forget(self) -> None:
        """Drop the caches of earlier prompts, so that the next draft starts from nothing."""
        self.prefixes.clear()

    # -- for people -----------------------------------------------------------------------------------------------

    def provenance(self) -> dict[str, Any]:
        """Everything about the model that decides what it writes and what is captured; values fit into JSON."""
        if not self._hash:
            self._hash = hash_weights(self.model, self._files)
        return {
            "model": self.name,
            "architecture": type(self.model).__name__,
            "weights_sha256": self._hash,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": _describe_devices(self.model, self.device),
            "attention": self.model.config._attn_implementation,
            "layer": self.layer,
            "heads": self.tap.heads,
            "tap": self.tap.kind,
            "prefix_reuse": ", ".join(self.parts) or "none",
            "decoding": "sample" if self.sample else "greedy",
            "generation_config": self.model.generation_config.to_diff_dict(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        }

    def identity(self) -> dict[str, Any]:
        """All that can change a bit of what is written and measured, prompt and request aside; values fit into JSON."""
        from dragin_lab import __version__

        if not self._tokenizer_hash:
            self._tokenizer_hash = hashlib.sha256(self.tokenizer.hf.backend_tokenizer.to_str().encode()).hexdigest()
        cuda = self.device.type == "cuda"
        facts = self.provenance()
        del facts["model"]  # its name changes nothing
        return facts | {
            "device": torch.cuda.get_device_name(self.device) if cuda else self.device.type,
            "instructions": None if cuda else torch.backends.cpu.get_cpu_capability(),
            "threads": None if cuda else torch.get_num_threads(),
            "matmul": torch.get_float32_matmul_precision(),
            "tokenizer_sha256": self._tokenizer_hash,
            "alternatives": self.alternatives,
            "eos": sorted(self.eos),
            "numpy": np.__version__,
            "dragin_lab": __version__,
        }

    def __repr__(self) -> str:
        dtype, decoding = str(self.model.dtype).removeprefix("torch."), "sampling" if self.sample else "greedy"
        return (
            f"LanguageModel({self.name}, {type(self.model).__name__}, {dtype} on {self.device}, "
            f"{f'layer {self.layer} by {self.tap.kind}' if self.has_attention else 'no attention'}, {decoding})"
        )


def _device_of(model: Any) -> torch.device:
    """Where a model takes its ids: the device of its embeddings, or of the hook that runs them."""
    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    runs_on = getattr(hook, "execution_device", None)
    return torch.device(model.device if runs_on is None else runs_on)


def _describe_devices(model: Any, device: torch.device) -> str:
    """Where the weights are, and how they are quantized where they are."""
    spread = getattr(model, "hf_device_map", None)
    devices = ", ".join(sorted({str(place) for place in spread.values()})) if spread else str(device)
    quantized = getattr(getattr(model.config, "quantization_config", None), "quant_method", None)
    return f"{devices} ({getattr(quantized, 'value', quantized)})" if quantized else devices


def _cache_argument(model: Any, takes: Collection[str]) -> str:
    """The argument by which a model takes its key-value cache, or its state."""
    for name in ("past_key_values", "cache_params"):
        if name in takes:
            return name
    raise ModelError(
        f"{type(model).__name__} takes no cache of transformers, so it cannot be read token by token; use another model"
    )


def _read_window(model: Any) -> tuple[int | None, bool]:
    """The context window and whether a table of positions makes it a hard limit."""
    config = model.config.get_text_config()
    sizes = (getattr(config, name, None) for name in _WINDOWS)
    window = next((int(size) for size in sizes if isinstance(size, int)), None)
    names = [n for n, _ in model.named_modules()] + [n for n, _ in model.named_buffers()]
    return window, any(n.rpartition(".")[2] in _POSITION_TABLES for n in names)
