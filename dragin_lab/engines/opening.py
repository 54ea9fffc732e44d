"""Open a model by name: in transformers, in llama.cpp, or behind a server."""

from __future__ import annotations

import inspect
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from dragin_lab.almanac import embedded_model_path
from dragin_lab.checks import choice, is_embedded, shown
from dragin_lab.engines.gguf import convert_tokenizer, find_gguf
from dragin_lab.engines.llama import LlamaModel
from dragin_lab.engines.llama_context import load_bindings
from dragin_lab.engines.load import LanguageModel
from dragin_lab.engines.server import Server
from dragin_lab.engines.server_model import ServerModel
from dragin_lab.engines.sources import load_tokenizer, silence_library
from dragin_lab.errors import SettingError
from dragin_lab.text import printable, without_secrets

ENGINES = ("transformers", "llama.cpp")
_SERVED = ("tokenizer", "likeliest", "sample", "check", "timeout")
_DEFAULTS = {name: one.default for name, one in inspect.signature(LanguageModel.load).parameters.items()}
_LLAMA = ("tokenizer", "layer", "heads", "alternatives", "sample", "check", "dtype", "threads", "context")


def loading_arguments() -> list[str]:
    """The names of what ``open_model`` takes beside the model."""
    names = dict.fromkeys([*_DEFAULTS, "engine", *_SERVED, *_LLAMA])
    return [name for name in names if name != "source"]


def open_model(
    source: str | os.PathLike[str] | None = None, *, engine: str | None = None, **loading: Any
) -> LanguageModel | LlamaModel | ServerModel:
    """The model that a name stands for.

    Args:
        source: what ``LanguageModel.load`` takes, or the address of a server, such as ``http://127.0.0.1:8080``.
        engine: "llama.cpp" computes a GGUF file as it is, in this process; else transformers loads it.
        loading: for transformers as ``LanguageModel.load``; for llama.cpp ``tokenizer`` (a folder, GGUF file or Hugging
            Face id; the file's own by default), and as ``LlamaModel``. For a model behind a server ``tokenizer``,
            ``likeliest`` (k, 20), ``sample``, ``check``, and ``timeout`` (120 seconds for an answer). None stands for
            the default.

    Raises:
        SettingError: an argument that the engine does not take, or no tokenizer for a server.
        ModelError: as ``LanguageModel.load``; a server that does not answer; a tokenizer that is not the model's.
        MissingPackageError: llama.cpp is not installed.
    """
    choice("engine", engine or ENGINES[0], ENGINES)
    loading = {name: value for name, value in loading.items() if value is not None and value != _DEFAULTS.get(name)}
    address = str(source) if str(source).startswith(("http://", "https://")) else ""
    if address and engine is not None:
        raise SettingError(f"engine={engine!r}: the server at {without_secrets(address)} is one; leave engine out")
    if address:
        _refuse(loading, _SERVED, "a model behind a server")
        if "tokenizer" not in loading:
            raise SettingError(
                f"{without_secrets(address)}: give the model's tokenizer, as a folder or Hugging Face id: tokenizer=…"
            )
        return _connect(str(source), loading.pop("tokenizer"), loading.pop("timeout", 120.0), **loading)
    if engine == "llama.cpp":
        _refuse(loading, _LLAMA, "engine='llama.cpp'")
        if source is None or is_embedded(source) or (file := find_gguf(source)) is None:
            raise SettingError(f"engine='llama.cpp' opens a GGUF file; give the path of one, not {shown(source)}")
        return open_llama(file, loading.pop("tokenizer", file), loading)
    _refuse(loading, _DEFAULTS, "a model in transformers")
    return LanguageModel.load(source, **loading)


def open_llama(file: Path, tokenizer: Any, options: dict[str, Any]) -> LlamaModel:
    load_bindings()  # whose lack is said before anything is converted
    folder = find_tokenizer(tokenizer)
    config = None
    with suppress(OSError, ValueError), silence_library():  # a tokenizer may stand alone
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    lm = LlamaModel(file, load_tokenizer(folder), config, **options)
    lm.embedded = is_embedded(tokenizer)
    print(printable(describe_build(lm)), file=sys.stderr, flush=True)
    return lm


def find_tokenizer(source: Any) -> Any:
    """The folder or Hugging Face id of a tokenizer; a GGUF file's is converted once."""
    if is_embedded(source):
        return embedded_model_path()
    file = find_gguf(source)
    return source if file is None else convert_tokenizer(file)


def describe_build(lm: LlamaModel) -> str:
    """What runs, for people, and what the build of llama.cpp lacks of this machine's instructions."""
    system, context = lm.context.bindings.llama_print_system_info().decode(), lm.context
    can = torch.backends.cpu.get_cpu_capability()  # such as AVX512
    lacks = can.startswith("AVX") and f"{can} = 1" not in system
    slow = f"; its build lacks this machine's {can}, so it reads more slowly: build llama-cpp-python here" * lacks
    return f"{lm.name}: llama.cpp on {context.threads} threads, {context.window:,} tokens of prompt and text{slow}"


def _connect(address: str, tokenizer: Any, timeout: float, **options: Any) -> ServerModel:
    server = Server(address.rstrip("/").removesuffix("/v1"), timeout)
    folder = find_tokenizer(tokenizer)
    lm = ServerModel(server, load_tokenizer(folder), str(folder), **options)
    lm.embedded = is_embedded(tokenizer)
    return lm


def _refuse(loading: dict[str, Any], known: Any, what: str) -> None:
    if wrong := [name for name in loading if name not in known]:
        values = ", ".join(f"{name}={shown(loading[name])}" for name in wrong)
        raise SettingError(f"{values} has no meaning for {what}; leave it out")
