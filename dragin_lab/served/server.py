"""Requests to a model server: with timeouts, tried again where that can help, and read while they are answered.

asyncio runs in a thread of its own, since the loop of a notebook is busy with the notebook. What is read goes to a
function of the caller; nothing else of this package runs in that thread.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any

import httpx

from dragin_lab.errors import ModelServerError
from dragin_lab.text import printable, without_secrets

#: The environment variable with the bearer token.
KEY = "DRAGIN_LAB_API_KEY"
TRIES = 4
_BUSY = (429, 500, 502, 503, 504)  # answers that a later try may not get
_LONGEST_WAIT = 30.0  # seconds, whatever the server asks for
_CONNECT = 5.0  # seconds


class CutError(ModelServerError):
    """An answer that broke off after it had begun."""


class Server:
    """A server's address, and requests to it.

    Connections are not kept: llama.cpp closes them after a stream, just when the next request may be sent.

    Attributes:
        address: without credentials, for people.
        failures: connections that failed or broke off; after one, another server may be there.
        pause: seconds before the second try; doubled before each further one.

    Args:
        address: ``http://host:port``, with ``user:password@`` where the server asks for it.
        timeout: seconds without a byte of an answer.
        key: the bearer token; by default that of the environment (``KEY``).
    """

    def __init__(self, address: str, timeout: float = 120.0, *, key: str | None = None) -> None:
        self.address = without_secrets(address)
        self.timeout, self.pause, self.failures = timeout, 0.5, 0
        self._key = os.environ.get(KEY, "") if key is None else key
        host = httpx.URL(address).host
        self._client = httpx.AsyncClient(
            base_url=address,
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(timeout, connect=_CONNECT),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=not _is_here(host),  # no proxy leads to this machine
        )

    def close(self) -> None:
        """Close what is open."""
        asyncio.run_coroutine_threadsafe(self._client.aclose(), _loop()).result()

    def ask(self, path: str, body: Any = None, *, optional: bool = False) -> Any:
        """The JSON of an answer: of a GET without ``body``, else of a POST. None for an ``optional`` path that is none.

        Raises ``ModelServerError`` where no answer comes, or one that says what is wrong.
        """
        future = asyncio.run_coroutine_threadsafe(self._send(path, body, self._parse, optional), _loop())
        try:
            return future.result()
        finally:
            future.cancel()

    def read(self, path: str, body: Any, put: Callable[[Any], None]) -> Future[Any]:
        """Send a request whose answer is a stream of events; cancel what is returned to close it.

        ``put`` gets every event as it comes, from another thread; then None, or the error that ended it.
        """

        async def pass_on(response: httpx.Response) -> None:
            try:
                async for line in response.aiter_lines():
                    kind, _, data = line.partition(":")
                    if kind in ("data", "error") and data.strip() != "[DONE]":
                        event = json.loads(data)
                        put({"error": event} if kind == "error" else event)
            except (httpx.HTTPError, ValueError) as error:
                self.failures += 1
                raise CutError(f"{self.address} broke off its answer ({_describe(error)})") from error

        async def work() -> None:
            try:
                await self._send(path, body, pass_on)
                put(None)
            except Exception as error:  # noqa: BLE001 - whoever reads waits for it
                put(error)

        return asyncio.run_coroutine_threadsafe(work(), _loop())

    async def _send(self, path: str, body: Any, use: Callable[[httpx.Response], Any], optional: bool = False) -> Any:
        """Send a request until ``use`` gets an answer; what that returns, or None without an ``optional`` path."""
        method, why = "GET" if body is None else "POST", ""
        for tried in range(TRIES):
            wait = self.pause * 2**tried
            try:
                async with self._client.stream(method, path, json=body) as response:
                    if response.is_success:
                        return await use(response)
                    if optional and response.status_code in (404, 405):
                        return None
                    why = f"answered {response.status_code}: {self._explain(await response.aread())}"
                    if response.status_code not in _BUSY:
                        break
                    asked = response.headers.get("Retry-After", "")
                    wait = min(float(asked), _LONGEST_WAIT) if asked.isdecimal() else wait
            except httpx.TimeoutException as error:
                self.failures += 1
                why = f"did not answer in {_CONNECT if isinstance(error, httpx.ConnectTimeout) else self.timeout:g} s"
                break  # it may still be working on the first
            except httpx.HTTPError as error:
                self.failures += 1
                why = f"cannot be reached ({_describe(error)})"
            if tried + 1 < TRIES:
                await asyncio.sleep(wait)
        raise ModelServerError(f"{self.address} {why}")

    async def _parse(self, response: httpx.Response) -> Any:
        try:
            return json.loads(await response.aread())
        except ValueError as error:
            raise ModelServerError(
                f"{self.address} sent what is not JSON; is it the address of a model server?"
            ) from error

    def _explain(self, data: bytes) -> str:
        """What an answer says is wrong, without the token, which some servers repeat."""
        text = data.decode(errors="replace")
        with suppress(ValueError):
            answer = json.loads(text)
            reason = answer.get("error", answer.get("message", text)) if isinstance(answer, dict) else text
            text = str(reason.get("message", reason) if isinstance(reason, dict) else reason)
        text = text.replace(self._key, "***") if self._key else text
        return printable(" ".join(text.split()))[:300] or "nothing"


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="dragin-lab-model-servers", daemon=True).start()
    return loop
