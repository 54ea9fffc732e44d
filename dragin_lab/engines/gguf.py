"""GGUF files: converted once by transformers into a plain folder in the user's cache, and loaded from there.

A conversion is known by its content, dtype and version of transformers. SHA-256, which provenance states anyway,
identifies the content: a copy of a file need not be converted again, and a changed file of the same name, size and date
is not mistaken for the old.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from dragin_lab.engines.sources import (
    LOADING,
    hash_weights,
    load_weights,
    loading_errors,
    shorten_error,
    silence_library,
)
from dragin_lab.errors import ModelError
from dragin_lab.files import user_cache
from dragin_lab.text import printable

_BEGINNING = 2**25  # bytes of a file that hold its vocabulary


def convert_gguf(file: Path, dtype: torch.dtype) -> tuple[Path, str]:
    """The folder with the file's model in ``dtype`` and its tokenizer, and the file's SHA-256 (hex).

    It is converted where the cache has no conversion by this version of transformers; other processes wait.

    Raises:
        ModelError: a package is missing; the file is damaged or of an architecture that transformers does not convert;
            the cache cannot be written.
    """
    digest = hash_weights(None, [file])
    name = f"models/{digest[:32]}-{str(dtype).removeprefix('torch.')}"
    return _convert_once(file, name, lambda: _read_model(file, dtype), ("gguf", "accelerate")), digest


def convert_tokenizer(file: Path) -> Path:
    """The folder with the file's tokenizer and configuration alone; otherwise as ``convert_gguf``.

    It is known by the file's beginning, where the vocabulary stands: a large file takes long to read.
    """
    with file.open("rb") as opened:
        digest = hashlib.sha256(opened.read(_BEGINNING)).hexdigest()
    return _convert_once(file, f"tokenizers/{digest[:32]}", lambda: _read_tokenizer(file), ("gguf",))


def _convert_once(file: Path, name: str, read: Callable[[], Sequence[Any]], packages: Sequence[str]) -> Path:
    """The folder of the user's cache with what ``read`` gives, which appears whole or not at all."""
    folder = user_cache() / f"{name}-{transformers.__version__}"
    partial = Path(f"{folder}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if folder.is_dir():
                return folder
            if missing := [package for package in packages if find_spec(package) is None]:
                raise ModelError(f"{file.name} needs {' and '.join(missing)}; run pip install 'dragin-lab[gguf]'")
            print(printable(f"{file.name}: converting it once, into {folder}"), file=sys.stderr, flush=True)
            parts = read()
            shutil.rmtree(partial, ignore_errors=True)
            try:
                with silence_library():
                    for part in parts:
                        part.save_pretrained(partial)
                partial.rename(folder)
            finally:  # within the lock, as the next one writes there too
                shutil.rmtree(partial, ignore_errors=True)
        return folder
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{file.name}: its conversion cannot be saved in {folder.parent} ({shorten_error(error)}); "
            "make room there, or set XDG_CACHE_HOME to another folder"
        ) from error


def _read_tokenizer(file: Path) -> tuple[Any, Any]:
    """A file's tokenizer and configuration."""
    folder, given = str(file.parent.resolve()), {"gguf_file": file.name, "trust_remote_code": False}
    try:
        with silence_library():
            config = AutoConfig.from_pretrained(folder, **given)
            return AutoTokenizer.from_pretrained(folder, **given), config
    except (*LOADING, MemoryError, struct.error) as error:
        if "not supported" in str(error):
            raise ModelError(
                f"{file.name}: {shorten_error(error)} by transformers {transformers.__version__}; "
                "give the folder or Hugging Face id of the same model"
            ) from error
        raise ModelError(
            f"{file.name} cannot be read as GGUF ({shorten_error(error)}); it may be cut short: "
            "compare its size, or fetch it again"
        ) from error


def _read_model(file: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """A file's model in ``dtype``, its weights unpacked, and its tokenizer."""
    tokenizer, _ = _read_tokenizer(file)
    with loading_errors(file.name, "causal language model"):
        # Where there are kernels for it, newer versions of transformers would leave the weights packed.
        newer = hasattr(transformers, "GgufConfig")
        unpack = {"quantization_config": transformers.GgufConfig(dequantize=True)} if newer else {}
        folder = str(file.parent.resolve())
        model = load_weights(AutoModelForCausalLM, folder, gguf_file=file.name, dtype=dtype, **unpack)
    if getattr(model, "hf_quantizer", None) is not None:
        model.hf_quantizer.remove_quantization_config(model)  # the weights are plain by now, and saved as such
    return model, tokenizer
