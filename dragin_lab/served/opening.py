"""Open a model by name: in transformers, in llama.cpp, or behind a server."""

from __future__ import annotations

import inspect
import os
from typing import Any

from dragin_lab.checks import choice, is_embedded, shown
from dragin_lab.engines.gguf import find_gguf
from dragin_lab.engines.llama import LlamaModel
from dragin_lab.engines.load import LanguageModel
from dragin_lab.engines.opening import find_tokenizer, open_llama
from dragin_lab.engines.sources import load_tokenizer
from dragin_lab.errors import SettingError
from dragin_lab.served.model import ServedModel
from dragin_lab.served.protocols import recognise
from dragin_lab.served.server import Server
from dragin_lab.text import without_secrets

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
) -> LanguageModel | LlamaModel | ServedModel:
    """The model that a name stands for.

    Args:
        source: what ``LanguageModel.load`` takes, or the address of a server, such as ``http://127.0.0.1:8080``.
        engine: "llama.cpp" computes a GGUF file as it is, in this process; else transformers loads it.
        loading: for transformers as ``LanguageModel.load``; for llama.cpp ``tokenizer`` (a folder, GGUF file or Hugging
            Face id; the file's own by default), and as ``LlamaModel``. For a model behind a server ``tokenizer``,
            ``likeliest`` (k, 20), ``sample``, ``check``, and ``timeout`` (120 seconds without a byte). None stands for
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
        return _connect(Server(address.rstrip("/").removesuffix("/v1"), loading.pop("timeout", 120.0)), **loading)
    if engine == "llama.cpp":
        _refuse(loading, _LLAMA, "engine='llama.cpp'")
        if source is None or is_embedded(source) or (file := find_gguf(source)) is None:
            raise SettingError(f"engine='llama.cpp' opens a GGUF file; give the path of one, not {shown(source)}")
        return open_llama(file, loading.pop("tokenizer", file), loading)
    _refuse(loading, _DEFAULTS, "a model in transformers")
    return LanguageModel.load(source, **loading)


def _connect(server: Server, tokenizer: Any, **options: Any) -> ServedModel:
    own = load_tokenizer(find_tokenizer(tokenizer))
    interface = recognise(server, max(own.hf.get_vocab().values()) + 1)
    lm = ServedModel(interface, own, **options)
    lm.embedded = is_embedded(tokenizer)
    return lm


def _refuse(loading: dict[str, Any], known: Any, what: str) -> None:
    if wrong := [name for name in loading if name not in known]:
        values = ", ".join(f"{name}={shown(loading[name])}" for name in wrong)
        raise SettingError(f"{values} has no meaning for {what}; leave it out")
