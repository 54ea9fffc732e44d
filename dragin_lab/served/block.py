"""The last block of a model in a GGUF file, which is computed here, and the file without it, which llama.cpp serves.

What the tokens pay each other there is a function of what enters the block: queries and keys of the normed input,
turned by their positions, and a softmax. n positions, d numbers of a hidden state, h heads of e numbers, g key heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab.model.gguf import convert_once
from dragin_lab.model.sources import hash_weights

#: Architecture -> whether RoPE turns neighbouring numbers; else the halves of a head. "llama" is Mistral's too.
ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False, "gemma3": False}
_PERIOD = 6  # of Gemma 3's blocks the last of each six sees the whole text
#: Settings of attention that are followed here, or change nothing.
_SETTINGS = {
    *(f"attention.{name}" for name in ("head_count", "head_count_kv", "layer_norm_rms_epsilon")),
    *("attention.key_length", "attention.value_length", "rope.freq_base", "rope.dimension_count"),
    *(f"rope.scaling.{name}" for name in ("type", "factor", "original_context_length", "finetuned")),
}
_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_NORMS = ("attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
_BIASES = ("attn_q", "attn_k", "attn_v", "attn_output")
_TENSORS = {f"{name}.weight" for name in (*_MATRICES, *_NORMS)} | {f"{name}.bias" for name in _BIASES}


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file, opened by ``gguf.GGUFReader``."""

    path: Path
    reader: Any

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        from gguf import GGUFReader

        return cls(path, GGUFReader(path))

    @property
    def architecture(self) -> str:
        return str(self.reader.fields["general.architecture"].contents())

    @property
    def blocks(self) -> int:
        return int(self.get("block_count"))

    @property
    def last(self) -> str:
        """What the names of the last block's tensors begin with."""
        return f"blk.{self.blocks - 1}."

    def get(self, name: str, default: Any = None) -> Any:
        """A setting of the architecture."""
        field = self.reader.fields.get(f"{self.architecture}.{name}")
        return default if field is None else field.contents()

    def tensors(self) -> dict[str, Any]:
        return {tensor.name: tensor for tensor in self.reader.tensors}

    def obstacle(self) -> str:
        """Why the last block cannot be computed here; "" where it can."""
        name = self.architecture
        if name not in ARCHITECTURES:
            return f"its architecture {name!r} is none of {', '.join(ARCHITECTURES)}, whose attention is known"
        if name == "gemma3" and self.blocks % _PERIOD:
            return f"the last of its {self.blocks} blocks attends within a window, and only the last one is computed"
        kinds = [key.removeprefix(f"{name}.") for key in self.reader.fields if key.startswith(f"{name}.")]
        settings = [kind for kind in kinds if "attention." in kind or "rope." in kind or "softcap" in kind]
        window = {"attention.sliding_window"} if name == "gemma3" else set()  # of its other blocks
        tensors = [one.removeprefix(self.last) for one in self.tensors() if one.startswith(self.last)]
        if unknown := [one for one in settings if one not in _SETTINGS | window] + sorted({*tensors} - _TENSORS):
            return f"its {', '.join(unknown)} of architecture {name!r} would have to be followed"
        scaling = self.get("rope.scaling.type", "none")
        return "" if scaling in ("none", "linear") else f"its positions are scaled by {scaling!r}, not 'linear'"

    def read(self, tensor: Any, rows: Any = slice(None)) -> np.ndarray:
        """The rows of a tensor, float32."""
        from gguf.quants import dequantize

        return np.asarray(dequantize(tensor.data[rows], tensor.tensor_type), np.float32)

    # -- as another model's file for ``model.gguf.convert_once`` ------------------------------------------------------

    def save_pretrained(self, folder: Path) -> None:
        """Write the model without its last block, whose attn_norm is the new output norm; weights stay as packed."""
        from gguf import GGUFValueType, GGUFWriter

        prefix, blocks = f"{self.architecture}.", self.blocks
        writer = GGUFWriter(folder / _CUT, self.architecture)
        writer.data_alignment = self.reader.alignment
        for name, field in self.reader.fields.items():
            if name.startswith("GGUF.") or name == "general.architecture":
                continue
            value, kind = field.contents(), field.types[0]
            if name == f"{prefix}block_count":
                value -= 1
            elif name.startswith(prefix) and isinstance(value, list) and len(value) == blocks:
                value = value[:-1]
            writer.add_key_value(name, value, kind, field.types[-1] if kind == GGUFValueType.ARRAY else None)
        tensors = self.tensors()
        norm = tensors[f"{self.last}attn_norm.weight"]
        for name, tensor in tensors.items():
            if not name.startswith(self.last):
                source = norm if name == "output_norm.weight" else tensor
                writer.add_tensor(name, source.data, raw_dtype=source.tensor_type)
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()


_CUT = "cut.gguf"


