"""What a model is loaded with: our arguments, and those of transformers' ``from_pretrained`` in
the form that it takes now.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers import BitsAndBytesConfig

from dragin_lab.checks import choice, shown
from dragin_lab.errors import ModelError, SettingError

Arguments = Mapping[str, Any]  # of a call, as its user gave them

#: What the files of a source are found by: those of its configuration and tokenizer too.
FINDING = (
    "revision",
    "code_revision",
    "subfolder",
    "token",
    "cache_dir",
    "force_download",
    "local_files_only",
    "proxies",
    "trust_remote_code",
    "gguf_file",
)
#: A ``device_map`` of these is made by accelerate.
_SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")
#: What may have been meant by an argument that nobody takes; for messages alone.
NAMES = (
    *("model", "corpus", "exemplars", "retriever", "seed", "cache", "layout", "fields"),  # Lab's
    *("dtype", "device", "layer", "heads", "alternatives", "sample", "check", "tokenizer"),
    *("engine", "torch_dtype", "device_map", "max_memory", "offload_folder", "attn_implementation"),
    *("quantization", "quantization_config", "load_in_4bit", "load_in_8bit", "variant"),
    *FINDING,
)


def choose_device(device: Any, name: str = "device") -> torch.device:
    """The device that a text or number names; by default the first GPU, else the CPU.
    ``ModelError`` for what is not here.
    """
    default = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        where = torch.device(default if device is None else device)
        torch.empty(0, device=where)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:300]
        raise ModelError(
            f'{name}={shown(device)} cannot be used ({why}); give "cpu" or "cuda"'
            + ' or "auto"' * (name != "device")
        ) from error
    return where


def settle_device(device: Any, device_map: Any) -> torch.device:
    """Where a model goes, or the first of several devices.

    Raises ``SettingError`` for a device and a map that say different things, ``ModelError`` for a
    device that is not here.
    """
    several = device_map is None or isinstance(device_map, dict) or device_map in _SPREAD
    mapped = None if several else device_map
    if isinstance(device_map, dict) and len(device_map) == 1:
        [mapped] = device_map.values()
    first = choose_device(None if mapped == "disk" else mapped, "device_map")
    if device is None:
        return first
    where = choose_device(device)
    if device_map is not None and (mapped is None or first != where):
        raise SettingError(
            f"device={shown(device)} and device_map={shown(device_map)} both say where the model"
            " goes; give one of them"
        )
    return where


def settle_dtype(dtype: Any, torch_dtype: Any, where: torch.device) -> Any:
    """A dtype of torch, "auto" (that of the files) or transformers' own dictionary; by default
    float32 on a CPU and bfloat16 elsewhere.

    ``torch_dtype`` is the older name. Raises ``SettingError`` where both are given and differ,
    ``ModelError`` for what is no dtype.
    """
    read = [_read_dtype(one) for one in (dtype, torch_dtype) if one is not None]
    if len(read) == 2 and read[0] != read[1]:
        raise SettingError(
            f"dtype={shown(dtype)} and torch_dtype={shown(torch_dtype)} are two names of one"
            " setting; give dtype alone"
        )
    default = torch.float32 if where.type == "cpu" else torch.bfloat16
    return read[0] if read else default


def _read_dtype(value: Any) -> Any:
    if value == "auto" or isinstance(value, dict | torch.dtype):
        return value
    kind = getattr(torch, value.removeprefix("torch."), None) if isinstance(value, str) else None
    if not isinstance(kind, torch.dtype):
        raise ModelError(
            f"dtype={shown(value)} is not a dtype of torch; give float32, bfloat16, float16, or"
            ' "auto" for that of the files'
        )
    return kind


def settle_quantization(given: dict[str, Any]) -> None:
    """Write ``quantization="4bit"``, ``load_in_4bit=True`` and what else bitsandbytes is told as
    the ``quantization_config`` that transformers takes now.

    Raises ``SettingError`` for another text, and for both forms at once.
    """
    if (bits := given.pop("quantization", None)) is not None:
        given[f"load_in_{choice('quantization', bits, ('4bit', '8bit'))}"] = True
    names = inspect.signature(BitsAndBytesConfig).parameters.keys()
    options = {name: given.pop(name) for name in list(given) if name in names}
    if not any(options.values()):
        return
    if given.get("quantization_config") is not None:
        raise SettingError(
            f"{', '.join(options)} and quantization_config both say how to quantize; give one of"
            " them"
        )
    try:
        given["quantization_config"] = BitsAndBytesConfig(**options)
    except (ImportError, TypeError, ValueError) as error:
        raise SettingError(f"{', '.join(options)}: {error}") from error


def refuse_argument(error: TypeError, given: Iterable[str]) -> None:
    """Raise ``SettingError`` where an error names an argument that was given, with the nearest of
    those that there are.
    """
    for name in given:
        if f"'{name}'" in str(error):
            near = difflib.get_close_matches(name, NAMES, n=1)
            neither = f"did you mean {near[0]!r}? Neither" if near else "neither"
            raise SettingError(
                f"argument {name!r} does not exist; {neither} dragin_lab nor transformers'"
                " from_pretrained takes it for this model"
            ) from error
