"""Open a model by name: in transformers (``LanguageModel``), in llama.cpp, or behind a server."""

from __future__ import annotations

import sys
from contextlib import suppress
from inspect import signature
from typing import Any

from transformers import AutoConfig

from dragin_lab.almanac import embedded_model_path, exemplars_by_form
from dragin_lab.checks import choice, is_embedded, refuse_password, shown
from dragin_lab.engines.arguments import choose_device
from dragin_lab.engines.llama import LlamaModel
from dragin_lab.engines.llama_context import load_bindings
from dragin_lab.engines.names import Source, find_gguf
from dragin_lab.engines.requests import ModelServer
from dragin_lab.engines.server_model import ServerModel
from dragin_lab.engines.sources import convert_tokenizer, load_tokenizer, silence_library
from dragin_lab.engines.transformers import LanguageModel
from dragin_lab.errors import SettingError
from dragin_lab.text import printable

__all__ = ["LanguageModel", "choose_device", "load_tokenizer", "loaded_arguments", "open_model"]

#: What the engines take beside the model that do not hand on whatever they are given.
_TAKES = {
    "llama.cpp": [
        name for name in signature(LlamaModel).parameters if name not in ("file", "config")
    ],
    "a model behind a server": [
        "tokenizer",
        "likeliest",
        "sample",
        "check",
        "timeout",
        "served_name",
    ],
}
#: Default values, which any engine accepts.
_DEFAULTS = {"layer": "last", "alternatives": 5}


def loaded_arguments() -> list[str]:
    """The names of what a model that is loaded already can be given."""
    parameters = signature(LanguageModel).parameters
    return [name for name in parameters if name not in ("model", "files")]


def open_model(
    source: Source | None = None, *, engine: str | None = None, **loading: Any
) -> LanguageModel | LlamaModel | ServerModel:
    """Open a model by name.

    Args:
        source: what ``LanguageModel.load`` takes, or the address of a server, such as
            ``http://127.0.0.1:8080``. engine: "llama.cpp" computes a GGUF file as it is, in this
            process; else transformers loads it. loading: for transformers as
            ``LanguageModel.load``; for llama.cpp ``tokenizer`` (a folder, GGUF file or Hugging
            Face id; the file's own by default), and as ``LlamaModel``. For a model behind a server
            ``tokenizer``, ``likeliest`` (k, 20), ``sample``, ``check``, ``timeout`` (120 seconds
            for an answer) and ``served_name``. None stands for the default.

    Raises:
        SettingError: an argument that the engine does not take, or no tokenizer for a server.
            ModelError: as ``LanguageModel.load``; a server that does not answer; a tokenizer that
            is not the model's. MissingPackageError: llama.cpp is not installed.
    """
    served = str(source).startswith(("http://", "https://"))
    refuse_password("model", source)
    kind = choice("engine", engine or "transformers", ("transformers", "llama.cpp"))
    if served and engine is not None:
        raise SettingError(f"engine={engine!r}: the server at {source} is one; leave engine out")
    kind = "a model behind a server" if served else kind
    if kind == "transformers":
        return LanguageModel.load(
            source, **{name: value for name, value in loading.items() if value is not None}
        )
    takes = _TAKES[kind]
    loading = {
        name: value
        for name, value in loading.items()
        if value is not None and (name in takes or value != _DEFAULTS.get(name))
    }
    if wrong := [f"{name}={shown(value)}" for name, value in loading.items() if name not in takes]:
        raise SettingError(f"{', '.join(wrong)} has no meaning for {kind}; leave it out")
    return _connect(str(source), loading) if served else _open_llama(source, loading)


def _open_llama(source: Any, loading: dict[str, Any]) -> LlamaModel:
    if is_embedded(source) or (file := find_gguf(source)) is None:
        raise SettingError(
            f"engine='llama.cpp' opens a GGUF file; give the path of one, not {shown(source)}"
        )
    load_bindings()  # raises before anything is converted
    tokenizer = loading.pop("tokenizer", file)
    folder = _find_tokenizer(tokenizer)
    config = None
    with suppress(OSError, ValueError), silence_library():  # there may be a tokenizer alone
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    lm = LlamaModel(file, load_tokenizer(folder), config, **loading)
    lm.exemplars = exemplars_by_form() if is_embedded(tokenizer) else {}
    print(printable(repr(lm)), file=sys.stderr, flush=True)
    return lm


def _connect(address: str, loading: dict[str, Any]) -> ServerModel:
    if "tokenizer" not in loading:
        raise SettingError(
            f"{address}: give the model's tokenizer, as a folder or Hugging Face id: tokenizer=…"
        )
    tokenizer = loading.pop("tokenizer")
    server = ModelServer(address.rstrip("/").removesuffix("/v1"), loading.pop("timeout", 120.0))
    folder = _find_tokenizer(tokenizer)
    lm = ServerModel(server, load_tokenizer(folder), str(folder), **loading)
    lm.exemplars = exemplars_by_form() if is_embedded(tokenizer) else {}
    return lm


def _find_tokenizer(source: Any) -> Any:
    """The folder or Hugging Face id of a tokenizer; a GGUF file's is converted once."""
    if is_embedded(source):
        return embedded_model_path()
    file = find_gguf(source)
    return source if file is None else convert_tokenizer(file)
