"""Requests to an OpenAI-compatible server: ids go in and come out, each answer within a deadline.

asyncio runs in a thread of its own, since the loop of a notebook is busy, and a wait for it ends at Ctrl-C.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import httpx
import msgspec

from dragin_lab.errors import ModelServerError
from dragin_lab.text import printable, without_secrets

T = TypeVar("T")
KEY = "DRAGIN_LAB_API_KEY"  # the environment variable with the bearer token
_TRIES, _PAUSE = 4, 0.5  # requests, and seconds before the second, doubled before each further one
_BUSY = (429, 500, 502, 503, 504)  # answers that a later try may not get
_CONNECT = 5.0  # seconds
_LARGEST = 2**28  # bytes of an answer


class Model(msgspec.Struct):
    """A model as ``/v1/models`` lists it."""

    id: str
    root: str | None = None
    max_model_len: int | None = None


class Models(msgspec.Struct):
    data: list[Model]


class Logprobs(msgspec.Struct):
    """Of each token its name, ``token_id:9``, its log-probability (nats) and those of the likeliest in its place."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class Choice(msgspec.Struct):
    """A text that was written; ``stop_reason`` is the text that it was stopped at."""

    logprobs: Logprobs
    index: int = 0
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class States(msgspec.Struct):
    """Where vLLM has put what enters some layers."""

    hidden_states_path: str | None = None


class Completion(msgspec.Struct):
    choices: list[Choice]
    kv_transfer_params: States | None = None


class Text(msgspec.Struct):
    """What ``/detokenize`` makes of ids."""

    prompt: str


class _Message(msgspec.Struct):
    message: str = ""


class _Refusal(msgspec.Struct):
    """Why a server does not answer, as most of them say it."""

    error: _Message | str = ""
    message: str = ""


class Server:
    """A server's address, and requests to it.

    Args:
        address: ``http://host:port``, with ``user:password@`` where the server asks for it.
        timeout: seconds that a request may take in all, tries and waits included.

    Attributes:
        address: without credentials, for people.
        failures: requests that failed; after one, another server may be there.
    """

    def __init__(self, address: str, timeout: float) -> None:
        self.address, self.timeout, self.failures = without_secrets(address), timeout, 0
        self._key = os.environ.get(KEY, "")
        self._client = httpx.AsyncClient(
            base_url=address,
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(None, connect=_CONNECT),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=not _is_here(httpx.URL(address).host),  # no proxy leads to this machine
        )
        self._waiting: set[Future[Any]] = set()

    def close(self) -> None:
        """Give up what is under way, and close what is open."""
        self.cancel()
        asyncio.run_coroutine_threadsafe(self._client.aclose(), _loop()).result(_CONNECT)

    def cancel(self) -> None:
        """Give up what is under way."""
        for future in list(self._waiting):
            future.cancel()

    def ask(self, path: str, kind: type[T], body: Any = None, within: float | None = None) -> T:
        """The answer of a GET without ``body``, else of a POST, within so many seconds (``timeout``).

        Raises ``ModelServerError`` where no answer comes, one that says what is wrong, or one of another type.
        """
        seconds = min(self.timeout, within or self.timeout)
        future = asyncio.run_coroutine_threadsafe(self._send(path, kind, body, seconds), _loop())
        self._waiting.add(future)
        try:
            return future.result()
        except ModelServerError:
            self.failures += 1
            raise
        finally:
            future.cancel()
            self._waiting.discard(future)

    async def _send(self, path: str, kind: type[T], body: Any, seconds: float) -> T:
        why = ""
        try:
            async with asyncio.timeout(seconds):
                for tried in range(_TRIES):
                    await asyncio.sleep(_PAUSE * 2 ** (tried - 1) if tried else 0)
                    try:
                        status, waits, data = await self._exchange(path, body)
                    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                        self.failures += 1
                        why = f"cannot be reached, or breaks off ({printable(str(error)) or type(error).__name__})"
                        continue
                    if status == httpx.codes.OK:
                        return self._decode(path, data, kind)
                    why = f"answered {status} to {path}: {self._explain(data)}"
                    if status not in _BUSY:
                        break
                    await asyncio.sleep(float(waits) if waits.isascii() and waits.isdecimal() else 0)
        except TimeoutError:
            why = f"gave no whole answer in {seconds:g} s" + (f"; it {why}" if why else "")
        raise ModelServerError(f"{self.address} {why}")

    async def _exchange(self, path: str, body: Any) -> tuple[int, str, bytes]:
        """Status, ``Retry-After`` and body of one answer."""
        async with self._client.stream("GET" if body is None else "POST", path, json=body) as response:
            data = bytearray()
            async for part in response.aiter_bytes():
                data += part
                if len(data) > _LARGEST:
                    raise ModelServerError(f"{self.address} sent more than {_LARGEST:,} bytes; that is no answer")
            return response.status_code, response.headers.get("Retry-After", ""), bytes(data)

    def _decode(self, path: str, data: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ModelServerError(
                f"{self.address}{path} answers otherwise than OpenAI's interface with token ids does ({error}); give "
                "the address of vllm serve, or a GGUF file with engine='llama.cpp'"
            ) from error

    def _explain(self, data: bytes) -> str:
        """What an answer says is wrong, without the token, which some servers repeat."""
        text = data[:10_000].decode(errors="replace")
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            refusal = msgspec.json.decode(data, type=_Refusal)
            reason = refusal.error if isinstance(refusal.error, str) else refusal.error.message
            text = reason or refusal.message or text
        text = text.replace(self._key, "***") if self._key else text
        return printable(" ".join(text.split()))[:300] or "nothing"


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="dragin-lab-servers", daemon=True).start()
    return loop
