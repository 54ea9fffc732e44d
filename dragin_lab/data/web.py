"""HTTP requests of downloads and search servers, repeated while a server is busy or briefly unavailable."""

from __future__ import annotations

import math
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache, partial
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


class DeadlineError(urllib3.exceptions.HTTPError):
    """There was no whole answer within the seconds that a request may take."""


def request(
    method: str, url: str, headers: dict[str, str], *, redirects: int = 0, seconds: float = math.inf,
    body: str | None = None, stream: bool = False,
) -> urllib3.BaseHTTPResponse:  # fmt: skip
    """The answer to a request, whatever its status, through the proxy that the environment names.

    A request that is lost or meets one of ``PASSING`` is repeated. ``seconds`` limits all of it: repetitions, pauses,
    headers and body, however slowly they come. With ``stream`` the caller reads the body and closes the response.

    Raises ``urllib3.exceptions.HTTPError`` where there is no answer; ``DeadlineError`` where time ran out.
    """
    once = urllib3.Retry(total=None, connect=0, read=0, status=0, other=0, redirect=redirects, raise_on_status=False)
    ends = time.monotonic() + seconds
    for attempt in range(TRIES):
        pause = PAUSE * 2**attempt if attempt else 0.0
        error: Exception | None = None
        send = partial(
            _pool(_proxy(url)).request, method, url, body=body, retries=once, redirect=bool(redirects),
            headers={"User-Agent": f"dragin-lab/{__version__}"} | headers, timeout=TIMEOUT, preload_content=not stream,
        )  # fmt: skip
        try:
            response = _finish_by(ends, send)
            if response.status not in PASSING or attempt == TRIES - 1:
                return response
            pause = min(once.get_retry_after(response) or pause, LONGEST_PAUSE)
            response.close()
        except urllib3.exceptions.HTTPError as lost:
            error = lost
            if ends > time.monotonic() and (attempt == TRIES - 1 or not isinstance(_cause(lost), _LOST)):
                raise
        if time.monotonic() + pause >= ends:
            raise DeadlineError(f"not within {seconds:g} s") from error
        time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _finish_by(ends: float, send: Callable[[], urllib3.BaseHTTPResponse]) -> urllib3.BaseHTTPResponse:
    """What ``send`` returns, by ``ends``.

    A socket's timeout begins again with every byte, and looking up a name has none. So a thread waits for them, which
    ends with the process where the server never does.
    """
    if ends == math.inf:
        return send()
    outcome: Future[urllib3.BaseHTTPResponse] = Future()

    def wait() -> None:
        try:
            outcome.set_result(send())
        except Exception as error:  # noqa: BLE001 - raised again where the answer is waited for
            outcome.set_exception(error)

    threading.Thread(target=wait, name="request", daemon=True).start()
    try:
        return outcome.result(max(ends - time.monotonic(), 0))
    except TimeoutError as error:
        raise urllib3.exceptions.TimeoutError("timed out") from error


def _proxy(url: str) -> str | None:
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    return None if proxy is not None and urllib.request.proxy_bypass(parts.hostname or "") else proxy


@lru_cache
def _pool(proxy: str | None) -> urllib3.PoolManager:
    if proxy is None:
        return urllib3.PoolManager()
    address = proxy if "://" in proxy else f"http://{proxy}"
    user = unquote(urllib3.util.parse_url(address).auth or "")
    return urllib3.ProxyManager(address, proxy_headers=urllib3.make_headers(proxy_basic_auth=user) if user else None)


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
