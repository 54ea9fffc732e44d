"""The layers of a model: which of them have attention that can be listened to, and which one is.

Models whose file looks no attention function up (Falcon, GPT-J, BLOOM, GPT-Neo) count as models
without attention and serve the methods of probabilities.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from dragin_lab.checks import several, shown
from dragin_lab.errors import ModelError

Names = dict[str, Any]  # what a model file defines

#: What a model file calls the table of attention functions, and the one that stands by itself.
TABLE = "ALL_ATTENTION_FUNCTIONS"
EAGER = "eager_attention_forward"


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
        raise ModelError(
            f"layer={shown(layer)}: this model has layers 0 to {count - 1}; give one of them or"
            ' "last"'
        )
    return layer % count


def choose_captured(config: Any, layer: int | str, having: Collection[int], kind: str) -> int:
    """The index of a layer among those ``having`` attention; as ``choose_layer``, but "last" is
    always one of them.

    Raises ``ModelError`` for a layer of a ``kind`` of model that has no attention.
    """
    index = choose_layer(config, layer)
    if index in having:
        return index
    if layer == "last":
        return max(having)
    raise ModelError(
        f"layer={layer}: this layer of {kind} has no attention; the layers with attention are "
        f"{', '.join(map(str, sorted(having)))}"
    )


def choose_heads(heads: Sequence[int] | None, count: int) -> list[int] | None:
    """The heads to capture, None for all. Raises ``ModelError`` for a head that a model of
    ``count`` does not have.
    """
    if heads is None:
        return None
    remedy = f"this model has heads 0 to {count - 1}; give a list of them, or None for all"
    numbers = several("heads", heads, int | np.integer, remedy)
    if not numbers or any(isinstance(head, bool) or not 0 <= head < count for head in numbers):
        raise ModelError(f"heads={shown(heads)}: {remedy}")
    return numbers


def describe_layer(config: Any, layer: int) -> str:
    """A layer for people, counted from 1, and why it is not the last: "29 of 34, the last with
    …".
    """
    kinds = layer_kinds(config)
    full = full_attention_layers(config)
    place = f"{layer + 1} of {len(kinds)}"
    if full and layer == full[-1] < len(kinds) - 1:
        return f"{place}, the last with attention over the whole text"
    return place


def find_file(module: Any) -> Any:
    """The names of the file where a module looks its attention function up; None where it does
    not.
    """
    kind: Any = type(module)
    return _find_names(kind)


@cache
def _find_names(kind: Any) -> Names | None:
    methods: Names = {}
    for base in reversed(kind.__mro__):
        methods |= vars(base)
    for method in methods.values():
        function = inspect.unwrap(method)
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        if TABLE in names and EAGER in function.__globals__:
            return function.__globals__
    return None


def attention_layers(model: nn.Module) -> tuple[dict[int, nn.Module], bool]:
    """The layers with self-attention whose file looks the function up by name, first to last,
    with their module; and whether there are more that share a module.

    A shared module cannot tell which of its layers it serves (Zamba2).
    """
    layers: dict[int, nn.Module] = {}
    shared = False
    for module, places in _find_places(model).items():
        index = getattr(module, "layer_idx", None)
        if len(places) > 1:
            shared = True
        elif isinstance(index, int) and places:
            if index < 0:  # where all layers say the same, the place tells them apart (Zamba2)
                index = max(index, *places)
            layers.setdefault(index, module)
    return dict(sorted(layers.items())), shared


def _find_places(model: nn.Module) -> dict[nn.Module, set[int]]:
    """The modules that look their self-attention up by name, each with the numbers of the layers
    that it serves.
    """
    places: dict[nn.Module, set[int]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if find_file(module) is None or "Cross" in type(module).__name__:
            continue
        if getattr(module, "is_cross_attention", False):
            continue
        numbers = [int(part) for part in path.split(".") if part.isdecimal()]
        places.setdefault(module, set()).update(numbers[-1:])
    return places


def say_why(model: nn.Module, kind: str, shared: bool) -> str:
    """Why there is no attention to listen to."""
    if shared:
        return f"the layers of {kind} share their attention, so a call does not tell whose it is"
    names = [type(module).__name__ for module in model.modules()]
    if any("Attention" in name for name in names):
        return f"the file of {kind} does not look its attention function up by name"
    return "it has no attention"
