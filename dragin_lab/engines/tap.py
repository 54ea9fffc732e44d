"""The tap: it listens to the attention of one layer, for the last query rows of each forward.

Model files look their attention function up by a name in their config. While a tap listens, what
the file looks up in is wrapped: the function that comes back is the layer's own, and where it is
called by the tapped module, the model file's eager function (with its soft caps and sinks) gives
the weights. Neither the model nor its config is touched, as some files ask that name for more
(sparse attention).
"""

from __future__ import annotations

import inspect
import os
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dragin_lab.engines.layers import (
    EAGER,
    TABLE,
    Names,
    attention_layers,
    choose_captured,
    choose_heads,
    find_file,
    layer_kinds,
    say_why,
)
from dragin_lab.errors import ModelError

#: By module: the tap that listens to it now; None where one did.
_LISTENING: WeakKeyDictionary[nn.Module, Tap | None] = WeakKeyDictionary()


@contextmanager
def restoring(restore: Callable[[], None]) -> Iterator[None]:
    """Call ``restore`` at the end of the block; twice, as an interrupt may land in the first
    call.
    """
    try:
        try:
            yield
        finally:
            restore()
    finally:
        restore()


class Tap:
    """The tap on the attention of one layer of a model.

    ``layer`` is the layer's index, ``heads`` are those captured (None: all), and ``why`` says why
    there is no attention to listen to, as in Mamba; ``layer`` is None there. Raises ``ModelError``
    for a layer or head that the model does not have.
    """

    def __init__(self, model: Any, layer: int | str, heads: Sequence[int] | None = None) -> None:
        self.model = model
        self.layer = None
        self.heads = None
        self.why = ""
        if not layer_kinds(model.config):
            raise ModelError(
                f"{type(model).__name__} has no layers; its config.json says num_hidden_layers=0"
            )
        having, shared = attention_layers(model)
        kind = type(model).__name__
        if not having:
            self.why = say_why(model, kind, shared)
            if (layer, heads) != ("last", None):
                raise ModelError(
                    f"{kind}: {self.why}; leave layer={layer!r} and heads={heads!r} out"
                )
            return
        self.layer = choose_captured(model.config, layer, having, kind)
        self.heads = choose_heads(heads, model.config.get_text_config().num_attention_heads)
        self.module: Any = having[self.layer]
        self._file = find_file(self.module)
        self._eager = inspect.unwrap(self._file[EAGER])
        self.rows = 1
        self.thread = 0
        self.weights: Tensor | None = None

    @contextmanager
    def listen(self, rows: int = 1) -> Iterator[None]:
        """Within the block, record the last query ``rows`` of each forward of this thread."""
        if self.why:
            yield
            return
        module = self.module
        before = _LISTENING.get(self.module)
        # of an outer block: a trigger may ask its own lab
        state = self.rows, self.weights, self.thread
        block = object()

        def restore() -> None:
            self.rows, self.weights, self.thread = state
            _LISTENING[module] = before
            _unwrap_file(self._file, block)

        with restoring(restore):
            self.rows = rows
            self.weights = None
            self.thread = threading.get_ident()
            _LISTENING[module] = self
            _wrap_file(self._file, block)
            yield

    def pop_rows(self) -> Tensor | None:
        """The rows (B, h, rows, keys) float32 of the latest forward; None where there is no
        attention.
        """
        if self.why:
            return None
        weights = self.weights
        self.weights = None
        if weights is None:
            raise ModelError(
                f"{type(self.model).__name__} did not call the attention function of layer"
                f" {self.layer}; it cannot be captured. Choose another layer"
            )
        return weights

    def record(
        self, query: Tensor, key: Tensor, mask: Tensor | None, weights: Tensor | None, kwargs: Any
    ) -> None:
        """Keep the wanted rows of a call of the module's attention function, which gave
        ``weights``, or none.
        """
        if self.weights is None:  # DiffLlama calls the function twice, for two halves of the values
            if weights is None or weights.dtype != torch.float32:
                # By the model file's eager function. Its weighted sum is not used, so a slice of
                # the keys stands in for the values.
                query = query[:, :, -self.rows :].float()
                key = key.float()
                mask = additive_mask(
                    mask, query.shape[2], key.shape[2], kwargs.get("sliding_window"), query.device
                )
                with exactly(query.device):
                    _, weights = self._eager(
                        self.module, query, key, key[..., :1], mask, **{**kwargs, "dropout": 0.0}
                    )
            self.weights = self.pick(weights[:, :, -self.rows :].float())

    def pick(self, weights: Tensor) -> Tensor:
        """The captured heads of some weights (B, H, q, k)."""
        return weights if self.heads is None else weights[:, self.heads]


def exactly(device: torch.device) -> Any:
    """What is computed within is in the types that it has, whatever autocast says of the model."""
    return torch.autocast(device.type, enabled=False)


def additive_mask(
    mask: Tensor | None, rows: int, keys: int, window: int | None, device: torch.device
) -> Tensor | None:
    """The mask of the last ``rows`` query positions, to be added to scores; None masks nothing.

    What arrives depends on the attention the model chose: booleans (True = attend) or None for
    SDPA, numbers to add for eager, one flag per key or None for flash attention.
    """
    if mask is not None and mask.dim() == 4:
        mask = mask[:, :, -rows:, :keys]
        if mask.dtype != torch.bool:
            return mask.float()
    elif mask is None and rows == 1 and (window is None or keys <= window):
        return None
    else:
        column = torch.arange(keys, device=device)  # (k,)
        position = column[-rows:, None]  # (rows, 1)
        allowed = column <= position
        if window is not None:
            allowed &= column > position - window
        mask = allowed[None, None] if mask is None else allowed & mask[:, None, None, -keys:].bool()
    return torch.zeros(mask.shape, dtype=torch.float32, device=device).masked_fill_(
        ~mask, torch.finfo(torch.float32).min
    )


# -- what a file looks its attention function up in ------------------------------------------------


class _Wrapped(ChainMap[str, Any]):
    """A file's table of attention functions; those that it gives record the calls of a module
    that is listened to.
    """

    def get_interface(self, name: str, default: Any) -> Any:
        return _recording(self.maps[0].get_interface(name, default))  # type: ignore[attr-defined]

    def __getitem__(self, name: str) -> Any:
        return _recording(super().__getitem__(name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.maps[0], name)


@cache
def _recording(function: Any) -> Any:
    """An attention function; where a tap listens to the module in this thread, it records the
    call.
    """

    @wraps(function)
    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        output, weights = function(module, query, key, value, mask, **kwargs)
        tap = _LISTENING.get(module)
        if tap is not None and tap.thread == threading.get_ident():
            tap.record(query, key, mask, weights, kwargs)
        return output, weights

    return attend


#: By file: what it had, and the blocks that listen to a module of it.
_FILES: dict[int, tuple[Names, set[object]]] = {}
_LOCK = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_LOCK=threading.Lock()))


def _wrap_file(file: Names, block: object) -> None:
    with _LOCK:
        if id(file) not in _FILES:
            _FILES[id(file)] = {name: file[name] for name in (TABLE, EAGER)}, set()
            file |= {TABLE: _Wrapped(file[TABLE]), EAGER: _recording(file[EAGER])}
        _FILES[id(file)][1].add(block)


def _unwrap_file(file: Names, block: object) -> None:
    with _LOCK:
        names, blocks = _FILES.get(id(file), ({}, set()))
        blocks.discard(block)
        if names and not blocks:
            file.update(names)
            del _FILES[id(file)]
