"""Key-value caches of several texts side by side, padded on the left so that all of them end at the same column.

The buffers have room for more columns than are used, so a step writes one column and copies nothing, and a text that
leaves gives its row to one that joins while the others stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from dragin_lab.model.prefixes import Prefix
from dragin_lab.model.tap import Pending
from dragin_lab.model.tapped import TappedModel

_ROOM = 64  # columns after the last one when the buffers are allocated
_WASTE = 64  # columns of padding in every row before the texts are moved to the left


class _Layer(DynamicLayer):
    """One layer's keys and values in buffers (rows, H_kv, columns, d) of which a corner is in use."""

    def __init__(self) -> None:
        super().__init__()
        self.width = 0  # columns in use
        self.buffers: tuple[Tensor, ...] = ()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the columns of the next tokens, (n, H_kv, c, d), and return all of them for the first n rows."""
        rows, end = key_states.shape[0], self.width + key_states.shape[2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:rows, :, self.width : end] = states
        self.width = end
        self.keys, self.values = (buffer[:rows, :, :end] for buffer in self.buffers)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.width


@torch.inference_mode()
def feed_batch(lm: TappedModel, slots: Slots, tokens: Sequence[Tensor], pending: Pending | None) -> Tensor:
    """Feed one token (1,) to every text; returns their logits (n, V) and puts their rows into ``pending``."""
    inputs = {name: value for name, value in slots.inputs(tokens).items() if name in lm.takes}
    with lm.lock:
        if pending is None:
            output, _ = lm.tap.forward(0, **inputs, **lm.only_last)
        else:
            output = lm.tap.step(pending, **inputs, **lm.only_last)
    logits: Tensor = output.logits[:, -1]
    return logits


class Slots:
    """The texts' caches, in the order in which they were added but for the gaps that ``drop`` closes.

    ``starts[i]`` is the column of row i's first token; the columns before it are padding.
    """

    def __init__(self, config: Any) -> None:
        self.starts: list[int] = []
        self._config = config
        self._cache = DynamicCache(config=config)
        self._placed: tuple[list[int], Tensor] | None = None
        self._layers = [_Layer() for _ in self._cache.layers]
        self._cache.layers = list(self._layers)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def width(self) -> int:
        """Columns in use."""
        return self._layers[0].width

    def add(self, prefixes: Sequence[Prefix]) -> None:
        """Add further texts after the others; they are copied."""
        lengths = [len(prefix.ids) for prefix in prefixes]
        longest = max([*lengths, *(self.width - start for start in self.starts)])
        rows = len(self) + len(prefixes)
        if rows > self._room()[0] or longest > self.width or self.width - longest >= _WASTE:
            self._allocate(rows, longest, prefixes[0].states())
        for row, (prefix, length) in enumerate(zip(prefixes, lengths, strict=True), len(self)):
            for layer, pair in zip(self._layers, prefix.states(), strict=True):
                for buffer, states in zip(layer.buffers, pair, strict=True):
                    buffer[row, :, self.width - length : self.width] = states[0]
        self.starts += [self.width - length for length in lengths]

    def drop(self, row: int) -> None:
        """Forget a text; the last one takes its row."""
        start = self.starts[-1]
        if row < len(self) - 1:
            for layer in self._layers:
                for buffer in layer.buffers:
                    buffer[row, :, start : self.width] = buffer[len(self) - 1, :, start : self.width]
            self.starts[row] = start
        self.starts.pop()

    @property
    def full(self) -> bool:
        """Whether there is no column left to feed a token into; ``make_room`` then."""
        return self.width == self._room()[1]

    def make_room(self) -> None:
        """Move the texts into buffers with room for more columns."""
        longest = self.width - min(self.starts)
        self._allocate(len(self), longest, [layer.buffers for layer in self._layers])

    def inputs(self, tokens: Sequence[Tensor]) -> dict[str, Any]:
        """The arguments of a forward that feeds one token (1,) to every text."""
        return {
            "input_ids": torch.stack(list(tokens)),  # (n, 1)
            "attention_mask": self.mask(self.width + 1),
            "position_ids": self.width - self._placed_starts(),  # (n, 1)
            "past_key_values": self._cache,
            "use_cache": True,
        }

    def mask(self, width: int) -> Tensor:
        """1 where a column holds a token of the row's text, 0 where it is padding: (n, width) int64."""
        starts = self._placed_starts()  # (n, 1)
        return (torch.arange(width, device=starts.device) >= starts).long()

    def _placed_starts(self) -> Tensor:
        """``starts`` on the device, (n, 1): sent there again only when they have changed."""
        if self._placed is None or self._placed[0] != self.starts:
            device = self._layers[0].buffers[0].device
            self._placed = list(self.starts), torch.tensor(self.starts, device=device)[:, None]
        return self._placed[1]

    def _room(self) -> tuple[int, int]:
        """Rows and columns of the buffers."""
        buffers = self._layers[0].buffers
        return (buffers[0].shape[0], buffers[0].shape[2]) if buffers else (0, 0)

    def _allocate(self, rows: int, width: int, like: Sequence[tuple[Tensor, ...]]) -> None:
        """Copy all texts into buffers for more rows and columns, of which ``width`` are then in use.

        ``like`` has keys and values of each layer, (any, H_kv, any, d). One layer after the other, so that only one of
        them is there twice.
        """
        before = self.width
        starts = [width - (before - start) for start in self.starts]
        for layer, states in zip(self._layers, like, strict=True):
            old = layer.buffers
            layer.buffers = tuple(t.new_zeros((rows, t.shape[1], width + _ROOM, t.shape[3])) for t in states)
            layer.width = width
            for fresh, buffer in zip(layer.buffers, old or (), strict=bool(old)):
                for row, (new, start) in enumerate(zip(starts, self.starts, strict=True)):
                    fresh[row, :, new:width] = buffer[row, :, start:before]
        self.starts = starts
