"""Open a model by name: in transformers (``LanguageModel``), in llama.cpp, or behind a server."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dragin_lab.almanac import embedded_model_path
from dragin_lab.checks import EMBEDDED, choice, is_embedded, shown
from dragin_lab.engines.check import ALONE, WHOLE, Check, run_checks
from dragin_lab.engines.gguf import convert_gguf, convert_tokenizer, find_gguf
from dragin_lab.engines.llama import LlamaModel
from dragin_lab.engines.llama_context import load_bindings
from dragin_lab.engines.server import Server
from dragin_lab.engines.server_model import ServerModel
from dragin_lab.engines.sources import find_source, load_pair, load_tokenizer, shorten, silence_library, weight_files
from dragin_lab.engines.transformers import TransformersModel
from dragin_lab.engines.waves import out_of_memory
from dragin_lab.errors import DraginLabError, ModelError, SettingError
from dragin_lab.text import printable, without_secrets

GIB = 2**30
#: What each engine takes beside the model.
_TAKES = {
    "transformers": (
        "dtype", "device", "device_map", "quantization", "layer", "heads", "alternatives", "sample", "check",
    ),
    "llama.cpp": ("tokenizer", "layer", "heads", "alternatives", "sample", "check", "dtype", "threads", "context"),
    "a model behind a server": ("tokenizer", "likeliest", "sample", "check", "timeout"),
}  # fmt: skip
#: What stands for the default, so that any engine may be given it.
_DEFAULTS = {"layer": "last", "alternatives": 5}


class LanguageModel(TransformersModel):
    """A model, its tokenizer, and the tap on one of its layers.

    Get one with ``LanguageModel.load``; the constructor takes a model and tokenizer of ``transformers`` that are
    already in memory.
    With ``check`` it is refused where one of its checks fails; the other options, and the attributes, are those of
    ``TransformersModel``.
    """

    def __init__(self, model: Any, tokenizer: Any, *, check: bool = True, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        if check:
            self._apply(self.check())

    @classmethod
    def load(
        cls,
        source: str | os.PathLike[str] | None = None,
        *,
        dtype: str | None = None,
        device: str | None = None,
        device_map: str | Mapping[str, Any] | None = None,
        quantization: Any = None,
        layer: int | str = "last",
        heads: Sequence[int] | None = None,
        alternatives: int = 5,
        sample: bool = False,
        check: bool = True,
    ) -> LanguageModel:
        """Load a causal language model.

        Args:
            source: a folder, a GGUF file or the folder of one, a Hugging Face id, or None or "almanac" for the
                embedded model. A GGUF file is converted once and kept in the user's cache (``gguf.convert_gguf``).
            dtype: name of a torch dtype; by default float32 on a CPU and bfloat16 on a GPU, whatever the files hold.
            device: default the first GPU, else the CPU.
            device_map: "auto", or a map from modules to devices, as transformers takes it, in place of ``device``;
                needs accelerate.
            quantization: a configuration of transformers, or the arguments of its ``BitsAndBytesConfig``.
            layer: the layer to capture: "last" (the last full-attention layer) or an index, negative from the end.
            heads: the heads to capture; None for all.
            alternatives: how many of the likeliest tokens to keep at each position.
            sample: sample tokens as the model's generation config says, instead of choosing the likeliest.
            check: run ``check`` and refuse the model where that fails.

        Raises:
            ModelError: an unknown id or path, missing or unreadable weights, no fast tokenizer, a GGUF file that cannot
                be converted, a model that cannot be captured, a failed check, a layer, head or dtype that does not
                exist.
        """
        title = EMBEDDED if is_embedded(source) else ""
        where = choose_device(device)
        kind = ("bfloat16" if where.type == "cuda" else "float32") if dtype is None else dtype
        asked = getattr(torch, kind, None) if isinstance(kind, str) else None
        if not isinstance(asked, torch.dtype):
            raise ModelError(f"dtype={shown(dtype)} is not a dtype of torch; give float32, bfloat16 or float16")
        source = embedded_model_path() if source is None or title else source
        file, digest = find_gguf(source), ""
        if file is not None:
            source, digest = convert_gguf(file, asked)
        name, folder = find_source(source)
        if not title and where.type == "cpu" and device_map is None and quantization is None:
            _warn_of_memory(name, asked)
        model, tokenizer = load_pair(name, asked, where, device_map, quantization)
        loaded = cls(
            model,
            tokenizer,
            layer=layer,
            heads=heads,
            alternatives=alternatives,
            sample=sample,
            name=title or (file.name if file else folder.resolve().name if folder else name),
            files=[file] if file else weight_files(name, folder),
            check=check,
        )
        loaded.embedded, loaded._hash = bool(title), digest
        return loaded

    def check(self) -> list[Check]:
        """The named checks that ``load`` makes: see ``check.run_checks``.

        Raises ``ModelError`` where the model cannot be run as drafts are written.
        """
        try:
            return run_checks(self)
        except Exception as error:
            if isinstance(error, DraginLabError) or out_of_memory(error):
                raise
            raise ModelError(
                f"{type(self.model).__name__} cannot be read token by token by generate() ({shorten(error)}); "
                "use another model"
            ) from error

    def _apply(self, checks: list[Check]) -> None:
        """Refuse the model for a check that failed, or give up what that costs, and say so."""
        failed = [c for c in checks if not c.passed]
        if fatal := [c for c in failed if not c.costs]:
            raise ModelError("; ".join(map(str, fatal)) + ". Load with check=False to use it anyway")
        for c in failed:
            warnings.warn(f"{self.name}: {c}; {c.costs}", stacklevel=4)
        costs = {c.costs for c in failed}
        if WHOLE in costs:
            self.parts = ()
        if ALONE in costs:
            self.alone = "side by side this model gives other numbers than alone"


def choose_device(device: str | None) -> torch.device:
    """The device that a text names; by default the first GPU, else the CPU. ``ModelError`` for what is not here."""
    try:
        where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device is None else device)
        torch.empty(0, device=where)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f'device={shown(device)} cannot be used ({shorten(error)}); give "cpu" or "cuda"') from error
    return where


def _warn_of_memory(name: str, dtype: torch.dtype) -> None:
    """Say so where a model's weights take more memory than is free: a machine ends a process without a word.

    A GPU says so itself.
    """
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name, trust_remote_code=False))
    except Exception:  # noqa: BLE001 - the system does not tell, or loading will say what is wrong with the config
        return
    needs = model.num_parameters() * dtype.itemsize
    if needs > free:
        line = f"its weights take about {needs / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free"
        print(printable(f"{name}: {line}; take a smaller dtype or model"), file=sys.stderr, flush=True)


# -- any engine -------------------------------------------------------------------------------------------------------


def loading_arguments() -> list[str]:
    """The names of what ``open_model`` takes beside the model."""
    return list(dict.fromkeys(["engine", *chain(*_TAKES.values())]))


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
    served = str(source).startswith(("http://", "https://"))
    kind = choice("engine", engine or "transformers", ("transformers", "llama.cpp"))
    if served and engine is not None:
        raise SettingError(f"engine={engine!r}: the server at {without_secrets(str(source))} is one; leave engine out")
    kind = "a model behind a server" if served else kind
    taken = _TAKES[kind]
    loading = {
        name: value
        for name, value in loading.items()
        if value is not None and (name in taken or value != _DEFAULTS.get(name))
    }
    if wrong := [f"{name}={shown(value)}" for name, value in loading.items() if name not in taken]:
        raise SettingError(f"{', '.join(wrong)} has no meaning for {kind}; leave it out")
    if served:
        return _connect(str(source), loading)
    return _open_llama(source, loading) if kind == "llama.cpp" else LanguageModel.load(source, **loading)


def _open_llama(source: Any, loading: dict[str, Any]) -> LlamaModel:
    if is_embedded(source) or (file := find_gguf(source)) is None:
        raise SettingError(f"engine='llama.cpp' opens a GGUF file; give the path of one, not {shown(source)}")
    load_bindings()  # whose lack is said before anything is converted
    tokenizer = loading.pop("tokenizer", file)
    folder = _find_tokenizer(tokenizer)
    config = None
    with suppress(OSError, ValueError), silence_library():  # a tokenizer may stand alone
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    lm = LlamaModel(file, load_tokenizer(folder), config, **loading)
    lm.embedded = is_embedded(tokenizer)
    print(printable(lm.describe_build()), file=sys.stderr, flush=True)
    return lm


def _connect(address: str, loading: dict[str, Any]) -> ServerModel:
    if "tokenizer" not in loading:
        raise SettingError(
            f"{without_secrets(address)}: give the model's tokenizer, as a folder or Hugging Face id: tokenizer=…"
        )
    tokenizer = loading.pop("tokenizer")
    server = Server(address.rstrip("/").removesuffix("/v1"), loading.pop("timeout", 120.0))
    folder = _find_tokenizer(tokenizer)
    lm = ServerModel(server, load_tokenizer(folder), str(folder), **loading)
    lm.embedded = is_embedded(tokenizer)
    return lm


def _find_tokenizer(source: Any) -> Any:
    """The folder or Hugging Face id of a tokenizer; a GGUF file's is converted once."""
    if is_embedded(source):
        return embedded_model_path()
    file = find_gguf(source)
    return source if file is None else convert_tokenizer(file)
