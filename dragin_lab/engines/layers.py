"""The layers of a model: which of them have attention, and which one is captured."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from dragin_lab.checks import shown
from dragin_lab.errors import ModelError

_WITHOUT = ("linear_attention", "conv", "moe", "mamba", "recurrent")  # kinds of layers without attention


def layer_kinds(config: Any) -> list[str]:
    """The kind of each layer, such as "full_attention"."""
    text = config.get_text_config()
    return list(getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers)


def full_attention_layers(config: Any) -> list[int]:
    """Indices of the layers whose queries see the whole text, first to last."""
    return [i for i, kind in enumerate(layer_kinds(config)) if kind == "full_attention"]


def choose_layer(config: Any, layer: int | str) -> int:
    """The index of a layer: "last" is the last full-attention layer, negative numbers count back.

    Raises ``ModelError`` for a layer that the model does not have.
    """
    count = len(layer_kinds(config))
    if isinstance(layer, str) and layer == "last":
        full = full_attention_layers(config)
        return full[-1] if full else count - 1
    if isinstance(layer, bool) or not isinstance(layer, int) or not -count <= layer < count:
        raise ModelError(f'layer={shown(layer)}: this model has layers 0 to {count - 1}; give one of them or "last"')
    return layer % count


def describe_layer(config: Any, layer: int) -> str:
    """A layer for people, counted from 1, and why "last" is not the last one: "29 of 34, the last with …"."""
    kinds, full = layer_kinds(config), full_attention_layers(config)
    why = ", the last with attention over the whole text" if full and layer == full[-1] < len(kinds) - 1 else ""
    return f"{layer + 1} of {len(kinds)}{why}"


def attention_layers(model: nn.Module) -> dict[int, nn.Module | None]:
    """The layers with self-attention, first to last, with their module where its file looks the function up by name."""
    modules: dict[int, nn.Module | None] = {}
    for module in model.modules():
        kind, layer = type(module).__name__, getattr(module, "layer_idx", None)
        home = sys.modules[type(module).__module__]
        looks_up = hasattr(home, "eager_attention_forward") and hasattr(home, "ALL_ATTENTION_FUNCTIONS")
        crosses = "Cross" in kind or getattr(module, "is_cross_attention", False)
        if isinstance(layer, int) and "Attention" in kind and not crosses and looks_up and hasattr(module, "config"):
            modules.setdefault(layer, module)
    config: Any = model.config
    text = config.get_text_config()
    declared = [i for i, kind in enumerate(layer_kinds(config)) if kind not in _WITHOUT]
    if modules and (set(modules) == set(declared) or not getattr(text, "layer_types", None)):
        return dict(sorted(modules.items()))
    # Layers may share one module (Zamba2), which then cannot tell which of them it serves.
    return dict.fromkeys(declared) if hasattr(text, "num_attention_heads") else {}
