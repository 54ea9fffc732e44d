"""The tap: the attention of one layer, for the query rows that are wanted, beside what the model computes anyway.

Model files look their attention function up by a name in their config. While a tap listens, the tapped module has a
copy of its config with another name, and that function calls the layer's own for the output, so that the text stays the
model's; the weights come from the model file's eager function (with its soft caps and sinks), for the wanted rows.
Files that look nothing up (Falcon, GPT-J, BLOOM, …) are asked for ``output_attentions``: correct, but every layer then
keeps its whole map.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from dragin_lab.checks import several, shown
from dragin_lab.engines.layers import attention_layers, choose_layer, layer_kinds
from dragin_lab.errors import ModelError

NAME = "dragin_lab_tap"
#: The attention function that a tapped module has of its own, and the tap that listens to it now.
_OWN: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
_LISTENING: WeakKeyDictionary[nn.Module, Tap] = WeakKeyDictionary()


class EnoughError(Exception):
    """Raised inside a forward when the wanted rows are there and the rest of the model is not needed."""


class NoTap:
    """Stands in for a tap on a model without attention (Mamba): there are no rows."""

    kind = "none"
    layer: int | None = None
    heads: list[int] | None = None
    asks: Mapping[str, Any] = {}  # what a forward is asked for, beside what it is given

    def __init__(self, model: Any) -> None:
        self.model = model

    @contextmanager
    def listen(self, rows: int = 1) -> Iterator[None]:
        """Inside, each forward of this thread has its last query ``rows`` recorded; outside, the model is its own."""
        yield

    def take(self, output: Any) -> Tensor | None:
        """The rows (B, h, rows, keys) float32 of the forward that gave ``output``; None where there is no attention."""
        return None

    def read_map(self, ids: Tensor) -> Tensor:
        """The map of some ids (B, n) by themselves: (B, h, n, n) float32. Raises ``ModelError`` without attention."""
        raise ModelError(f"{type(self.model).__name__} has no attention, so it has no attention map; use another model")


class Tap(NoTap):
    """The tap on one attention module; ``layer`` is its index, ``heads`` those captured (None: all)."""

    kind = "registry"

    def __init__(self, model: Any, module: Any, layer: int, heads: list[int] | None) -> None:
        super().__init__(model)
        self.module, self.layer, self.heads = module, layer, heads
        home = sys.modules[type(module).__module__]
        self._eager, self._interface = home.eager_attention_forward, home.ALL_ATTENTION_FUNCTIONS
        self.rows, self.alone, self.thread = 1, False, 0
        self.weights: Tensor | None = None

    @contextmanager
    def listen(self, rows: int = 1) -> Iterator[None]:
        module, own, before = self.module, self.module.config, _LISTENING.get(self.module)
        tapped: Any = copy.deepcopy(own)
        if own._attn_implementation != NAME:
            _OWN[module] = self._interface.get_interface(own._attn_implementation, self._eager)
            tapped._attn_implementation = NAME
        self.rows, self.weights, self.thread = rows, None, threading.get_ident()
        module.config, _LISTENING[module] = tapped, self
        try:
            yield
        finally:
            module.config = own
            if before is None:
                del _LISTENING[module]
            else:
                _LISTENING[module] = before

    def take(self, output: Any) -> Tensor:
        weights, self.weights = self.weights, None
        if weights is None:
            raise ModelError(
                f"{type(self.model).__name__} did not call the attention function of layer {self.layer}; it cannot be "
                "captured. Choose another layer"
            )
        return weights

    def read_map(self, ids: Tensor) -> Tensor:
        with self.listen(ids.shape[1]):
            self.alone = True  # the model stops after this layer
            try:
                self.model.base_model(input_ids=ids, use_cache=False)
            except EnoughError:
                pass
            finally:
                self.alone = False
            return self.take(None)

    def hear(self, query: Tensor, key: Tensor, mask: Tensor | None, weights: Tensor | None, kwargs: Any) -> None:
        """Keep the wanted rows of a call of the module's attention function, which gave ``weights``, or none."""
        if self.weights is None:  # DiffLlama calls the function twice, for two halves of the values
            if weights is not None and weights.dtype == torch.float32:
                self.weights = pick_heads(weights[:, :, -self.rows :], self.heads)
            else:
                self.weights = self._measure(query, key, mask, kwargs)

    def _measure(self, query: Tensor, key: Tensor, mask: Tensor | None, kwargs: Any) -> Tensor:
        """The last rows by the model file's own eager function, in float32: (B, h, rows, keys)."""
        queries, keys = query.shape[2], key.shape[2]
        rows = min(self.rows, queries)
        query, key = query[:, :, queries - rows :].float(), key.float()
        mask = additive_mask(mask, rows, queries, keys, kwargs.get("sliding_window"), query.device)
        # The weighted sum is not wanted, so anything as long as the values will do for them.
        _, weights = self._eager(self.module, query, key, key[..., :1], mask, **{**kwargs, "dropout": 0.0})
        return pick_heads(weights.float(), self.heads)


