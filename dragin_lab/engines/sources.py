"""Load a model and its tokenizer from a folder, a Hugging Face id or a GGUF file, and look into
models in memory.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import torch
import transformers
from filelock import FileLock
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    TOKENIZER_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import cached_file
from transformers.utils import logging as hf_logging

from dragin_lab.engines.arguments import FINDING, Arguments, refuse_argument
from dragin_lab.engines.arguments import choose_device as choose_device
from dragin_lab.engines.gguf import copy_without_vocabulary
from dragin_lab.engines.identity import hash_weights, is_bitsandbytes
from dragin_lab.engines.names import Source, find_source, refuse_adapter, refuse_unreachable
from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.errors import DraginLabError, MissingPackageError, ModelError
from dragin_lab.files import cache_remedy, user_cache
from dragin_lab.text import printable

#: What transformers raises for unsuitable files.
LOADING = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    ImportError,
    RuntimeError,
    TypeError,
    AttributeError,
    ArithmeticError,
    pickle.UnpicklingError,
)
EMPTY: Arguments = MappingProxyType({})
_BEGINNING = 2**25  # bytes of a file that hold its vocabulary
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_CHOOSING = {"variant", "use_safetensors", "gguf_file", "key_mapping", "state_dict"}
_WINDOWS = ("max_position_embeddings", "n_positions", "max_seq_len")
_POSITION_TABLES = ("wpe", "embed_positions", "position_embedding", "position_embeddings")


def load_pair(
    name: str, dtype: Any, device: torch.device, given: Arguments, tokenizer: Any = None
) -> tuple[Any, HFTokenizer]:
    """Model (in eval mode, on its device unless a ``device_map`` or quantization places it) and
    tokenizer of a source.

    ``given`` is what ``from_pretrained`` takes beside; ``tokenizer`` is another than the source's.
    """
    refuse_adapter(name)
    if not Path(name).is_dir() and "cache_dir" not in given:
        refuse_unreachable(name)
    # Code of a model is not run unless the user says so.
    finding = {"trust_remote_code": False} | pick_finding(given)
    with loading_errors(name, "causal language model", given):
        config, rest = _read_config(name, given)
        options = {"attn_implementation": None, **rest, **finding}  # None: the fastest there is
        model = load_weights(AutoModelForCausalLM, name, dtype=dtype, config=config, **options)
    if tokenizer is None:
        with loading_errors(name, "tokenizer", finding):
            tokenizer = AutoTokenizer.from_pretrained(name, **finding)
    placed = {"device_map", "quantization_config"} & given.keys() or is_bitsandbytes(model)
    model = model if placed else model.to(device)
    return model.eval(), HFTokenizer(getattr(tokenizer, "hf", tokenizer))


def pick_finding(given: Arguments) -> dict[str, Any]:
    """Of what was given, what all files of a source are found by."""
    return {key: given[key] for key in FINDING if given.get(key) is not None}


def _read_config(name: str, given: Arguments) -> tuple[Any, dict[str, Any]]:
    """The configuration, and what of the arguments is not a value of it.

    It says nothing of how to attend: a saved one may name what is not installed here.
    """
    rest = dict(given)
    source = rest.pop("config", None) or name
    if isinstance(source, PreTrainedConfig):
        return source, rest
    later = ("quantization_config", "attn_implementation")
    kept = {key: rest.pop(key) for key in later if key in rest}
    fixed = {"attn_implementation": "eager", "output_attentions": False}
    options = {"trust_remote_code": False, **rest, **fixed}
    config, unused = AutoConfig.from_pretrained(source, return_unused_kwargs=True, **options)
    return config, {key: value for key, value in unused.items() if key in rest} | kept


def load_tokenizer(source: Source) -> HFTokenizer:
    """The tokenizer of a folder or Hugging Face id, with the end marks of the model there.

    Raises ``ModelError`` where it is missing or damaged.
    """
    name, folder = find_source(source)
    if folder is None:
        refuse_unreachable(name)
    with loading_errors(name, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    ends: Any = None
    with suppress(OSError), silence_library():
        ends = GenerationConfig.from_pretrained(name).eos_token_id
    return HFTokenizer(tokenizer, ends)


def load_weights(auto: Any, name: str, **options: Any) -> Any:
    """Load a model. Raises ``ModelError`` where its files lack a weight."""
    options = {"trust_remote_code": False, **options, "output_loading_info": True}
    model, info = auto.from_pretrained(name, **options)
    lost = sorted({*info.get("missing_keys", ()), *map(str, info.get("mismatched_keys", ()))})
    if lost:
        raise ModelError(
            f"{name}: {len(lost)} weights are not in its files or have another shape"
            f" ({', '.join(lost[:3])}); they would be random. Use the complete folder of a model of"
            " this kind"
        )
    return model


def hub_has(name: str, file: str) -> bool:
    """Whether a Hugging Face id has a file, in the local cache or on the hub."""
    with suppress(OSError):  # no such file, or the hub does not answer
        return cached_file(name, file) is not None
    return False


def shorten_error(error: Exception) -> str:
    """An error message in one line of at most 300 characters."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300].rstrip(".: ")


