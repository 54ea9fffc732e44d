"""Attention rows of a model that llama.cpp serves in this process, from a second model without the last block.

What the tokens pay each other in the last block is a function of what enters it: queries and keys of the normed input,
turned by their positions, and a softmax. The second model gives that input, and the block is computed here. It is
opened when attention is first asked for, and checked against what the served model writes.

n positions, d numbers of a hidden state, h heads of e numbers, g of keys.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab.engines.check import Check
from dragin_lab.engines.gguf import convert_once
from dragin_lab.engines.sources import hash_weights
from dragin_lab.served.bounds import Token
from dragin_lab.served.local import LocalServer
from dragin_lab.served.protocols import Asked, Interface
from dragin_lab.served.server import Server
from dragin_lab.text import printable

#: Architecture -> whether RoPE turns neighbouring numbers; else the halves of a head. "llama" is Mistral's too.
ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False, "gemma3": False}
_PERIOD = 6  # of Gemma 3's blocks the last of each six sees the whole text
#: Settings of attention that are followed here, or change nothing, and the tensors of a block.
_HEADS = ("head_count", "head_count_kv", "key_length", "value_length", "layer_norm_rms_epsilon")
_ROPE = ("freq_base", "dimension_count", "scaling.type", "scaling.factor", "scaling.finetuned")
_SETTINGS = {*(f"attention.{name}" for name in _HEADS), *(f"rope.{name}" for name in _ROPE)}
_SETTINGS |= {"rope.scaling.original_context_length"}
_TENSORS = {
    *(f"attn_{name}.weight" for name in ("norm", "q", "k", "v", "output", "q_norm", "k_norm")),
    *(f"attn_{name}.bias" for name in ("q", "k", "v", "output")),
    *(f"ffn_{name}.weight" for name in ("norm", "gate", "up", "down")),
    *("post_attention_norm.weight", "post_ffw_norm.weight"),
}
_CUT = "cut.gguf"  # in its folder of the cache
_SHORTEST = 512  # positions that the second model has room for; doubled where a text is longer
#: Texts whose next token depends on what stands before it.
_TEXTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "Question: Who wrote the novel Dracula, and in which year was it published?\nAnswer: It was written by",
    "The film was directed by Anna Petrova in 1964. She was born in Riga. When was the film made? It was made in",
    "Peter has a red car and Mary has a blue bicycle. The colour of Mary's bicycle is",
)
#: A share of how far off even attention is. Where llama.cpp rounds activations (SmolLM2, Q4_1) it is about a sixth, and
#: without RoPE nearly half; in float32 it is near 0.
_LIMIT = 1 / 3


class GgufFile:
    """A GGUF file's settings, and its tensors by name; those of the last block begin with ``last``."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader

        self.path, self.reader = path, GGUFReader(path)
        self.tensors: dict[str, Any] = {tensor.name: tensor for tensor in self.reader.tensors}
        self.architecture = str(self.reader.fields["general.architecture"].contents())
        self.blocks = int(self.get("block_count"))
        self.last = f"blk.{self.blocks - 1}."

    def get(self, name: str, default: Any = None) -> Any:
        """A setting of the architecture."""
        field = self.reader.fields.get(f"{self.architecture}.{name}")
        return default if field is None else field.contents()

    def read(self, name: str, rows: Any = slice(None)) -> np.ndarray:
        """The rows of a tensor, float32."""
        from gguf.quants import dequantize

        tensor = self.tensors[name]
        return np.asarray(dequantize(tensor.data[rows], tensor.tensor_type), np.float32)

    def obstacle(self) -> str:
        """Why the last block cannot be computed here; "" where it can."""
        name = self.architecture
        if name not in ARCHITECTURES:
            return f"its architecture {name!r} is none of {', '.join(ARCHITECTURES)}, whose attention is known"
        if name == "gemma3" and self.blocks % _PERIOD:
            return f"the last of its {self.blocks} blocks attends within a window, and only the last one is computed"
        settings = [key.removeprefix(f"{name}.") for key in self.reader.fields if key.startswith(f"{name}.")]
        settings = [key for key in settings if any(part in key for part in ("attention.", "rope.", "softcap"))]
        window = {"attention.sliding_window"} if name == "gemma3" else set()  # of its other blocks
        tensors = {one.removeprefix(self.last) for one in self.tensors if one.startswith(self.last)}
        if unknown := sorted({*settings} - _SETTINGS - window) + sorted(tensors - _TENSORS):
            return f"its {', '.join(unknown)} of architecture {name!r} would have to be followed"
        scaling = self.get("rope.scaling.type", "none")
        return "" if scaling in ("none", "linear") else f"its positions are scaled by {scaling!r}, not 'linear'"

    def cut(self) -> Path:
        """The file without its last block, written once into the user's cache. Errors as ``convert_once``."""
        digest = hash_weights(None, [self.path])
        return convert_once(self.path, f"models/{digest[:32]}-cut", lambda: (self,), ["gguf"]) / _CUT

    def save_pretrained(self, folder: Path) -> None:
        """Write the model without its last block, whose attn_norm is the new output norm; weights stay as packed."""
        from gguf import GGUFValueType, GGUFWriter

        prefix, writer = f"{self.architecture}.", GGUFWriter(folder / _CUT, self.architecture)
        writer.data_alignment = self.reader.alignment
        for name, field in self.reader.fields.items():
            if name.startswith("GGUF.") or name == "general.architecture":
                continue
            value, kind = field.contents(), field.types[0]
            if name == f"{prefix}block_count":
                value -= 1
            elif name.startswith(prefix) and isinstance(value, list) and len(value) == self.blocks:
                value = value[:-1]
            writer.add_key_value(name, value, kind, field.types[-1] if kind == GGUFValueType.ARRAY else None)
        for name, tensor in self.tensors.items():
            source = self.tensors[f"{self.last}attn_norm.weight"] if name == "output_norm.weight" else tensor
            if not name.startswith(self.last):
                writer.add_tensor(name, source.data, raw_dtype=source.tensor_type)
        with closing(writer):
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()


