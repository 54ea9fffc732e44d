"""Requests to an Elasticsearch or OpenSearch server: the address, who asks, and what is asked again."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from dragin_lab import __version__
from dragin_lab.core.method import without_secrets
from dragin_lab.errors import ClusterError, SettingError

INDEX = "wiki"
#: Seconds without an answer after which a request counts as lost.
TIMEOUT = 60.0
#: Times that a request is sent in all, and the seconds before the second; the pause doubles each time.
TRIES, PAUSE = 5, 0.5
#: The longest pause, in seconds, that a server may ask for by ``Retry-After``.
LONGEST_PAUSE = 30.0
#: Statuses of a server that has too much to do, or is not there for a moment.
PASSING = (429, 502, 503, 504)
_FORM = "elasticsearch:http://host:9200/wiki"


@dataclass(frozen=True)
class Address:
    """Where an index is. ``secret`` is no part of ``str``, so it comes into no message, trace or record."""

    server: str
    index: str = INDEX
    secret: str = field(default="", repr=False)  # the value of the header Authorization

    @classmethod
    def parse(cls, text: str) -> Address:
        """``http[s]://host:port[/path][/index]``, with ``elasticsearch:`` before.

        Who asks stands in the address (``http://user:password@host``), in ``ELASTICSEARCH_API_KEY`` or in
        ``ELASTICSEARCH_USER`` and ``ELASTICSEARCH_PASSWORD``.
        """
        shown = without_secrets(text)
        parts = urlsplit(text.removeprefix("elasticsearch:"))
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise SettingError(f"{shown}: is no address ({error}); give {_FORM}") from None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise SettingError(f"{shown}: is no address of Elasticsearch; give {_FORM}")
        path, _, index = parts.path.rstrip("/").rpartition("/")
        index = index or INDEX
        if not re.fullmatch(r"[^A-Z\s#\\*?\"<>|,:_+-][^A-Z\s#\\*?\"<>|,:]*", index):
            raise SettingError(f"{shown}: {index!r} is no name of one index; give {_FORM}")
        place = f"[{host}]" if ":" in host else host
        server = f"{parts.scheme}://{place}" + (f":{port}" if port else "") + path
        return cls(server, index, _secret(parts.username, parts.password))

    def __str__(self) -> str:
        return f"{self.server}/{self.index}"


def _secret(user: str | None, password: str | None) -> str:
    if user is not None:
        return _basic(unquote(user), unquote(password or ""))
    if key := os.environ.get("ELASTICSEARCH_API_KEY"):
        return f"ApiKey {key}"
    if name := os.environ.get("ELASTICSEARCH_USER"):
        return _basic(name, os.environ.get("ELASTICSEARCH_PASSWORD", ""))
    return ""


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class _LostError(Exception):
    """No answer, or none for the moment; ``pause`` is what the server asks for, in seconds."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take the secret to another place, and turn a search into a GET."""

    def redirect_request(self, *args: Any) -> None:
        return None


class Server:
    """What answers at an address."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._opener = urllib.request.build_opener(_NoRedirects())
        self._version: str | None = None

    @property
    def version(self) -> str:
        """``elasticsearch 8.15.0``, ``opensearch 2.11.0``; "unknown" where we may not ask."""
        if self._version is None:
            try:
                about = self.ask("GET", "").get("version", {})
                self._version = f"{about.get('distribution', 'elasticsearch')} {about.get('number', '?')}"
            except ClusterError:
                self._version = "unknown"
        return self._version

    def ask(
        self, method: str, path: str, body: bytes | Callable[[], bytes] | None = None, *,
        again: Callable[[dict[str, Any]], bool] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The answer to a request, which is sent again with longer and longer pauses where it gets none.

        ``again`` looks at the answer, and says whether a part of it is still missing; ``body`` is then made anew.

        Raises ``ClusterError`` after ``TRIES`` times, or for an answer that will not change.
        """
        pause = PAUSE
        for left in reversed(range(TRIES)):
            try:
                answer = self._once(method, path, body() if callable(body) else body)
                if again is None or not again(answer):
                    return answer
                raise _LostError("it is too busy")
            except _LostError as error:
                if not left:
                    raise ClusterError(
                        f"{self.address}: gives no answer, {TRIES} times ({error}); check that it runs and try again"
                    ) from None
                time.sleep(pause if error.pause is None else error.pause)
                pause *= 2
        raise AssertionError

    def _once(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        headers = {"User-Agent": f"dragin-lab/{__version__}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/x-ndjson" if path.endswith("_msearch") else "application/json"
        if self.address.secret:
            headers["Authorization"] = self.address.secret
        request = urllib.request.Request(f"{self.address.server}/{path}", body, headers, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                data = response.read()
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error)
        except (OSError, http.client.HTTPException) as error:
            raise _LostError(str(getattr(error, "reason", None) or error or type(error).__name__)) from None
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ClusterError(f"{self.address}: answers with something other than JSON; is this Elasticsearch?")
        return answer

    def _refused(self, error: urllib.error.HTTPError) -> None:
        if error.code in PASSING:
            asked = error.headers.get("Retry-After", "")
            raise _LostError(
                f"it answers {error.code} {error.reason}", min(float(asked), LONGEST_PAUSE) if asked.isdigit() else None
            )
        where = error.headers.get("Location")
        if error.code in (401, 403):
            remedy = "give a user in the address, or set ELASTICSEARCH_API_KEY"
        elif error.code == 404:
            remedy = "give the address of an index that is there"
        elif where:
            remedy = "give the address that it points to"
        else:
            remedy = "see the server's log"
        raise ClusterError(f"{self.address}: the server answers {error.code} {error.reason}{_said(error)}; {remedy}")


def _said(error: urllib.error.HTTPError) -> str:
    """The reason in an error's body, if there is one."""
    try:
        found = json.loads(error.read())["error"]
        cause = (found.get("root_cause") or [found])[0]
        return f" ({cause['type']}: {cause['reason']})"[:300]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return ""
