"""Requests to an OpenAI-compatible server, each within a deadline, and the model's last block,
computed here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from dragin_lab.core.episode import Write
from dragin_lab.engines.engine import Batch, DraftResult
from dragin_lab.engines.sources import loading_errors
from dragin_lab.errors import ModelError
from dragin_lab.text import printable
from dragin_lab.trace.trace import Draft

T = TypeVar("T")
KEY = "DRAGIN_LAB_API_KEY"  # the environment variable with the bearer token
_TRIES = 4
_PAUSE = 0.5  # seconds before the second try; doubled each time
_BUSY = (429, 500, 502, 503, 504)  # status codes worth another try
_CONNECT = 5.0  # seconds


class ServedModel(msgspec.Struct):
    """A model as ``/v1/models`` lists it."""

    id: str
    root: str | None = None
    parent: str | None = None  # of an adapter, the model that it is of
    max_model_len: int | None = None


class ServedModels(msgspec.Struct):
    data: list[ServedModel]


class TokenLogprobs(msgspec.Struct):
    """Per token its name, ``token_id:9``, its log-probability (nats), and those of the likeliest
    tokens.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class WrittenText(msgspec.Struct):
    """A text that the server wrote; ``stop_reason`` is the stop string or id that ended it."""

    logprobs: TokenLogprobs
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class StatesFile(msgspec.Struct):
    """The file in which vLLM stores hidden states."""

    hidden_states_path: str | None = None


class Completion(msgspec.Struct):
    choices: list[WrittenText]
    kv_transfer_params: StatesFile | None = None


class Detokenized(msgspec.Struct):
    """What ``/detokenize`` makes of ids."""

    prompt: str