class Block:
    """The last block of a file without an ``obstacle``, and the output norm after it, in float32."""

    def __init__(self, file: GgufFile) -> None:
        names = [name for name in file.tensors if name.startswith(file.last)]
        self.weights = {name.removeprefix(file.last): file.read(name) for name in [*names, "output_norm.weight"]}
        self.heads = int(file.get("attention.head_count"))
        self.groups = int(file.get("attention.head_count_kv", self.heads))
        self.eps = float(file.get("attention.layer_norm_rms_epsilon"))
        self.gelu = file.architecture == "gemma3"
        r = int(file.get("rope.dimension_count", len(self.weights["attn_q.weight"]) // self.heads)) // 2
        self.turns = file.get("rope.freq_base", 1e4) ** -(np.arange(r) / r)  # (r,) radians a position
        if "rope_freqs.weight" in file.tensors:
            self.turns = self.turns / file.read("rope_freqs.weight")
        if file.get("rope.scaling.type", "none") == "linear":
            self.turns = self.turns / file.get("rope.scaling.factor", 1.0)
        places = np.arange(2 * r)  # of a head's numbers; each column is a pair that is turned
        self.pairs = places.reshape(r, 2).T if ARCHITECTURES[file.architecture] else places.reshape(2, r)

    def rows(self, x: np.ndarray, first: int = 0) -> np.ndarray:
        """What the positions from ``first`` on pay to all of x (n, d), the block's normed input: (h, n - first, n)."""
        query = self._turn(self._project(x[first:], "attn_q", self.heads), first)  # (h, n - first, e)
        key = self._turn(self._project(x, "attn_k", self.groups), 0)  # (h, n, e)
        scores = query @ key.swapaxes(1, 2) / np.float32(np.sqrt(query.shape[-1]))  # (h, n - first, n)
        later = np.arange(len(x)) > np.arange(first, len(x))[:, None]  # (n - first, n)
        return softmax(np.where(later, np.float32(-np.inf), scores))

    def output(self, x: np.ndarray, row: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """What the output head reads at the last position, which pays ``row`` (h, 1, n); (m, d).

        x is (n, d), the normed input, which does not say how long the hidden state was: ``lengths`` (m,) are the root
        mean squares to try.
        """
        value = self._project(x, "attn_v", self.groups)  # (h, n, e)
        paid = self._linear((row @ value).reshape(1, -1), "attn_output")  # (1, d)
        state = lengths[:, None] * (x[-1] / self.weights["attn_norm.weight"]) + self._norm(paid, "post_attention_norm")
        normed = self._norm(state, "ffn_norm")  # (m, d)
        gate = self._linear(normed, "ffn_gate")  # (m, f)
        inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3) if self.gelu else gate / 2  # else SiLU
        fed = self._linear(gate * (1 + np.tanh(inner)) / 2 * self._linear(normed, "ffn_up"), "ffn_down")
        return self._norm(state + self._norm(fed, "post_ffw_norm"), "output_norm")

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", np.float32(0))

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        """RMSNorm over the last axis, where the block has this one."""
        weight = self.weights.get(f"{name}.weight")
        return x if weight is None else x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * weight

    def _project(self, x: np.ndarray, name: str, groups: int) -> np.ndarray:
        states = self._linear(x, name).reshape(len(x), groups, -1).swapaxes(0, 1)  # (g, n, e)
        return self._norm(states, f"{name}_norm").repeat(self.heads // groups, 0)  # (h, n, e)

    def _turn(self, states: np.ndarray, first: int) -> np.ndarray:
        """RoPE of states (h, n, e) whose first position is ``first``."""
        angles = np.arange(first, first + states.shape[1])[:, None] * self.turns  # (n, r)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        a, b = (states[..., places] for places in self.pairs)  # (h, n, r)
        turned = states.copy()
        turned[..., self.pairs[0]], turned[..., self.pairs[1]] = a * cos - b * sin, a * sin + b * cos
        return turned


class AttentionRows:
    """What positions pay each other in the last block of a GGUF file that is being served, once it is ``checked``.

    Raises ``ModelError`` where the file without that block cannot be written or served.
    """

    def __init__(self, file: GgufFile, serving: LocalServer, timeout: float) -> None:
        self.file, self.block = file, Block(file)
        self.checked: Check | None = None
        self._serving, self._timeout, self._cut = serving, timeout, file.cut()
        self._room = 0
        self._second: tuple[LocalServer, Server] | None = None
        line = f"{file.path.name}: a second model without its last block gives attention"
        print(printable(line), file=sys.stderr, flush=True)

    def rows(self, ids: Sequence[int], first: int = 0) -> np.ndarray:
        """What the positions from ``first`` on pay to all n: (h, n - first, n) float32."""
        return self.block.rows(self.inputs(ids), first)

    def inputs(self, ids: Sequence[int]) -> np.ndarray:
        """What the last block reads of a text, normed: (n, d) float32. One pass, for which there has to be room."""
        if len(ids) > self._room:
            self.close()
            self._room, old = max(_SHORTEST, 1 << (len(ids) - 1).bit_length()), self._serving
            second = LocalServer(self._cut, dtype=old.dtype, threads=old.threads, context=self._room, inputs=True)
            self._second = second, Server(second.address, self._timeout, key=second.key)
        assert self._second is not None
        answer = self._second[1].ask("/embeddings", {"content": list(ids), "embd_normalize": -1})
        return np.array(answer[0]["embedding"], np.float32)

    def close(self) -> None:
        """Close the second model; it is opened again where attention is asked for."""
        for one in reversed(self._second or ()):
            one.close()
        self._second, self._room = None, 0

    # -- is it the served model's? ------------------------------------------------------------------------------------

    def check(self, interface: Interface, encode: Callable[[str], list[int]]) -> Check:
        """How far the likeliest tokens' probabilities are off, computed here: total variation, the mean of a few texts.

        As a share of how far they are off where the last position pays all alike. RMSNorm drops the length of the
        hidden state, so the length that fits best is taken.
        """
        off = np.array([self._distances(interface, encode(text)) for text in _TEXTS]).mean(0)  # (2,)
        share = float(off[0] / off[1])
        return Check("the last block's attention gives the served distributions", share <= _LIMIT, share, _LIMIT)

    def _distances(self, interface: Interface, ids: list[int]) -> list[float]:
        """How far off the next token's distribution is with the last block's attention, and with an even one."""
        k = min(50, interface.vocabulary)  # tokens whose probabilities are compared
        (token,) = interface.tokens(interface.answer(Asked(ids, 1, k)), k)
        tied = "output.weight" not in self.file.tensors
        head = self.file.read("token_embd.weight" if tied else "output.weight", token.ids)  # (k, d)
        x = self.inputs(ids)  # (n, d)
        row = self.block.rows(x, len(x) - 1)  # (h, 1, n)
        return [self._distance(token, head, x, one) for one in (row, np.full_like(row, 1 / len(x)))]

    def _distance(self, token: Token, head: np.ndarray, x: np.ndarray, row: np.ndarray) -> float:
        served, lengths = softmax(token.logprobs), np.geomspace(1e-3, 1e5, 400)  # (k,), (m,)
        for _ in range(4):
            here = softmax(self.block.output(x, row, lengths) @ head.T)  # (m, k)
            distances = np.abs(here - served).sum(-1) / 2  # (m,)
            best = int(distances.argmin())
            lengths = np.geomspace(lengths[max(best - 1, 0)], lengths[min(best + 1, len(lengths) - 1)], 40)
        return float(distances[best])


def open_rows(
    serving: LocalServer | None, interface: Interface, encode: Callable[[str], list[int]]
) -> AttentionRows | str:
    """What gives attention, or why nothing does: no file, another architecture, a failed check."""
    if serving is None:
        return "a server gives no attention; where the model is a GGUF file, open that with engine='llama.cpp'"
    file = GgufFile(serving.file)
    if why := file.obstacle():
        return f"{why}; load it in transformers"
    rows = AttentionRows(file, serving, interface.server.timeout)
    rows.checked = rows.check(interface, encode)
    if rows.checked.passed:
        return rows
    rows.close()
    return f"{rows.checked}; load it in transformers"


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))
