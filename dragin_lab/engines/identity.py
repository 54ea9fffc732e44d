"""What a model is: what it computes for a few fixed ids, a stamp and a hash of its weights, and
where they lie.

Another thread count or instruction set moves log-probabilities by 3e-5 nats on SmolLM2, which flips
thousands of rounded digits: two probes are compared with a tolerance, and a hash of one would tell
nothing.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragin_lab.trace.records import probe_distance

IDS = 8  # tokens that are read
ENTRIES = 16  # of the vocabulary after each of them
PROJECTIONS = 4  # random sums of all of it
NOISE = 16.0  # times what a device that does not repeat itself differs from itself
_FLOOR = -1e4  # nats of a token that a model forbids


def probe_ids(vocabulary: int) -> list[int]:
    """The ids that every model of this vocabulary reads."""
    return [(7919 * n + 11) % vocabulary for n in range(1, IDS + 1)]


def reduce_logits(logits: np.ndarray) -> np.ndarray:
    """160 numbers, float32, in nats: 16 log-probabilities and 4 random sums of all, after each of
    the 8 ids.

    ``logits`` (8, V). Each sum is of the log-probabilities with random signs, over the square root
    of V.
    """
    double = torch.from_numpy(logits).double()
    logprobs = double.log_softmax(-1).numpy()  # (8, V)
    logprobs = logprobs.clip(_FLOOR)
    size = logprobs.shape[1]
    places = np.arange(ENTRIES) * (size - 1) // (ENTRIES - 1)  # (16,)
    sums = logprobs @ _signs(size).T / np.sqrt(size)  # (8, 4)
    numbers = np.concatenate([logprobs[:, places], sums], axis=1)  # (8, 20)
    return numbers.ravel().astype(np.float32)


@cache
def _signs(size: int) -> np.ndarray:
    """(4, V) of 1 and -1, by whole numbers alone, so that they are the same everywhere."""
    places = np.arange(1, PROJECTIONS * size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    places ^= places >> np.uint64(29)
    places *= np.uint64(0xBF58476D1CE4E5B9)
    return np.where(places >> np.uint64(63), 1.0, -1.0).reshape(PROJECTIONS, size)


def write_probe(probe: np.ndarray) -> list[float]:
    """As it is recorded: to a millionth, far below the tolerance."""
    return [round(float(number), 6) for number in probe]


class Probed:
    """What a model of this process computes, and whether that is what it computed before.

    Within a process equal bits are the same model; where two probes at the beginning differ, as on
    a device that sums in no fixed order, what differs by less than ``NOISE`` times that.
    """

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        self.probe = first
        self.within = NOISE * probe_distance(first, second)

    def changed(self, probe: np.ndarray) -> bool:
        """Whether it is another model now; the probe is then that of the new one."""
        if self.is_of(probe):
            return False
        self.probe = probe
        return True

    def is_of(self, probe: np.ndarray) -> bool:
        """Whether the model as it is now computes this probe."""
        return probe_distance(self.probe, probe) <= self.within


# -- its weights -----------------------------------------------------------------------------------


def hash_weights(model: Any, files: list[Path], without: str | None = None) -> str:
    """SHA-256 (hex) over the weight files in order of name, or over the state dict of a model
    that has none; ``without`` begins the names of adapters (peft) that are switched off.
    """
    digest = hashlib.sha256()
    if files:
        for path in files:
            with path.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
        return digest.hexdigest()
    state = model.state_dict()
    if any(isinstance(value, Tensor) and value.is_meta for value in state.values()):  # offloaded
        from accelerate.utils.modeling import get_state_dict_offloaded_model

        state = get_state_dict_offloaded_model(model)
    if without is not None:
        own = {key: one for key, one in state.items() if f".{without}" not in key}
        state = {key.replace(".base_layer.", "."): one for key, one in own.items()}
    for key, value in sorted(state.items()):
        _hash_value(digest, key, value)
    return digest.hexdigest()


def _hash_value(digest: Any, key: str, value: Any) -> None:
    """Add a value of a state dict: a tensor, packed ones, or what a module keeps beside them."""
    if isinstance(value, Tensor):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        for plain in list_plain(value):
            bits = plain.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(bits.numpy().tobytes())
    elif isinstance(value, Mapping):
        for name, one in value.items():
            _hash_value(digest, f"{key}.{name}", one)
    elif isinstance(value, tuple | list):
        for place, one in enumerate(value):
            _hash_value(digest, f"{key}.{place}", one)
    else:
        digest.update(f"{key} {type(value).__qualname__}".encode() + pickle.dumps(value))


def list_plain(tensor: Tensor) -> Iterator[Tensor]:
    """The strided tensors that a tensor is stored in: itself, or those of a subclass (torchao,
    quanto), a sparse or a quantized one.
    """
    layout = str(tensor.layout)
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from list_plain(getattr(tensor, name))
    elif tensor.is_quantized:
        yield tensor.dequantize()
    elif layout == "torch.sparse_coo":
        joined = tensor.detach().coalesce()
        yield from (joined.indices(), joined.values())
    elif layout in ("torch.sparse_csr", "torch.sparse_bsr"):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif layout in ("torch.sparse_csc", "torch.sparse_bsc"):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    elif layout == "torch.strided":
        yield tensor
    else:
        yield tensor.to_dense()


def is_quantized(tensor: Tensor) -> bool:
    """Whether a weight is stored in whole numbers or in numbers of 8 bits."""
    if hasattr(tensor, "__tensor_flatten__"):
        inner = tensor.__tensor_flatten__()[0]
        return any(is_quantized(getattr(tensor, name)) for name in inner)
    small = not tensor.dtype.is_floating_point or tensor.dtype.itemsize < 2
    return tensor.is_quantized or small


def is_plain(model: torch.nn.Module) -> bool:
    """Whether all weights are strided tensors of torch's own, which inference mode takes."""
    return not any(
        hasattr(weight, "__tensor_flatten__") or weight.layout != torch.strided
        for weight in model.parameters()
    )


def stamp_model(model: torch.nn.Module) -> str:
    """A hash (hex) that changes with a model's weights, for what a probe does not read, such as
    rare embeddings.

    Of weights that are offloaded nothing is seen: they are other tensors at each forward.
    """
    digest = hashlib.sha256()
    firsts = []
    weights: list[Tensor] = []
    if not any(parameter.is_meta for parameter in model.parameters()):
        weights += [*model.parameters(), *model.buffers()]
    with torch.inference_mode(False), torch.no_grad():
        for tensor in chain.from_iterable(map(list_plain, weights)):
            written = 0 if tensor.is_inference() else tensor._version
            digest.update(f"{tensor.data_ptr()} {written} ".encode())
            if tensor.device.type == "cpu" and tensor.numel():
                firsts.append(tensor.detach().flatten()[:1].float())
    digest.update(torch.cat(firsts).numpy().tobytes() if firsts else b"")
    return digest.hexdigest()


def is_bitsandbytes(model: Any) -> bool:
    """Whether bitsandbytes has quantized it, which also says on which device it is."""
    return name_quantization(model) == "bitsandbytes"


def name_quantization(model: Any) -> str:
    """The method that transformers quantized a model with; "" for none."""
    method = getattr(getattr(model.config, "quantization_config", None), "quant_method", None)
    return str(getattr(method, "value", method) or "")


def describe_devices(model: Any, device: torch.device) -> str:
    """The devices of the weights, and their quantization if any."""
    spread = getattr(model, "hf_device_map", None) or {"": device}
    devices = ", ".join(sorted({*map(str, spread.values())}))
    quantized = name_quantization(model)
    return f"{devices} ({quantized})" if quantized else devices
