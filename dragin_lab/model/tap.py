"""The tap: the attention of one layer, for the query rows that are needed, beside what the model computes anyway.

``transformers`` models look their attention function up by a name in the config. The tapped attention module is given
a config of its own that differs in that name alone, so all other layers, the mask and the output of the tapped layer
stay the model's own, and generated text is exactly the text without the tap. The weights are computed on the side, by
the model file's own eager function (with its soft caps and sinks), for the wanted rows only.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from dragin_lab.checks import shown
from dragin_lab.errors import ModelError

NAME = "dragin_lab_tap"
_WITHOUT = ("linear_attention", "conv", "moe", "mamba", "recurrent")  # kinds of layers without attention
_SLOT = "_dragin_lab_tap"  # attribute of the tapped module that holds its Tap


class EnoughError(Exception):
    """Raised inside a forward when the wanted rows are there and the rest of the model is not needed."""


class Pending:
    """Attention rows that have not been computed yet, one query position after another: of one continuation, or of
    ``B`` side by side.

    A row needs the query of its own step, but the keys of any later step begin with the keys it saw. So a step keeps
    its query, and many rows are computed at once, with the keys of the last step.
    """

    def __init__(self) -> None:
        self.queries: list[Tensor] = []  # (B, H, 1, d) each
        self.handed = 0  # of these, how many have had their rows handed over
        self.last: tuple[Tensor, dict[str, Any]] | None = None  # keys (B, H_kv, k, d) and further arguments
        self.ready: list[Tensor] = []  # (B, h, c, k) float32 each, rows that could not wait
        self.count = 0  # rows put in since the last flush that ended a block

    def __len__(self) -> int:
        return self.count


class Tap:
    """The tap on one attention module; create it with ``taps.attach_tap``.

    ``rows`` says how many of the last query rows the next forward leaves in ``weights``; 0 costs nothing.
    """

    kind = "registry"
    having: dict[int, nn.Module | None]  # the layers with attention, and their modules

    def __init__(self, model: Any, module: nn.Module, layer: int, heads: list[int] | None) -> None:
        self.model = model
        self.module = module
        self.layer = layer
        self.heads = heads
        self.rows = 0
        self.alone = False  # stop the forward as soon as the rows are there
        self.weights: Tensor | None = None  # (B, h, rows, keys) float32
        self.pending: Pending | None = None  # where the row of the forward under way goes, until it is there
        self._waits = layer in full_attention_layers(model.config)  # its keys stay in the cache
        home = sys.modules[type(module).__module__]
        self.eager: Callable[..., Any] = home.eager_attention_forward
        self._before = (module.config, getattr(module, _SLOT, None))
        self.below: Tap | None = self._before[1]  # a tap over a tap passes calls on to it
        config: Any = copy.copy(module.config)
        self.base: Callable[..., Any] = home.ALL_ATTENTION_FUNCTIONS.get_interface(
            config._attn_implementation, self.eager
        )
        config._attn_implementation_internal = NAME
        module.config = config
        setattr(module, _SLOT, self)
        if config._attn_implementation != NAME:
            self.remove()
            raise ModelError(f"{type(model).__name__} does not take attention function {NAME!r}; it cannot be captured")

    def forward(self, rows: int, **inputs: Any) -> tuple[Any, Tensor | None]:
        """Run the model; returns its output and the last ``rows`` rows (B, h, rows, keys) float32, None for 0."""
        self.rows, self.weights = rows, None
        try:
            output = self.model(**inputs)
        finally:
            self.rows = 0
        return output, self.take() if rows else None

    def step(self, pending: Pending, **inputs: Any) -> Any:
        """Run the model and put the last query's row into ``pending``; its output. Padding: see ``flush``."""
        self.pending = pending
        try:
            output = self.model(**inputs)
            if self.pending is not None:
                self.take()  # says that the layer was not reached
        finally:
            self.pending = None
        return output

    def flush(self, pending: Pending, mask: Tensor | None = None, block: int = 0) -> list[Tensor]:
        """The rows of ``pending`` in order: tensors (B, h, c, keys) float32, whose last row sees all of its keys.

        ``mask`` (B, k) is 0 where a key is padding; None where there is none. With ``block``, rows are always computed
        in products of ``block`` rows, which zeros fill up where there are fewer: how a kernel sums depends on the shape
        of the product, so a row then has the same bits wherever its text ends.
        """
        if len(pending.queries) > pending.handed:
            assert pending.last is not None
            key, kwargs = pending.last
            query = torch.cat(pending.queries, 2) if len(pending.queries) > 1 else pending.queries[0]  # (B, H, c, d)
            c, k, fill = query.shape[2], key.shape[2], max(0, block - query.shape[2])
            if fill:
                query, key = (nn.functional.pad(states, (0, 0, 0, fill)) for states in (query, key))
            rows = self.measure(c + fill, query, key, mask, kwargs)  # (B, h, c + fill, k + fill)
            pending.ready.append(rows[:, :, pending.handed : c, :k])
            pending.handed = c
        if pending.handed >= block:
            pending.queries, pending.last, pending.handed = [], None, 0
        ready, pending.ready, pending.count = pending.ready, [], pending.handed
        return ready

    def take(self) -> Tensor:
        """The rows of the last forward, handed over."""
        weights, self.weights = self.weights, None
        if weights is None:
            raise ModelError(
                f"{type(self.model).__name__} did not call the attention function of layer {self.layer}; "
                "it cannot be captured. Choose another layer"
            )
        return weights

    def map_only(self, ids: Tensor) -> Tensor:
        """The whole map of some ids (B, n) by themselves: (B, h, n, n) float32. The model stops after this layer."""
        self.rows, self.weights, self.alone = ids.shape[1], None, True
        try:
            self.model.base_model(input_ids=ids, use_cache=False)
        except EnoughError:
            pass
        finally:
            self.rows, self.alone = 0, False
        return self.take()

    def remove(self) -> None:
        """Put the module back as it was."""
        self.module.config, before = self._before
        if before is None:
            if hasattr(self.module, _SLOT):
                delattr(self.module, _SLOT)
        else:
            setattr(self.module, _SLOT, before)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
    ) -> tuple[Tensor, Tensor | None]:
        """What the tapped module calls instead of its own attention function."""
        if self.alone:
            self.weights = self.measure(self.rows, query, key, mask, kwargs)
            raise EnoughError
        if self.below is not None:
            output, weights = self.below.attend(query, key, value, mask, kwargs)
        else:
            output, weights = self.base(self.module, query, key, value, mask, **kwargs)
        # Some files call the function twice (DiffLlama, for two halves of the values): the first call has the row.
        if self.rows and self.weights is None:
            if weights is not None and weights.dtype == torch.float32:
                self.weights = pick_heads(weights[:, :, -self.rows :], self.heads)
            else:
                self.weights = self.measure(self.rows, query, key, mask, kwargs)
        elif self.pending is not None:
            pending, self.pending = self.pending, None
            self._keep_row(pending, query, key, weights, mask, kwargs)
        return output, weights

    def _keep_row(
        self,
        pending: Pending,
        query: Tensor,
        key: Tensor,
        weights: Tensor | None,
        mask: Tensor | None,
        kwargs: dict[str, Any],
    ) -> None:
        pending.count += 1
        if weights is not None and weights.dtype == torch.float32:
            pending.ready.append(pick_heads(weights[:, :, -1:], self.heads))
        elif self._waits and kwargs.get("sliding_window") is None and kwargs.get("position_bias") is None:
            pending.queries.append(query if query.shape[2] == 1 else query[:, :, -1:].clone())
            pending.last = (key, kwargs)
        else:
            pending.ready.append(self.measure(1, query, key, mask, kwargs))

    def measure(self, rows: int, query: Tensor, key: Tensor, mask: Tensor | None, kwargs: dict[str, Any]) -> Tensor:
        """The last ``rows`` rows by the model file's own eager function, in float32: (B, h, rows, keys)."""
        queries, keys = query.shape[2], key.shape[2]
        rows = min(rows, queries)
        query = query[:, :, queries - rows :]  # (B, H, rows, d)
        mask = _additive_mask(
            mask, rows, queries, keys, kwargs.get("sliding_window"), query.device
        )  # (B or 1, 1, rows, k)
        key = key.float()
        if rows == 1:  # twice, because a product with one row alone is summed in another order than one with several
            query = query.expand(-1, -1, 2, -1)
        # The weighted sum is not wanted, so anything as long as the values will do for them.
        _, weights = self.eager(self.module, query.float(), key, key[..., :1], mask, **{**kwargs, "dropout": 0.0})
        return pick_heads(weights[:, :, :rows].float(), self.heads)


def pick_heads(weights: Tensor, heads: list[int] | None) -> Tensor:
    """The chosen heads of some weights (B, H, q, k)."""
    return weights if heads is None else weights[:, heads]


def _additive_mask(
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
    tap: Tap = getattr(module, _SLOT)
    return tap.attend(query, key, value, attention_mask, kwargs)


AttentionInterface.register(NAME, _tapped_attention)


# -- the layers of a model ---------------------------------------------------------------------------------------------


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