def cut_file(file: GgufFile) -> Path:
    """The file without its last block, written once into the user's cache. Errors as ``model.gguf.convert_gguf``."""
    folder = convert_once(file.path, f"models/{hash_weights(None, [file.path])[:32]}-cut", lambda: (file,), ["gguf"])
    return folder / _CUT


def normalise(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """RMSNorm over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


@dataclass(frozen=True)
class Block:
    """A block, with the output norm after it; weights by their names in a GGUF file, float32."""

    heads: int
    key_heads: int
    eps: float
    turns: np.ndarray  # (r,) radians by which a position turns each pair of numbers
    pairs: np.ndarray  # (2, r) the places of these pairs in a head
    gelu: bool
    weights: Mapping[str, np.ndarray]

    @classmethod
    def read(cls, file: GgufFile) -> Block:
        """The last block of a file without an ``obstacle``."""
        tensors, last = file.tensors(), file.last
        weights = {name.removeprefix(last): file.read(one) for name, one in tensors.items() if name.startswith(last)}
        weights["output_norm.weight"] = file.read(tensors["output_norm.weight"])
        heads = int(file.get("attention.head_count"))
        rotary = int(file.get("rope.dimension_count", len(weights["attn_q.weight"]) // heads))
        turns = file.get("rope.freq_base", 1e4) ** -(np.arange(0, rotary, 2) / rotary)  # (r,)
        if "rope_freqs.weight" in tensors:
            turns = turns / file.read(tensors["rope_freqs.weight"])
        if file.get("rope.scaling.type", "none") == "linear":
            turns = turns / file.get("rope.scaling.factor", 1.0)
        places = np.arange(rotary)
        return cls(
            heads=heads,
            key_heads=int(file.get("attention.head_count_kv", heads)),
            eps=file.get("attention.layer_norm_rms_epsilon"),
            turns=turns,
            pairs=places.reshape(-1, 2).T if ARCHITECTURES[file.architecture] else places.reshape(2, -1),
            gelu=file.architecture == "gemma3",
            weights=weights,
        )

    def rows(self, x: np.ndarray, first: int = 0) -> np.ndarray:
        """What the positions from ``first`` on pay to all of x (n, d), the block's normed input: (h, n - first, n)."""
        query = self._turn(self._project(x[first:], "attn_q", self.heads), first)  # (h, n - first, e)
        key = self._turn(self._project(x, "attn_k", self.key_heads), 0)  # (g, n, e)
        scores = query @ self._shared(key).swapaxes(1, 2) / np.float32(np.sqrt(query.shape[-1]))  # (h, n - first, n)
        later = np.arange(len(x)) > np.arange(first, len(x))[:, None]  # (n - first, n)
        scores = np.where(later, -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(weights / weights.sum(-1, keepdims=True), np.float32)

    def output(self, x: np.ndarray, row: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """What the output head reads at the last position, which pays ``row`` (h, 1, n); (m, d).

        x is (n, d), the normed input, which does not say how long the hidden state was: ``lengths`` (m,) are the root
        mean squares to try.
        """
        w, last = self.weights, x[-1] / self.weights["attn_norm.weight"]  # (d,)
        value = self._shared(self._project(x, "attn_v", self.key_heads))  # (h, n, e)
        paid = (row @ value).reshape(1, -1)  # (1, h e)
        state = lengths[:, None] * last + self._norm("post_attention_norm", self._linear(paid, "attn_output"))  # (m, d)
        normed = self._norm("ffn_norm", state)
        gate = self._linear(normed, "ffn_gate")  # (m, f)
        cube = gate + 0.044715 * gate**3
        open_ = 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * cube if self.gelu else gate / 2))  # SiLU is gate x sigmoid
        fed = self._linear(gate * open_ * self._linear(normed, "ffn_up"), "ffn_down")
        return normalise(state + self._norm("post_ffw_norm", fed), w["output_norm.weight"], self.eps)

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", np.float32(0))

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        weight = self.weights.get(f"{name}.weight")
        return x if weight is None else normalise(x, weight, self.eps)

    def _project(self, x: np.ndarray, name: str, heads: int) -> np.ndarray:
        states = self._linear(x, name).reshape(len(x), heads, -1).swapaxes(0, 1)  # (heads, n, e)
        return self._norm(f"{name}_norm", states)

    def _turn(self, states: np.ndarray, first: int) -> np.ndarray:
        """RoPE of states (heads, n, e) whose first position is ``first``."""
        angles = np.arange(first, first + states.shape[1])[:, None] * self.turns  # (n, r)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        a, b = (states[..., places] for places in self.pairs)
        turned = states.copy()
        turned[..., self.pairs[0]], turned[..., self.pairs[1]] = a * cos - b * sin, a * sin + b * cos
        return turned

    def _shared(self, states: np.ndarray) -> np.ndarray:
        """Keys or values (g, n, e) for each head (h, n, e)."""
        return states.repeat(self.heads // self.key_heads, 0)
