"""The models of transformers that people hold: what is inside, where it is, and whether it has changed."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from dragin_lab.checks import shown
from dragin_lab.errors import ModelError

_WINDOWS = ("max_position_embeddings", "n_positions", "max_seq_len")
_POSITION_TABLES = ("wpe", "embed_positions", "position_embedding", "position_embeddings")


def unwrap_model(model: Any) -> Any:
    """The causal language model in what people hold: a compiled one, one with adapters (peft).

    Raises ``ModelError`` for what is none, with what to do.
    """
    remedy = "give a causal language model, such as AutoModelForCausalLM.from_pretrained gives"
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"model {shown(model)} is {type(model).__name__}; {remedy}")
    model = getattr(model, "_orig_mod", model)  # torch.compile's
    if hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
        if any(getattr(config, "is_prompt_learning", False) for config in model.peft_config.values()):
            raise ModelError(
                "a model with learned prompts (peft) puts them before each text; only adapters can be used"
            )
        model = model.get_base_model()  # with its adapters in place
    if isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        raise ModelError(f"{type(model).__name__} has no generate() of its own; give model.module")
    heads = callable(getattr(model, "generate", None)) and getattr(model, "get_output_embeddings", lambda: None)()
    if not heads or not model.can_generate():
        raise ModelError(f"{type(model).__name__} does not write text; {remedy}")
    if model.generation_config is None:
        raise ModelError("model.generation_config is None; set it to GenerationConfig.from_model_config(model.config)")
    return model


def stamp_model(model: torch.nn.Module) -> tuple[str, int]:
    """What changes with a model's weights, and how many hooks it has: a hash, and a number."""
    digest = hashlib.sha256()
    # Weights that are offloaded are other tensors at each forward, so a change of theirs goes unseen.
    offloaded = any(parameter.is_meta for parameter in model.parameters())
    tensors = [] if offloaded else [*model.parameters(), *model.buffers()]
    for tensor in tensors:
        digest.update(f"{tensor.data_ptr()} {0 if tensor.is_inference() else tensor._version} ".encode())
    firsts = [t.detach().flatten()[:1].float() for t in tensors if t.device.type == "cpu" and t.numel()]
    digest.update(torch.cat(firsts).numpy().tobytes() if firsts else b"")
    return digest.hexdigest(), sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def find_device(model: Any) -> torch.device:
    """Where a model takes its ids: the device of its embeddings, or of the hook that runs them."""
    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    runs_on = getattr(hook, "execution_device", None)
    return torch.device(model.device if runs_on is None else runs_on)


def describe_devices(model: Any, device: torch.device) -> str:
    """Where the weights are, and how they are quantized where they are."""
    spread = getattr(model, "hf_device_map", None)
    devices = ", ".join(sorted({str(place) for place in spread.values()})) if spread else str(device)
    quantized = getattr(getattr(model.config, "quantization_config", None), "quant_method", None)
    return f"{devices} ({getattr(quantized, 'value', quantized)})" if quantized else devices


def read_window(model: Any) -> tuple[int | None, bool]:
    """The context window and whether a table of positions makes it a hard limit."""
    config = model.config.get_text_config()
    sizes = (getattr(config, name, None) for name in _WINDOWS)
    window = next((int(size) for size in sizes if isinstance(size, int)), None)
    names = [n for n, _ in model.named_modules()] + [n for n, _ in model.named_buffers()]
    return window, any(n.rpartition(".")[2] in _POSITION_TABLES for n in names)