class ModelServer:
    """A server's address, and requests to it.

    Args:
        address: ``http://host:port``; a token for it stands in the environment (``KEY``).
        timeout: seconds that a request may take in all, tries and waits included.
    """

    def __init__(self, address: str, timeout: float) -> None:
        self.address = address
        self.timeout = timeout
        self._key = os.environ.get(KEY, "")
        try:
            host = httpx.URL(address).host
            self._client = httpx.Client(
                base_url=address,
                headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                # No proxy and no certificate of another network has a say in what runs on this
                # machine.
                trust_env=not (host in ("localhost", "::1") or host.startswith("127.")),
            )
        except (httpx.InvalidURL, ImportError, ValueError, OSError) as error:
            raise ModelError(
                f"{self.address} cannot be asked as the environment says ({printable(str(error))});"
                " look at HTTPS_PROXY, ALL_PROXY, NO_PROXY and SSL_CERT_FILE"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, path: str, kind: type[T], body: Any = None, within: float | None = None) -> T:
        """The answer to a GET, or with ``body`` to a POST, within some seconds (at most
        ``timeout``).

        Raises ``ModelError`` for no answer, an error status, or an answer that is no
        ``kind``.
        """
        seconds = min(self.timeout, within or self.timeout)
        end = time.monotonic() + seconds
        why = ""
        pause = 0.0
        for _ in range(_TRIES):
            if time.monotonic() + pause > end:
                break
            time.sleep(pause)
            pause = 2 * pause or _PAUSE
            try:
                status, answer = self._send(path, body, end)
            except httpx.ReadTimeout:
                break
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                message = printable(str(error)) or type(error).__name__
                why = f"cannot be reached, or breaks off ({message})"
                continue
            if status == httpx.codes.OK:
                return self._decode(path, answer, kind)
            why = f"answered {status} to {path}: {self._read_refusal(answer)}"
            if status not in _BUSY:
                raise ModelError(f"{self.address} {why}")
        if time.monotonic() + pause > end:
            before = f"; it {why}" if why else ""
            why = f"gave no whole answer in {seconds:g} s{before}"
        raise ModelError(f"{self.address} {why}")

    def _send(self, path: str, body: Any, end: float) -> tuple[int, bytes]:
        """An answer's status and content. Raises ``httpx.ReadTimeout`` where it is not whole at
        ``end`` (seconds of the monotonic clock).
        """
        left = max(end - time.monotonic(), 0.001)
        timeout = httpx.Timeout(left, connect=min(left, _CONNECT))
        method = "GET" if body is None else "POST"
        content = []
        with self._client.stream(method, path, json=body, timeout=timeout) as answer:
            for part in answer.iter_bytes():
                content.append(part)
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("the answer is still being sent")
        return answer.status_code, b"".join(content)

    def _read_refusal(self, answer: bytes) -> str:
        """What a server says in the body of an error, in one line."""
        text = answer.decode(errors="replace")
        text = text.replace(self._key or "\0", "***")  # some servers repeat the token
        return printable(" ".join(text.split()))[:300] or "nothing"

    def _decode(self, path: str, data: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ModelError(
                f"{self.address}{path} answers otherwise than OpenAI's interface with token ids"
                f" does ({error}); give the address of vllm serve, or a GGUF file with"
                " engine='llama.cpp'"
            ) from error


class ServerBatch(Batch):
    """Drafts written side by side, each by a thread of its own. A thread that nobody waits for any
    more does not keep the process from ending.
    """

    def __init__(self, engine: Any, size: int) -> None:
        super().__init__(engine, size)
        self.size = size
        self.notes = []
        self._room = threading.Semaphore(size)

    def ask(self, key: Any, request: Write, seed: int | None = None) -> None:
        draft = Future[Draft]()
        self._writing[draft] = key
        job = (draft, request, seed)
        threading.Thread(target=self._write, args=job, daemon=True).start()

    def _write(self, draft: Future[Draft], request: Write, seed: int | None) -> None:
        with self._room:
            if not draft.set_running_or_notify_cancel():
                return
            try:
                draft.set_result(self.engine.write(request, seed))
            except Exception as error:  # noqa: BLE001 - handed to the episode that asked
                draft.set_exception(error)

    def step(self) -> list[DraftResult]:
        """Wait for the next drafts; they, or their errors."""
        done = wait(self._writing, return_when=FIRST_COMPLETED).done
        ended: list[Any] = [
            (self._writing.pop(one), one.exception() or one.result()) for one in done
        ]
        return ended

    def close(self) -> None:
        """Drop the drafts; those that are being written end unread."""
        for draft in self._writing:
            draft.cancel()
        super().close()


class LastBlock:
    """The last layer of the model in a folder, in float32, with its embedding and output layer.

    Raises ``ModelError`` for a folder without the weights.
    """

    def __init__(self, folder: str) -> None:
        with loading_errors(folder, "causal language model"):
            config = AutoConfig.from_pretrained(
                folder, trust_remote_code=False, attn_implementation="eager"
            )
            text = config.get_text_config()
            last = text.num_hidden_layers - 1
            text.num_hidden_layers = 1
            if getattr(text, "layer_types", None):
                text.layer_types = text.layer_types[-1:]
            self.model: Any = AutoModelForCausalLM.from_config(config).float().eval()
            weights = {}
            for file in Path(folder).glob("*.safetensors"):
                with safe_open(file, "pt") as tensors:
                    for name in tensors.keys():  # noqa: SIM118 - not a mapping
                        if f".layers.{last}." in name or ".layers." not in name:
                            weights[name.replace(f".layers.{last}.", ".layers.0.")] = (
                                tensors.get_tensor(name).float()
                            )
            missing = self.model.load_state_dict(weights, strict=False).missing_keys
            self.model.tie_weights()
        # tied ones once
        own = {name for name, _ in (*self.model.named_parameters(), *self.model.named_buffers())}
        if lost := sorted(own.intersection(missing)):
            raise ModelError(
                f"{folder} has no weights {', '.join(lost[:3])} (*.safetensors) of the model's last"
                " block"
            )
        self.width = text.hidden_size

    def measure(self, entering: torch.Tensor, last: int) -> tuple[torch.Tensor, Any]:
        """Raw logits (last, V) and attention (h, last, n) of the last positions, from what
        enters the block, (n, d).
        """
        with torch.inference_mode():
            output = self.model(
                inputs_embeds=entering[None], output_attentions=True, logits_to_keep=last
            )
        return output.logits[0], output.attentions[0][0][:, -last:].numpy()


def read_states(path: str, ids: Sequence[int], width: int, seconds: float) -> torch.Tensor:
    """Read what enters the last block for n ids, (n, d) float32, from the server's file, and remove
    that.

    Raises ``ModelError`` for a file that does not appear in time, or that has other ids or
    another shape.
    """
    lock = f"{path}.lock"
    n = len(ids)
    _wait_until_written(path, lock, seconds)
    try:
        with safe_open(path, "pt") as tensors:
            states = tensors.get_tensor("hidden_states").float()  # (n, layers, d)
            known = tensors.get_tensor("token_ids").tolist() == list(ids)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"hidden states of the server cannot be read here from {path}: {error}"
        ) from error
    if not known or states.dim() not in (2, 3) or states.shape[0] != n or states.shape[-1] != width:
        raise ModelError(
            f"{path} has hidden states {tuple(states.shape)}, not of these {n} ids and {width} wide"
        )
    for file in (path, lock):  # the ids are those asked for, so no other request needs it
        with suppress(OSError):  # only the server may be allowed to
            os.remove(file)
    return states.reshape(n, -1, width)[:, -1]


def _wait_until_written(path: str, lock: str, seconds: float) -> None:
    """Wait until vLLM has written a file: it answers before, and holds ``lock`` until then."""
    import fcntl  # not on Windows, where no server shares a folder

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with open(lock) as held:
                fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError:
            if os.path.exists(path):  # a server without locks
                return
        time.sleep(0.005)
