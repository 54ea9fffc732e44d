"""HTTP requests of downloads and search servers, repeated while a server is busy or briefly unavailable."""

from __future__ import annotations

import urllib.request
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


def request(
    method: str, url: str, headers: dict[str, str], *, redirects: int | bool = False, **options: Any
) -> urllib3.BaseHTTPResponse:
    """The answer to a request, whatever its status, through the proxy that the environment names.

    ``options`` are those of ``urllib3.PoolManager.request``. Raises ``urllib3.exceptions.HTTPError`` where there is no
    answer.
    """
    again = urllib3.Retry(
        total=None, connect=TRIES - 1, read=TRIES - 1, status=TRIES - 1, other=0, redirect=redirects,
        status_forcelist=PASSING, allowed_methods=None, backoff_factor=PAUSE, retry_after_max=LONGEST_PAUSE,
        raise_on_status=False,
    )  # fmt: skip
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    bypassed = proxy is not None and urllib.request.proxy_bypass(parts.hostname or "")
    return _pool(None if bypassed else proxy).request(
        method, url, headers={"User-Agent": f"dragin-lab/{__version__}"} | headers, retries=again,
        redirect=bool(redirects), timeout=TIMEOUT, **options,
    )  # fmt: skip


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


def reason(error: urllib3.exceptions.HTTPError) -> str:
    """Why there was no answer, in one line."""
    return str(getattr(error, "reason", None) or error)[-200:]
