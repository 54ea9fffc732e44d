"""HTTP requests of downloads and search servers, repeated while a server is busy or briefly unavailable."""

from __future__ import annotations

import http.client
import io
import math
import socket
import time
import urllib.request
from contextvars import ContextVar
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3

from dragin_lab import __version__
from dragin_lab.errors import SettingError
from dragin_lab.text import without_secrets

#: How often a request is sent in all; the first pause between in seconds, which then doubles, and the longest that a
#: server may ask for by ``Retry-After``; seconds without an answer after which a request counts as lost.
TRIES, PAUSE, LONGEST_PAUSE, TIMEOUT = 5, 0.5, 30, 60.0
#: Statuses of a server that is busy or briefly unavailable.
PASSING = (408, 429, 500, 502, 503, 504)
_LOST = (
    urllib3.exceptions.TimeoutError, urllib3.exceptions.NewConnectionError, urllib3.exceptions.ProtocolError,
    urllib3.exceptions.ProxyError,
)  # fmt: skip


_ENDS: ContextVar[float] = ContextVar("ends", default=math.inf)  # when the request of this thread must be answered


class DeadlineError(urllib3.exceptions.HTTPError):
    """There was no whole answer within the seconds that a request may take."""


def request(
    method: str, url: str, headers: dict[str, str], *, redirects: int = 0, seconds: float = math.inf, **options: Any
) -> urllib3.BaseHTTPResponse:
    """The answer to a request, whatever its status, through the proxy that the environment names.

    A request that is lost or meets one of ``PASSING`` is repeated. ``seconds`` limits all of it: repetitions, pauses,
    and the whole answer, however slowly it comes. ``options`` are those of ``urllib3.PoolManager.request``; with
    ``preload_content=False`` the limit ends with the answer's headers.

    Raises ``urllib3.exceptions.HTTPError`` where there is no answer; ``DeadlineError`` where time ran out.
    """
    once = urllib3.Retry(total=None, connect=0, read=0, status=0, other=0, redirect=redirects, raise_on_status=False)
    token = _ENDS.set(time.monotonic() + seconds)
    try:
        for attempt in range(TRIES):
            pause = PAUSE * 2**attempt if attempt else 0.0
            lost: Exception | None = None
            try:
                response = _pool(_proxy(url)).request(
                    method, url, headers={"User-Agent": f"dragin-lab/{__version__}"} | headers, retries=once,
                    redirect=bool(redirects), timeout=_patience(), **options,
                )  # fmt: skip
                if response.status not in PASSING or attempt == TRIES - 1:
                    return response
                pause = min(once.get_retry_after(response) or pause, LONGEST_PAUSE)
                response.close()
            except TimeoutError as error:  # no time was left to begin with
                lost = error
            except urllib3.exceptions.HTTPError as error:
                lost = error
                if _ENDS.get() > time.monotonic() and (attempt == TRIES - 1 or not isinstance(_cause(error), _LOST)):
                    raise
            if time.monotonic() + pause >= _ENDS.get():
                raise DeadlineError(f"not within {seconds:g} s") from lost
            time.sleep(pause)
    finally:
        _ENDS.reset(token)
    raise AssertionError("the last try returns or raises")


def _patience() -> float:
    """Seconds to wait for the next bytes of the request under way; ``TimeoutError`` where none are left."""
    left = min(TIMEOUT, _ENDS.get() - time.monotonic())
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class _Timed(io.RawIOBase):
    """The bytes from a socket until the request's end: a socket's own timeout begins again with every byte."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._bytes = connected, connected.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(_patience())
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Timed(sock))


class _Connection(urllib3.connection.HTTPConnection):
    response_class = _Response


class _SecureConnection(urllib3.connection.HTTPSConnection):
    response_class = _Response


class _Connections(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecureConnections(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def _proxy(url: str) -> str | None:
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    return None if proxy is not None and urllib.request.proxy_bypass(parts.hostname or "") else proxy


@lru_cache
def _pool(proxy: str | None) -> urllib3.PoolManager:
    if proxy is None:
        pool = urllib3.PoolManager()
    else:
        address = proxy if "://" in proxy else f"http://{proxy}"
        user = unquote(urllib3.util.parse_url(address).auth or "")
        pool = urllib3.ProxyManager(
            address, proxy_headers=urllib3.make_headers(proxy_basic_auth=user) if user else None
        )
    pool.pool_classes_by_scheme = {"http": _Connections, "https": _SecureConnections}
    return pool


def parse_server(address: str, server: str, form: str) -> urllib3.util.Url:
    """The parts of a server's address without credentials; ``SettingError`` for anything else."""
    try:
        url = urllib3.util.parse_url(address)
    except urllib3.exceptions.LocationParseError:
        url = urllib3.util.Url()
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise SettingError(f"{without_secrets(address)} is not an address of {server}; give {form}")
    return url


def parse_credentials(credentials: str) -> tuple[str, str]:
    """The user and the password in "user:password", whose characters may be percent-encoded."""
    user, _, password = credentials.partition(":")
    return unquote(user), unquote(password)


def reason(error: BaseException) -> str:
    """Why there was no answer, in one line."""
    return str(_cause(error))[-200:]


def _cause(error: BaseException) -> Any:
    return getattr(error, "reason", None) or error