@contextmanager
def silence_library() -> Iterator[None]:
    """No progress bar and no warnings of transformers, as what matters is checked afterwards."""
    level = hf_logging.get_verbosity()
    bar = hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bar:
            hf_logging.enable_progress_bar()


@contextmanager
def loading_errors(name: str, kind: str, given: Arguments = EMPTY) -> Iterator[None]:
    """Load in silence, with errors as ours: ``SettingError`` for an argument of those ``given``
    that nobody takes, ``MissingPackageError`` for a package, ``ModelError`` for all else.
    """
    try:
        with silence_library():
            yield
    except DraginLabError:
        raise
    except SafetensorError as error:
        raise ModelError(
            f"the weights of {name} cannot be read ({error}); copy or fetch them again"
        ) from error
    except ImportError as error:
        raise MissingPackageError(
            f"{name} cannot be loaded here: {shorten_error(error)}"
        ) from error
    except (StrictDataclassError, *LOADING) as error:
        if isinstance(error, TypeError):
            refuse_argument(error, given)
        raise ModelError(
            f"{name} cannot be loaded as {kind} ({shorten_error(error)});"
            f" {_find_remedy(name, error, given)}"
        ) from error


def _find_remedy(name: str, error: Exception, given: Arguments) -> str:
    if todo := cache_remedy(error):
        return todo
    if "trust_remote_code" in str(error) and not given.get("trust_remote_code"):
        return f"{name} brings code of its own: read it, and give trust_remote_code=True to run it"
    whole = "give the whole folder of a saved one, or its Hugging Face id"
    names = sorted(given.keys() - {"trust_remote_code"})
    return f"look at {', '.join(names)}, or {whole}" if names else whole


def convert_gguf(file: Path, dtype: Any) -> tuple[Path, str]:
    """The folder with the file's model in ``dtype`` and its tokenizer, and the file's SHA-256
    (hex).

    It is converted where the cache has no conversion by this version of transformers; other
    processes wait. Meanwhile a copy of its weights lies there.

    Raises:
        ModelError: a package is missing; the file is damaged or of an architecture that
            transformers does not convert;
            the cache cannot be written.
    """
    digest = hash_weights(None, [file])
    name = f"models/{digest[:32]}-{str(dtype).removeprefix('torch.')}"
    return (
        _convert_once(file, name, lambda: _read_model(file, dtype), ("gguf", "accelerate")),
        digest,
    )


def convert_tokenizer(file: Path) -> Path:
    """The folder with the file's tokenizer and configuration alone; otherwise as ``convert_gguf``.

    It is known by the file's beginning, where the vocabulary stands: a large file takes long to
    read.
    """
    with file.open("rb") as opened:
        digest = hashlib.sha256(opened.read(_BEGINNING)).hexdigest()
    return _convert_once(
        file, f"tokenizers/{digest[:32]}", lambda: _read_tokenizer(file), ("gguf",)
    )


def _convert_once(
    file: Path, name: str, read: Callable[[], Sequence[Any]], packages: Sequence[str]
) -> Path:
    """The folder of the user's cache with what ``read`` gives, which appears whole or not at
    all.
    """
    folder = user_cache() / f"{name}-{transformers.__version__}"
    partial = Path(f"{folder}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if folder.is_dir():
                return folder
            if missing := [package for package in packages if find_spec(package) is None]:
                raise ModelError(
                    f"{file.name} needs {' and '.join(missing)}; run pip install 'dragin-lab[gguf]'"
                )
            print(
                printable(f"{file.name}: converting it once, into {folder}"),
                file=sys.stderr,
                flush=True,
            )
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
            f"{file.name}: its conversion cannot be saved in {folder.parent}"
            f" ({shorten_error(error)}); make room there, or set XDG_CACHE_HOME to another folder"
        ) from error


