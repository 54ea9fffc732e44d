"""The layers of a model: which of them have attention, which one a user means, and their hidden states."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from dragin_lab.checks import shown
from dragin_lab.errors import ModelError

_WITHOUT = ("linear_attention", "conv", "moe", "mamba", "recurrent")  # kinds of layers without attention


def full_attention_layers(config: Any) -> list[int]:
    """Indices of the layers whose queries see the whole text, first to last."""
    return [i for i, kind in enumerate(layer_kinds(config)) if kind == "full_attention"]


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


def layer_kinds(config: Any) -> list[str]:
    text = config.get_text_config()
    return list(getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers)


def choose_layer(config: Any, layer: int | str) -> int:
    """The index of a layer: "last" is the last full-attention layer, negative numbers count back."""
    count = len(layer_kinds(config))
    if isinstance(layer, str) and layer == "last":
        full = full_attention_layers(config)
        return full[-1] if full else count - 1
    if isinstance(layer, bool) or not isinstance(layer, int) or not -count <= layer < count:
        raise ModelError(f'layer={shown(layer)}: this model has layers 0 to {count - 1}; give one of them or "last"')
    return layer % count


@contextmanager
def hidden_states(model: Any, layers: Iterable[int | str]) -> Iterator[dict[int | str, Tensor]]:
    """The hidden states that the forwards inside the block leave: layer -> (B, positions, d), of the latest forward.

    "last" is what the output head reads, after the final norm; a number is what that layer gives to the next.

    Raises:
        ModelError: a layer the model does not have, or a model whose layers cannot be identified.
    """
    states: dict[int | str, Tensor] = {}

    def take(layer: int | str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, output: Any = None) -> None:
            values = args if output is None else output
            states[layer] = values[0] if isinstance(values, tuple) else values

        return hook

    with ExitStack() as hooks:
        for layer in layers:
            if isinstance(layer, str) and layer == "last":
                handle = _output_head(model).register_forward_pre_hook(take(layer))
            else:
                handle = _layer_modules(model)[choose_layer(model.config, layer)].register_forward_hook(take(layer))
            hooks.callback(handle.remove)
        yield states


def _output_head(model: Any) -> nn.Module:
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Module):
        raise ModelError(f"{type(model).__name__} has no output head, so the last hidden state cannot be captured")
    return head


def _layer_modules(model: Any) -> nn.ModuleList:
    count = int(model.config.get_text_config().num_hidden_layers)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise ModelError(f"{type(model).__name__} has no list of {count} layers; use needs=('hidden',), the last one's")
