"""Open a model by name: in transformers, behind a server, or as a GGUF file that llama.cpp serves in this process."""

from __future__ import annotations

import inspect
import os
from typing import Any

from dragin_lab.almanac import embedded_model_path
from dragin_lab.checks import choice, is_embedded, shown
from dragin_lab.engines.gguf import convert_tokenizer, find_gguf
from dragin_lab.engines.load import LanguageModel
from dragin_lab.engines.sources import load_tokenizer
from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.errors import SettingError
from dragin_lab.served.local import LocalServer
from dragin_lab.served.model import ServedModel
from dragin_lab.served.protocols import recognise
from dragin_lab.served.server import Server
from dragin_lab.text import without_secrets

ENGINES = ("transformers", "llama.cpp")
_SERVED = ("tokenizer", "likeliest", "sample", "check", "timeout")
_DEFAULTS = {name: one.default for name, one in inspect.signature(LanguageModel.load).parameters.items()}
_LOCAL = (*_SERVED, "dtype", "threads", "context", "slots")


def loading_arguments() -> list[str]:
    """The names of what ``open_model`` takes beside the model."""
    names = dict.fromkeys([*_DEFAULTS, "engine", *_LOCAL])
    return [name for name in names if name != "source"]


def open_model(
    source: str | os.PathLike[str] | None = None, *, engine: str | None = None, **loading: Any
) -> LanguageModel | ServedModel:
    """The model that a name stands for.

    Args:
        source: what ``LanguageModel.load`` takes, or the address of a server, such as ``http://127.0.0.1:8080``.
        engine: "llama.cpp" serves a GGUF file by llama.cpp in this process; else transformers loads it.
        loading: for transformers as ``LanguageModel.load``. For a served model ``tokenizer`` (a folder, GGUF file or
            Hugging Face id; a GGUF file's own by default), ``likeliest`` (k, 20), ``sample``, ``check``, and
            ``timeout`` (120 seconds without a byte). For llama.cpp in this process also ``dtype`` of its cache of keys
            and values ("float16", "float32"), ``threads``, ``context`` (4,096 tokens of prompt and text, or what the
            model was made for) and ``slots`` (1; drafts written at once). None stands for the default.

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
        _refuse(loading, _LOCAL, "engine='llama.cpp'")
        if is_embedded(source) or source is None:
            raise SettingError("engine='llama.cpp' serves a GGUF file; give the path of one as the model")
        running = {name: loading.pop(name) for name in ("dtype", "threads", "context", "slots") if name in loading}
        serving = LocalServer(source, **running)
        tokenizer = loading.pop("tokenizer", serving.file)
        server = Server(serving.address, loading.pop("timeout", 120.0), key=serving.key)
        return _connect(server, tokenizer, name=serving.file.name, serving=serving, **loading)
    _refuse(loading, _DEFAULTS, "a model in transformers")
    return LanguageModel.load(source, **loading)


def _connect(server: Server, tokenizer: Any, **options: Any) -> ServedModel:
    own = _load_tokenizer(tokenizer)
    interface = recognise(server, max(own.hf.get_vocab().values()) + 1)
    lm = ServedModel(interface, own, **options)
    lm.embedded = is_embedded(tokenizer)
    return lm


def _load_tokenizer(source: Any) -> HFTokenizer:
    if is_embedded(source):
        return load_tokenizer(embedded_model_path())
    file = find_gguf(source)
    return load_tokenizer(source if file is None else convert_tokenizer(file))


def _refuse(loading: dict[str, Any], known: Any, what: str) -> None:
    if wrong := [name for name in loading if name not in known]:
        values = ", ".join(f"{name}={shown(loading[name])}" for name in wrong)
        raise SettingError(f"{values} has no meaning for {what}; leave it out")