def _read_tokenizer(file: Path) -> tuple[Any, Any]:
    """A file's tokenizer and configuration."""
    try:
        with silence_library(), TemporaryDirectory() as copied:
            copy_without_vocabulary(file, Path(copied, file.name), weights=False)
            config = AutoConfig.from_pretrained(
                copied, gguf_file=file.name, trust_remote_code=False
            )
            # as AutoTokenizer chooses it, which would read the configuration again
            kind: Any = TOKENIZER_MAPPING.get(type(config), PreTrainedTokenizerFast)
            return kind.from_pretrained(str(file.parent.resolve()), gguf_file=file.name), config
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


def _read_model(file: Path, dtype: Any) -> tuple[Any, Any]:
    """A file's model in ``dtype``, its weights unpacked, and its tokenizer."""
    tokenizer, _ = _read_tokenizer(file)
    # Where there are kernels for it, newer versions of transformers would leave the weights
    # packed.
    newer = hasattr(transformers, "GgufConfig")
    unpack = {"quantization_config": transformers.GgufConfig(dequantize=True)} if newer else {}
    with TemporaryDirectory(prefix=f"{file.name}-", dir=user_cache()) as folder:
        copy_without_vocabulary(file, Path(folder, file.name), weights=True)
        with loading_errors(file.name, "causal language model"):
            model = load_weights(
                AutoModelForCausalLM, folder, gguf_file=file.name, dtype=dtype, **unpack
            )
    if getattr(model, "hf_quantizer", None) is not None:
        # the weights are plain by now, and saved as such
        model.hf_quantizer.remove_quantization_config(model)
    return model, tokenizer


def weight_files(name: str, folder: Path | None, given: Arguments = EMPTY) -> list[Path]:
    """The weight files of a source, sorted; empty where they are not on this machine, and where
    the arguments ``given`` choose among them.
    """
    if _CHOOSING & given.keys():
        return []
    inner = str(given.get("subfolder") or "")
    if folder is None:
        where = {key: given[key] for key in ("revision", "cache_dir") if given.get(key)}
        config = try_to_load_from_cache(name, str(PurePosixPath(inner, "config.json")), **where)
        if not isinstance(config, str):
            return []
        folder = Path(config).parent
    else:
        folder = folder / inner
    return next((files for pattern in _WEIGHTS if (files := sorted(folder.glob(pattern)))), [])


def unwrap_model(model: Any) -> Any:
    """The causal language model inside a compiled one, or one with adapters (peft).

    Raises ``ModelError`` for anything else, with the remedy.
    """
    model = getattr(model, "_orig_mod", model)  # torch.compile's
    if hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
        if any(
            getattr(config, "is_prompt_learning", False) for config in model.peft_config.values()
        ):
            raise ModelError(
                "a model with learned prompts (peft) puts them before each text; only adapters can"
                " be used"
            )
        model = model.get_base_model()  # with its adapters in place
    if isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        raise ModelError(f"{type(model).__name__} has no generate() of its own; give model.module")
    if not (
        isinstance(model, PreTrainedModel)
        and model.can_generate()
        and model.get_output_embeddings()
    ):
        raise ModelError(
            f"model {type(model).__name__} does not write text; give a causal language model, such"
            " as AutoModelForCausalLM.from_pretrained gives"
        )
    if model.generation_config is None:
        raise ModelError(
            "model.generation_config is None; set it to"
            " GenerationConfig.from_model_config(model.config)"
        )
    return model


def find_device(model: Any) -> torch.device:
    """The device that a model takes its ids on."""
    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    runs_on = getattr(hook, "execution_device", None)
    return torch.device(model.device if runs_on is None else runs_on)


def read_rotary_switch(config: Any) -> int | None:
    """The number of tokens beyond which a model rotates all of them otherwise (longrope,
    dynamic); None for most.
    """
    text = config.get_text_config()
    given = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    # some have one for each kind of layer
    each = [one for one in (given, *given.values()) if isinstance(one, dict)]
    if not any(one.get("rope_type", one.get("type")) in ("longrope", "dynamic") for one in each):
        return None
    known = [one.get("original_max_position_embeddings") for one in each]
    known += [
        getattr(text, "original_max_position_embeddings", None),
        getattr(text, "max_position_embeddings", None),
    ]
    return next((int(one) for one in known if one), None)


def read_window(model: Any) -> tuple[int | None, bool]:
    """The context window and whether a table of positions makes it a hard limit."""
    config = model.config.get_text_config()
    sizes = (getattr(config, name, None) for name in _WINDOWS)
    window = next((int(size) for size in sizes if isinstance(size, int)), None)
    paths = [path for path, _ in (*model.named_modules(), *model.named_buffers())]
    return window, any(path.rpartition(".")[2] in _POSITION_TABLES for path in paths)
