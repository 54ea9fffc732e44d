"""Which tap a model takes: the quick one (``tap``), one by ``output_attentions``, or none.

Models whose files do not look their attention function up by name (Falcon, GPT-J, BLOOM, GPT-Neo, CodeGen, ...) are
asked for ``output_attentions``, which makes every layer keep its whole map: correct, but slow and hungry for memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn

from dragin_lab.checks import several, shown
from dragin_lab.errors import ModelError
from dragin_lab.model.tap import Pending, Tap, attention_layers, choose_layer, layer_kinds, pick_heads


def attach_tap(model: Any, layer: int | str, heads: Sequence[int] | None = None) -> Tap | EagerTap | NoTap:
    """Attach a tap to one layer of a model; ``remove`` takes it away.

    Raises:
        ModelError: a layer or head the model does not have.
    """
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
    tap = EagerTap(model, index, numbers) if module is None else Tap(model, module, index, numbers)
    tap.having = having
    return tap


@contextmanager
def use_attention(model: nn.Module, implementation: str) -> Iterator[None]:
    """All layers compute attention by one implementation of transformers, taps aside."""
    configs: dict[int, Any] = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    try:
        for config, _ in before:
            config._attn_implementation_internal = implementation
        yield
    finally:
        for config, chosen in before:
            config._attn_implementation_internal = chosen


def read_maps(model: Any, output: Any, layer: int, having: Iterable[int]) -> Tensor:
    """A layer's map (B, H, q, k) of an output that was asked for its attentions; ``having`` has the layers with any."""
    having = list(having)
    maps = [one for one in getattr(output, "attentions", None) or () if one is not None]
    place = {len(layer_kinds(model.config)): layer, len(having): having.index(layer)}.get(len(maps))
    if place is None:
        raise ModelError(
            f"{type(model).__name__} neither looks its attention function up by name nor returns the attentions of "
            f"its {len(having)} layers, so it cannot be captured; load it with attn_implementation='eager' or use "
            "another model"
        )
    attention: Tensor = maps[place]
    return attention


class NoTap:
    """Stands in for a tap on a model without attention (Mamba): there are no rows, and the logits are all."""

    kind, layer, heads = "none", None, None
    having: Mapping[int, nn.Module | None] = MappingProxyType({})

    def __init__(self, model: Any) -> None:
        self.model = model

    def forward(self, rows: int, **inputs: Any) -> tuple[Any, Tensor | None]:
        """Run the model; returns its output, and None for the rows."""
        return self.model(**inputs), None

    def step(self, pending: Pending, **inputs: Any) -> Any:
        """Run the model; ``pending`` stays empty."""
        return self.model(**inputs)

    def flush(self, pending: Pending, mask: Tensor | None = None, block: int = 0) -> list[Tensor]:
        """No rows."""
        return []

    def map_only(self, ids: Tensor) -> Tensor:
        """Raises ``ModelError``."""
        raise ModelError(f"{type(self.model).__name__} has no attention, so it has no attention map; use another model")

    def remove(self) -> None:
        """There is nothing to remove."""


class EagerTap:
    """The slow path: every layer keeps its whole attention map and one of them is read."""

    kind = "eager"
    having: Mapping[int, nn.Module | None]  # the layers with attention

    def __init__(self, model: Any, layer: int, heads: list[int] | None) -> None:
        self.model = model
        self.layer = layer
        self.heads = heads
        self.chosen: str = model.config._attn_implementation
        if self.chosen not in ("eager", "sdpa"):
            raise ModelError(
                f"{type(model).__name__} with {self.chosen} attention cannot be captured: its file does not look its "
                "attention function up by name; load it with attn_implementation='eager'"
            )
        # Asked for attentions under "sdpa", these files leave the causal mask out (Falcon's weights see the future).
        model.config._attn_implementation_internal = "eager"

    def forward(self, rows: int, **inputs: Any) -> tuple[Any, Tensor | None]:
        """Run the model; returns its output and the last ``rows`` rows (B, h, rows, keys) float32, None for 0."""
        if rows == 0:
            return self.model(**inputs), None
        output = self.model(output_attentions=True, **inputs)
        return output, self.read(output, rows, self.layer)

    def step(self, pending: Pending, **inputs: Any) -> Any:
        """Run the model and put the last query's row into ``pending``; returns the output."""
        output, weights = self.forward(1, **inputs)
        assert weights is not None
        pending.ready.append(weights)
        pending.count += 1
        return output

    def flush(self, pending: Pending, mask: Tensor | None = None, block: int = 0) -> list[Tensor]:
        """The rows of ``pending`` in order, as in ``Tap.flush``."""
        ready, pending.ready, pending.count = pending.ready, [], 0
        return ready

    def read(self, output: Any, rows: int, layer: int) -> Tensor:
        """The rows of a layer, of an output that was asked for its attentions."""
        return pick_heads(read_maps(self.model, output, layer, self.having)[:, :, -rows:].float(), self.heads)

    def map_only(self, ids: Tensor) -> Tensor:
        """The whole map of some ids (B, n) by themselves: (B, h, n, n) float32."""
        weights = self.forward(ids.shape[1], input_ids=ids, use_cache=False)[1]
        assert weights is not None
        return weights

    def remove(self) -> None:
        """Give the model its own attention back."""
        self.model.config._attn_implementation_internal = self.chosen
