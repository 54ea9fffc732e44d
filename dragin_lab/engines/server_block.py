"""What is known of a distribution behind a server: all of it from what enters the last block, else an entropy's bounds.

The server writes, and gives what enters the last block; transformers' own classes compute that block here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from dragin_lab.engines.sources import loading_errors
from dragin_lab.errors import ModelError, ModelServerError

_IMPOSSIBLE = -1e30  # nats; 0 log 0 is 0


class LastBlock:
    """A model of one layer, the last of those in a folder, in float32, with its embedding and output layer.

    Raises ``ModelError`` for a folder without the weights.
    """

    def __init__(self, folder: str) -> None:
        with loading_errors(folder, "causal language model"):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False, attn_implementation="eager")
            text = config.get_text_config()
            last, text.num_hidden_layers = text.num_hidden_layers - 1, 1
            if getattr(text, "layer_types", None):
                text.layer_types = text.layer_types[-1:]
            self.model: Any = AutoModelForCausalLM.from_config(config).float().eval()
            weights = {}
            for file in Path(folder).glob("*.safetensors"):
                with safe_open(file, "pt") as tensors:
                    for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                        if f".layers.{last}." in name or ".layers." not in name:
                            weights[name.replace(f".layers.{last}.", ".layers.0.")] = tensors.get_tensor(name).float()
            missing = self.model.load_state_dict(weights, strict=False).missing_keys
            self.model.tie_weights()
        tied = set(getattr(self.model, "all_tied_weights_keys", None) or self.model._tied_weights_keys or ())
        if lost := sorted(set(missing) - tied):
            raise ModelError(f"{folder} has no weights {', '.join(lost[:3])} (*.safetensors) of the model's last block")
        self.width: int = text.hidden_size

    def measure(self, entering: torch.Tensor, last: int) -> tuple[torch.Tensor, Any]:
        """Raw logits (last, V) and attention (h, last, n) of the last positions, from what enters the block, (n, d)."""
        with torch.inference_mode():
            output = self.model(inputs_embeds=entering[None], output_attentions=True, logits_to_keep=last)
        return output.logits[0], output.attentions[0][0][:, -last:].numpy()


def take_states(path: str, ids: Sequence[int], width: int, seconds: float) -> torch.Tensor:
    """What enters the last block for n ids, (n, d) float32, from the file that a server writes; it is then removed.

    Raises ``ModelServerError`` for a file that is not here within so many seconds, of other ids or another shape.
    """
    lock, n = f"{path}.lock", len(ids)
    _wait_until_written(path, lock, seconds)
    try:
        with safe_open(path, "pt") as tensors:
            states = tensors.get_tensor("hidden_states").float()  # (n, layers, d)
            known = tensors.get_tensor("token_ids").tolist() == list(ids)
    except (OSError, SafetensorError) as error:
        raise ModelServerError(f"hidden states of the server cannot be read here from {path}: {error}") from error
    if not known or states.dim() not in (2, 3) or states.shape[0] != n or states.shape[-1] != width:
        raise ModelServerError(f"{path} has hidden states {tuple(states.shape)}, not of these {n} ids and {width} wide")
    for file in (path, lock):  # what holds these very ids is the answer to this request, and no other file
        with suppress(OSError):  # the folder may be the server's alone to clear
            os.remove(file)
    return states.reshape(n, -1, width)[:, -1]


def _wait_until_written(path: str, lock: str, seconds: float) -> None:
    """Wait for vLLM, which answers before it has written, and holds a lock until then."""
    import fcntl  # where a server shares a folder, there is one

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with open(lock) as held:
                fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError:
            if os.path.exists(path):  # of a server that locks nothing
                return
        time.sleep(0.005)


def entropy_bounds(logprobs: np.ndarray, vocabulary: int) -> tuple[float, float]:
    """The least and the greatest entropy (nats) of a distribution whose k likeliest are known; both are attained.

    ``logprobs`` is (k,) nats, best first, of ``vocabulary`` = V tokens. The rest r = 1 - Σp is spread over V - k tokens
    of at most p_k each. Entropy is greatest where they share it evenly, and least where as few as possible have all:
    m = ⌊r / p_k⌋ of them p_k, and one of them s = r - m p_k.
    """
    logprobs = np.maximum(logprobs, _IMPOSSIBLE)
    p = np.exp(logprobs)  # (k,)
    known, k = float(-(p * logprobs).sum()), len(p)
    rest, last = 1.0 - float(p.sum()), float(p[-1])
    if k >= vocabulary or rest <= 0 or last <= 0:
        return known, known
    full = np.floor(rest / last)
    left = rest - full * last
    least = float(known - full * last * logprobs[-1] - (left * np.log(left) if left > 0 else 0.0))
    return least, max(least, float(known - rest * np.log(rest / (vocabulary - k))))
