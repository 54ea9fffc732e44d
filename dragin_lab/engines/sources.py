"""From a path or a Hugging Face id to a model and a tokenizer, with errors that say what to do."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import HfApi, constants, try_to_load_from_cache
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    StrictDataclassError,
)
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    GenerationConfig,
)
from transformers.utils import cached_file
from transformers.utils import logging as hf_logging

from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.errors import ModelError
from dragin_lab.files import as_path

_TRANSPORTS = ("httpx", "httpcore", "requests", "urllib3")  # what the hub's client may be built on
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_LOADING = (
    OSError, EOFError, ValueError, LookupError, ImportError, RuntimeError, TypeError, AttributeError, ArithmeticError,
    pickle.UnpicklingError,
)  # fmt: skip
_PATIENCE = 5.0  # seconds to wait for the hub before saying that it cannot be reached


def find_source(source: str | os.PathLike[str]) -> tuple[str, Path | None]:
    """A checked path or hub id, and the folder where it is one. Raises ``ModelError`` for what is neither."""
    path, name = as_path(source, ModelError), str(source)
    if path.is_dir():
        if (path / "adapter_config.json").is_file():
            raise ModelError(
                f"{path} holds an adapter (peft), not a model; load both with peft, and give what merge_and_unload() "
                "returns, or the folder that it is saved in"
            )
        if not (path / "config.json").is_file():
            raise ModelError(
                f"{path} is not a model: it has no config.json and no GGUF file; give the folder of a saved model"
            )
        if not any(any(path.glob(pattern)) for pattern in _WEIGHTS):
            raise ModelError(f"{path} has a config.json but no weights (*.safetensors); copy them there")
        return str(path), path
    if path.exists():
        raise ModelError(f"{path} is a file; give the folder of a saved model, a GGUF file, or a Hugging Face id")
    looks_like_path = name.startswith(("/", ".", "~")) or name.count("/") > 1 or "\\" in name
    if looks_like_path:
        raise ModelError(f"no folder {name!r}; give the folder of a saved model, or a Hugging Face id")
    _look_on_hub(name)
    return name, None


def _look_on_hub(name: str) -> None:
    """Make sure that an id is in the local cache or on a hub that answers, before anything waits for retries."""
    try:
        if try_to_load_from_cache(name, "config.json") is not None:
            return
    except HFValidationError as error:
        raise ModelError(f"{name!r} is neither a folder nor a Hugging Face id; check the spelling") from error
    if constants.is_offline_mode():
        raise ModelError(
            f"model {name!r} is neither a folder nor in the local cache, and the hub is switched off (HF_HUB_OFFLINE); "
            "give a folder"
        )
    try:
        HfApi().model_info(name, timeout=_PATIENCE)
    except HfHubHTTPError as error:
        raise ModelError(
            f"no folder {name!r}, and {constants.ENDPOINT} answered {str(error).splitlines()[0]}; check the "
            "spelling; a model that is not public needs its licence accepted there and a login"
        ) from error
    except Exception as error:
        expected = isinstance(error, OSError | ValueError | RuntimeError)
        if not expected and not type(error).__module__.startswith(_TRANSPORTS):
            raise
        raise ModelError(
            f"model {name!r} is neither a folder nor in the local cache, and {constants.ENDPOINT} cannot be reached; "
            "give a folder, or connect once to fetch it"
        ) from None


def read_placing(device_map: Any, quantization: Any) -> tuple[Any, Any]:
    """The device map, and the quantization as a configuration. Raises ``ModelError`` for what cannot be one."""
    if device_map is not None and find_spec("accelerate") is None:
        raise ModelError("device_map needs accelerate; run pip install 'dragin-lab[large]'")
    if isinstance(quantization, Mapping):
        try:
            quantization = BitsAndBytesConfig(**quantization)
        except (TypeError, ValueError, ImportError) as error:
            raise ModelError(f"quantization={dict(quantization)!r}: {first_line(error)}") from error
    return device_map, quantization


def load_pair(
    name: str, dtype: torch.dtype | str, device: torch.device, device_map: Any = None, quantization: Any = None
) -> tuple[Any, HFTokenizer]:
    """Model (in eval mode, on its device or as ``device_map`` says) and tokenizer of a checked source."""
    placing = {"device_map": device_map, "quantization_config": quantization}
    given = {key: value for key, value in placing.items() if value is not None}
    with loading_errors(name, "causal language model"):
        # Code that comes with a model is never run, and no prompt offers to run it.
        config = AutoConfig.from_pretrained(
            name, trust_remote_code=False, attn_implementation="eager", output_attentions=False
        )
        config._attn_implementation = None  # the best there is here, whatever the model was trained with
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except _LOADING as error:
            raise ModelError(
                f"the tokenizer of {name} has no fast encoding or cannot be loaded ({first_line(error)}); "
                "use a model folder with a sound tokenizer.json"
            ) from error
        model = load_weights(AutoModelForCausalLM, name, "causal language model", dtype=dtype, config=config, **given)
    return (model if given else model.to(device)).eval(), HFTokenizer(tokenizer)


def load_tokenizer(source: str | os.PathLike[str]) -> HFTokenizer:
    """The tokenizer of a folder or Hugging Face id, with the end marks of the model beside it.

    Raises ``ModelError`` where there is none that is sound.
    """
    path, name = as_path(source, ModelError), str(source)
    if path.is_file() or (path.is_dir() and not (path / "tokenizer.json").is_file()):
        raise ModelError(f"{path} is no tokenizer; give a folder with a tokenizer.json, or a Hugging Face id")
    if not path.exists():
        name, _ = find_source(source)
    with loading_errors(name, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    ends: Any = None
    with suppress(OSError), silence_library():
        ends = GenerationConfig.from_pretrained(name).eos_token_id
    return HFTokenizer(tokenizer, [] if ends is None else np.ravel(ends))


def load_encoder(name: str, device: torch.device) -> tuple[Any, Any]:
    """A model without its head, for its hidden states (in eval mode, float32, on its device), and its tokenizer."""
    with loading_errors(name, "encoder"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = load_weights(AutoModel, name, "model", dtype=torch.float32)
    return model.to(device).eval(), tokenizer


def load_weights(auto: Any, name: str, kind: str, **options: Any) -> Any:
    """The model, refused where its files lack a weight."""
    model, info = auto.from_pretrained(name, output_loading_info=True, trust_remote_code=False, **options)
    lost = sorted({*info.get("missing_keys", ()), *map(str, info.get("mismatched_keys", ()))})
    if lost:
        raise ModelError(
            f"{name}: {len(lost)} weights are not in its files or have another shape ({', '.join(lost[:3])}); "
            f"they would be random. Use the complete folder of a {kind}"
        )
    return model


def hub_has(name: str, file: str) -> bool:
    """Whether a Hugging Face id has a file, in the local cache or on the hub."""
    path = cached_file(
        name, file, _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False
    )
    return path is not None


def first_line(error: Exception) -> str:
    """The first line of an error of the library, which may go on for a page."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(": ")


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
def loading_errors(name: str, kind: str) -> Iterator[None]:
    """Load in silence, with errors as ``ModelError``."""
    try:
        with silence_library():
            yield
    except ModelError:
        raise
    except SafetensorError as error:
        raise ModelError(f"the weights of {name} cannot be read ({error}); copy or fetch them again") from error
    except StrictDataclassError as error:
        raise ModelError(
            f"the config.json of {name} contradicts itself: {str(error).splitlines()[-1].strip()}"
        ) from error
    except _LOADING as error:
        raise ModelError(f"{name} cannot be loaded as {kind}: {first_line(error)}") from error


def weight_files(name: str, folder: Path | None) -> list[Path]:
    """The weight files of a source, sorted; empty where they are not on this machine."""
    if folder is None:
        config = try_to_load_from_cache(name, "config.json")
        if not isinstance(config, str):
            return []
        folder = Path(config).parent
    return next((files for pattern in _WEIGHTS if (files := sorted(folder.glob(pattern)))), [])


def hash_weights(model: Any, files: list[Path]) -> str:
    """SHA-256 (hex) over the weight files in order of name, or over the state dict of a model that has none."""
    digest = hashlib.sha256()
    if files:
        for path in files:
            with path.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
        return digest.hexdigest()
    state = model.state_dict()
    if any(tensor.is_meta for tensor in state.values()):  # offloaded
        state = import_module("accelerate.utils.modeling").get_state_dict_offloaded_model(model)
    for key, tensor in sorted(state.items()):
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