class EagerTap(NoTap):
    """The slow path: every layer gives its whole attention map, and one of them is read."""

    kind = "eager"
    asks: Mapping[str, Any] = {"output_attentions": True}

    def __init__(self, model: Any, layer: int, heads: list[int] | None, having: Sequence[int]) -> None:
        super().__init__(model)
        self.layer, self.heads, self.having = layer, heads, having
        self.rows = 1
        if (chosen := model.config._attn_implementation) not in ("eager", "sdpa"):
            raise ModelError(
                f"{type(model).__name__} with {chosen} attention cannot be captured: its file does not look its "
                "attention function up by name; load it with attn_implementation='eager'"
            )

    @contextmanager
    def listen(self, rows: int = 1) -> Iterator[None]:
        self.rows = rows
        # Asked for attentions under "sdpa", these files leave the causal mask out (Falcon's weights see the future).
        with use_attention(self.model, "eager"):
            yield

    def take(self, output: Any) -> Tensor:
        weights = read_maps(self.model, output, self.layer, self.having)
        output.attentions = None  # or ``generate`` keeps every map of every step
        return pick_heads(weights[:, :, -self.rows :].float(), self.heads)

    def read_map(self, ids: Tensor) -> Tensor:
        with self.listen(ids.shape[1]):
            return self.take(self.model(input_ids=ids, use_cache=False, **self.asks))


def attach_tap(model: Any, layer: int | str, heads: Sequence[int] | None = None) -> NoTap:
    """The tap for one layer of a model. Raises ``ModelError`` for a layer or head that the model does not have."""
    if not layer_kinds(model.config):
        raise ModelError(f"{type(model).__name__} has no layers; its config.json says num_hidden_layers=0")
    having = attention_layers(model)
    if not having:
        if (layer, heads) != ("last", None):
            raise ModelError(f"{type(model).__name__} has no attention; leave layer={layer!r} and heads={heads!r} out")
        return NoTap(model)
    index = choose_layer(model.config, layer)
    if layer == "last" and index not in having:
        index = max(having)
    if index not in having:
        raise ModelError(
            f"layer={layer}: this layer of {type(model).__name__} has no attention; the layers with attention are "
            f"{', '.join(map(str, having))}"
        )
    count = int(model.config.get_text_config().num_attention_heads)
    remedy = f"this model has heads 0 to {count - 1}; give a list of them, or None for all"
    numbers = None if heads is None else several("heads", heads, int | np.integer, remedy)
    if numbers is not None and (not numbers or any(isinstance(h, bool) or not 0 <= h < count for h in numbers)):
        raise ModelError(f"heads={shown(heads)}: {remedy}")
    module = having[index]
    return EagerTap(model, index, numbers, list(having)) if module is None else Tap(model, module, index, numbers)


@contextmanager
def use_attention(model: nn.Module, implementation: str) -> Iterator[None]:
    """All layers compute attention by one implementation of transformers."""
    configs: dict[int, Any] = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    try:
        for config, _ in before:
            config._attn_implementation = implementation
        yield
    finally:
        for config, chosen in before:
            config._attn_implementation = chosen


def read_maps(model: Any, output: Any, layer: int | None, having: Sequence[int]) -> Tensor:
    """A layer's map (B, H, q, k) of an output that was asked for its attentions; ``having`` has the layers with any."""
    maps = [one for one in getattr(output, "attentions", None) or () if one is not None]
    place = {len(layer_kinds(model.config)): layer, len(having): [*having, layer].index(layer)}.get(len(maps))
    if place is None:
        raise ModelError(
            f"{type(model).__name__} neither looks its attention function up by name nor returns the attentions of "
            f"its {len(having)} layers, so it cannot be captured; load it with attn_implementation='eager' or use "
            "another model"
        )
    attention: Tensor = maps[place]
    return attention


def pick_heads(weights: Tensor, heads: list[int] | None) -> Tensor:
    """The chosen heads of some weights (B, H, q, k)."""
    return weights if heads is None else weights[:, heads]


def additive_mask(
    mask: Tensor | None, rows: int, queries: int, keys: int, window: int | None, device: torch.device
) -> Tensor | None:
    """The mask of the last ``rows`` of ``queries`` query positions, to be added to scores; None masks nothing.

    What arrives depends on the attention the model chose: booleans (True = attend) or None for SDPA, numbers to add
    for eager, one flag per key or None for flash attention.
    """
    if mask is not None and mask.dim() == 4:
        mask = mask[:, :, mask.shape[2] - rows :, :keys]
        if mask.dtype != torch.bool:
            return mask.float()
    elif mask is None and rows == 1 and (window is None or keys <= window):
        return None
    else:
        position = torch.arange(keys - rows, keys, device=device)[:, None]  # (rows, 1)
        column = torch.arange(keys, device=device)[None]  # (1, k)
        allowed = column <= position
        if window is not None:
            allowed &= column > position - window
        mask = allowed[None, None] if mask is None else allowed & mask[:, None, None, -keys:].bool()
    return torch.zeros(mask.shape, device=device).masked_fill_(~mask, torch.finfo(torch.float32).min)


def _tapped_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """The module's own attention; where a tap listens in this thread, it hears the call."""
    tap = _LISTENING.get(module)
    tap = tap if tap is not None and tap.thread == threading.get_ident() else None
    if tap is not None and tap.alone:
        tap.hear(query, key, attention_mask, None, kwargs)
        raise EnoughError
    output, weights = _OWN[module](module, query, key, value, attention_mask, **kwargs)
    if tap is not None:
        tap.hear(query, key, attention_mask, weights, kwargs)
    return output, weights


AttentionInterface.register(NAME, _tapped_attention)
